"""A cache of JAX's compiled programs for later processes: a job that starts again compiles nothing.

JAX writes an entry in place, so a killed process would leave a truncated one for good. Here every process has its own
folder, which starts with links to all kept programs. Complete entries are handed over by a link, in one step.

    <cache>/duetto/jax/<version and processor>/kept/*-cache     programs for this JAX and this processor, read-only
                                               <random>/        a process's own, removed at its end or by a later one

Programs are machine code, so only this user may access the folder (mode 0700). It is in `$XDG_CACHE_HOME` or
`~/.cache`, and may be deleted at any time. Setting `jax_compilation_cache_dir` replaces it;
`JAX_ENABLE_COMPILATION_CACHE=false` turns it off.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from duetto.cpu import processor

WORTH_KEEPING = 0.1  # seconds of compilation
LIMIT = 512 << 20  # bytes; beyond, the least recently used programs are deleted
ABANDONED = 86_400.0  # seconds after which a killed process's folder is removed
_ENTRY = "*-cache"

_own: Path | None = None  # this process's folder


def use() -> None:
    """Cache what this process compiles from here on, unless the user has set a folder, or none can be created."""
    global _own
    config: Any = jax.config  # its options are no attributes for a type checker
    if _own is not None or config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return
    with suppress(OSError):  # a home that cannot be written to: compile as ever
        kept = _folder() / "kept"
        kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid") and kept.stat().st_uid != os.getuid():
            return
        _own = Path(tempfile.mkdtemp(dir=kept.parent))
        for entry in kept.glob(_ENTRY):
            with suppress(OSError):  # deleted a moment ago
                os.link(entry, _own / entry.name)
        config.update("jax_compilation_cache_dir", str(_own))
        config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
        config.update("jax_persistent_cache_enable_xla_caches", "none")  # else the folder's name is in every key
        atexit.register(end)


def hand_over() -> None:
    """Hand programs compiled so far to later processes. Call it while nothing is being compiled."""
    if _own is None:
        return
    with suppress(OSError):
        kept = _own.parent / "kept"
        for entry in _own.glob(_ENTRY):
            with suppress(FileExistsError):
                os.link(entry, kept / entry.name)


def end() -> None:
    """Hand over, and remove this process's folder."""
    hand_over()
    if _own is None:
        return
    with suppress(OSError):
        _tidy(_own.parent)
    shutil.rmtree(_own, ignore_errors=True)


def _tidy(folder: Path) -> None:
    """Delete programs beyond the limit, and folders of killed processes."""
    entries = sorted((folder / "kept").glob(_ENTRY), key=lambda entry: entry.stat().st_atime)
    beyond = sum(entry.stat().st_size for entry in entries) - LIMIT
    for entry in entries:
        if beyond <= 0:
            break
        beyond -= entry.stat().st_size
        entry.unlink()
    for left in folder.iterdir():
        if left.name != "kept" and time.time() - left.stat().st_mtime > ABANDONED:
            shutil.rmtree(left, ignore_errors=True)


def _folder() -> Path:
    """Return the folder for this JAX on this kind of processor, for which XLA generates code."""
    if sys.platform == "win32":
        parent = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    who = f"{jax.__version__} {version('jaxlib')} {processor()}"
    return parent / "duetto" / "jax" / hashlib.sha256(who.encode()).hexdigest()[:16]
