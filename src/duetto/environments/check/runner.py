"""Check an environment in separate processes, where a crash or a hang becomes a finding."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import IO, Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from duetto.environments import atari, env_registry, make_env
from duetto.environments.check import rules
from duetto.environments.check.rules import Finding, Findings, record_rollout
from duetto.environments.subproc import MORE_TIME, SubprocEngine
from duetto.environments.vec_env import VecEnv
from duetto.errors import DuettoError, EnvironmentFailedError, NonFiniteError, UsageError

STEPS, TIMEOUT = 2000, 60.0


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
        UsageError: The environment does not exist, its package is not installed, or it is a vector environment.
    """
    if steps < 1 or timeout <= 0:
        raise UsageError(f"steps is {steps} and timeout is {timeout:g}. Set both above 0.")
    environment = env_registry.resolved(environment)
    name, game = getattr(environment, "__name__", type(environment).__name__), None
    if isinstance(environment, VectorEnv):
        raise UsageError(f"{name} is a vector environment. Pass the id or class of the single environment.")
    if env_registry.is_device(environment):
        raise UsageError(f"{name} is an environment of arrays; the check tests Gymnasium environments. Train with it.")
    if isinstance(environment, str):
        env_registry.register(environment)
        env_registry.check_known(environment)
        name, game = environment, atari.find(environment)
    spec = env_registry.registration(environment)
    single = partial(_single, environment, dict(environment_options or {}), spec, "rgb_array" if game else None)
    with tempfile.TemporaryFile() as printed:
        make = partial(_make, single, name, timeout, printed)
        return _check(make, steps, game is None, printed)


def _make(
    single: Callable[..., gymnasium.Env], name: str, timeout: float, printed: IO[bytes], **options: str
) -> VecEnv:
    return VecEnv(SubprocEngine([partial(single, **options)], name, timeout, printed), name)


def _single(
    environment: Any, kwargs: dict[str, Any], spec: EnvSpec | None, shown: str | None, render_mode: str | None = None
) -> gymnasium.Env:
    """Make the environment in a worker."""
    env_registry.register_spec(spec)
    return make_env.make_eval(environment, kwargs=kwargs, render_mode=render_mode or shown).environments[0]


def _check(make: partial[VecEnv], steps: int, resumes: bool, printed: IO[bytes]) -> Findings:
    findings, about = Findings(), "making"
    try:
        with closing(make()) as vec:
            about, findings.doing = "contract", "while random actions were played"
            rules.check_spaces(findings, vec)
            with closing(make()) as other:
                repeatable = rules.check_determinism(findings, vec, other)
            rules.check_rollout(findings, vec, record_rollout(vec, steps))
            rules.check_gymnasium(findings, vec)
            if repeatable and resumes:  # Atari games resume in ale-py's vector environment
                with closing(make()) as other:
                    rules.check_resume(findings, vec, other, steps)
            rules.check_render(findings, make, vec.engine.metadata)
        findings.add("processes", fine="It can be pickled: vectorization=subprocess works.")
    except DuettoError as error:
        about = "numbers" if isinstance(error, NonFiniteError) else about
        sentence = str(error)
        if isinstance(error, EnvironmentFailedError):
            sentence = " ".join([error.sentence, *re.findall(r'File "[^"]+", line \d+', error.trace)[-1:]])
            sentence = sentence.replace(MORE_TIME, "--timeout")
            if not error.trace:  # it raised nothing: it crashed or hangs
                about, sentence = "process", f"{sentence} That was {findings.doing}.{_last_line(printed)}"
        findings.add(about, broken=f"{sentence} Nothing after this was checked.")
    return findings


def _last_line(printed: IO[bytes]) -> str:
    printed.seek(0)
    lines = printed.read().decode(errors="replace").strip().splitlines()
    return f" Its last output: {lines[-1][:200]!r}." if lines else ""
