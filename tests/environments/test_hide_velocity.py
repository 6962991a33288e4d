"""Classic control without velocities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from resuming import check_resume

from duetto.environments import make, make_eval
from duetto.errors import UsageError
from duetto.networks.spaces import Box

VELOCITIES = {
    "CartPole-v1": [1, 3],
    "Pendulum-v1": [2],
    "MountainCar-v0": [1],
    "MountainCarContinuous-v0": [1],
    "Acrobot-v1": [4, 5],
    "LunarLander-v3": [2, 3, 5],
}
MASKED = {"mask_velocity": True}


@pytest.mark.parametrize("environment", VELOCITIES)
@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # SWIG in Box2D
def test_velocities_are_left_out_and_nothing_else(environment: str) -> None:
    if environment.startswith("Lunar"):
        pytest.importorskip("Box2D")
    left_out = VELOCITIES[environment]
    whole, masked, other = (
        make(environment, num_envs=2),
        make(environment, num_envs=2, kwargs=MASKED),
        make_eval(environment, num_envs=2, kwargs=MASKED),
    )
    space, part = whole.observation_space, masked.observation_space
    assert isinstance(space, Box)
    assert part == other.observation_space
    assert part == Box(
        (space.size - len(left_out),),
        "float32",
        tuple(np.delete(space.low, left_out)),
        tuple(np.delete(space.high, left_out)),
    )
    for stepper in (whole, masked):
        stepper.reset(1)
    random = np.random.default_rng(0)
    for _ in range(250):
        assert np.array_equal(masked.obs, np.delete(whole.obs, left_out, axis=1))
        action = whole.sample_actions(random)
        (row, ended), (masked_row, masked_ended) = whole.step(action), masked.step(action)
        assert np.array_equal(masked_row.next_obs, np.delete(row.next_obs, left_out, axis=1))
        assert np.array_equal(masked_row.reward, row.reward)
        assert masked_ended == ended


@pytest.mark.parametrize("environment", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_the_velocities_themselves_are_saved(environment: str, vectorization: Any) -> None:
    check_resume(environment, 450, kwargs=MASKED, vectorization=vectorization)


def test_other_arguments_still_reach_the_environment() -> None:
    masked = make("Pendulum-v1", kwargs=MASKED | {"g": 0.0})
    whole = make("Pendulum-v1", kwargs={"g": 0.0, "mask_velocity": False})
    assert (masked.observation_space.size, whole.observation_space.size) == (2, 3)
    assert masked.engine.envs[0].unwrapped.g == 0


def test_other_environments_have_no_such_option() -> None:
    with pytest.raises(UsageError, match=r"Reacher-v5 has no option mask_velocity\. These have it: CartPole, Pend"):
        make("Reacher-v5", kwargs=MASKED)
