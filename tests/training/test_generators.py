"""Generators that environments draw from beside `np_random`: their spaces' own, and the process's global ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from line_environment import Line
from small_runs import assert_same, differences, outcome, small, train

from duetto.callbacks import RecordVideo

torch = pytest.importorskip("torch")


class Sampling(Line):
    """Its observation is noisy, by what its own spaces draw."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def step(self, action: np.ndarray) -> Any:
        obs, *rest = super().step(action)
        return np.clip(obs + 0.1 * self.action_space.sample(), -1, 1).astype(np.float32), *rest


class Noisy(gymnasium.ObservationWrapper):
    def observation(self, observation: np.ndarray) -> np.ndarray:
        return (observation + 0.1 * self.action_space.sample()).astype(np.float32)


class Global(Line):
    """Its rewards depend on what all of a process share; an evaluation's environments draw when they are made, too."""

    def __init__(self, *arguments: Any, render_mode: str | None = None) -> None:
        super().__init__(*arguments)
        self.bias = np.random.random() + random.random() + float(torch.rand(()))
        self.metadata, self.render_mode = {"render_modes": ["rgb_array"]}, render_mode

    def step(self, action: np.ndarray) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, reward + np.random.random() + random.random() + float(torch.rand(())), *rest

    def render(self) -> Any:
        return np.zeros((16, 16, 3), np.uint8)


@pytest.mark.parametrize(
    "make",
    [
        Sampling,
        lambda: Noisy(gymnasium.wrappers.RescaleAction(Sampling(), np.float32(-3), np.float32(3))),
        lambda: SyncVectorEnv([Sampling] * 2, autoreset_mode=AutoresetMode.SAME_STEP),
    ],
)
def test_environments_that_draw_from_their_own_spaces_are_the_same_for_a_seed(make: Any, tmp_path: Path) -> None:
    vector = isinstance(made := make(), gymnasium.vector.VectorEnv)
    made.close()
    how: Any = {"steps": 80, "evaluate_every": 0 if vector else 40} | ({} if vector else {"num_envs": 2})
    one, other = (train(tmp_path / name, environment=make() if vector else make, **how) for name in "ab")
    assert_same(one, other)
    assert differences(
        outcome(one), outcome(train(tmp_path / "c", environment=make() if vector else make, seed=1, **how))
    )


def test_evaluations_and_videos_leave_the_global_generators_as_they_were(tmp_path: Path) -> None:
    found = []
    for every, callbacks in ((0, []), (20, [RecordVideo(30)])):
        random.seed(3)
        np.random.seed(3)
        torch.manual_seed(3)
        run = train(tmp_path / str(every), small(), Global, steps=100, evaluate_every=every, callbacks=callbacks)
        found.append([outcome(run)["state"]["learner"], outcome(run)["memory"]])
        found.append([random.random(), float(np.random.random()), float(torch.rand(()))])
    assert not differences(found[0], found[2])
    assert found[1] == found[3]
