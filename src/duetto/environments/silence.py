"""Hide the output of C libraries, which Python cannot redirect."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def output() -> Iterator[None]:
    """Redirect file descriptors 1 and 2 (stdout and stderr) to the null device."""
    _flush()
    saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    try:
        with Path(os.devnull).open("wb") as null:
            for descriptor in saved:
                os.dup2(null.fileno(), descriptor)
        yield
    finally:
        _flush()
        for descriptor, copy in saved.items():
            os.dup2(copy, descriptor)
            os.close(copy)


@contextlib.contextmanager
def mujoco_compiler() -> Iterator[None]:
    """Drop MuJoCo's warnings while it compiles Gymnasium's models; otherwise MUJOCO_LOG.TXT would get them too.

    MuJoCo 4 finds a deprecated attribute in HalfCheetah's model, which users cannot change.
    """
    mujoco: Any = importlib.import_module("mujoco")
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
        ctypes.CDLL(None).fflush(None)  # C has a separate buffer
