"""How JAX begins in a process, which it does once: as how many devices of the CPU, and with how many threads there.

It divides a product by its threads, and adds in another order where they are others: TD3's updates come to other last
bits with four than with two, and to the same with two on one core (an AMD EPYC, Zen 5). So a run that goes on, or is
repeated, says how many it had.
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
    """Let JAX begin, if it has not in this process. `threads` are all devices' together; 0: see `of_jax`.

    Returns:
        How many it has: those that it began with.
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
    """Whether JAX can use a CUDA device here. To find out, it begins; see `begin`."""
    return jax.default_backend() == "gpu"


def _has_begun() -> bool:
    """JAX refuses another number of devices then, and does not say so otherwise."""
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
    """A variable of this process's environment, for as long as that."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
