"""Hide the output of C libraries, which Python cannot redirect, and repeated warnings."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def output() -> Iterator[None]:
    """Send file descriptors 1 and 2 to the null device."""
    _flush()
    null = os.open(os.devnull, os.O_WRONLY)
    saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    try:
        for descriptor in saved:
            os.dup2(null, descriptor)
        yield
    finally:  # nested: KeyboardInterrupt may come after any call, and must not skip a later one
        try:
            _flush()
        finally:
            try:
                os.dup2(saved[1], 1)
            finally:
                os.dup2(saved[2], 2)
        for descriptor in (*saved.values(), null):
            os.close(descriptor)


_shown: set[tuple[type[Warning], str]] = set()


@contextlib.contextmanager
def repeated_warnings() -> Iterator[None]:
    """Show each warning once, though a run makes its environment several times. If the body raises, show none."""
    with warnings.catch_warnings(record=True) as caught:
        yield
    for warning in caught:
        if (key := (warning.category, str(warning.message))) not in _shown:
            _shown.add(key)
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)


@contextlib.contextmanager
def mujoco_compiler() -> Iterator[None]:
    """Drop MuJoCo's warnings while Gymnasium's models are compiled; they would also go to MUJOCO_LOG.TXT.

    MuJoCo 4 finds a deprecated attribute in HalfCheetah's model, which users cannot change.
    """
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ImportError:  # making the environment reports it
        yield
        return
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(handler)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with contextlib.suppress(TypeError, OSError):  # Windows has no handle for "this program"
        ctypes.CDLL(None).fflush(None)  # C keeps a buffer of its own
