"""`check_tracker` and `check_engine` accept correct trackers and vector environments, and find broken ones."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from vector_envs import Whole

from duetto.testing import check_engine, check_tracker
from duetto.trackers import Point, Tracker


class Silent(Tracker):
    name = "silent"

    def start(self, run: str, known: str | None, config: Any, folder: Any) -> tuple[str, str]:
        return known or "1", ""

    def send(self, point: Point) -> None: ...

    def best(self, folder: Any, step: int, mean_return: float) -> None: ...

    def finish(self, failed: bool) -> None: ...


class Forgetful(Silent):
    def start(self, run: str, known: str | None, config: Any, folder: Any) -> tuple[str, str]:
        return f"{known}1", ""


class Refusing(Silent):
    def send(self, point: Point) -> None:
        raise ConnectionError("nobody is there")


def test_check_tracker_finds_broken_trackers():
    check_tracker(Silent)
    with pytest.raises(AssertionError, match="the tracked run was not continued"):
        check_tracker(Forgetful)
    with pytest.raises(AssertionError, match="The tracker silent failed: ConnectionError: nobody is there"):
        check_tracker(Refusing)


class Unseeded(gymnasium.Wrapper):
    def step(self, action: Any) -> Any:
        obs, _, *others = self.env.step(action)
        return obs, float(np.random.default_rng().normal()), *others


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_check_engine_finds_broken_vector_environments(mode: AutoresetMode):
    def make(wrap: Any = lambda env: env, name: str = "CartPole-v1") -> Whole:
        return Whole([lambda: wrap(gymnasium.make(name))] * 2, autoreset_mode=mode)

    check_engine(make)
    with pytest.raises(AssertionError, match="step 0: /reward differs with the same seed and actions"):
        check_engine(lambda: make(Unseeded))
    with pytest.raises(AssertionError, match="no episode ended in 300 steps"):
        check_engine(lambda: make(name="MountainCarContinuous-v0"))
