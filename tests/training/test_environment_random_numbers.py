"""Environments that draw random numbers from their spaces or from global generators."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from line_environment import Line
from small_runs import assert_same, differences, outcome, small, train

from duetto.callbacks import RecordVideo

torch = pytest.importorskip("torch")


class SpaceSampling(Line):
    """Its observations contain samples of its action space."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def step(self, action: np.ndarray) -> Any:
        obs, *rest = super().step(action)
        return np.clip(obs + 0.1 * self.action_space.sample(), -1, 1).astype(np.float32), *rest


class GlobalRandom(Line):
    """Its constructor and its rewards use the global generators of random, NumPy and PyTorch."""

    def __init__(self, *arguments: Any, render_mode: str | None = None) -> None:
        super().__init__(*arguments)
        self.bias = np.random.random() + random.random() + float(torch.rand(()))
        self.metadata, self.render_mode = {"render_modes": ["rgb_array"]}, render_mode

    def step(self, action: np.ndarray) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, reward + np.random.random() + random.random() + float(torch.rand(())), *rest

    def render(self) -> Any:
        return np.zeros((16, 16, 3), np.uint8)


def test_samples_from_action_spaces_are_reproducible_by_seed(tmp_path: Path) -> None:
    how: Any = {"environment": SpaceSampling, "steps": 80, "evaluate_every": 40, "num_envs": 2}
    assert_same(*(train(tmp_path / name, **how) for name in "ab"))


def test_evaluations_and_videos_preserve_global_rng_state(tmp_path: Path) -> None:
    found = []
    for every, callbacks in ((0, []), (20, [RecordVideo(30)])):
        random.seed(3)
        np.random.seed(3)
        torch.manual_seed(3)
        run = train(tmp_path / str(every), small(), GlobalRandom, steps=100, evaluate_every=every, callbacks=callbacks)
        found.append([outcome(run)["state"]["learner"], outcome(run)["memory"]])
        found.append([random.random(), float(np.random.random()), float(torch.rand(()))])
    assert not differences(found[0], found[2])
    assert found[1] == found[3]
