"""Environments of every family continue exactly after a `kill -9`; one that cannot starts a new "
"episode and is named."""

from __future__ import annotations

import importlib.util
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import AtStart, CrashAt, CrashError, StopAt, assert_same, small, train
from test_resume import check_killed_anywhere

from duetto.runs.run import Run
from duetto.storage.config import Config
from duetto.training.trainer import Trainer

sys.path.insert(0, str(Path(__file__).parents[1] / "environments"))

import hidden_environments as hidden

NEEDS = {"BipedalWalker-v3": "Box2D", "LunarLanderContinuous-v3": "Box2D", "HopperBulletEnv-v0": "pybullet"}


@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # SWIG in Box2D
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
@pytest.mark.parametrize("environment", ["LunarLanderContinuous-v3", "BipedalWalker-v3", "HopperBulletEnv-v0"])
def test_killed_at_a_random_step_of_an_episode(tmp_path: Path, environment: str, vectorization: str):
    if importlib.util.find_spec(NEEDS[environment]) is None:
        pytest.skip(f"needs {NEEDS[environment]}")
    options: dict[str, Any] = {"num_envs": 2, "vectorization": vectorization, "steps": 600, "evaluate_every": 0}
    check_killed_anywhere(tmp_path, environment=environment, **options)


@pytest.mark.parametrize("draws", [hidden.OfNumpy, hidden.OfRandom])
def test_one_that_draws_from_other_generators_goes_on_exactly_alone_in_its_process(tmp_path: Path, draws: Any):
    """Evaluations draw from the same global generators, and leave them where they were."""

    def seeded(name: str, **options: Any) -> Run:
        random.seed(3)
        np.random.seed(3)
        return train(tmp_path, environment=draws, name=name, **options)

    with pytest.raises(CrashError):
        seeded("crashed", callbacks=[CrashAt(155)])
    whole = seeded("whole")
    went_on = Run(tmp_path / "crashed", draws).resume()
    assert_same(whole, went_on)


class Remembering(hidden.OfOlderGenerators):
    """It adds the last digit of its first seed, in all episodes."""

    digit = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.digit = self.digit if seed is None else seed % 10
        return super().reset(seed=seed)

    def _number(self) -> float:
        return super()._number() + self.digit


def test_one_whose_state_outlives_an_episode_begins_a_new_one_and_the_history_says_so(tmp_path: Path):
    """And only that one of two: the other continues where it was."""
    heard: list[str] = []
    starts: list[list[bool]] = []

    def look(trainer: Trainer) -> None:
        heard.extend(trainer.notices)
        starts.append(trainer.stepper.starts.tolist())

    options: dict[str, Any] = {"num_envs": 2, "steps": 200, "evaluate_every": 0}
    run = train(tmp_path, small(), Remembering, callbacks=[StopAt(120)], **options)  # 10 steps into second episodes
    Run(run.path, Remembering).resume(callbacks=[AtStart(look)])
    [notice] = heard
    assert notice.startswith("The state of 1 of the 2 environments Remembering could not be restored (its episode")
    assert "the run continues with new episodes, so from here it is not the same" in notice
    assert starts == [[False, True]]
    [event] = Config.load(run.path / "config.yaml").history.inexact
    assert (event.step, event.what) == (120, notice)
