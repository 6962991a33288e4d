"""PyTorch's number of threads, reuse of freed memory, and JAX's compilation cache."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from learning_cases import ACTION, VECTOR, batch, small

from duetto import learners
from duetto.algorithms import PPO
from duetto.learners import Learner, runtime
from duetto.learners.torch import TorchLearner
from duetto.networks.spaces import Box, Discrete, Space


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runtime, "cores", lambda: 2)
    monkeypatch.delenv(runtime.OMP_THREADS, raising=False)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def build(threads: int = 0, observation: Space = VECTOR, **options: Any) -> TorchLearner:
    learner = learners.build("torch", small(**options), observation, ACTION, threads=threads)
    assert isinstance(learner, TorchLearner)
    return learner


def learn(learner: Learner, updates: int) -> list[int]:
    """Update and act; return the number of threads after each call."""
    used = []
    for number in range(updates):
        learner.update(batch(32, seed=number))
        used.append(torch.get_num_threads())
        learner.act(batch(3, seed=number).obs)
        used.append(torch.get_num_threads())
    return used


def test_vectors_get_one_thread_and_images_one_per_core():
    assert (build().threads, build(hidden=(1024, 1024)).threads, build(recurrent="gru").threads) == (1, 1, 1)
    image = Box((3, 36, 36), "uint8", (0,), (255,))
    assert learners.build("torch", PPO(), image, Discrete(3)).threads == 2


def test_a_learner_keeps_its_number_of_threads():
    learner, other = build(2), build(1)
    assert set(learn(learner, 4)) == {2}
    assert set(learn(other, 4)) == {1}
    assert set(learn(learner, 2)) == {2}


PAGE_FAULT_SCRIPT = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from duetto import TD3, learners
from duetto.networks.spaces import Box

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [np.ones(24 << 20, np.uint8) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

alone = [faults() for _ in range(2)]
space = Box((1,), "float32", (-1.0,), (1.0,))
learners.build(sys.argv[1], TD3(hidden=(8,)), space, space)
with ThreadPoolExecutor(1) as other:
    print(*alone, *[faults() for _ in range(2)], *[other.submit(faults).result() for _ in range(2)])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Duetto sets the memory allocator of glibc only, which Linux has")
def test_learning_process_reuses_freed_memory(backend: str):
    """An update reuses the memory freed by the last one, without new pages from the system, in every thread."""
    done = subprocess.run(
        [sys.executable, "-c", PAGE_FAULT_SCRIPT, backend], capture_output=True, text=True, check=True
    )
    _, without, _, again, _, elsewhere = map(int, done.stdout.split())
    assert without >= 40  # at least 48 pages of 2 MiB, or 24,576 of 4 KiB
    assert max(again, elsewhere) < without / 5


JAX_ENVIRONMENT_SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[1])
import duetto, jax.numpy as jnp
from array_environments import PointMass

class Starting(PointMass):
    def __init__(self):
        super().__init__(limit=int(jnp.asarray(20)))  # starts JAX

ppo = duetto.PPO(rollout_steps=8, minibatches=2, hidden=(8,))
duetto.train(ppo, Starting, steps=64, threads=1, num_envs=2, runs_dir=sys.argv[2])
names = [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
print(sum(name.startswith("tf_XLAEigen") for name in names))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="The test reads /proc, which Linux has")
def test_jax_environment_starts_jax_with_the_threads_of_the_run(tmp_path: Path):
    environments = Path(__file__).parents[1] / "training"
    command = [sys.executable, "-c", JAX_ENVIRONMENT_SCRIPT, str(environments), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split()[-1:] == ["1"], done.stderr


CACHE_SCRIPT = """
import jax, jax.numpy as jnp
from duetto.learners import runtime

seen = []
jax.monitoring.register_event_listener(lambda event, **_: seen.append(event))
runtime.use_jax_cache()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
print(float(jax.jit(lambda x: jnp.sum(jnp.tanh(x) ** 2))(jnp.arange(3.0))))
print(sum(event.endswith("/cache_hits") for event in seen) > 0, flush=True)
"""


def compile_in_new_process(cache: Path, **variables: str) -> list[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment = inherited | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)} | variables
    done = subprocess.run([sys.executable, "-c", CACHE_SCRIPT], text=True, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


def cache_folders(cache: Path) -> list[Path]:
    return list(cache.glob("duetto/jax/*"))


def test_second_process_uses_compilation_cache(tmp_path: Path):
    value, hit = compile_in_new_process(tmp_path)
    assert hit == "False"
    (folder,) = cache_folders(tmp_path)
    assert os.name != "posix" or folder.stat().st_mode & 0o777 == 0o700
    assert compile_in_new_process(tmp_path) == [value, "True"]


def test_unwritable_or_disabled_cache_is_not_used(tmp_path: Path):
    """A cache folder set by the user is kept."""
    (tmp_path / "file").write_text("no folder")
    assert compile_in_new_process(tmp_path / "file")[1] == "False"
    compile_in_new_process(tmp_path, JAX_ENABLE_COMPILATION_CACHE="false")
    compile_in_new_process(tmp_path, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own"))
    assert cache_folders(tmp_path) == []
    assert list((tmp_path / "own").iterdir())


def test_oldest_cache_entries_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for age, name in enumerate("abc"):
        (tmp_path / f"{name}-cache").write_bytes(bytes(100))
        os.utime(tmp_path / f"{name}-cache", (10**9 - age, 10**9 - age))
    monkeypatch.setattr(runtime, "CACHE_LIMIT", 250)
    runtime._tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-cache", "b-cache"]
