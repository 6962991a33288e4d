"""Puts this folder's helpers on the path, and hands each test a framework to run on."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

COMPILED = pytest.StashKey[str]()


def pytest_configure() -> None:
    """In the background or under nohup, processes that tests start would ignore the signals that tests send them."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let JAX compile each program once in a session: the tests build the same small learners again and again.

    Not by environment variables, which processes that tests start and kill would inherit.
    """
    if session.config.option.collectonly or not {"jax", "learning_cases", "test_conformance"} & sys.modules.keys():
        return
    import jax

    folder = session.config.stash[COMPILED] = tempfile.mkdtemp(prefix="duetto-tests-jax-")
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(COMPILED, None):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["torch", "jax"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["numpy", "torch", "jax"])
def array(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Makes a float32 array of the framework from nested lists or NumPy."""
    if request.param == "torch":
        import torch

        return lambda values: torch.from_numpy(np.array(values, np.float32))
    if request.param == "jax":
        import jax.numpy as jnp

        return lambda values: jnp.asarray(values, jnp.float32)
    return lambda values: np.asarray(values, np.float32)
