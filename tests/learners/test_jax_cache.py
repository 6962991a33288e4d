"""Compiled programs are kept for later processes, whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from duetto.learners import jax_cache

SCRIPT = """
import os, sys
import jax, jax.numpy as jnp
from duetto.learners import jax_cache

seen = []
jax.monitoring.register_event_listener(lambda event, **_: seen.append(event))
jax_cache.use()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
print(float(jax.jit(lambda x: jnp.sum(jnp.tanh(x) ** 2))(jnp.arange(3.0))))
print(sum(event.endswith("/cache_hits") for event in seen) > 0, flush=True)
if sys.argv[1:] == ["killed"]:
    folder = jax.config.jax_compilation_cache_dir
    jax_cache.hand_over()
    open(os.path.join(folder, "half-cache"), "wb").write(b"half")
    os._exit(9)
"""


def process(cache: Path, *arguments: str, **variables: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment = inherited | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)} | variables
    done = subprocess.run(command, text=True, capture_output=True, env=environment)
    assert done.returncode == (9 if arguments else 0), done.stderr
    assert done.stderr == ""
    return done.stdout.split()


def folders(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("duetto/jax/*/*"))


@pytest.mark.skipif(sys.platform == "win32", reason="the folder is named by another variable there")
def test_a_second_process_compiles_nothing_and_a_killed_one_leaves_nothing_half(tmp_path: Path):
    value, hit = process(tmp_path, "killed")
    assert hit == "False"
    [kept] = tmp_path.glob("duetto/jax/*/kept")
    whole = {path.name for path in kept.iterdir()}
    assert whole
    assert "half-cache" not in whole
    assert kept.stat().st_mode & 0o777 == 0o700
    assert process(tmp_path) == [value, "True"]
    assert {path.name for path in kept.iterdir()} == whole
    assert len(folders(tmp_path)) == 2  # that of the killed process is not removed before its time


TRAINING = """
import duetto, queue, sys
from pathlib import Path
from duetto.runs.spec import RunSpec
from duetto.runs.pool import WorkerProcess
from duetto.storage.config import RunOptions
from duetto.tools.sweep.experiments import Experiment
from duetto.tools.sweep.plan import runs

run = dict(steps=48, evaluate_every=0, backend="jax", device="cpu", num_envs=2)
own = duetto.PPO(hidden=(8,), rollout_steps=8, epochs=2, minibatches=2)
if sys.argv[1] == "alone":
    duetto.train(own, "CartPole-v1", runs_dir=sys.argv[2], **run)
else:
    (planned,) = runs([Experiment(RunSpec(own, "CartPole-v1", RunOptions(**run), name="run"), (0,))], Path(sys.argv[2]))
    inbox = queue.Queue()
    worker = WorkerProcess(inbox, Path(sys.argv[2]) / "log")
    worker.train(planned.job)
    assert inbox.get(timeout=120)[1][0] == "started"
    assert inbox.get(timeout=120)[1][:2] == ("ended", False)
    worker.close()
"""


def test_a_process_of_a_sweep_keeps_as_much_as_any_other_and_leaves_nothing(tmp_path: Path):
    """It is ended, and does not end by itself: what it had compiled last was lost, and its folder stayed."""
    kept = {}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    for how in ("alone", "worker"):
        cache = dict.fromkeys(("XDG_CACHE_HOME", "LOCALAPPDATA"), str(tmp_path / how))
        command = [sys.executable, "-c", TRAINING, how, str(tmp_path / f"{how}-runs")]
        subprocess.run(command, check=True, env=inherited | cache | {"PYTHONPATH": os.pathsep.join(sys.path)})
        assert folders(tmp_path / how) == ["kept"]
        kept[how] = {path.name for path in (tmp_path / how).glob("duetto/jax/*/kept/*")}
    assert kept["alone"] == kept["worker"] != set()


def test_who_has_a_folder_of_their_own_keeps_it(tmp_path: Path):
    process(tmp_path / "cache", JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own"))
    assert folders(tmp_path / "cache") == []
    assert list((tmp_path / "own").iterdir())


def test_who_turns_it_off_has_none(tmp_path: Path):
    process(tmp_path, JAX_ENABLE_COMPILATION_CACHE="false")
    assert folders(tmp_path) == []


def test_without_a_place_for_it_all_is_compiled(tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    assert process(tmp_path / "file")[1] == "False"


def test_what_was_not_used_for_longest_and_what_killed_processes_left_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now = time.time()
    for name in ("kept", "abandoned", "at-work"):
        (tmp_path / name).mkdir()
    for name, seconds in {"old": 20, "older": 30, "new": 10}.items():
        (tmp_path / "kept" / f"{name}-cache").write_bytes(bytes(100))
        os.utime(tmp_path / "kept" / f"{name}-cache", (now - seconds, now))
    long_ago = now - jax_cache.ABANDONED - 1
    os.utime(tmp_path / "abandoned", (long_ago, long_ago))
    monkeypatch.setattr(jax_cache, "LIMIT", 150)
    jax_cache._tidy(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "at-work",
        "kept",
        "kept/new-cache",
    ]
