"""MiniGrid saved in the middle of its episodes continues bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from resuming import assert_equal, plain, record

from duetto.environments import make

pytest.importorskip("minigrid")
SHORT = {"max_steps": 60}


def test_saved_with_a_seed_without_a_step_and_after_a_reset_of_one() -> None:
    saving = make("BabyAI-GoToSeq-v0", num_envs=4, kwargs=SHORT)
    saving.reset(11)
    saving.reset_env(1, 5)
    saving.engine.envs[2].reset()  # without a seed, as after an episode
    random = np.random.default_rng(0)
    record(saving, random, 25)
    saving.reset_env(3, 8)
    state = saving.state_dict()
    plain(state)
    numbers = random.bit_generator.state
    expected = record(saving, random, 130)
    resumed = make("BabyAI-GoToSeq-v0", num_envs=4, kwargs=SHORT)
    resumed.load_state_dict(state)
    assert resumed.resumed_exactly
    again = resumed.state_dict()  # before another step
    assert str(again) == str(state)
    random.bit_generator.state = numbers
    assert_equal(expected, record(resumed, random, 130))


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
@pytest.mark.parametrize("spoil", ["action", "numbers"])
def test_another_episode_is_no_exact_resume(spoil: str, vectorization: Any) -> None:
    """Only that environment starts a new one."""

    def fresh() -> Any:
        return make("MiniGrid-DoorKey-5x5-v0", num_envs=2, vectorization=vectorization)

    saving, resumed, begun = fresh(), fresh(), fresh()
    saving.reset(0)
    record(saving, np.random.default_rng(0), 8)
    state = saving.state_dict()
    own = state["environments"]["1"]
    if spoil == "action":
        own["actions"] = own["actions"].copy()
        own["actions"][-8] = (own["actions"][-8] + 1) % 2
    else:
        own["begin"]["seed"] += 1
    resumed.load_state_dict(state)
    begun.load_state_dict(state | {"environments": None})
    assert resumed.restored.tolist() == [True, False]
    assert resumed.starts.tolist() == [False, True]
    assert resumed.steps == 8
    assert np.array_equal(resumed.obs[0], saving.obs[0])
    assert np.array_equal(resumed.obs[1], begun.obs[1])
    for stepper in (saving, resumed, begun):
        stepper.close()


@pytest.mark.parametrize("first", [True, False])
def test_what_was_set_before_and_within_an_episode_comes_back(first: bool) -> None:
    """Each episode of this one starts with as many obstacles as `n_obstacles` says, at first the constructor's."""
    saving, resumed = (make("MiniGrid-Dynamic-Obstacles-8x8-v0", kwargs=SHORT) for _ in range(2))
    random = np.random.default_rng(0)
    saving.reset(0)
    if not first:
        saving.set_attr("n_obstacles", 2)
    record(saving, random, 70)
    while saving.starts.any():  # within an episode
        record(saving, random, 1)
    saving.set_attr("n_obstacles", 1)
    state, numbers = saving.state_dict(), random.bit_generator.state
    plain(state)
    expected = record(saving, random, 130)
    resumed.load_state_dict(state)
    assert resumed.resumed_exactly
    random.bit_generator.state = numbers
    assert_equal(expected, record(resumed, random, 130))
    assert resumed.engine.envs[0].unwrapped.n_obstacles == 1
