"""Starting JAX, once in a process: with how many devices of the CPU, and with how many threads there.

JAX divides a product among its threads, and adds in another order with another number of them: TD3's updates come to
other last bits with four than with two, and to the same with two on one core (an AMD EPYC, Zen 5). So a run that goes
on, or is repeated, says how many it had.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

from duetto.learners.threads import XLA, of_jax

_threads: list[int] = []  # of this process, once it is known


def begin(threads: int = 0, devices: int = 1) -> int:
    """Start JAX, unless it has begun in this process. `threads` are all devices' together; 0: see `of_jax`.

    Returns:
        The number of threads that JAX began with.
    """
    if not _threads:
        begun = _has_begun()
        if not begun:
            config: Any = jax.config
            config.update("jax_num_cpu_devices", max(devices, config.jax_num_cpu_devices))
        _threads.append(threads if threads and not begun else of_jax())
        with _environment(XLA, str(_threads[0])):
            jax.local_devices(backend="cpu")
    return _threads[0]


def has_cuda() -> bool:
    """Whether JAX can use a CUDA device here. JAX begins, to find out; see `begin`."""
    return jax.default_backend() == "gpu"


def _has_begun() -> bool:
    """Whether JAX has begun: only then it refuses another number of devices, and nothing else tells."""
    config: Any = jax.config
    devices = config.jax_num_cpu_devices
    try:
        config.update("jax_num_cpu_devices", devices + 1)
    except RuntimeError:
        return True
    config.update("jax_num_cpu_devices", devices)
    return False


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set a variable of this process's environment inside."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
