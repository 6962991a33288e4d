"""Environments that each run in a process of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pickle import PicklingError

import gymnasium

from duetto.environments.engines import Vector
from duetto.environments.faults import Fault, summary
from duetto.environments.workers import Checked, Workers
from duetto.errors import UsageError

OURS = "DUETTO_WORKER"  # in the environment of a worker that Duetto begins
GUARD = 'Put the script\'s calls under `if __name__ == "__main__":`'


def leave_if_begun_again() -> None:
    """End this process where it is a worker that only reads the script which started it, and would train, too.

    Where Duetto started it, the trainer says what is wrong; else it is said here.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        if OURS not in os.environ:
            print(f"duetto: this script starts itself in a process of its own. {GUARD}.", file=sys.stderr, flush=True)
        raise SystemExit(1)


@contextmanager
def _marked() -> Iterator[None]:
    """Mark the processes that begin within as Duetto's, by an environment variable."""
    os.environ[OURS] = "1"
    try:
        yield
    finally:
        os.environ.pop(OURS, None)


def start(singles: list[Callable[[], gymnasium.Env]], name: str, timeout: float) -> Vector:
    """Start a process for each environment, which has `timeout` seconds for each answer.

    Raises:
        UsageError: The environments cannot be made there, or differ; or a script would start itself in each of them.
    """
    leave_if_begun_again()
    # AsyncVectorEnv makes one environment in this process first, so most mistakes surface here.
    try:
        with deaf_to_hangups(), _marked():
            vector = Workers([partial(_checked, single, name) for single in singles], timeout)
    except (Fault, BrokenPipeError, ConnectionResetError) as error:
        if isinstance(error, Fault) and not isinstance(error.__cause__, EOFError | OSError):  # it did start
            raise error.told(name, 0) from error
        happened = str(error).partition(". ")[0]  # not where to look for it: no environment was made
        raise UsageError(
            f'The environments\' processes could not start ({happened}). {GUARD}, or use vectorization="sync".'
        ) from None  # what was raised on the way says nothing more
    except (TypeError, AttributeError, RuntimeError, PicklingError) as error:
        if "space" in str(error):  # Gymnasium has compared them
            raise UsageError(f"{name}: the environments have different spaces. Make them all alike.") from error
        raise UsageError(
            f'{name} cannot be sent to a process of its own ({summary(error)}). Use vectorization="sync", or a factory '
            "that makes what it needs when it is called."
        ) from error
    return Vector(vector, name)


def _checked(single: Callable[[], gymnasium.Env], name: str) -> gymnasium.Env:
    return Checked(single(), name)


@contextmanager
def deaf_to_hangups() -> Iterator[None]:
    """Have processes that start within, Python's own helpers among them, ignore SIGHUP, which reaches every process of
    a terminal that closes.
    """
    if not hasattr(signal, "SIGHUP") or threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, earlier)
