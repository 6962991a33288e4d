"""One case in a process and a folder of its own: what it did to the world, however it ended.

    place/home/run/       the attacked folder, in a home that is the working directory (see `victims`)
    place/outside/        what nobody may change; a stranger's links lead here
    place/settings/       the user's own, such as a key: nobody may change them either
    place/output          what was printed

The process is forked from one that has imported everything and started nothing, so that a case pays for no interpreter.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from duetto.errors import DuettoError

FORK: Any = multiprocessing.get_context("fork")
LIMIT = 60.0  # seconds for a case: then it hangs
MEMORY = 3 << 30  # bytes that a case may ask for beyond what it started with

GOOD = ("refused", "the same", "said", "free", "worked")
BAD = ("silent", "lost", "outside", "traceback", "died", "hung", "shown")


class Verdict(NamedTuple):
    """How a case ended: one of GOOD or of BAD, and a sentence that was said or says what is wrong."""

    outcome: str
    sentence: str = ""


def furnish(place: Path) -> None:
    """Everything around the attacked folder."""
    for folder in ("outside", "settings"):
        (place / folder).mkdir(parents=True)
    for name in ("mine.txt", ".lock", ".tmp-mine", "metrics.jsonl"):
        (place / "outside" / name).write_text("precious\n")


def attempt(place: Path, case: Callable[[Path], Verdict], memory: int | None = MEMORY) -> Verdict:
    """Run `case(place)` in a process, and look around afterwards."""
    furnish(place)
    around = contents(place / "outside") | contents(place / "settings")
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_live, args=(place, case, memory, theirs))
    process.start()
    theirs.close()
    verdict = _answer(process, ours)
    printed = (place / "output").read_bytes() if (place / "output").exists() else b""
    after = contents(place / "outside") | contents(place / "settings")
    if changed := [name for name in around.keys() | after.keys() if around.get(name) != after.get(name)]:
        verdict = Verdict("outside", f"{sorted(changed)} changed")
    elif b"Traceback (most recent call last)" in printed and verdict.outcome in GOOD:
        verdict = Verdict("traceback", printed.decode(errors="replace")[-600:])
    elif controls := [code for code in (b"\x1b", b"\x9b", "\u202e".encode()) if code in printed]:
        verdict = Verdict("shown", f"{controls} reached the terminal")
    return verdict


def _answer(process: Any, pipe: Any) -> Verdict:
    verdict = Verdict("hung", f"after {LIMIT:.0f} seconds")
    try:
        if pipe.poll(LIMIT):
            verdict = pipe.recv()
    except EOFError:
        process.join()
        verdict = Verdict("died", f"exit code {process.exitcode}")
    finally:
        with suppress(ProcessLookupError, PermissionError):  # its own trainer, with all that it started
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
    return verdict


def _live(place: Path, case: Callable[[Path], Verdict], memory: int | None, answer: Any) -> None:
    os.setsid()
    _speak_into(place / "output")
    os.environ["XDG_CONFIG_HOME"] = str(place / "settings")
    if memory is not None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, resource.RLIM_INFINITY))
    warnings.simplefilter("ignore")
    try:
        verdict = case(place)
    except DuettoError as error:
        verdict = Verdict("refused", str(error))
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = next((frame for frame in reversed(frames) if "duetto" in frame.filename), frames[-1])
        verdict = Verdict("traceback", f"{error!r:.300} at {Path(where.filename).name}:{where.lineno}")
    answer.send(verdict)
    answer.close()


def _speak_into(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w", buffering=1) for number in (1, 2))


def contents(folder: Path) -> dict[str, Any]:
    """Every file below a folder, by its path; links are what they lead to in words."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = f"{folder.name}/{path.relative_to(folder)}"
        if path.is_symlink():
            found[name] = os.readlink(path)  # noqa: PTH115 - the very text: a Path would tidy it
        elif path.is_dir():
            found[name] = None
        elif path.is_file():
            found[name] = path.read_bytes() if path.stat().st_size < 1 << 28 else path.stat().st_size
        else:
            found[name] = "special"
    return found


def clear(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
