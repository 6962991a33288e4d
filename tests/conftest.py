"""Fixtures and hooks for all tests: marks from fence.txt and slow.txt, frameworks, a shared JAX compilation cache."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# The learners' golden traces took 152 s at level 0, mostly compiling, and 344 s at level 1.
XLA = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
if find_spec("jax") and version("jax").startswith("0.10."):  # XLA aborts at unknown flags
    XLA += " --xla_cpu_use_fusion_emitters=false"


# Helper modules that tests of other folders also use.
sys.path += [
    str(Path(__file__).with_name(name)) for name in ("training", "cli", "report", "runs", "environments", "sweep")
]

# A test must not fail because other programs use the processor.
settings.register_profile("duetto", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("duetto")


def pytest_configure() -> None:
    """Restore signal handlers that a background job or nohup ignores: child processes would ignore them too."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["XLA_FLAGS"] = f"{XLA} {os.environ.get('XLA_FLAGS', '')}".strip()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests listed in `slow.txt` and `fence.txt` (* matches any text)."""
    for mark in (pytest.mark.slow, pytest.mark.fence):
        lines = Path(__file__).with_name(f"{mark.name}.txt").read_text("utf-8").splitlines()
        names = [line.split("*") for line in lines if line and not line.startswith("#")]
        listed = re.compile("|".join(".*".join(map(re.escape, name)) for name in names))
        for item in items:
            if listed.fullmatch(item.nodeid.removeprefix("tests/")):
                item.add_marker(mark)


class Compiled:
    """JAX's compilation cache, shared by all processes of a session: many tests build the same small learners.

    JAX does not write entries atomically, so each process has its own folder and shares only complete entries.
    Environment variables would also reach processes that tests start and kill.
    """

    def __init__(self, own: Path, kept: Path) -> None:
        self._own, self._kept = own, kept
        self._shared: set[str] = set()
        self._seen: tuple[int, int] | None = None  # times of the last change of both folders
        kept.mkdir(exist_ok=True)
        import jax

        jax.config.update("jax_compilation_cache_dir", str(own))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # else the folder is part of every key

    def exchange(self) -> None:
        """Share new entries in both directions. Call it while nothing is being compiled."""
        if self._seen == (changed := (self._own.stat().st_mtime_ns, self._kept.stat().st_mtime_ns)):
            return
        for source, target in ((self._own, self._kept), (self._kept, self._own)):
            for name in {entry.name for entry in os.scandir(source)} - self._shared:
                with suppress(FileExistsError):
                    os.link(source / name, target / name)
                self._shared.add(name)
        self._seen = changed


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Compiled | None:
    if not {"jax", "learning_cases", "test_conformance"} & sys.modules.keys():
        return None
    session = tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    return Compiled(tmp_path_factory.mktemp("jax"), session / "jax-kept")


@pytest.fixture(autouse=True)
def _share_what_is_compiled(compiled: Compiled | None) -> Iterator[None]:
    yield
    if compiled is not None:
        compiled.exchange()


@pytest.fixture(autouse=True)
def _no_window_stays_open() -> Iterator[None]:
    """Also unload SDL's video driver: the next test may need to run without a display."""
    yield
    if "pygame" in sys.modules:
        sys.modules["pygame"].quit()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:
    """Call `duetto ARGUMENTS ...` in this process; see cli/commands.py."""
    from commands import called

    return called(capsys)


@pytest.fixture(params=["torch", "jax"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["numpy", "torch", "jax"])
def array(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Return a function that makes a float32 array of the framework from lists or NumPy."""
    if request.param == "torch":
        import torch

        return lambda values: torch.from_numpy(np.array(values, np.float32))
    if request.param == "jax":
        import jax.numpy as jnp

        return lambda values: jnp.asarray(values, jnp.float32)
    return lambda values: np.asarray(values, np.float32)
