"""Classic control with `mask_velocity`: observations without velocities."""

from __future__ import annotations

import numpy as np
import pytest
from resume_checks import check_resume

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
def test_mask_velocity_removes_only_velocities(environment: str) -> None:
    if environment.startswith("Lunar"):
        pytest.importorskip("Box2D")
    hidden = VELOCITIES[environment]
    whole, masked, other = (
        make(environment, num_envs=2),
        make(environment, num_envs=2, kwargs=MASKED),
        make_eval(environment, num_envs=2, kwargs=MASKED),
    )
    space, part = whole.observation_space, masked.observation_space
    assert isinstance(space, Box)
    assert part == other.observation_space
    assert part == Box(
        (space.size - len(hidden),),
        "float32",
        tuple(np.delete(space.low, hidden)),
        tuple(np.delete(space.high, hidden)),
    )
    for stepper in (whole, masked):
        stepper.reset(1)
    random = np.random.default_rng(0)
    for _ in range(250):
        assert np.array_equal(masked.obs, np.delete(whole.obs, hidden, axis=1))
        action = whole.sample_actions(random)
        (row, ended), (masked_row, masked_ended) = whole.step(action), masked.step(action)
        assert np.array_equal(masked_row.next_obs, np.delete(row.next_obs, hidden, axis=1))
        assert np.array_equal(masked_row.reward, row.reward)
        assert masked_ended == ended


def test_masked_environment_resumes_exactly() -> None:
    check_resume("CartPole-v1", 200, kwargs=MASKED)


def test_mask_velocity_is_refused_for_other_environments() -> None:
    with pytest.raises(UsageError, match=r"Reacher-v5 has no option mask_velocity\. These have it: CartPole, Pend"):
        make("Reacher-v5", kwargs=MASKED)
