"""Whole episodes out of a memory are those that went in, and what is in none is counted, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from memory_cases import VECTOR
from sequence_cases import World

from duetto import buffers
from duetto.algorithms.base import Prioritization, ReplaySpec
from duetto.buffers import Experience, LeftOut
from duetto.networks.spaces import Box, Dict, Discrete

ENDS = ("terminated", "truncated")
PICTURE = Dict((("camera", Box((2, 6, 6), "uint8", (0.0,), (255.0,))), ("place", VECTOR)))


class Raw:
    """What one environment did: T + 1 observations, T actions and rewards, and how it ended ("" while it runs)."""

    def __init__(self, env: int) -> None:
        self.env, self.end = env, ""
        self.obs: list[Any] = []
        self.action: list[int] = []
        self.reward: list[float] = []


def replay(capacity: int, num_envs: int, observation: Any = VECTOR, **changes: Any) -> buffers.Replay:
    spec = ReplaySpec(
        **{
            **{"capacity": capacity, "batch_size": 4, "discount": 0.9, "n_step": 1},
            **{"learning_starts": 0, "train_every": 1, "gradient_steps": 1, "train_at_episode_end": False},
            **{"prioritization": None},
            **changes,
        }
    )
    made = buffers.build(spec, observation, Discrete(1000), num_envs, np.random.default_rng(0))
    assert isinstance(made, buffers.Replay)
    return made


def observed(space: Any, random: np.random.Generator) -> Any:
    if isinstance(space, Dict):
        return {name: observed(part, random) for name, part in space.parts}
    if space.dtype == "uint8":
        return random.integers(0, 256, space.shape, dtype=np.uint8)
    return random.normal(size=space.shape).astype(np.float32)


def rows(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: np.stack([value[name] for value in values]) for name in values[0]}
    return np.stack(values)


def play(made: buffers.Replay, steps: int, num_envs: int, space: Any = VECTOR, interrupt: int = -1) -> list[list[Raw]]:
    """Episodes of 1 to 6 steps, which end in both ways, several environments side by side; what they were."""
    random = np.random.default_rng(1)
    played: list[list[Raw]] = [[] for _ in range(num_envs)]
    for number in range(steps):
        turn = []
        for env, episodes in enumerate(played):
            if not episodes or episodes[-1].end:
                episodes.append(Raw(env))
                episodes[-1].obs.append(observed(space, random))
            raw = episodes[-1]
            raw.obs.append(observed(space, random))
            raw.action.append(int(random.integers(1000)))
            raw.reward.append(float(random.normal()))
            raw.end = str(random.choice(ENDS)) if len(raw.action) == 6 or random.random() < 0.25 else ""
            turn.append(raw)
        made.add(
            Experience(
                env=np.arange(num_envs),
                obs=rows([raw.obs[-2] for raw in turn]),
                action=np.array([raw.action[-1] for raw in turn]),
                reward=np.array([raw.reward[-1] for raw in turn], np.float32),
                next_obs=rows([raw.obs[-1] for raw in turn]),
                terminated=np.array([raw.end == "terminated" for raw in turn]),
                truncated=np.array([raw.end == "truncated" for raw in turn]),
            )
        )
        if number == interrupt:
            made.interrupt()
            for raw in turn:
                raw.end = raw.end or "truncated"
    return played


def whole(episodes: list[Raw], capacity: int) -> list[Raw]:
    """Those that are over and lie in the last `capacity` steps, with the step before them if anything is overwritten.

    Without that step nobody knows that the oldest one starts its episode.
    """
    total, first, found = sum(len(raw.action) for raw in episodes), 0, []
    oldest = total - capacity
    for raw in episodes:
        if raw.end and (first > oldest or oldest <= 0):
            found.append(raw)
        first += len(raw.action)
    return found


def assert_same(found: Any, raw: Any) -> None:
    """An episode of the memory, and what it was."""
    wanted = rows(raw.obs)
    for name in wanted if isinstance(wanted, dict) else [None]:
        one, other = (found.obs, wanted) if name is None else (found.obs[name], wanted[name])
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(found.action, np.array(raw.action))
    np.testing.assert_array_equal(found.reward, np.array(raw.reward, np.float32))


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize(
    ("capacity", "space", "options"),
    [
        (30, VECTOR, {}),
        (30, VECTOR, {"n_step": 3}),
        (30, VECTOR, {"prioritization": Prioritization(0.6, 0.4, 100, 1e-3)}),
        (30, PICTURE, {}),
        (1000, VECTOR, {}),
    ],
    ids=["plain", "n-step", "prioritised", "pictures", "roomy"],
)
def test_transitions(num_envs: int, capacity: int, space: Any, options: dict[str, Any]):
    made = replay(capacity * num_envs, num_envs, space, **options)
    played = play(made, 70, num_envs, space)
    left = LeftOut()
    found = list(made.episodes(left))
    wanted = [raw for episodes in played for raw in whole(episodes, capacity)]
    assert len(found) == len(wanted) > 4 * num_envs
    for episode, raw in zip(found, wanted, strict=True):
        assert_same(episode, raw)
        assert (episode.env, episode.terminated, episode.truncated) == (
            raw.env,
            raw.end == "terminated",
            raw.end == "truncated",
        )
    running = sum(len(episodes[-1].action) for episodes in played if not episodes[-1].end)
    assert left.running == running
    assert left.rows + sum(len(raw.action) for raw in wanted) == len(made)
    assert bool(left.without_beginning) == (capacity < 70)
    assert left.unknown == 0


def test_an_episode_longer_than_the_ring_is_in_none():
    made = replay(5, 1)
    space, random = VECTOR, np.random.default_rng(0)
    obs = [observed(space, random) for _ in range(10)]
    none, one = np.zeros(1, bool), np.ones(1, bool)
    for step in range(9):
        end = one if step == 8 else none
        made.add(
            Experience(
                np.zeros(1, int),
                obs[step][None],
                np.zeros(1, int),
                np.zeros(1, np.float32),
                obs[step + 1][None],
                end,
                none,
            )
        )
        left = LeftOut()
        found = list(made.episodes(left))
        assert found == []
        assert left.rows == min(step + 1, 5)


def test_an_interrupted_episode_is_a_truncated_one():
    made = replay(100, 2)
    played = play(made, 40, 2, interrupt=21)
    found = list(made.episodes(LeftOut()))
    wanted = [raw for episodes in played for raw in whole(episodes, 50)]
    assert [len(episode.reward) for episode in found] == [len(raw.action) for raw in wanted]
    assert [episode.truncated for episode in found] == [raw.end == "truncated" for raw in wanted]


def test_steps_that_do_not_continue_each_other_are_left_out():
    """Two episodes of three steps; in the second one, an observation is not what the step before led to."""
    made, none = replay(100, 1), np.zeros(1, bool)
    for number in range(6):
        obs = np.array([[0.0, number + 0.5 * (number == 4)]], np.float32)
        after, end = np.array([[0.0, number + 1.0]], np.float32), np.array([number % 3 == 2])
        made.add(Experience(np.zeros(1, int), obs, np.zeros(1, int), np.ones(1, np.float32), after, end, none))
    left = LeftOut()
    (found,) = made.episodes(left)
    assert found.obs[:, 1].tolist() == [0, 1, 2, 3]
    assert (left.unknown, left.rows) == (3, 3)


@pytest.mark.parametrize("capacity", [40, 1000])
@pytest.mark.parametrize(
    ("kind", "stacked", "changes"),
    [
        ("vector", 1, {}),
        ("vector", 1, {"burn_in": 0, "overlap": 0, "unroll": 3}),
        ("vector", 1, {"learn_from_start": False}),
        ("dict", 3, {}),
        ("image", 4, {"burn_in": 1, "unroll": 2, "overlap": 1}),
    ],
    ids=["plain", "no overlap", "burn-in", "dict of stacks", "stacks"],
)
def test_sequences(capacity: int, kind: str, stacked: int, changes: dict[str, Any]):
    world, random = World(2, kind, stacked), np.random.default_rng(2)
    made = world.build(capacity=2 * capacity, **changes)
    for _ in range(70):
        for env in range(2):
            made.add(world.step(env, str(random.choice(["", "", "", "", "", *ENDS]))))
    wanted, stored = [], 0
    for env, episodes in enumerate(world.episodes):
        oldest = world.written[env] - made.rows
        stored += world.written[env] - max(oldest, 0)
        wanted += [episode for episode in episodes if episode.done and (oldest <= 0 or episode.first > oldest)]
    left = LeftOut()
    found = list(made.episodes(left))
    assert len(found) == len(wanted) > 3
    for episode, raw in zip(found, wanted, strict=True):
        assert_same(episode, raw)
        assert (episode.env, episode.terminated, episode.truncated) == (raw.env, raw.terminated, not raw.terminated)
    assert left.rows + sum(len(raw.action) for raw in wanted) == stored
    assert bool(left.without_beginning) == (capacity == 40)
    assert left.unknown == 0
