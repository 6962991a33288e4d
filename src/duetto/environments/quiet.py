"""Silence for what C libraries print, which Python's own redirection does not reach, and for warnings told before."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def output() -> Iterator[None]:
    """Send file descriptors 1 and 2 to nowhere for a moment."""
    _flush()
    null = os.open(os.devnull, os.O_WRONLY)
    saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    try:
        for descriptor in saved:
            os.dup2(null, descriptor)
        yield
    finally:
        _flush()
        for descriptor, copy in saved.items():
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(null)


_told: set[tuple[type[Warning], str]] = set()


@contextlib.contextmanager
def repeated_warnings() -> Iterator[None]:
    """Let each warning through once: a run makes its environment again, to evaluate, for example, and warns anew.

    None is let through from a worker, whose trainer has made one such environment itself, and none where the body
    raises: what is raised is what helps.
    """
    with warnings.catch_warnings(record=True) as caught:
        yield
    for warning in caught:
        told = warning.category, str(warning.message)
        if told not in _told and multiprocessing.parent_process() is None:
            _told.add(told)
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)


@contextlib.contextmanager
def envpool_spaces() -> Iterator[None]:
    """Drop Gymnasium's warnings that EnvPool writes the bounds of float32 spaces as float64: nobody's to mend here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*precision lowered by casting")
        yield


@contextlib.contextmanager
def mujoco_compiler() -> Iterator[None]:
    """Drop MuJoCo's warnings while Gymnasium's own models are compiled; otherwise they also go to MUJOCO_LOG.TXT.

    MuJoCo 4 finds an attribute deprecated in HalfCheetah's model, which a user can do nothing about.
    """
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ImportError:  # making the environment will say so
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
