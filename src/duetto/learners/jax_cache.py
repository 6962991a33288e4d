"""JAX's compiled programs, kept for later processes: the second start of a job compiles nothing.

JAX writes an entry where it will be read: a process which is killed meanwhile would leave half of one, for good.
Here every process has a folder of its own, which begins with links to all that is kept. What it compiled is handed over
when it is whole, in one step; what was begun is lost with the process.

    <cache>/duetto/jax/<what runs it>/kept/*-cache     programs for this JAX and this processor, nobody's to write
                                      <random>/        a process's own, removed at its end or by a later process

Programs are machine code that is run as it is read, so the folder is this user's alone (mode 0700). It lies in
`$XDG_CACHE_HOME` or `~/.cache`, and may be deleted at any time. Who sets `jax_compilation_cache_dir` has their own way;
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

from duetto.processor import processor

WORTH_KEEPING = 0.1  # seconds of compilation
LIMIT = 512 << 20  # bytes that are kept; of more, those that were not used for longest are deleted
ABANDONED = 86_400.0  # seconds after which the folder of a process that did not end well is removed
_ENTRY = "*-cache"

_own: Path | None = None  # this process's folder


def use() -> None:
    """Keep what this process compiles from here on, unless the user has set a folder, or none can be made."""
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
    """Let later processes have what was compiled so far. To be called while nothing is being compiled."""
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
    """Delete what is beyond the limit, and what processes that were killed have left."""
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
    """The folder for this JAX on this kind of processor: XLA makes code for the one that it runs on."""
    if sys.platform == "win32":
        parent = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    who = f"{jax.__version__} {version('jaxlib')} {processor()}"
    return parent / "duetto" / "jax" / hashlib.sha256(who.encode()).hexdigest()[:16]
