"""Wrappers with running statistics would be others in evaluations: refused, with what does it right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, TimeLimit
from gymnasium.wrappers.utils import RunningMeanStd
from line_environment import Line
from small_runs import small, train

from duetto.errors import UsageError


class Own(gymnasium.Wrapper):
    """A user's own, with the class that everybody takes."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.moments = RunningMeanStd(shape=(2,))


def wrapped() -> gymnasium.Env:
    return TimeLimit(NormalizeObservation(Line()), 100)


def vectors() -> gymnasium.vector.VectorEnv:
    return gymnasium.wrappers.vector.NormalizeObservation(gymnasium.vector.SyncVectorEnv([Line, Line]))


@pytest.mark.parametrize(
    ("environment", "algorithm", "named", "instead"),
    [
        (wrapped, "td3", "NormalizeObservation", "give td3 normalize_observations='collected'"),
        (wrapped, "ppo", "NormalizeObservation", "give ppo normalize_observations=True"),
        (wrapped(), "td3", "NormalizeObservation", "give td3 normalize_observations='collected'"),
        (vectors(), "td3", "NormalizeObservation", "give td3 normalize_observations='collected'"),
        (gymnasium.vector.SyncVectorEnv([wrapped] * 2), "td3", "NormalizeObservation", "normalize_observations="),
        (lambda: NormalizeReward(Line()), "ppo", "NormalizeReward", "give ppo normalize_rewards=True"),
        (
            lambda: NormalizeReward(Line()),
            "td3",
            "NormalizeReward",
            "give td3 normalize_rewards=True",
        ),
        (lambda: Own(Line()), "td3", "Own", "give td3 normalize_observations='collected'"),
    ],
)
def test_it_is_refused(tmp_path: Path, environment: Any, algorithm: str, named: str, instead: str):
    with pytest.raises(UsageError) as refusal:
        train(tmp_path, small(algorithm), environment)
    assert f" has a {named}: its running statistics are those of one environment" in str(refusal.value)
    assert instead in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_statistics_that_stand_still_are_the_same_everywhere(tmp_path: Path):
    def fixed() -> gymnasium.Env:
        environment = NormalizeObservation(Line())
        environment.update_running_mean = False
        return environment

    assert train(tmp_path, environment=fixed, steps=40).evaluations()
