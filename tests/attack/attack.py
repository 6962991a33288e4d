"""The attack on Duetto's promise: nothing lost, nothing silent, no traceback.

    python tests/attack/attack.py --cases 1000 --seed 0 --output benchmarks/results/attack.md

Each case harms a run of its own and lets somebody use it, in a process and a folder of its own. Kinds of cases:

    damage    one file of a run, or of its demonstrations, is damaged; it is resumed, loaded, evaluated, plotted
    config    one key of config.yaml is changed
    kill      the process dies at any moment, up to three times; all algorithms, both frameworks
    stranger  a folder made to do harm: links, ids that import, nonsense under right checksums, claims of terabytes,
              escape sequences, demonstrations

A case ends well as "the same" (bit for bit what an undamaged run gives), "refused" (a sentence; all files as they
were), "said" (it works, and a notice names the damage), "free" (what was changed decides no numbers) or "worked"
(nothing to compare with). All else is a finding: another result in silence, a lost line or file, a change outside the
folder, a traceback, a dead or a hanging process, more than 3 GiB of memory, control characters on the terminal.

The seed and the number of a case say all that happens in it, but for the clock: --only 17 does case 17 again.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import re
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

import configs
import damage
import kills
import numpy as np
import sandbox
import strangers
import victims
from report import circumstances, publish, table
from sandbox import BAD, FORK, GOOD

KINDS = {"damage": 0.45, "kill": 0.15, "stranger": 0.22, "config": 0.18}
JAX_SHARE = 0.2  # of the kills: its programs are compiled, or looked up, in each process


class Row(NamedTuple):
    """One case, as the results have it."""

    case: int
    kind: str
    run: str
    where: str
    deed: str
    reader: str
    outcome: str
    seconds: float
    sentence: str


# What cases import, sooner or later.
IMPORTED = [
    *("duetto.learners.torch", "duetto.training.video", "duetto.runs.run", "tensorboardX", "imageio.v2"),
    *("duetto.tools.cli.commands", "gymnasium.envs.classic_control"),
]


class Campaign(NamedTuple):
    """What decides all cases."""

    seed: int
    kinds: list[str]
    jax: bool
    runs: list[str]  # only these

    def plan(self, number: int) -> tuple[str, str, np.random.Generator]:
        """Kind and run of a case, and the generator of all the rest."""
        random = np.random.default_rng([self.seed, number])
        weights = np.array([KINDS[kind] for kind in self.kinds])
        kind = self.kinds[random.choice(len(self.kinds), p=weights / weights.sum())]
        names = victims.LOOKED_INTO
        if kind == "kill":
            backend = "jax" if self.jax and random.random() < JAX_SHARE else "torch"
            names = [name for name, victim in victims.VICTIMS.items() if victim.backend == backend]
        names = [name for name in names if name in self.runs]
        return kind, names[random.integers(len(names))], random


def prepare(place: Path, names: set[str]) -> None:
    """Make the runs that are attacked, each in a process of its own."""
    for name in sorted(names):
        process = FORK.Process(target=victims.make, args=(victims.VICTIMS[name], place / name))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"The run {name} could not be made.")


def import_all(names: set[str], compiled: Path) -> None:
    """Everything that cases need, so that they are forked from it; nothing that starts a thread.

    JAX's programs are compiled once, into a folder: cases come by the hundred.
    """
    for name in IMPORTED:
        import_module(name)
    if any(victims.VICTIMS[name].backend == "jax" for name in names):
        import_module("duetto.learners.jax")
        import jax

        jax.config.update("jax_compilation_cache_dir", str(compiled))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def do(campaign: Campaign, runs: Path, number: int) -> Row:
    """One case."""
    kind, name, random = campaign.plan(number)
    place = runs.parent / f"case-{number}"
    told = place / "told"

    def tell(*what: str) -> None:
        told.write_text(json.dumps(what))

    case: Any = {
        "damage": partial(damage.case, victim=runs / name, random=random, tell=tell),
        "config": partial(configs.case, victim=runs / name, random=random, tell=tell),
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
        sandbox.clear(place)
    return Row(
        number, kind, name, where, deed, reader, verdict.outcome, round(time.perf_counter() - began, 2), sentence[:400]
    )


def attack(campaign: Campaign, cases: list[int], processes: int = 1) -> Iterator[Row]:
    """Do these cases; rows come in the order in which they end."""
    names = {campaign.plan(number)[1] for number in cases}
    place = Path(tempfile.mkdtemp(prefix="duetto-attack-"))
    try:
        import_all(names, place / "compiled")
        prepare(place / "runs", names)
        yield from _shared_out(partial(do, campaign, place / "runs"), cases, processes)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _shared_out(case: Callable[[int], Row], cases: list[int], processes: int) -> Iterator[Row]:
    """The cases, dealt out to processes."""
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


# ---------------------------------------------------------------------------------------------------- the table
def report(rows: list[Row], seed: int, seconds: float) -> str:
    """How many cases of each kind ended how, and every finding."""
    outcomes = [*GOOD, *(outcome for outcome in BAD if any(row.outcome == outcome for row in rows))]
    counts = Counter((row.kind, row.outcome) for row in rows)
    kinds = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    findings = [row for row in rows if row.outcome in BAD]
    of_kinds = table(
        ["", *outcomes, "cases"],
        [
            [kind, *(counts[kind, outcome] for outcome in outcomes), sum(row.kind == kind for row in rows)]
            for kind in kinds
        ],
    )
    killed = Counter((row.run, row.outcome) for row in rows if row.kind == "kill")
    of_runs = table(
        ["killed", *outcomes],
        [[name, *(killed[name, outcome] for outcome in outcomes)] for name in sorted({name for name, _ in killed})],
    )
    harmed = Counter((_kind_of_file(row.where), row.outcome) for row in rows if row.kind in ("damage", "config"))
    of_files = table(
        ["damaged or changed", *outcomes],
        [[name, *(harmed[name, outcome] for outcome in outcomes)] for name in sorted({name for name, _ in harmed})],
    )
    listed = "\n".join(
        f"- Case {row.case}, {row.kind}, {row.run}, {row.where}: {row.deed}; {row.reader}: **{row.outcome}**, "
        f"{row.sentence}"
        for row in findings
    )
    return "\n\n".join(
        [
            "# The attack",
            f"{len(rows)} cases of seed {seed}, {len(findings)} findings, in {seconds / 60:.0f} minutes. What a case "
            "is and what each column means stands at the head of `tests/attack/attack.py`; `attack.csv` has them all.",
            circumstances({f"Python {platform.python_version()}": _versions()}),
            "## How the cases ended",
            of_kinds,
            *(["## Kills: all algorithms, both frameworks", of_runs] if killed else []),
            *(["## Damage, by file", of_files] if harmed else []),
            "## Findings",
            listed or "None: nothing lost, nothing silent, no traceback.",
        ]
    )


def _kind_of_file(where: str) -> str:
    """The file's path, without the numbers in it and without the key."""
    return re.sub(r"[0-9][0-9.]*[0-9]", "*", re.sub(r"(tensorboard)/.*", r"\1", where.split(":")[0])).removeprefix(
        "run/"
    )


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
    with suppress(KeyboardInterrupt):  # then the table is of what was done
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
