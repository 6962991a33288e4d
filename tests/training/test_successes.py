"""Whether episodes' tasks were done: from an environment's last infos to tables, from outside."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from small_runs import CrashAt, CrashError, train

import duetto
from duetto.environments import make
from duetto.environments.engines import GymVectorEngine
from duetto.environments.vec_env import VecEnv

LENGTHS = (3, 2, 4)  # of successive episodes


class Task(gymnasium.Env):
    """Its episodes are done, missed and without a word in turn; success before the last step is not the episode's."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, key: str = "is_success", silent: bool = False, first: int = 0) -> None:
        self.key, self.silent, self.episode = key, silent, first - 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if seed is not None and seed >= 100:  # an evaluation's, which starts each episode by its seed
            self.episode = seed - 101
        self.episode, self.time = self.episode + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        over = self.time == LENGTHS[self.episode % 3]
        value = {0: np.float32(1.0), 1: False}.get(self.episode % 3)
        info = {} if over and (value is None or self.silent) else {self.key: value if over else True}
        return np.zeros(1, np.float32), 1.0, False, over, {} if self.silent else info


def stepper(mode: Any, key: str) -> VecEnv:
    factories = [partial(Task, key, first=first) for first in range(2)]
    if isinstance(mode, AutoresetMode):
        return VecEnv(GymVectorEngine(SyncVectorEnv(factories, autoreset_mode=mode), "Task"))
    return make(partial(Task, key), num_envs=2, vectorization=mode)


@pytest.mark.parametrize("key", ["is_success", "success"])
@pytest.mark.parametrize("mode", ["sync", "subprocess", *AutoresetMode])
def test_it_is_the_last_infos_word_whoever_steps(mode: Any, key: str):
    found: dict[int, list[float | None]] = {0: [], 1: []}
    steps = stepper(mode, key)
    steps.reset(None)
    for _ in range(20):
        for episode in steps.step(np.zeros((2, 1), np.float32))[1]:
            found[episode.env].append(episode.success)
    steps.close()
    later = isinstance(mode, AutoresetMode)  # where the second environment starts with another episode
    assert found[0][:4] == [1.0, 0.0, None, 1.0]
    assert found[1][:4] == ([0.0, None, 1.0, 0.0] if later else [1.0, 0.0, None, 1.0])


def test_where_nothing_says_so_nothing_is_told(tmp_path: Path):
    run = train(tmp_path, environment=partial(Task, silent=True), steps=60, evaluate_every=30)
    assert all("success_rate" not in row for row in [*run.evaluations(), *run.metrics()])
    assert all("train/success_rate" not in row for row in run.metrics())
    assert run.evaluate(3).success_rate is None
    assert "success" not in str(run.evaluate(3))


def test_it_is_in_every_table_and_a_killed_run_has_the_same(tmp_path: Path):
    options: dict[str, Any] = {"environment": Task, "steps": 90, "evaluate_every": 30, "evaluation_episodes": 4}
    whole = train(tmp_path / "a", **options)
    assert [row["success_rate"] for row in whole.evaluations()] == [pytest.approx(2 / 3)] * 4  # done, missed, -, done
    lines = [line["train/success_rate"] for line in whole.metrics()]
    assert lines
    assert all(0.4 < rate < 0.6 for rate in lines)  # of every two that say so, one
    result = whole.evaluate(2)
    assert (result.success_rate, str(result)) == (0.5, "2.5 ± 0.5 over 2 episodes, success 0.50")
    assert result.to_dict()["success_rate"] == 0.5
    with pytest.raises(CrashError):
        train(tmp_path / "b", **options, callbacks=[CrashAt(70)])
    killed = duetto.Run(tmp_path / "b" / whole.path.name, environment=Task).resume(progress=False)
    own = [name for name in whole.evaluations()[0] if name != "seconds"]
    assert [[row[name] for name in own] for row in killed.evaluations()] == [
        [row[name] for name in own] for row in whole.evaluations()
    ]
    assert [line["train/success_rate"] for line in killed.metrics()] == lines
