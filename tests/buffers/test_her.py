"""Hindsight experience replay: the goals of a batch, and their rewards and discounts.

The goal that a step achieves is (environment, number + 1), and desired goals are negative. So a goal in a batch names
the step that achieved it.
"""

from __future__ import annotations

import numpy as np
import pytest
from memory_cases import ACTION, PROPORTIONAL, spec

from duetto import buffers
from duetto.algorithms.base import HindsightSpec
from duetto.networks.spaces import Box, Dict

GOAL = Box((2,), "float32", (-np.inf,) * 2, (np.inf,) * 2)
SPACE = Dict((("achieved_goal", GOAL), ("desired_goal", GOAL), ("observation", GOAL)))
WANTED = -7.0


class Goals:
    """Reward 0 where the goal is reached and -1 elsewhere; with `terminates`, a reached goal ends the task."""

    name = "these goals"
    changed = False

    def __init__(self, terminates: bool = True) -> None:
        self.terminates = terminates

    def reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return -(achieved != desired).any(axis=-1).astype(np.float32)

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray | None:
        return (achieved == desired).all(axis=-1) if self.terminates else None


def build(strategy: str = "future", share: float = 0.8, num_envs: int = 1, seed: int = 0, goals=None, **changes):
    described = spec(**{"batch_size": 512} | changes, hindsight=HindsightSpec(strategy, share))
    random = np.random.default_rng(seed)
    return buffers.build(described, SPACE, ACTION, num_envs, random, goals=goals or Goals())


def rows(env: list[int], number: list[int], terminated=False, truncated=False) -> buffers.Experience:
    pairs = np.stack([env, number], axis=1).astype(np.float32)
    wanted = np.full_like(pairs, WANTED)
    after = pairs + np.float32([0, 1])
    return buffers.Experience(
        env=np.array(env),
        obs={"observation": pairs, "achieved_goal": pairs, "desired_goal": wanted},
        action=np.zeros((len(env), 1), np.float32),
        reward=np.full(len(env), -1, np.float32),
        next_obs={"observation": after, "achieved_goal": after, "desired_goal": wanted},
        terminated=np.broadcast_to(terminated, len(env)).astype(bool),
        truncated=np.broadcast_to(truncated, len(env)).astype(bool),
    )


def play(replay, lengths: list[int]) -> None:
    """Store truncated episodes of these lengths."""
    ends = np.cumsum(lengths) - 1
    for number in range(sum(lengths)):
        replay.add(rows([0], [number], truncated=number in ends))


class Drawn:
    """Many batches as flat arrays. `source` is the number of the step that achieved an item's goal."""

    def __init__(self, replay, batches: int = 20) -> None:
        parts = [replay.sample().batch for _ in range(batches)]
        self.env, self.number = np.concatenate([b.obs["observation"] for b in parts]).T.astype(int)
        self.goal = np.concatenate([b.obs["desired_goal"] for b in parts])
        self.next_goal = np.concatenate([b.next_obs["desired_goal"] for b in parts])
        self.reward, self.discount = (np.concatenate([getattr(b, n) for b in parts]) for n in ("reward", "discount"))
        self.relabelled = self.goal[:, 1] != WANTED
        self.goal_env, self.source = self.goal[:, 0].astype(int), self.goal[:, 1].astype(int) - 1


# ------------------------------------------------------------------------------------------------ goals
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_her_relabels_a_share_of_the_goals(share: float):
    replay = build(share=share)
    play(replay, [10] * 5)
    drawn = Drawn(replay)
    assert abs(drawn.relabelled.mean() - share) < 4 * 0.5 / np.sqrt(len(drawn.relabelled))
    np.testing.assert_array_equal(drawn.goal, drawn.next_goal)


@pytest.mark.parametrize(("strategy", "first"), [("future", 2), ("episode", 0)])
def test_her_draws_goals_uniformly(strategy: str, first: int):
    """In an episode of 10, step 2 gets the goals of the steps from `first` to 9, each equally often."""
    replay = build(strategy, share=1.0)
    play(replay, [10] * 5)
    drawn = Drawn(replay, 200)
    counts = np.bincount(drawn.source[drawn.number % 10 == 2] % 10, minlength=10)
    assert not counts[:first].any()
    expected = counts.sum() / (10 - first)
    assert ((counts[first:] - expected) ** 2 / expected).sum() / (9 - first) < 3  # χ² per degree of freedom


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("capacity", [17, 23, 60])
def test_her_goals_come_from_the_same_stored_episode(strategy: str, capacity: int):
    """Environments have episodes of other lengths and ends, and some vector steps lack environment 1.

    Overwritten steps give no goals. A running episode counts as if it ended with its newest step.
    """
    replay = build(strategy, share=1.0, num_envs=3, capacity=3 * capacity)
    ends: list[list[int]] = [[], [], []]  # numbers of the steps that end an episode
    written = np.zeros(3, int)
    for call in range(70):
        envs = [0, 1, 2] if call % 3 else [2, 0]
        numbers = [int(written[env]) for env in envs]
        ended = [(number + 1) % (4, 7, 9)[env] == 0 for env, number in zip(envs, numbers, strict=True)]
        replay.add(rows(envs, numbers, np.array(ended) & (call % 2 == 0), np.array(ended) & (call % 2 == 1)))
        written[envs] += 1
        if call % 11 == 10:
            replay.interrupt(np.array([True, False, False]))
            ended[envs.index(0)] = True
        for env, number, end in zip(envs, numbers, ended, strict=True):
            ends[env] += [number] if end else []
        if call < 3 or call % 4:
            continue
        drawn = Drawn(replay, 1)
        np.testing.assert_array_equal(drawn.goal_env, drawn.env)
        for env in range(3):
            number, source = drawn.number[drawn.env == env], drawn.source[drawn.env == env]
            last = np.array([*ends[env], written[env] - 1])  # the last step of each episode
            episode = last.searchsorted(number)
            np.testing.assert_array_equal(last.searchsorted(source), episode)
            assert source.min(initial=call) >= max(written[env] - capacity, 0)
            if strategy == "final":
                np.testing.assert_array_equal(source, last[episode])
            if strategy == "future":
                assert (source >= number).all()


# ------------------------------------------------------------------------------------------------ rewards and discounts
def test_her_recomputes_rewards_and_discounts():
    replay = build()
    play(replay, [6] * 5)
    drawn = Drawn(replay)
    own = drawn.relabelled & (drawn.source == drawn.number)
    assert own.any()
    np.testing.assert_array_equal(drawn.reward, np.where(own, 0, -1))
    np.testing.assert_array_equal(drawn.discount, np.where(own, 0, 0.9).astype(np.float32))  # truncations bootstrap


@pytest.mark.parametrize("terminates", [False, True])
def test_her_keeps_stored_terminations_if_goals_define_none(terminates: bool):
    replay = build("final", share=1.0, goals=Goals(terminates))
    for number in range(20):
        replay.add(rows([0], [number], terminated=number % 4 == 1, truncated=number % 4 == 3))
    drawn = Drawn(replay)
    ended = drawn.source == drawn.number if terminates else drawn.number % 4 == 1
    np.testing.assert_array_equal(drawn.discount, np.where(ended, 0, 0.9).astype(np.float32))


def test_her_batches_do_not_change_stored_goals():
    replay = build(share=1.0)
    play(replay, [6] * 3)
    before = {name: array.copy() for name, array in replay.segment(np.zeros(1, np.int64)).items()}
    Drawn(replay)
    for name, array in replay.segment(np.zeros(1, np.int64)).items():
        np.testing.assert_array_equal(array, before[name])


def test_her_works_with_priorities():
    """All mass is on step 3, which gets the goals of steps 3 to 7."""
    replay = build(share=1.0, prioritization=PROPORTIONAL)
    play(replay, [8])
    sample = replay.sample(200)
    replay.feedback(sample, np.where(sample.batch.obs["observation"][:, 1] == 3, 1e6, 0.0))
    drawn = Drawn(replay)
    assert (drawn.number == 3).mean() > 0.99
    assert set(drawn.source[drawn.number == 3]) == {3, 4, 5, 6, 7}
