"""`Trainer.set_attr`: callbacks set attributes of environments, also in subprocesses and across a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import pytest
from line_environment import Line
from small_runs import CrashAt, CrashError, train

import duetto
from duetto.runs.run import Run


class ScaledRewards(Line):
    """Its rewards are `scale[0]`."""

    def __init__(self, length: int = 10) -> None:
        super().__init__(length)
        self.scale: Any = [1.0]

    def step(self, action: Any) -> Any:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, self.scale[0], terminated, truncated, info


def wrapped() -> gymnasium.Env:
    return gymnasium.wrappers.RecordEpisodeStatistics(ScaledRewards())


class Curriculum(duetto.Callback):
    """Multiply rewards by 10 from step 100 on."""

    def on_step(self, trainer: duetto.Trainer) -> None:
        if trainer.step == 100:
            trainer.set_attr("scale", [10.0])


@pytest.mark.parametrize("how", ["sync", "subprocess"])
def test_set_attr_applies_at_once_and_survives_resume(tmp_path: Path, how: str):
    options: dict[str, Any] = {"environment": wrapped, "num_envs": 2, "vectorization": how, "log_every": 20}
    options |= {"steps": 220, "evaluate_every": 200, "checkpoint_every": 40}
    whole = train(tmp_path, name="whole", callbacks=[Curriculum()], **options)
    assert whole.metrics()[4]["train/return"] == 10.0  # the first 100 steps: 10 steps per episode, reward 1 each
    assert whole.metrics()[-1]["train/return"] > 50.0  # the mean includes the early episodes
    assert {row["mean_return"] for row in whole.evaluations()} == {10.0}
    assert not any("exactly" in notice for notice in whole.notices)
    with pytest.raises(CrashError):
        train(tmp_path, name="killed", callbacks=[Curriculum(), CrashAt(150)], **options)
    resumed = Run(tmp_path / "killed", wrapped).resume(callbacks=[Curriculum()])
    returns, expected = ([row["train/return"] for row in run.metrics()] for run in (resumed, whole))
    assert returns == expected
