"""A cache of JAX's compiled programs for later processes: a job that starts again compiles nothing.

Programs are machine code, so only this user may access the folder (mode 0700). It is in `$XDG_CACHE_HOME` or
`~/.cache`, and may be deleted at any time. Setting `jax_compilation_cache_dir` replaces it;
`JAX_ENABLE_COMPILATION_CACHE=false` turns it off.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from duetto.cpu import processor

WORTH_KEEPING = 0.1  # seconds of compilation
LIMIT = 512 << 20  # bytes; beyond, the oldest programs are deleted


def use() -> None:
    """Cache what this process compiles from here on, unless the user has set a folder, or none can be created."""
    config: Any = jax.config  # its options are no attributes for a type checker
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return
    with suppress(OSError):  # a home that cannot be written to: compile as ever
        folder = _folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            return
        _tidy(folder)
        config.update("jax_compilation_cache_dir", str(folder))
        config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)


def _tidy(folder: Path) -> None:
    """Delete programs beyond the limit."""
    entries = sorted(folder.glob("*-cache"), key=lambda entry: entry.stat().st_mtime, reverse=True)
    size = 0
    for entry in entries:
        size += entry.stat().st_size
        if size > LIMIT:
            entry.unlink()


def _folder() -> Path:
    """Return the folder for this JAX on this kind of processor, for which XLA generates code."""
    parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    who = f"{jax.__version__} {version('jaxlib')} {processor()}"
    return parent / "duetto" / "jax" / hashlib.sha256(who.encode()).hexdigest()[:16]
