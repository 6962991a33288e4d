"""Check an environment in a child process, where a crash or a hang becomes a finding."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import IO, Any

from gymnasium.vector import VectorEnv

from duetto import subprocess_python
from duetto.environments import atari, env_registry, pickling, suggestions, user_env
from duetto.environments.check import determinism, rules
from duetto.environments.check.findings import Finding, Findings
from duetto.environments.check.rollout import record_rollout
from duetto.environments.errors import summary
from duetto.environments.subproc import TO_START, ended
from duetto.errors import DuettoError, EnvironmentFailedError, NonFiniteError, UsageError

STEPS, TIMEOUT = 2000, 60.0
UNCHECKED = "Nothing after this was checked."


def check(
    environment: Any,
    *,
    environment_options: Mapping[str, Any] | None = None,
    steps: int = STEPS,
    timeout: float = TIMEOUT,
) -> list[Finding]:
    """Return what would break or slow down training on this environment.

    Makes the environment in a new process and plays random actions. Trains nothing and writes nothing. Faults of the
    environment, crashes and hangs included, are findings and raise nothing.

    Args:
        environment: An id, FILE.py:CLASS, a Gymnasium environment, or a callable that makes one (a class or function).
        environment_options: Arguments for its constructor, as in `duetto.train`.
        steps: Maximum number of random steps; a slow environment takes fewer.
        timeout: Maximum seconds of a single call (constructor, reset, step) before it counts as a hang.

    Raises:
        UsageError: The environment does not exist, its package is not installed, it is a vector environment, or it
            cannot be pickled.
    """
    if steps < 1 or timeout <= 0:
        raise UsageError(f"steps is {steps} and timeout is {timeout:g}. Set both above 0.")
    environment = user_env.resolved(environment)
    name, engine = getattr(environment, "__name__", type(environment).__name__), "auto"
    if isinstance(environment, VectorEnv):
        raise UsageError(f"{name} is a vector environment. Pass the id or class of the single environment.")
    if isinstance(environment, str):
        env_registry.register(environment)
        suggestions.check_known(environment)
        name, engine = environment, "gymnasium" if atari.find(environment) else "auto"  # not in ale-py's threads
    options = {"kwargs": dict(environment_options or {}), "engine": engine, "to_learn": False}
    try:
        recipe = pickling.pack(environment, options)
    except Exception as error:  # a user's objects may raise anything
        raise UsageError(
            f"{name} cannot be pickled ({summary(error)}), which the check and vectorization=subprocess need. Pass a "
            "class or function that creates such objects when it is called."
        ) from error
    with tempfile.TemporaryFile() as pickled, tempfile.TemporaryFile() as printed:
        pickled.write(recipe)
        pickled.seek(0)
        program = f"from duetto.environments.check import runner; runner.main({steps})"
        process = subprocess_python.begin(program, pickled, subprocess.PIPE, printed)
        assert process.stdout is not None
        try:
            return list(_read(process, process.stdout, printed, name, timeout))
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _read(
    process: subprocess.Popen[bytes], output: IO[bytes], printed: IO[bytes], name: str, timeout: float
) -> Iterator[Finding]:
    lines: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=lambda: [*map(lines.put, output), lines.put(b"")], daemon=True).start()
    doing, patience = "before it was made", max(timeout, TO_START)  # packages are imported first
    while doing:
        try:
            line = lines.get(timeout=patience)
        except queue.Empty:
            fault = f"{name} has not answered for {timeout:g} s, {doing}. Look there for code that waits or never ends"
            yield Finding("broken", "hang", f"{fault}; if it is only slow, raise --timeout. {UNCHECKED}")
            return
        if not line:
            printed.seek(0)
            text = printed.read().decode(errors="replace").strip().splitlines()
            last = f"Last output: {text[-1][:200]!r}. " if text else ""
            fault = f"{name} ended its process, {doing}: it {ended(process.wait())}. A run would end there. Correct "
            fault += f"the crash, or remove sys.exit and os._exit. {last}{UNCHECKED}"
            yield Finding("broken", "crash", fault)
            return
        message, patience = json.loads(line), timeout
        if "doing" in message:
            doing = message["doing"]
        else:
            yield Finding(**message)


def main(steps: int) -> None:
    """Check the environment whose recipe is on standard input: the child process's program."""
    findings = Findings(os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1))
    os.dup2(2, 1)  # environments print
    warnings.simplefilter("ignore")
    about, make = "making", partial(pickling.make, sys.stdin.buffer.read())
    findings.doing("while it was made")
    try:
        with closing(make()) as vec:
            about = "contract"
            rules.check_spaces(findings, vec)
            rules.check_rollout(findings, vec, record_rollout(findings, vec, steps))
            rules.check_gymnasium(findings, vec)
            metadata = vec.environments[0].metadata
        if determinism.check_determinism(findings, make):
            determinism.check_resume(findings, make, steps)
        rules.check_render(findings, make, metadata)
        findings.add("processes", fine="It can be pickled: vectorization=subprocess works.")
    except Exception as error:  # a user's objects may raise anything
        about = "numbers" if isinstance(error, NonFiniteError) else about
        sentence = str(error) if isinstance(error, DuettoError) else f"It raised {summary(error)}."
        if isinstance(error, EnvironmentFailedError):
            sentence = " ".join([error.sentence, *re.findall(r'File "[^"]+", line \d+', error.trace)[-1:]])
        findings.add(about, broken=f"{sentence} {UNCHECKED}")
    findings.doing("")
