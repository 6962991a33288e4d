"""The learning results: runs named in `jobs.yaml`, stopped and taken up at any time, and the report of what they gave.

    python benchmarks/learning.py list
    python benchmarks/learning.py run td3-halfcheetah --seeds 0 1 2 --jobs 2
                                                                        Ctrl-C stops; the same command goes on
    python benchmarks/learning.py collect                               take over what unfinished runs have so far
    python benchmarks/learning.py report                                results/learning.md, figures

A run is what the command `duetto train` would train, one of a sweep; its folder lies in `--runs-dir`. Its evaluations
and its config (command, versions, commit) go to `results/learning/<job>-s<seed>/`, with `final.csv`, every episode of
one more evaluation of the last policy, where the job asks for it.
"""

from __future__ import annotations

import argparse
import csv
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from duetto.cli.sweep import setting
from duetto.storage import yaml_files
from duetto.sweeping.api import conduct
from duetto.sweeping.results import SweptRun
from duetto.sweeping.showing import SweepDisplay

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "learning"


@dataclass(frozen=True)
class Job:
    """See `jobs.yaml`."""

    name: str
    train: str
    seeds: tuple[int, ...]
    final: int = 0
    success: bool = False  # report the share of final episodes with a return above 0
    level: float | None = None
    published: dict[str, Any] = field(default_factory=dict)

    def run_name(self, seed: int) -> str:
        return f"{self.name}-s{seed}"


Runs = tuple[Job, Sequence[int]]  # a job's, by their seeds


def jobs() -> dict[str, Job]:
    """All jobs by name."""
    return {name: Job(name, **entry | {"seeds": tuple(entry["seeds"])}) for name, entry in _data()["jobs"].items()}


def figures() -> dict[str, dict[str, Any]]:
    """Title and jobs by label of each figure."""
    return _data()["figures"]


def rounded() -> set[str]:
    """Runs in bfloat16 that are from before a change of the maths; see `jobs.yaml`."""
    return set(_data()["rounded"])


def _data() -> dict[str, Any]:
    return yaml_files.parse((HERE / "jobs.yaml").read_text("utf-8"))


def run(chosen: Sequence[Runs], folder: Path, jobs: int) -> None:
    """Start the runs of jobs, or take them up where they are; what is complete stays."""
    for job, seeds in chosen:
        if "--cluster" in job.train:  # whose processes are its own
            _on_a_cluster(job, seeds, folder)
    chosen = [one for one in chosen if "--cluster" not in one[0].train]
    later = [(job, seeds) for job, seeds in chosen if (wanted := demonstrations(job)) and not wanted.exists()]
    failed = _swept([one for one in chosen if one not in later], folder, jobs)
    for job, _ in later:  # whose expert may have been one of the runs above
        record(job, folder)
    failed += _swept(later, folder, jobs)
    if failed:
        raise SystemExit("\n".join(f"{one.path} failed; see {one.log}" for one in failed))


def _swept(chosen: Sequence[Runs], folder: Path, jobs: int) -> list[SweptRun]:
    """One sweep of them all; the runs that failed."""
    if not chosen:
        return []
    settings = [setting(job.name, shlex.split(job.train), seeds) for job, seeds in chosen]
    with SweepDisplay(Console()) as display:
        found = conduct(settings, "learning", folder, jobs, display=display)
    display.finish(found)
    for job, seeds in chosen:
        for seed in seeds:
            collect(job, seed, folder)
    if found.stopped:
        raise SystemExit("The same command goes on.")
    return list(found.failed)


def _on_a_cluster(job: Job, seeds: Sequence[int], folder: Path) -> None:
    """One run after the other."""
    for seed in seeds:
        path = folder / job.run_name(seed)
        left = steps_left(path)
        if left is None:
            _duetto(
                "train", *shlex.split(job.train), "--seed", str(seed), "--runs-dir", str(folder), "--name", path.name
            )
        elif left:
            _duetto("resume", str(path))
        collect(job, seed, folder)


def demonstrations(job: Job) -> Path | None:
    """Those that a job wants."""
    arguments = shlex.split(job.train)
    return Path(arguments[arguments.index("--demonstrations") + 1]) if "--demonstrations" in arguments else None


def record(job: Job, folder: Path) -> None:
    """Make the demonstrations that a job wants, unless they are there."""
    wanted = demonstrations(job)
    if wanted is not None and not wanted.exists():
        how = _data()["demonstrations"][str(wanted)].format(runs=folder)
        _duetto("demos", *shlex.split(how), "--output", str(wanted))


def _duetto(*arguments: str) -> None:
    process = subprocess.Popen([sys.executable, "-m", "duetto", *arguments])
    try:
        code = process.wait()
    except KeyboardInterrupt:  # the process has got it too
        process.wait()
        raise SystemExit("Stopped. The same command goes on.") from None
    if code:
        raise SystemExit(f"duetto {shlex.join(arguments)} failed; see above.")


def steps_left(folder: Path) -> int | None:
    """Steps that a run still has to make; None where nothing is known."""
    checkpoints = sorted((folder / "checkpoints").glob("step-*"))
    if not checkpoints:
        return None
    config = yaml_files.read_yaml(folder / "config.yaml")
    made = max(int(found.group(1)) for path in checkpoints if (found := re.search(r"step-(\d+)", path.name)))
    return max(config["run"]["steps"] - made, 0)


def collect(job: Job, seed: int, runs: Path) -> bool:
    """Copy what a run has so far to the results; whether there is anything."""
    folder, results = runs / job.run_name(seed), RESULTS / job.run_name(seed)
    if not (folder / "evaluations.csv").exists():
        return False
    results.mkdir(parents=True, exist_ok=True)
    (results / "evaluations.csv").write_bytes((folder / "evaluations.csv").read_bytes())
    config = (folder / "config.yaml").read_text("utf-8")
    config = re.sub(r"command: .*?\n(?=\S)", f"command: duetto train {job.train} --seed {seed}\n", config, flags=re.S)
    (results / "config.yaml").write_text(config, "utf-8")
    if job.final and steps_left(folder) == 0 and not (results / "final.csv").exists():
        _final(folder, results / "final.csv", job.final)
    return True


def _final(folder: Path, path: Path, episodes: int) -> None:
    import duetto

    evaluation = duetto.Run(folder).evaluate(episodes=episodes, seed=1_000)  # not those of the curve's episodes
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["episode", "return", "length"])
        rows.writerows(zip(range(episodes), evaluation.returns, evaluation.lengths, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the jobs")
    for name, text in (("run", "start jobs or go on with them"), ("collect", "take over what runs have so far")):
        one = commands.add_parser(name, help=text)
        one.add_argument("names", nargs="+" if name == "run" else "*", metavar="JOB")
        one.add_argument("--seeds", type=int, nargs="+", help="those of the job, by default")
        one.add_argument("--runs-dir", type=Path, default=Path("runs") / "learning")
        if name == "run":
            one.add_argument("--jobs", type=int, default=1, help="runs at a time")
    commands.add_parser("report", help="tables and figures from the results")
    options = parser.parse_args()

    known = jobs()
    if options.command == "list":
        for job in known.values():
            print(f"{job.name:36}{job.train}  (seeds {', '.join(map(str, job.seeds))})")
        return
    if options.command == "report":
        from learning_report import report

        report(list(known.values()), figures())
        return
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"unknown jobs {', '.join(unknown)}; see: python benchmarks/learning.py list")
    chosen = [(job, options.seeds or job.seeds) for job in (known[name] for name in options.names or known)]
    if options.command == "run":
        run(chosen, options.runs_dir, options.jobs)
        return
    for job, seeds in chosen:
        for seed in seeds:
            collect(job, seed, options.runs_dir)


if __name__ == "__main__":
    main()
