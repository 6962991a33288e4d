"""What callbacks set in environments, from outside: wherever these live, and over a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from goal_environment import GoalLine
from line_environment import Line
from small_runs import CrashAt, CrashError, StopAt, assert_same, small, train

import duetto
from duetto.runs.run import Run


class Scaled(Line):
    """Each step gives what `scale` says."""

    def __init__(self, length: int = 10) -> None:
        super().__init__(length)
        self.scale: Any = [1.0]

    def step(self, action: Any) -> Any:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, self.scale[0], terminated, truncated, info


class Noting(gymnasium.Wrapper):
    """Has an attribute of its own."""

    noted = 0


def wrapped() -> gymnasium.Env:
    return Noting(Scaled())


class Curriculum(duetto.Callback):
    """Ten times as much from step 100 on."""

    def on_step(self, trainer: duetto.Trainer) -> None:
        if trainer.step == 100:
            trainer.set_attr("scale", [10.0])


class Tolerant(GoalLine):
    """Near is what a callback says."""

    near = 4.0

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) >= self.near).astype(np.float32)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> bool:
        return False


class Stricter(duetto.Callback):
    """And sees what a goal 2 away brings, asked of the environment that hindsight asks."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_step(self, trainer: duetto.Trainer) -> None:
        if trainer.step == 60:
            trainer.set_attr("near", 1.0)
        goals: Any = trainer.components._goals
        self.seen.append(float(goals.reward(np.zeros((1, 1), np.float32), np.full((1, 1), 2.0, np.float32))[0]))


def returns(run: Any) -> list[float]:
    return [row["train/return"] for row in run.metrics()]


@pytest.mark.parametrize("how", ["sync", "subprocess"])
def test_it_counts_from_then_on_and_comes_back_with_a_resume(tmp_path: Path, how: str):
    options: dict[str, Any] = {"environment": wrapped, "num_envs": 2, "vectorization": how, "log_every": 20}
    options |= {"steps": 220, "evaluate_every": 200, "checkpoint_every": 40}
    whole = train(tmp_path, name="whole", callbacks=[Curriculum()], **options)
    assert whole.metrics()[4]["train/return"] == 10.0  # the first 100 steps: of ten steps each, one a step
    assert whole.metrics()[-1]["train/return"] > 50.0  # a mean, with the early episodes in it
    assert {row["mean_return"] for row in whole.evaluations()} == {10.0}
    assert not any("exactly" in notice for notice in whole.notices)
    with pytest.raises(CrashError):
        train(tmp_path, name="killed", callbacks=[Curriculum(), CrashAt(150)], **options)
    went_on = Run(tmp_path / "killed", wrapped).resume(callbacks=[Curriculum()])
    assert returns(went_on) == returns(whole)


def test_with_hindsight_the_environment_that_is_asked_for_rewards_gets_it_too(tmp_path: Path):
    """Rewards of other goals were the old ones, and then the run ended: compute_reward was said to be wrong."""
    algorithm, seen = small(hindsight="future", batch_size=64), Stricter()
    run = train(tmp_path, algorithm, Tolerant, callbacks=[seen, StopAt(120)], steps=200, checkpoint_every=100)
    assert seen.seen == [0.0] * 59 + [-1.0] * 61
    later = Stricter()
    went_on = Run(run.path, Tolerant).resume(callbacks=[later])
    assert later.seen == [-1.0] * 80
    whole = train(tmp_path, algorithm, Tolerant, name="whole", callbacks=[Stricter()], steps=200, checkpoint_every=100)
    assert_same(whole, went_on)
