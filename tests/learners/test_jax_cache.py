"""Compiled programs are kept for later processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from duetto.learners import runtime

SCRIPT = """
import jax, jax.numpy as jnp
from duetto.learners import runtime

seen = []
jax.monitoring.register_event_listener(lambda event, **_: seen.append(event))
runtime.use_jax_cache()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
print(float(jax.jit(lambda x: jnp.sum(jnp.tanh(x) ** 2))(jnp.arange(3.0))))
print(sum(event.endswith("/cache_hits") for event in seen) > 0, flush=True)
"""


def process(cache: Path, **variables: str) -> list[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment = inherited | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)} | variables
    done = subprocess.run([sys.executable, "-c", SCRIPT], text=True, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


def folders(cache: Path) -> list[Path]:
    return list(cache.glob("duetto/jax/*"))


@pytest.mark.skipif(sys.platform == "win32", reason="the folder is named by another variable there")
def test_a_second_process_compiles_nothing(tmp_path: Path):
    value, hit = process(tmp_path)
    assert hit == "False"
    (folder,) = folders(tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert process(tmp_path) == [value, "True"]


def test_who_has_a_folder_of_their_own_keeps_it(tmp_path: Path):
    process(tmp_path / "cache", JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own"))
    assert folders(tmp_path / "cache") == []
    assert list((tmp_path / "own").iterdir())


def test_without_a_place_for_it_or_turned_off_all_is_compiled(tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    assert process(tmp_path / "file")[1] == "False"
    process(tmp_path, JAX_ENABLE_COMPILATION_CACHE="false")
    assert folders(tmp_path) == []


def test_the_oldest_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for age, name in enumerate("abc"):
        (tmp_path / f"{name}-cache").write_bytes(bytes(100))
        os.utime(tmp_path / f"{name}-cache", (10**9 - age, 10**9 - age))
    monkeypatch.setattr(runtime, "CACHE_LIMIT", 250)
    runtime._tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-cache", "b-cache"]
