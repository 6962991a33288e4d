"""Measure the training speed of Duetto and of the installed peers, in turns. Installs nothing.

    python benchmarks/speed.py --peer-python ENV/bin/python --peer-python OTHER/bin/python \\
        --output benchmarks/results/speed.md

Peers may be in the interpreter that runs this script or in a --peer-python, since their dependencies conflict. A round
measures every contender once with each number of threads, in a fresh process; every second round runs backwards.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from contenders import CONTENDERS
from report import circumstances, publish, table
from task import TASKS

SCRIPT = Path(__file__).with_name("contenders.py")
START_SECONDS = 180  # for imports, the warm-up and compilation, before a contender counts as stuck
REFERENCE = "sb3"
WITHOUT_GPU = ("skrl", "tianshou")  # not tested on a GPU
PLACES = {
    "cpu": "On the CPU.",
    "cuda": "Networks and updates on the GPU, as each library does by default; environments on the processor.",
}

METHOD = """\
{place} Each measurement is a fresh process in the library's own training loop, in which the clock starts after a
warm-up, so compilation is outside. Inside is everything that training is: choosing actions, the environments, storing,
sampling, the updates, and the library's own bookkeeping; only whole cycles count (a step with its update, or a rollout
with its epochs). There is no evaluation and no checkpoint. Duetto writes its metrics (a line of JSON and TensorBoard
events) as it does by default; the others, by default or by option, write nothing. Threads are each library's own
setting; all cores stay available. Every library comes as it is, float32 unless said. Steps are those of all
environments together; one of Breakout's is 4 frames.

*steps/s*: the better number of threads, median over {rounds} rounds of {seconds:g} s. *Ratios*: of the same round's
measurements, each at its better number of threads; median (minimum to maximum) over the rounds. The fastest peer is the
one with the highest steps/s of its table."""


@dataclass(frozen=True)
class Measurement:
    task: str
    contender: str
    version: str
    backend: str
    threads: int
    precision: str
    device: str
    round: int
    steps: int
    seconds: float
    steps_per_second: float
    updates: int
    cpu_seconds: float


@dataclass(frozen=True)
class Job:
    task: str
    contender: str
    precision: str
    threads: int
    device: str


def main() -> None:
    options = _options()
    pythons = [sys.executable, *options.peer_python]
    found, packages = discover(pythons)
    able = [name for name in options.contenders if options.device == "cpu" or not name.startswith(WITHOUT_GPU)]
    chosen = {name: found[name] for name in CONTENDERS if name in found and name in able}
    jobs = [
        Job(task, name, precision, threads, options.device)
        for task in options.tasks
        for threads in options.threads
        for name in chosen
        if task in chosen[name].tasks
        for precision in CONTENDERS[name].precisions
        if precision in options.precisions
    ]
    head = circumstances(packages, options.device)
    raw = options.output.with_suffix(".csv") if options.output else None
    results = list(record(measure(jobs, chosen, options.rounds, options.seconds), raw))
    method = METHOD.format(place=PLACES[options.device], rounds=options.rounds, seconds=options.seconds)
    sections = [f"# Training speed\n\n{head}\n\n{method}"]
    for task in options.tasks:
        lines = summary([result for result in results if result.task == task], options.threads)
        sections.append(f"## {task}\n\n{TASKS[task].about}\n\n{lines}")
        absent = [name for name in options.contenders if name not in chosen or task not in chosen[name].tasks]
        if absent:
            labels = dict.fromkeys(f"{CONTENDERS[name].label} ({CONTENDERS[name].backend})" for name in absent)
            sections.append("Not measured: " + ", ".join(labels) + ".")
    publish("\n\n".join(sections), options.output)


@dataclass(frozen=True)
class Installed:
    """A contender and the interpreter that has it."""

    python: str
    version: str
    tasks: list[str]


def discover(pythons: list[str]) -> tuple[dict[str, Installed], dict[str, dict[str, str]]]:
    """Return each contender with the first interpreter that has it, and the packages' versions by interpreter."""
    found: dict[str, Installed] = {}
    packages: dict[str, dict[str, str]] = {}
    for python in pythons:
        listed = json.loads(subprocess.run([python, SCRIPT, "--list"], capture_output=True, check=True).stdout)
        new = {name: Installed(python, **entry) for name, entry in listed["contenders"].items() if name not in found}
        if new:
            labels = dict.fromkeys(CONTENDERS[name].label for name in new)
            packages["Versions with " + ", ".join(labels)] = listed["packages"]
        found |= new
    return found, packages


def measure(jobs: list[Job], found: dict[str, Installed], rounds: int, seconds: float) -> Iterator[Measurement]:
    """Measure all jobs once per round, in reverse order in every second round, so a drift affects all jobs equally."""
    for number in range(1, rounds + 1):
        for job in jobs if number % 2 else reversed(jobs):
            result = _run(found[job.contender].python, job, seconds)
            if result is None:
                continue
            rate = result["steps"] / result["seconds"]
            print(f"round {number}  {job}  {rate:.1f} steps/s", file=sys.stderr, flush=True)
            contender = CONTENDERS[job.contender]
            yield Measurement(
                **asdict(job),
                version=found[job.contender].version,
                backend=contender.backend,
                round=number,
                steps=result["steps"],
                seconds=round(result["seconds"], 3),
                steps_per_second=round(rate, 2),
                updates=result["updates"],
                cpu_seconds=round(result["cpu_seconds"], 2),
            )


def _run(python: str, job: Job, seconds: float) -> dict[str, Any] | None:
    command = [python, SCRIPT, job.contender, job.task, job.device, str(job.threads), job.precision, str(seconds)]
    with tempfile.TemporaryDirectory() as folder:  # for files that libraries write to the current folder
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=seconds + START_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            print(f"{job} did not end in time", file=sys.stderr)
            return None
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        print(f"{job} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    result = json.loads(lines[-1])
    task = TASKS[job.task]
    if result["updates"] * task.cycle != result["steps"] * task.updates:
        print(f"{job} made {result['updates']} updates in {result['steps']} steps: no comparison", file=sys.stderr)
        return None
    return result


def record(results: Iterator[Measurement], path: Path | None) -> Iterator[Measurement]:
    """Yield measurements, and write each to the CSV at once, so that an interruption loses none."""
    if path is None:
        yield from results
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(Measurement.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        for result in results:
            writer.writerow(asdict(result))
            file.flush()
            yield result


Key = tuple[str, str]  # contender and precision
Rates = dict[int, float]  # steps/s by round


def summary(results: list[Measurement], threads: list[int]) -> str:
    """Return one task's table, fastest first."""
    rates: dict[Key, dict[int, Rates]] = {}
    for result in results:
        of_key = rates.setdefault((result.contender, result.precision), {})
        of_key.setdefault(result.threads, {})[result.round] = result.steps_per_second
    best = {key: max(of_key, key=lambda count: median(of_key[count].values())) for key, of_key in rates.items()}
    headline: dict[Key, Rates] = {key: of_key[best[key]] for key, of_key in rates.items()}
    order = sorted(headline, key=lambda key: -median(headline[key].values()))
    fastest = next((key for key in order if not CONTENDERS[key[0]].ours), None)
    versions = {result.contender: result.version for result in results}
    rows: list[list[object]] = []
    for key in order:
        contender, of_key = CONTENDERS[key[0]], rates[key]
        name = f"{contender.label} {versions[key[0]]}, {contender.backend}" + (", bf16" if key[1] == "bf16" else "")
        row: list[object] = [f"**{name}**" if contender.ours else name]
        row += [f"{median(headline[key].values()):.0f}"]
        row += [f"{min(headline[key].values()):.0f} to {max(headline[key].values()):.0f}", best[key]]
        row += [f"{median(of_key[count].values()):.0f}" if count in of_key else "-" for count in threads]
        row += [_ratio(headline[key], headline.get(other)) for other in (fastest or key, (REFERENCE, "float32"))]
        rows.append(row)
    peer = f"{CONTENDERS[fastest[0]].label} ({CONTENDERS[fastest[0]].backend})" if fastest else "the fastest peer"
    header = ["library", "steps/s", "rounds", "threads", *(f"with {count}" for count in threads)]
    return table([*header, f"times {peer}", f"times {CONTENDERS[REFERENCE].label}"], rows)


def _ratio(ours: Rates, theirs: Rates | None) -> str:
    ratios = [rate / theirs[number] for number, rate in ours.items() if theirs and number in theirs]
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "-"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--precisions", nargs="+", default=["float32", "bf16"], choices=["float32", "bf16"])
    parser.add_argument("--device", default="cpu", choices=list(PLACES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="measured in each process")
    parser.add_argument("--peer-python", action="append", default=[], metavar="PATH", help="look for peers here too")
    parser.add_argument("--output", type=Path, help="Markdown; a CSV with every measurement is written next to it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
