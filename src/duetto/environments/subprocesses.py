"""Environments that each run in a process of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import gymnasium
from gymnasium.vector import AutoresetMode

from duetto.environments.engines import Vector
from duetto.environments.state import Saving, SavingVectorEnv
from duetto.errors import UsageError


def start(singles: list[Callable[[], gymnasium.Env]], name: str) -> Vector:
    """A process for each environment; UsageError for a script that would start itself again in each of them."""
    # AsyncVectorEnv makes one environment in this process first, so mistakes surface here and not as a dead pipe.
    try:
        with _deaf_to_hangups():
            vector = SavingVectorEnv(
                [partial(_saving, single, os.getpid()) for single in singles],
                context="forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn",
                autoreset_mode=AutoresetMode.DISABLED,
            )
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        raise UsageError(
            "The environments' processes could not start. Put the script's calls under `if __name__ == \"__main__\":`, "
            'or use vectorization="sync".'
        ) from error
    return Vector(vector, name)


def _saving(single: Callable[[], gymnasium.Env], trainer: int) -> gymnasium.Env:
    if os.getpid() != trainer:
        # Ctrl-C reaches every process of a terminal. The trainer ends then, after a checkpoint that needs this one.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Saving(single())


@contextmanager
def _deaf_to_hangups() -> Iterator[None]:
    """A terminal that closes reaches every process, too: those that start in here, Python's own helpers among them,
    inherit that they ignore it.
    """
    if not hasattr(signal, "SIGHUP") or threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, earlier)
