from dataclasses import replace

import numpy as np
import pytest
from memory_cases import PROPORTIONAL, build, fill, rows


def schedule(steps, ends=(), num_envs=1, **changes):
    """How many batches are due after each vector step; `ends` are the steps (from 1) that end an episode."""
    replay = build(num_envs, **changes)
    due = []
    for step in range(1, steps + 1):
        truncated = [step in ends and env == 0 for env in range(num_envs)]
        replay.add(rows(np.arange(num_envs), step - 1, truncated=truncated))
        due.append(len(list(replay.due())))
    return due


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [1, 1, 1, 1, 1, 1]),
        ({"learning_starts": 3}, [0, 0, 0, 1, 1, 1]),
        ({"gradient_steps": 3}, [3, 3, 3, 3, 3, 3]),
        ({"train_every": 2}, [0, 1, 0, 1, 0, 1]),
        ({"train_every": 3, "gradient_steps": 2}, [0, 0, 2, 0, 0, 2]),
        ({"train_every": 2, "gradient_steps": 2, "learning_starts": 3}, [0, 0, 0, 0, 2, 0]),
        ({"num_envs": 4}, [4, 4, 4, 4, 4, 4]),
        ({"num_envs": 4, "learning_starts": 6}, [0, 2, 4, 4, 4, 4]),
        ({"num_envs": 4, "train_every": 3}, [1, 1, 2, 1, 1, 2]),  # 4, 8, 12, ... steps: 1, 2, 4, 5, 6, 8 phases
        ({"num_envs": 2, "train_every": 8, "gradient_steps": 3}, [0, 0, 0, 3, 0, 0]),
    ],
)
def test_after_every_step(changes, expected):
    assert schedule(6, **changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0, 0, 3, 0, 2, 0, 0]),  # as many batches as the episode had steps
        ({"gradient_steps": 2}, [0, 0, 6, 0, 4, 0, 0]),
        ({"learning_starts": 4}, [0, 0, 0, 0, 5, 0, 0]),  # the first steps owe, but nothing comes before
        ({"learning_starts": 3}, [0, 0, 0, 0, 5, 0, 0]),
        ({"learning_starts": 2}, [0, 0, 3, 0, 2, 0, 0]),
        ({"num_envs": 2}, [0, 0, 6, 0, 4, 0, 0]),  # one environment's end pays for both
    ],
)
def test_at_episode_ends(changes, expected):
    assert schedule(7, ends=(3, 5), train_at_episode_end=True, **changes) == expected


def test_half_a_batch_waits_for_the_next_episode():
    """Episodes of 3, 2 and 3 steps owe 1.5, 1 and 1.5 batches."""
    due = schedule(8, ends=(3, 5, 8), train_at_episode_end=True, train_every=2)
    assert due == [0, 0, 1, 0, 1, 0, 0, 2]


def test_a_termination_ends_an_episode_too():
    replay = build(train_at_episode_end=True)
    replay.add(rows(0, 0))
    assert list(replay.due()) == []
    replay.add(rows(0, 1, terminated=True))
    assert len(list(replay.due())) == 2


def test_nothing_is_lost_over_many_uneven_steps():
    replay = build(3, train_every=7, gradient_steps=5, capacity=30)
    random, written, batches = np.random.default_rng(0), [0, 0, 0], 0
    for _ in range(700):
        env = np.flatnonzero(random.random(3) < 0.6)
        replay.add(rows(env, [written[e] for e in env]))
        for e in env:
            written[e] += 1
        batches += len(list(replay.due()))
        assert batches == sum(written) // 7 * 5


def test_batches_are_drawn_when_asked_for():
    """The second batch sees the priorities of the first: all mass on index 2."""
    prioritization = replace(PROPORTIONAL, exponent=1.0, epsilon=1e-9)
    replay = build(gradient_steps=2, learning_starts=9, batch_size=50, prioritization=prioritization)
    fill(replay, [10])
    due = replay.due()
    first = next(due)
    assert set(first.index.tolist()) == set(range(10))
    replay.feedback(first, np.where(first.index == 2, 1000.0, 0.0))
    assert next(due).index.tolist() == [2] * 50
    assert list(due) == []


def test_what_was_not_taken_stays_due():
    replay = build(gradient_steps=3)
    replay.add(rows(0, 0))
    next(replay.due())
    assert len(list(replay.due())) == 2
    assert list(replay.due()) == []
