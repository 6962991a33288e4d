"""Mistakes and changes that once passed without a word: each is refused with a sentence, taken over, or said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from line_environment import Line
from small_runs import AtStart, StopAt, small, train
from test_run import edit

import duetto
from duetto.algorithms import SAC
from duetto.environments import Layout
from duetto.errors import CheckpointError, NonFiniteError, UsageError
from duetto.runs.observation_input import rows
from duetto.runs.run import Run
from duetto.training.trainer import Trainer

PICTURE = gymnasium.spaces.Box(0, 255, (2, 2, 1), np.uint8)


# ------------------------------------------------------------------------------------------------ what an agent sees
@pytest.mark.parametrize(
    ("space", "given", "sentence"),
    [
        (PICTURE, np.full((2, 2, 1), 0.5), "has dtype float64; the agent was trained with uint8"),
        (PICTURE, np.full((2, 2, 1), 300), "is not in its space"),
        (PICTURE, np.full((2, 2, 1), -1), "is not in its space"),
        (gymnasium.spaces.Discrete(4), 4, "is not in its space"),
        (gymnasium.spaces.Discrete(4, start=2), 1, "is not in its space"),
        (gymnasium.spaces.Discrete(4), 2.7, "has dtype float64"),
        (gymnasium.spaces.MultiDiscrete([2, 5]), [2, 0], "is not in its space"),
    ],
)
def test_an_observation_that_would_become_another_one_is_refused(space: Any, given: Any, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        rows(Layout(space), given, several=False)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"rewards": [1, 2, 3]}, "Give one finite reward, and one start, for each of the 2"),
        ({"rewards": [0.0, float("nan")]}, "Give one finite reward"),
        ({"starts": [1, 0, 0]}, "Give one finite reward, and one start, for each of the 2"),
    ],
)
def test_rewards_and_starts_are_one_for_each_observation(tmp_path: Path, arguments: Any, sentence: str):
    agent = duetto.load(train(tmp_path, small(recurrent="lstm", recurrent_size=4), Line, steps=40).path)
    agent.act_batch(np.zeros((2, 2)))
    with pytest.raises(UsageError, match=sentence):
        agent.act_batch(np.zeros((2, 2)), **arguments)
    agent.act_batch(np.zeros((2, 2)), rewards=[1, 2], starts=[True, False])


# ------------------------------------------------------------------------------------------------ runs from runs
FIXED: dict[str, Any] = {
    "hidden": (4,),
    "batch_size": 4,
    "random_steps": 0,
    "learning_starts": 10**6,
    "temperature": 0.5,
}


def temperature(trainer: Trainer) -> float:
    return float(np.exp(trainer.learner.parameters()["log_alpha"]["value"]))


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_fixed_temperature_is_that_of_the_config(tmp_path: Path, backend: str):
    fixed = SAC(learn_temperature=False, **FIXED)
    run = train(tmp_path, fixed, Line, steps=60, callbacks=[StopAt(30)], backend=backend)
    run = Run(edit(run, {"algorithm.temperature": 0.25}).path, environment=Line)
    seen: list[float] = []
    run.resume(accept_changes=True, callbacks=[AtStart(lambda trainer: seen.append(temperature(trainer)))])
    again = SAC(learn_temperature=False, **FIXED | {"temperature": 0.125})
    train(tmp_path, again, Line, steps=10, from_run=run, callbacks=[lambda s: seen.append(temperature(s))], name="next")
    assert seen[:2] == pytest.approx([0.25, 0.125])


# ------------------------------------------------------------------------------------------------ options


# ------------------------------------------------------------------------------------------------ surroundings


def test_a_reward_beyond_float32_is_said_where_it_comes():
    """It was said a step later, as a policy that has diverged."""

    class Huge(Line):
        def step(self, action: Any) -> Any:
            obs, _, *rest = super().step(action)
            return obs, 1e39, *rest

    stepper = duetto.environments.make(Huge)
    stepper.reset(0)
    with pytest.raises(NonFiniteError, match="step 1: the reward is NaN or infinite"):
        stepper.step(stepper.sample_actions(np.random.default_rng(0)))


def test_a_temperature_that_is_to_be_learned_from_here_on_is_refused_with_what_to_do(tmp_path: Path):
    run = train(tmp_path, small("sac", learn_temperature=False), steps=60, callbacks=[StopAt(40)])
    run = edit(run, {"algorithm.learn_temperature": True})
    with pytest.raises(
        CheckpointError, match=r"was false, is now true\. .* Put the old values back, or start a new run"
    ):
        run.resume(accept_changes=True)
