"""Mistakes and changes that once passed without a word: each is refused with a sentence, taken over, or said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from line_environment import Line
from small_runs import StopAt, small, train
from test_run import edit

import duetto
from duetto.algorithms import PPO, SAC, TD3, CrossQ, DiscreteSAC
from duetto.environments import Layout
from duetto.errors import CheckpointError, NonFiniteError, UsageError
from duetto.runs.observation_input import rows
from duetto.runs.run import Run
from duetto.storage.run_folder import free_folder
from duetto.training.trainer import Trainer

PICTURE = gymnasium.spaces.Box(0, 255, (2, 2, 1), np.uint8)


# ------------------------------------------------------------------------------------------------ what an agent sees
@pytest.mark.parametrize(
    ("space", "given", "sentence"),
    [
        (PICTURE, np.full((2, 2, 1), 0.5), "has dtype float64; the agent was trained with uint8. Hand over an image's"),
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
    ("space", "given"),
    [
        (PICTURE, np.full((2, 2, 1), 255, np.int64)),
        (gymnasium.spaces.Discrete(4, start=2), 5),
        (gymnasium.spaces.Box(-1, 1, (2,)), [3, 4.5]),  # boxes of floats may be left, as in training
    ],
)
def test_what_stays_the_same_number_is_taken(space: Any, given: Any):
    rows(Layout(space), given, several=False)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"rewards": [1, 2, 3]}, "rewards is .*; it must be numbers, one for each of 2 observations"),
        ({"rewards": ["a", "b"]}, "rewards is"),
        ({"rewards": [0.0, float("nan")]}, "rewards is"),
        ({"rewards": [[1], [2, 3]]}, "rewards is"),
        ({"starts": [1, 0, 0]}, "starts is .*; it must be truth values, one for each of 2 observations"),
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
    run.resume(accept_changes=True, on_start=lambda trainer: seen.append(temperature(trainer)))
    again = SAC(learn_temperature=False, **FIXED | {"temperature": 0.125})
    train(tmp_path, again, Line, steps=10, from_run=run, callbacks=[lambda s: seen.append(temperature(s))], name="next")
    assert seen[:2] == pytest.approx([0.25, 0.125])


def test_a_temperature_that_is_learned_goes_on(tmp_path: Path):
    run = train(tmp_path, SAC(**FIXED), Line, steps=60, callbacks=[StopAt(30)])
    run = Run(edit(run, {"algorithm.temperature": 0.25}).path, environment=Line)
    seen: list[float] = []
    run.resume(accept_changes=True, on_start=lambda trainer: seen.append(temperature(trainer)))
    assert seen == pytest.approx([0.5])


def begun(folder: Path, from_run: Any, **options: Any) -> tuple[Any, list[str]]:
    found: list[Any] = []
    ppo = PPO(hidden=(4,), rollout_steps=20, minibatches=1, epochs=1, normalize_rewards=True)
    train(folder, ppo, Line, steps=20, from_run=from_run, name="next", callbacks=[found.append], **options)
    return found[0].collector.rewards.moments, list(found[0].notices)


def test_the_scale_of_rewards_is_taken_over_or_its_loss_is_said(tmp_path: Path):
    """With another number of environments, too: their episodes are their own."""
    ppo = PPO(hidden=(4,), rollout_steps=20, minibatches=1, epochs=1, normalize_rewards=True)
    last: list[Trainer] = []
    made = train(tmp_path, ppo, Line, steps=200, callbacks=[last.append], name="made", evaluate_every=50)
    theirs = last[0].collector.rewards.moments
    moments, notices = begun(tmp_path, made, num_envs=2)
    assert moments.count == theirs.count + 20
    assert not any("normalize_rewards starts anew" in notice for notice in notices)
    moments, notices = begun(tmp_path / "best", made, from_checkpoint="best")
    assert moments.count == 21
    assert any("normalize_rewards starts anew" in notice for notice in notices)


# ------------------------------------------------------------------------------------------------ options
@pytest.mark.parametrize("kind", [SAC, CrossQ, DiscreteSAC, TD3, PPO])
@pytest.mark.parametrize("hidden", [256, (0,), (-5,), (64.5,), "256"])
def test_layers_have_units(kind: Any, hidden: Any):
    with pytest.raises(UsageError, match="hidden is"):
        kind(hidden=hidden)


@pytest.mark.parametrize("clip", [0.5, (1.0,), ("a", "b"), (0.5, -0.5), (float("nan"), 1.0)])
def test_a_clip_is_two_numbers(clip: Any):
    with pytest.raises(UsageError, match="target_noise_clip is"):
        TD3(target_noise_clip=clip)


@pytest.mark.parametrize("log_std", ["x", float("nan"), 1e3])
def test_a_std_to_begin_with_is_a_number(log_std: Any):
    with pytest.raises(UsageError, match="initial_log_std is"):
        PPO(initial_log_std=log_std)


# ------------------------------------------------------------------------------------------------ surroundings
def test_a_folder_that_is_a_link_to_nowhere_is_said(tmp_path: Path):
    (tmp_path / "runs").symlink_to(tmp_path / "unmounted")
    with pytest.raises(UsageError, match="is not a folder, or a broken link"):
        free_folder(tmp_path / "runs", "td3")


class Crowd(Line):
    """Says who is alive, under a name that others use for a number."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Crowd.made += 1
        self.alive = list(range(Crowd.made))

    def step(self, action: Any) -> Any:
        *outcome, _ = super().step(action)
        return *outcome, {"lives": self.alive}


def test_lives_that_are_no_number_are_left_alone(tmp_path: Path):
    train(tmp_path, small(), Crowd, steps=20, num_envs=2)


def test_a_reward_beyond_float32_is_said_where_it_comes():
    """It was said a step later, as a policy that has diverged."""

    class Huge(Line):
        def step(self, action: Any) -> Any:
            obs, _, *rest = super().step(action)
            return obs, 1e39, *rest

    stepper = duetto.environments.make(Huge)
    stepper.reset(0)
    with pytest.raises(NonFiniteError, match=r"step 1: the reward 1e\+39 is beyond 3\.4e\+38, where float32 ends"):
        stepper.step(stepper.sample_actions(np.random.default_rng(0)))


def test_a_temperature_that_is_to_be_learned_from_here_on_is_refused_with_what_to_do(tmp_path: Path):
    run = train(tmp_path, small("sac", learn_temperature=False), steps=60, callbacks=[StopAt(40)])
    run = edit(run, {"algorithm.learn_temperature": True})
    with pytest.raises(
        CheckpointError, match=r"was false, is now true\. .* With the old values back it continues; a new run can start"
    ):
        run.resume(accept_changes=True)
