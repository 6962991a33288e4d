"""Kills: a run that is killed one to three times ends with the result of an undisturbed run.

A kill comes after some seconds, or between two file operations of a checkpoint. After each kill a new process resumes
the run. The result is compared bit for bit.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import victims
from mortal import LethalOS
from sandbox import FORK, LIMIT, Verdict
from small_runs import checkpoints, differences
from victims import Victim

from duetto.runs.run import Run
from duetto.storage import atomic_io

OPERATIONS = 45  # file operations of one checkpoint, and some of the next


def moments(random: np.random.Generator, seconds: float) -> list[tuple[str, float, int]]:
    """Return each kill: the unit ("seconds" or "operations"), the amount, and the step at which counting starts."""
    count = 1 + int(random.integers(3) * random.integers(2))
    return [
        ("seconds", float(random.uniform(0, 1.1 * seconds)), 0)
        if random.random() < 0.5
        else ("operations", float(random.integers(OPERATIONS)), int(random.integers(victims.STEPS)))
        for _ in range(count)
    ]


def run_until_killed(home: Path, victim: Victim, what: str, amount: float, arm_at: int, first: bool) -> None:
    """Start or resume the run. If the unit is operations, die after that number."""
    os.chdir(home)
    lethal = LethalOS(int(amount))

    def arm(trainer: Any) -> None:
        lethal.armed = lethal.armed or trainer.step >= arm_at

    if what == "operations":
        atomic_io.os = lethal
        lethal.armed = arm_at == 0
    try:
        if first:
            victim.train(callbacks=[arm])
        else:
            victims.resume(home / "run", callbacks=(arm,))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def wait_or_kill(process: Any, what: str, amount: float) -> int | None:
    """Wait for the end of the process, or kill it after some seconds."""
    process.join(amount if what == "seconds" else LIMIT)
    if process.is_alive() and what == "seconds":
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    return process.exitcode


def case(
    place: Path, victim: Victim, made: Path, random: np.random.Generator, tell: Callable[[str, str, str], None]
) -> Verdict:
    """Kill and resume a run, and compare its result."""
    truth, home = victims.truth(made), place / "home"
    home.mkdir()
    if (made / "whole" / "demos").exists():
        shutil.copytree(made / "whole" / "demos", home / "demos")
    plan = moments(random, truth["seconds"])
    deeds = [f"{amount:.3g} {what}" + (f" after step {step}" if step else "") for what, amount, step in plan]
    tell("the process", "killed after " + ", then ".join(deeds), "resumed")
    died = 0
    for number, (what, amount, arm_at) in enumerate(plan):
        first = not (home / "run" / "config.yaml").exists()
        if first and number:
            shutil.rmtree(home / "run", ignore_errors=True)  # killed before it had a config: start again
        process = FORK.Process(target=run_until_killed, args=(home, victim, what, amount, arm_at, first))
        process.start()
        code = wait_or_kill(process, what, amount)
        died += code == -signal.SIGKILL
        if code not in (0, -signal.SIGKILL):
            return Verdict("traceback", (place / "output").read_text(errors="replace")[-600:])
        if verdict := _lost(home / "run"):
            return verdict
    os.chdir(home)
    if not (home / "run" / "config.yaml").exists():
        return Verdict("worked", "it was killed before there was a run")
    seen, notices = victims.resume(home / "run")
    different = differences(truth["resumed"], seen)
    if different:
        return Verdict("silent", f"{len(different)} differences: {different[0][:300]}")
    return Verdict("the same", " ".join([f"{died} of {len(plan)} kills came before the end.", *notices]))


def _lost(folder: Path) -> Verdict | None:
    """Return a finding if a published checkpoint is damaged."""
    if not (folder / "config.yaml").exists():
        return None
    store = checkpoints(Run(folder))
    return None if not store.steps() or not store.load_latest().problems else Verdict("lost", "the newest checkpoint")
