"""Check the environment in a process of its own, which may hang, print, or end: each of these is a finding."""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from typing import IO, Any

from gymnasium.vector import VectorEnv

from duetto import another_python
from duetto.environments import families, naming, own
from duetto.environments.checking import inside
from duetto.environments.checking.findings import Finding, broken, costs, fine
from duetto.environments.engines import label_of
from duetto.environments.faults import summary
from duetto.environments.workers import TO_START, ended
from duetto.errors import UsageError

STEPS, TIMEOUT = 2000, 60.0


def check(
    environment: Any,
    *,
    environment_options: Mapping[str, Any] | None = None,
    steps: int = STEPS,
    timeout: float = TIMEOUT,
) -> list[Finding]:
    """Return what would break or slow down training on this environment; the environment's faults raise nothing.

    The environment is made anew, in a process of its own, and played with random actions; nothing is written.

    Args:
        environment: An id, FILE.py:CLASS, a Gymnasium environment, or a callable that makes one: a class, a function.
        environment_options: Arguments for its constructor, as `duetto.train` takes them.
        steps: How many steps at most; a slow environment takes fewer.
        timeout: Seconds that a single call (making, a reset, a step) may take before the environment is said to hang.

    Raises:
        UsageError: There is no such environment, or its package is not installed; or it is a vector environment.
    """
    environment = own.resolved(environment)
    name = _named(environment, steps, timeout)
    options = dict(environment_options or {})
    try:
        job = inside.pack(environment, options, steps, timeout)
    except Exception as error:  # whatever a user's objects raise
        found = costs(
            "processes",
            f"{name} cannot be handed to another process ({summary(error)}): vectorization=subprocess cannot take it, "
            "and whether it comes back from a checkpoint is not known. Pass a factory that makes what it needs when "
            "it is called.",
        )
        return [found, *(one for one in inside.look(environment, options, steps, timeout) if isinstance(one, Finding))]
    return _Watch(name, timeout).findings(job)


def _named(environment: Any, steps: int, timeout: float) -> str:
    if steps < 1 or timeout <= 0:
        raise UsageError(f"steps is {steps} and timeout {timeout:g}. Give 1 or more steps, and some time for each.")
    if isinstance(environment, VectorEnv):
        raise UsageError(
            f"{label_of(environment)} is a vector environment. Pass what one of its environments is made of: an id, or "
            "a factory."
        )
    if isinstance(environment, str):
        families.register(environment)
        naming.check_known(environment)
        return environment
    return getattr(environment, "__name__", type(environment).__name__)


class _Watch:
    """The reader of what the process says, and of what its silence or its end means."""

    def __init__(self, name: str, timeout: float) -> None:
        self._name, self._timeout = name, timeout
        self._doing = "before it was made"

    def findings(self, job: bytes) -> list[Finding]:
        with tempfile.TemporaryFile() as question, tempfile.TemporaryFile() as said:
            question.write(job)
            question.seek(0)
            start = "from duetto.environments.checking.inside import main; main()"
            process = another_python.begin(start, question, subprocess.PIPE, said)
            assert process.stdout is not None
            try:
                return self._read(process, process.stdout, said)
            finally:
                process.kill()
                process.wait()
                process.stdout.close()

    def _read(self, process: subprocess.Popen[bytes], answers: IO[bytes], said: IO[bytes]) -> list[Finding]:
        lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=_forward, args=(answers, lines), daemon=True).start()
        found: list[Finding] = []
        begun = False  # until it speaks, packages are imported
        while True:
            try:
                line = lines.get(timeout=self._timeout if begun else max(self._timeout, TO_START))
            except queue.Empty:
                return [*found, self._hangs()]
            if not line:
                return [*found, self._ended(process.wait(), said)]
            begun, message = True, json.loads(line)
            if "finding" in message:
                found.append(Finding(*message["finding"]))
            self._doing = message.get("doing", self._doing)
            if "over" in message:
                return [*found, self._processes(), *_printed(said, *message["over"])]

    def _hangs(self) -> Finding:
        return broken(
            "hanging",
            f"{self._name} has not answered for {self._timeout:g} s, {self._doing}. Look there for what waits (input, "
            "a window, a lock, a loop without an end); if it is only slow, give it more time (--timeout). Nothing "
            "behind this was looked at.",
        )

    def _ended(self, code: int, said: IO[bytes]) -> Finding:
        words = _text(said).strip().splitlines()
        last = f" The last that it said: {words[-1][:200]!r}." if words else ""
        return broken(
            "ending",
            f"{self._name} ended its process, {self._doing}: it {ended(code)}. No environment may "
            f"call sys.exit or os._exit, and none may crash: a run would end with it.{last} Nothing behind this was "
            "looked at.",
        )

    def _processes(self) -> Finding:
        return fine("processes", "It can be handed to another process: vectorization=subprocess can take it.")


def _forward(answers: IO[bytes], lines: queue.Queue[bytes]) -> None:
    for line in answers:
        lines.put(line)
    lines.put(b"")


def _printed(said: IO[bytes], first: int, last: int) -> list[Finding]:
    """Return a finding if the environment printed anything while it was played."""
    said.seek(first)
    words = [line for line in said.read(last - first).decode(errors="replace").splitlines() if line.strip()]
    if not words:
        return []
    return [
        costs(
            "printing",
            f"It prints, {len(words)} line(s) in this check, such as {words[0].strip()[:100]!r}: that tears the "
            "display of a run and takes time. Take it out, or use the module logging.",
        )
    ]


def _text(said: IO[bytes]) -> str:
    said.seek(0)
    return said.read().decode(errors="replace")
