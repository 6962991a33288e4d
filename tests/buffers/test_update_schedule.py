"""When batches are due. In lists of due batches, each number belongs to a vector step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from memory_cases import PROPORTIONAL, build, fill, rows

from duetto.storage.tree_codec import decode_tree, encode_tree


def schedule(steps: int, ends: Any = (), num_envs: int = 1, **changes: Any) -> list[int]:
    """Return how many batches are due after each vector step; `ends` are the steps (from 1) that end an episode."""
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
        ({"train_every": 3, "gradient_steps": 2}, [0, 0, 2, 0, 0, 2]),
        ({"train_every": 2, "gradient_steps": 2, "learning_starts": 3}, [0, 0, 0, 0, 2, 0]),
        ({"num_envs": 4, "learning_starts": 6}, [0, 2, 4, 4, 4, 4]),
        ({"num_envs": 4, "train_every": 3}, [1, 1, 2, 1, 1, 2]),  # 4, 8, 12, ... steps: 1, 2, 4, 5, 6, 8 batches
        ({"num_envs": 2, "train_every": 8, "gradient_steps": 3}, [0, 0, 0, 3, 0, 0]),
    ],
)
def test_train_every_sets_when_batches_are_due(changes: dict[str, int], expected: list[int]):
    assert schedule(6, **changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0, 0, 3, 0, 2, 0, 0, 3]),  # as many batches as the episode had steps
        ({"gradient_steps": 2}, [0, 0, 6, 0, 4, 0, 0, 6]),
        ({"learning_starts": 3}, [0, 0, 0, 0, 5, 0, 0, 3]),  # the first steps count, but learning starts later
        ({"learning_starts": 2}, [0, 0, 3, 0, 2, 0, 0, 3]),
        ({"num_envs": 2}, [0, 0, 6, 0, 4, 0, 0, 6]),  # the steps of both environments count
        ({"train_every": 2}, [0, 0, 1, 0, 1, 0, 0, 2]),  # 1.5, 1 and 1.5: half a batch waits for the next episode
    ],
)
def test_batches_are_due_at_episode_ends(changes: dict[str, int], expected: list[int]):
    assert schedule(8, ends=(3, 5, 8), train_at_episode_end=True, **changes) == expected


def test_batch_is_drawn_when_it_is_requested():
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


def test_unrequested_batches_stay_due():
    """Also after a checkpoint."""
    replay, restored = (build(2, gradient_steps=5) for _ in range(2))
    fill(replay, [1, 1])
    next(replay.due())
    restored.load_state_dict(decode_tree("state", encode_tree("state", replay.state_dict())))
    restored.load_segment(replay.segment(np.zeros(2, np.int64)))
    for each in (replay, restored):
        assert len(list(each.due())) == 9
        assert list(each.due()) == []
