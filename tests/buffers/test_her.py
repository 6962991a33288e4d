"""Hindsight, from outside: episodes go in, batches come out. Every transition says in its parts who it is.

Achieved goals name the step that they were reached in, (environment, number + 1); desired ones are negative. So a goal
in a batch says where it came from.
"""

from __future__ import annotations

import numpy as np
import pytest
from memory_cases import ACTION, PROPORTIONAL, spec

from duetto import buffers
from duetto.algorithms.base import HindsightSpec
from duetto.errors import EnvironmentFailedError
from duetto.networks.spaces import Box, Dict

GOAL = Box((2,), "float32", (-np.inf,) * 2, (np.inf,) * 2)
SPACE = Dict((("achieved_goal", GOAL), ("desired_goal", GOAL), ("observation", GOAL)))
WANTED = -7.0


class Goals:
    """Reward 0 where the goal is reached and -1 elsewhere; such a step terminates, if anybody asks."""

    name = "these goals"
    changed = False

    def __init__(self, terminates: bool = True, wrong: float = 0.0) -> None:
        self.terminates, self.wrong = terminates, wrong

    def reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return self.wrong - (achieved != desired).any(axis=-1).astype(np.float32)

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


def play(replay, lengths: list[int], env: int = 0, first: int = 0, running: int = 0) -> None:
    """Episodes of these lengths, all truncated, and some steps of one that has not ended."""
    number = first
    for length in lengths:
        for step in range(length):
            replay.add(rows([env], [number], truncated=step == length - 1))
            number += 1
    for _ in range(running):
        replay.add(rows([env], [number]))
        number += 1


class Drawn:
    """Many batches as flat arrays: who each item is, where its goal came from, and whether it was replaced.

    `source` is the number of the step that led to the goal.
    """

    def __init__(self, replay, batches: int = 20) -> None:
        parts = [replay.sample().batch for _ in range(batches)]
        self.env, self.number = np.concatenate([b.obs["observation"] for b in parts]).T.astype(int)
        self.goal = np.concatenate([b.obs["desired_goal"] for b in parts])
        self.next_goal = np.concatenate([b.next_obs["desired_goal"] for b in parts])
        self.achieved = np.concatenate([b.next_obs["achieved_goal"] for b in parts])
        self.reward, self.discount = (np.concatenate([getattr(b, n) for b in parts]) for n in ("reward", "discount"))
        self.relabelled = self.goal[:, 1] != WANTED
        self.goal_env, self.source = self.goal[:, 0].astype(int), self.goal[:, 1].astype(int) - 1


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """Per degree of freedom: about 1 where the counts are of this distribution."""
    return float(((counts - expected) ** 2 / expected).sum() / (len(counts) - 1))


# ------------------------------------------------------------------------------------------------ which goals
@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0])
def test_the_share_is_relabelled(share: float):
    replay = build(share=share)
    play(replay, [10] * 5)
    drawn = Drawn(replay)
    assert abs(drawn.relabelled.mean() - share) < 4 * 0.5 / np.sqrt(len(drawn.relabelled))
    np.testing.assert_array_equal(drawn.goal, drawn.next_goal)


def test_future_is_uniform_from_the_step_on():
    """In an episode of 10, step 2 gets the goals that steps 2 .. 9 led to, each as often; and none from before."""
    replay = build(share=1.0)
    play(replay, [10] * 5)
    drawn = Drawn(replay, 200)
    end = drawn.number // 10 * 10 + 9
    assert ((drawn.source >= drawn.number) & (drawn.source <= end)).all()
    for step in (0, 2, 7):
        offsets = (drawn.source - drawn.number)[drawn.number % 10 == step]
        counts = np.bincount(offsets, minlength=10 - step)
        assert chi_square(counts, np.full(10 - step, counts.sum() / (10 - step))) < 3


def test_final_is_the_last_step():
    replay = build("final", share=1.0)
    play(replay, [10, 4, 7])
    drawn = Drawn(replay)
    ends = np.array([9, 13, 20])
    np.testing.assert_array_equal(drawn.source, ends[np.searchsorted(ends, drawn.number)])


def test_episode_is_uniform_over_all_of_it():
    replay = build("episode", share=1.0)
    play(replay, [8] * 4)
    drawn = Drawn(replay, 200)
    np.testing.assert_array_equal(drawn.source // 8, drawn.number // 8)
    counts = np.bincount(drawn.source % 8, minlength=8)
    assert chi_square(counts, np.full(8, counts.sum() / 8)) < 3


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_an_episode_that_runs_counts_as_far_as_it_has_come(strategy: str):
    replay = build(strategy, share=1.0)
    play(replay, [5], running=3)
    drawn = Drawn(replay)
    running = drawn.number >= 5
    assert set(drawn.source[running]) == ({7} if strategy == "final" else {5, 6, 7})
    assert drawn.source[~running].max() == 4


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("capacity", [17, 23, 40])
def test_across_the_edge_of_the_ring(strategy: str, capacity: int):
    """The ring goes round in the middle of episodes: what is overwritten is no goal, and no episode's end is lost."""
    replay = build(strategy, share=1.0, capacity=capacity)
    number = 0
    for length in (6, 11, 3, 9, 14, 5, 8):
        play(replay, [length], first=number)
        number += length
        drawn = Drawn(replay, 3)
        ends = np.cumsum((6, 11, 3, 9, 14, 5, 8)) - 1
        episode = np.searchsorted(ends, drawn.number)
        np.testing.assert_array_equal(np.searchsorted(ends, drawn.source), episode)
        assert drawn.source.min() >= max(number - capacity, 0)
        if strategy == "final":
            np.testing.assert_array_equal(drawn.source, ends[episode])
        if strategy == "future":
            assert (drawn.source >= drawn.number).all()


def test_environments_have_goals_of_their_own():
    """Three environments with episodes of other lengths, at their own pace."""
    replay = build(share=1.0, num_envs=3, capacity=60)
    lengths = (4, 7, 9)
    numbers = [0, 0, 0]
    for call in range(80):
        envs = [0, 1, 2] if call % 3 else [2, 0]
        told = []
        for env in envs:
            told.append(numbers[env])
            numbers[env] += 1
        ended = [(number + 1) % lengths[env] == 0 for env, number in zip(envs, told, strict=True)]
        replay.add(rows(envs, told, truncated=ended))
        if call > 3:
            drawn = Drawn(replay, 1)
            length = np.array(lengths)[drawn.env]
            np.testing.assert_array_equal(drawn.goal_env, drawn.env)
            np.testing.assert_array_equal(drawn.source // length, drawn.number // length)
            assert (drawn.source >= drawn.number).all()


@pytest.mark.parametrize("end", ["terminated", "truncated", "interrupted"])
def test_every_end_is_an_end(end: str):
    replay = build(share=1.0)
    for number in range(12):
        over = number == 4
        replay.add(rows([0], [number], end == "terminated" and over, end == "truncated" and over))
        if over and end == "interrupted":
            replay.interrupt()
    drawn = Drawn(replay)
    np.testing.assert_array_equal(drawn.source > 4, drawn.number > 4)


# ------------------------------------------------------------------------------------------------ what follows
def test_reward_and_end_are_those_of_the_new_goal():
    replay = build()
    play(replay, [6] * 5)
    drawn = Drawn(replay)
    own = drawn.relabelled & (drawn.source == drawn.number)
    assert own.any()
    np.testing.assert_array_equal(drawn.reward, np.where(own, 0, -1))
    np.testing.assert_array_equal(drawn.discount, np.where(own, 0, 0.9).astype(np.float32))  # truncation ends nothing


def test_what_the_environment_does_not_say_of_goals_stays():
    """Two of five steps terminated, for a reason that is no goal's."""
    replay = build(goals=Goals(terminates=False))
    for number in range(20):
        replay.add(rows([0], [number], terminated=number % 5 == 4))
    drawn = Drawn(replay)
    np.testing.assert_array_equal(drawn.discount, np.where(drawn.number % 5 == 4, 0, 0.9).astype(np.float32))


def test_an_end_that_was_another_goals_is_none():
    replay = build("final", share=1.0)
    for number in range(20):
        replay.add(rows([0], [number], terminated=number % 4 == 1, truncated=number % 4 == 3))
    drawn = Drawn(replay)
    np.testing.assert_array_equal(drawn.discount == 0, drawn.source == drawn.number)


def test_what_is_stored_stays_as_it_was():
    replay = build(share=1.0)
    play(replay, [6] * 3)
    before = {name: array.copy() for name, array in replay.segment(np.zeros(1, np.int64)).items()}
    Drawn(replay)
    for name, array in replay.segment(np.zeros(1, np.int64)).items():
        np.testing.assert_array_equal(array, before[name])


def test_rewards_that_compute_reward_does_not_give_are_refused():
    replay = build(goals=Goals(wrong=0.5))
    play(replay, [6] * 3)
    with pytest.raises(EnvironmentFailedError, match=r"compute_reward gives -0.5 where the step gave -1"):
        replay.sample()


# ------------------------------------------------------------------------------------------------ checkpoints
def test_priorities_choose_as_without():
    """Only step 3 has any mass: it is drawn every time, with goals from 3 on; its priority goes back to it."""
    replay = build(share=1.0, prioritization=PROPORTIONAL)
    play(replay, [8])
    sample = replay.sample(200)
    replay.feedback(sample, np.where(sample.batch.obs["observation"][:, 1] == 3, 1e6, 0.0))
    drawn = Drawn(replay)
    assert (drawn.number == 3).mean() > 0.99
    assert set(drawn.source[drawn.number == 3]) == {3, 4, 5, 6, 7}
