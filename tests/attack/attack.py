"""Damage, kill and forge runs at random; check that no data is lost, no error is silent and no traceback is printed.

    python tests/attack/attack.py --cases 1000 --seed 0 --output benchmarks/results/attack.md

Each case changes a copy of a run and reads it, in its own process and folder. Kinds of cases:

    damage    one file of a run, or of its demonstrations, is damaged; then it is resumed, loaded, evaluated or plotted
    config    one key of config.yaml is changed
    kill      the process is killed at a random moment, up to three times; all algorithms, both frameworks
    stranger  a malicious folder: links, ids that import, invalid values with correct checksums, sizes of terabytes,
              escape sequences (tests/demonstrations has those of demonstrations)

Good outcomes:

    the same  the result equals that of an undamaged run, bit for bit
    refused   an error for the user; all files are unchanged
    said      it works, and a notice names the damage
    free      the changed option does not affect the numbers
    worked    there is no result to compare

All others are findings: another result without a notice, a lost line or file, a change outside the folder, a traceback,
a process that dies or hangs, more than 3 GiB of memory, control characters on the terminal.

The seed and the number of a case define it, except for the time of kills. `--only 17` repeats case 17.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import damage
import kills
import numpy as np
import sandbox
import strangers
import victims
from report import circumstances, publish, table
from sandbox import BAD, FORK, GOOD

KINDS = {"damage": 0.45, "kill": 0.15, "stranger": 0.22, "config": 0.18}
JAX_SHARE = 0.2  # share of kills on JAX, which compiles or looks up its programs in each process


class Row(NamedTuple):
    """The result of one case."""

    case: int
    kind: str
    run: str
    where: str
    deed: str
    reader: str
    outcome: str
    seconds: float
    sentence: str


# Modules that cases import.
IMPORTED = [
    *("duetto.learners.torch", "duetto.training.video", "duetto.runs.run", "tensorboardX", "imageio.v2"),
    *("duetto.tools.cli.commands", "gymnasium.envs.classic_control"),
]


class Campaign(NamedTuple):
    """The options that define all cases."""

    seed: int
    kinds: list[str]
    jax: bool
    runs: list[str]  # only these

    def plan(self, number: int) -> tuple[str, str, np.random.Generator]:
        """Return the kind and the run of a case, and its generator."""
        random = np.random.default_rng([self.seed, number])
        weights = np.array([KINDS[kind] for kind in self.kinds])
        kind = self.kinds[random.choice(len(self.kinds), p=weights / weights.sum())]
        names = victims.DAMAGED_RUNS
        if kind == "kill":
            backend = "jax" if self.jax and random.random() < JAX_SHARE else "torch"
            names = [name for name, victim in victims.VICTIMS.items() if victim.backend == backend]
        names = [name for name in names if name in self.runs]
        return kind, names[random.integers(len(names))], random


def prepare(place: Path, names: set[str]) -> None:
    """Make the runs that are attacked, each in its own process."""
    for name in sorted(names):
        process = FORK.Process(target=victims.make, args=(victims.VICTIMS[name], place / name))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"The run {name} could not be made.")


def import_all(names: set[str], compiled: Path) -> None:
    """Import all modules before cases are forked. They start no threads.

    JAX's programs are compiled once, into a folder.
    """
    for name in IMPORTED:
        import_module(name)
    if any(victims.VICTIMS[name].backend == "jax" for name in names):
        import_module("duetto.learners.jax")
        import jax

        jax.config.update("jax_compilation_cache_dir", str(compiled))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def run_case(campaign: Campaign, runs: Path, number: int) -> Row:
    """Run one case."""
    kind, name, random = campaign.plan(number)
    place = runs.parent / f"case-{number}"
    told = place / "told"

    def tell(*what: str) -> None:
        told.write_text(json.dumps(what))

    case: Any = {
        "damage": partial(damage.case, victim=runs / name, random=random, tell=tell),
        "config": partial(damage.config_case, victim=runs / name, random=random, tell=tell),
        "stranger": partial(strangers.case, victim=runs / name, random=random, tell=tell),
        "kill": partial(kills.case, victim=victims.VICTIMS[name], made=runs / name, random=random, tell=tell),
    }[kind]
    began = time.perf_counter()
    verdict = sandbox.attempt(place, case, None if kind == "kill" else sandbox.MEMORY)
    where, deed, reader = json.loads(told.read_text()) if told.exists() else ("", "", "")
    sentence = " ".join(verdict.sentence.split())
    for machine in (str(place), str(Path(__file__).parents[2]), sys.prefix):
        sentence = sentence.replace(machine, "")
    if verdict.outcome in GOOD or not os.environ.get("KEEP"):
        shutil.rmtree(place, ignore_errors=True)
    return Row(
        number, kind, name, where, deed, reader, verdict.outcome, round(time.perf_counter() - began, 2), sentence[:400]
    )


def attack(campaign: Campaign, cases: list[int], processes: int = 1) -> Iterator[Row]:
    """Run these cases; yield rows in the order in which they end."""
    names = {campaign.plan(number)[1] for number in cases}
    place = Path(tempfile.mkdtemp(prefix="duetto-attack-"))
    try:
        import_all(names, place / "compiled")
        prepare(place / "runs", names)
        yield from _shared_out(partial(run_case, campaign, place / "runs"), cases, processes)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _shared_out(case: Callable[[int], Row], cases: list[int], processes: int) -> Iterator[Row]:
    """Distribute the cases over processes."""
    rows = FORK.SimpleQueue()

    def work(own: list[int]) -> None:
        for number in own:
            rows.put(case(number))

    workers = [FORK.Process(target=work, args=(cases[share::processes],)) for share in range(processes)]
    try:
        for worker in workers:
            worker.start()
        for _ in cases:
            yield rows.get()
    finally:
        for worker in workers:
            worker.kill()


# ---------------------------------------------------------------------------------------------------- report
def report(rows: list[Row], seed: int, seconds: float) -> str:
    """Return a table of the outcomes of each kind of case and of each killed run, and all findings."""
    outcomes = [*GOOD, *(outcome for outcome in BAD if any(row.outcome == outcome for row in rows))]
    counts = Counter((name, row.outcome) for row in rows for name in _groups(row))
    names = sorted({name for name, _ in counts}, key=lambda name: (name not in KINDS, name))
    cells = [[name, *(counts[name, outcome] for outcome in outcomes)] for name in names]
    findings = [row for row in rows if row.outcome in BAD]
    listed = "\n".join(
        f"- Case {row.case}, {row.kind}, {row.run}, {row.where}: {row.deed}; {row.reader}: **{row.outcome}**, "
        f"{row.sentence}"
        for row in findings
    )
    return "\n\n".join(
        [
            "# The attack",
            f"{len(rows)} cases of seed {seed}, {len(findings)} findings, in {seconds / 60:.0f} minutes. The head of "
            "`tests/attack/attack.py` describes cases and outcomes; `attack.csv` has all cases.",
            circumstances({f"Python {platform.python_version()}": _versions()}),
            "## Outcomes",
            table(["", *outcomes, "cases"], [[*row, sum(row[1:])] for row in cells]),
            "## Findings",
            listed or "None.",
        ]
    )


def _groups(row: Row) -> list[str]:
    """Return the rows of the table that count a case: its kind, and the killed run."""
    return [row.kind, f"kill {row.run}"] if row.kind == "kill" else [row.kind]


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("numpy", "gymnasium", "torch", "jax", "safetensors")}


def _write_rows(rows: list[Row], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="The attack.", epilog="See the head of this file.")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--only", type=int, nargs="*", help="the numbers of these cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--runs", nargs="*", choices=list(victims.VICTIMS), default=list(victims.VICTIMS))
    parser.add_argument("--no-jax", action="store_true")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    began, rows = time.perf_counter(), []
    cases = options.only or list(range(options.cases))
    campaign = Campaign(options.seed, options.kinds, not options.no_jax, options.runs)
    with suppress(KeyboardInterrupt):  # report the cases until then
        for row in attack(campaign, cases, options.processes):
            rows.append(row)
            if row.outcome in BAD or options.only:
                print(f"{len(rows)}/{len(cases)}", *row, sep=" | ", file=sys.stderr, flush=True)
    rows.sort()
    if options.output:
        _write_rows(rows, options.output.with_suffix(".csv"))
    publish(report(rows, options.seed, time.perf_counter() - began), options.output)
    sys.exit(any(row.outcome in BAD for row in rows))


if __name__ == "__main__":
    main()
