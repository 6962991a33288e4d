"""Process-wide settings: CPU threads, the start of JAX and its compilation cache, whether glibc keeps freed memory.

PyTorch's threads synchronize after every operation. On vectors two threads are 1.2 times as fast as one on two idle
cores, but six times as slow if another program uses a core (TD3 on HalfCheetah, AMD EPYC, Zen 5). Convolutions have
more work between synchronizations, so images get several threads.

JAX divides a product among its threads, so the number of threads changes the order of additions and the last bits of
results. So a run records the number of threads.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from duetto.cpu import cores, processor
from duetto.networks.preprocessing import is_image
from duetto.networks.spaces import Space

MAX_TORCH_THREADS = 4
JAX_THREADS = "NPROC"  # environment variable, JAX's number of CPU threads
OMP_THREADS = "OMP_NUM_THREADS"  # environment variable, a process's share of the cores; Ray sets it, for example
WORTH_KEEPING = 0.1  # seconds; programs that compile faster are not cached
CACHE_LIMIT = 512 << 20  # bytes; if the cache is larger, the oldest programs are deleted
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # mallopt(3)

_threads: list[int] = []  # JAX's number of threads in this process; empty before JAX starts


# ---------------------------------------------------------------------------------------------------- threads
def jax_threads() -> int:
    """Return the number of CPU threads with which JAX starts: the variable `NPROC`, or one per core."""
    value = os.environ.get(JAX_THREADS, "")
    return int(value) if value.isdecimal() and int(value) else cores()


def torch_threads(observation: Space) -> int:
    """Return PyTorch's number of threads for these observations: one for vectors, more for images."""
    return available_threads() if is_image(observation) else 1


def available_threads() -> int:
    """Return the smallest of the number of cores, `MAX_TORCH_THREADS` and the variable `OMP_NUM_THREADS`."""
    value = os.environ.get(OMP_THREADS, "").partition(",")[0]
    return min(MAX_TORCH_THREADS, cores(), int(value) if value.isdecimal() and int(value) else MAX_TORCH_THREADS)


# ---------------------------------------------------------------------------------------------------- JAX
def start_jax(threads: int = 0) -> int:
    """Start JAX, unless Duetto has started it in this process. If `threads` is 0, use `jax_threads()`.

    Returns:
        The number of threads with which Duetto started JAX. If other code started JAX earlier, the actual number may
            differ.
    """
    import jax

    if not _threads:
        _threads.append(threads or jax_threads())
        keep_freed_memory()
        before = os.environ.get(JAX_THREADS)
        os.environ[JAX_THREADS] = str(_threads[0])
        jax.local_devices(backend="cpu")
        del os.environ[JAX_THREADS]
        if before is not None:
            os.environ[JAX_THREADS] = before
    return _threads[0]


def jax_has_cuda() -> bool:
    """Return whether JAX can use a CUDA device here. This starts JAX; see `start_jax`."""
    import jax

    return jax.default_backend() == "gpu"


@cache
def xla_has(options: frozenset[tuple[str, Any]]) -> bool:
    """Return whether the installed XLA accepts these compiler options."""
    import jax

    try:
        jax.jit(lambda x: x + 1, compiler_options=dict(options)).lower(0.0).compile()
    except Exception:  # JAX has no class for this error
        return False
    return True


def use_jax_cache() -> None:
    """Cache the programs that JAX compiles from now on, so later processes need not compile them.

    Programs are machine code, so only this user may access the folder (mode 0700). It is in `$XDG_CACHE_HOME` or
    `~/.cache`, and may be deleted at any time. `jax_compilation_cache_dir` selects another folder;
    `JAX_ENABLE_COMPILATION_CACHE=false` turns the cache off. There is no cache if the folder cannot be created.
    """
    import jax

    config: Any = jax.config  # type checkers do not know its options
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return
    with suppress(OSError):  # without a writable home, compile without a cache
        parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        # XLA generates code for this kind of processor, which JAX's keys do not contain.
        folder = parent / "duetto" / "jax" / hashlib.sha256(processor().encode()).hexdigest()[:16]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name == "posix" and folder.stat().st_uid != os.getuid():
            return
        config.update("jax_compilation_cache_dir", str(folder))
        config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
        _tidy(folder)


def _tidy(folder: Path) -> None:
    """Delete the oldest compiled programs if the cache exceeds its limit."""
    entries = sorted(folder.glob("*-cache"), key=lambda entry: entry.stat().st_mtime, reverse=True)
    size = 0
    for entry in entries:
        size += entry.stat().st_size
        if size > CACHE_LIMIT:
            entry.unlink(missing_ok=True)


# ---------------------------------------------------------------------------------------------------- memory
def keep_freed_memory() -> None:
    """Make glibc keep the memory that this process frees; without glibc, do nothing.

    By default glibc maps new memory for large arrays at every update, fills its pages with zeros, and unmaps it
    afterwards. This causes 9,000 page faults per minibatch of images, a quarter of its CPU time (PyTorch in bfloat16,
    AMD EPYC, Zen 5). JAX's threads do this even with `M_MMAP_MAX` 0, unless they share the main thread's arena: 17,000
    page faults per update of FlashSAC, a fifth of its CPU time (Zen 4). Threads that have their own arena keep it, so
    call this before they start.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(M_ARENA_MAX, 1)
