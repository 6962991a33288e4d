"""EnvPool ids, with a fake package. EnvPool takes seeds only when it makes environments."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import duetto
from duetto.environments import make


@pytest.fixture
def pool_seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the seeds that the fake package received."""
    made: list[int] = []

    class Pool(SyncVectorEnv):
        def reset(self, **_: Any) -> Any:
            return super().reset(seed=made[-1])

    def make_pool(*_: object, num_envs: int, seed: int, **__: object) -> Any:
        made.append(seed)
        return Pool([lambda: gymnasium.make("Pendulum-v1")] * num_envs)

    fake: Any = ModuleType("envpool")
    fake.list_all_envs, fake.make = lambda: ["Swing-v1"], make_pool
    monkeypatch.setitem(sys.modules, "envpool", fake)
    return made


def test_envpool_environment_i_is_seeded_with_seed_plus_i(pool_seeds: list[int]):
    envs = make("envpool:Swing-v1", num_envs=2)
    envs.reset(7)
    expected = [gymnasium.make("Pendulum-v1").reset(seed=7 + i)[0] for i in range(2)]
    np.testing.assert_array_equal(envs.obs, expected)
    assert pool_seeds == [0, 7]


def test_envpool_trains_and_evaluates(pool_seeds: list[int], tmp_path: Path):
    small = duetto.TD3(hidden=(8,), batch_size=8, learning_starts=20, random_steps=20)
    run: Any = duetto.train(
        small, "envpool:Swing-v1", steps=60, num_envs=2, evaluate_every=60, evaluation_episodes=12,
        runs_dir=tmp_path, progress=False,
    )  # fmt: skip
    assert len(run.evaluations()) == 2
