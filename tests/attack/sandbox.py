"""Run one case in its own process and folder, and check what it changed outside its run.

    place/home/run/       the attacked folder, in a home that is the working directory (see `victims`)
    place/outside/        files that no case may change; malicious links lead here
    place/settings/       the user's settings, such as the key; no case may change them either
    place/output          the printed output

The process is forked from one that has imported everything and started no threads, so a case starts fast.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
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
LIMIT = 60.0  # seconds after which a case counts as hanging
MEMORY = 3 << 30  # bytes that a case may allocate

GOOD = ("refused", "the same", "said", "free", "worked")
BAD = ("silent", "lost", "outside", "traceback", "died", "hung", "shown")


class Verdict(NamedTuple):
    """The outcome of a case (in GOOD or BAD), and the printed message or a description of the fault."""

    outcome: str
    sentence: str = ""


def create_surroundings(place: Path) -> None:
    """Create the folders around the attacked folder."""
    for folder in ("outside", "settings"):
        (place / folder).mkdir(parents=True)
    for name in ("mine.txt", ".lock", ".tmp-mine", "metrics.jsonl"):
        (place / "outside" / name).write_text("precious\n")


def attempt(place: Path, case: Callable[[Path], Verdict], memory: int | None = MEMORY) -> Verdict:
    """Run `case(place)` in a process; check its output and the folders around it afterwards."""
    create_surroundings(place)
    around = contents(place / "outside") | contents(place / "settings")
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_run_case, args=(place, case, memory, theirs))
    process.start()
    theirs.close()
    verdict = _wait_for_verdict(process, ours)
    printed = (place / "output").read_bytes() if (place / "output").exists() else b""
    after = contents(place / "outside") | contents(place / "settings")
    if changed := [name for name in around.keys() | after.keys() if around.get(name) != after.get(name)]:
        verdict = Verdict("outside", f"{sorted(changed)} changed")
    elif b"Traceback (most recent call last)" in printed and verdict.outcome in GOOD:
        verdict = Verdict("traceback", printed.decode(errors="replace")[-600:])
    elif controls := [code for code in (b"\x1b", b"\x9b", "\u202e".encode()) if code in printed]:
        verdict = Verdict("shown", f"{controls} reached the terminal")
    return verdict


def _wait_for_verdict(process: Any, pipe: Any) -> Verdict:
    verdict = Verdict("hung", f"after {LIMIT:.0f} seconds")
    try:
        if pipe.poll(LIMIT):
            verdict = pipe.recv()
    except EOFError:
        process.join()
        verdict = Verdict("died", f"exit code {process.exitcode}")
    finally:
        with suppress(ProcessLookupError, PermissionError):  # its process group, with all processes that it started
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
    return verdict


def _run_case(place: Path, case: Callable[[Path], Verdict], memory: int | None, answer: Any) -> None:
    os.setsid()
    _redirect_output(place / "output")
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


def _redirect_output(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w", buffering=1) for number in (1, 2))


def contents(folder: Path) -> dict[str, Any]:
    """Return every file below a folder by its path, and the targets of links."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = f"{folder.name}/{path.relative_to(folder)}"
        if path.is_symlink():
            found[name] = os.readlink(path)  # noqa: PTH115 - the exact text, which a Path would normalize
        elif path.is_dir():
            found[name] = None
        elif path.is_file():
            found[name] = path.read_bytes() if path.stat().st_size < 1 << 28 else path.stat().st_size
        else:
            found[name] = "special"
    return found
