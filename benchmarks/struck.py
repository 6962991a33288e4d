"""Kill parts of a run on a cluster of this machine when it comes by given steps.

    python benchmarks/struck.py runs/RUN actor@20000 shard@40000 rank@60000 actor@80000

`kill -9` of one actor (or of the one that evaluates), shard of the memory or learner's rank, chosen at random, once the
run's metrics have reached the step. What was struck, and when, goes to `struck.csv` in the run's folder. It ends behind
the last one. Installs nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from pathlib import Path

from duetto.storage.records import Csv, JsonLines

# What Ray calls them; with a cluster that is this machine alone, ranks are processes of the run's own.
SIGNS = {
    "actor": (b"ray::Host",),
    "shard": (b"ray::Keeper",),
    "rank": (b"ray::Rank", b"from duetto.learners.rank import"),
}


def step_of(run: Path) -> int:
    """That of the last line of its metrics; -1 before the first one."""
    metrics = run / "metrics.jsonl"
    lines = JsonLines.scan(metrics).rows if metrics.exists() else []
    return int(lines[-1]["step"]) if lines else -1


def processes(part: str) -> list[int]:
    """Those of this machine that are such a part of a run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if any(sign in command for sign in SIGNS[part]):
            found.append(int(folder.name))
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("strikes", nargs="+", metavar="PART@STEP", help=f"PART is one of {', '.join(SIGNS)}")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    strikes = [(part, int(step)) for part, _, step in (strike.partition("@") for strike in options.strikes)]
    if unknown := {part for part, _ in strikes} - SIGNS.keys():
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    generator = random.Random(options.seed)
    with Csv(options.run / "struck.csv", ("step", "part", "pid", "of")) as table:
        for part, step in sorted(strikes, key=lambda strike: strike[1]):
            while (now := step_of(options.run)) < step or not (pids := processes(part)):
                time.sleep(0.5)
            pid = generator.choice(pids)
            os.kill(pid, signal.SIGKILL)
            table.append({"step": now, "part": part, "pid": pid, "of": len(pids)})
            print(f"step {now}: {part} {pid}, one of {len(pids)}", flush=True)


if __name__ == "__main__":
    main()
