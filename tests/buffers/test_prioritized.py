"""Prioritized replay of transitions: probabilities, weights, new items, feedback, and the trees of masses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from memory_cases import ACTION, PROPORTIONAL, VECTOR, build, fill, masses, rows, spec
from shard_cases import sharded

from duetto.buffers.sampling import PriorityTree, SumTree
from duetto.errors import NonFiniteError

TINY = replace(PROPORTIONAL, epsilon=1e-12)


def set_priorities(replay: Any, priorities: list[float]) -> None:
    """Feed back these priorities by index, until each index has one."""
    left = set(range(len(priorities)))
    while left:
        sample = replay.sample()
        replay.feedback(sample, np.array(priorities)[sample.index])
        left -= set(sample.index.tolist())


def o10_buffer(alpha: float, beta: float, **changes: Any) -> Any:
    prioritization = replace(TINY, exponent=alpha, importance_exponent=beta)
    replay = build(prioritization=prioritization, **changes)
    fill(replay, [4])
    set_priorities(replay, [1.0, 2.0, 3.0, 4.0])
    return replay


def test_sampling_probabilities_by_hand_o10():
    """10,000 batches of 4: independent draws would have sd sqrt(p(1-p)/40,000) ≤ 0.0025, strata less."""
    replay, expected = o10_buffer(0.9, 0.4), [0.1106666785, 0.2065113241, 0.2974582404, 0.3853637571]
    drawn = np.concatenate([replay.sample().index for _ in range(10_000)])
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), expected, atol=0.006)
    np.testing.assert_allclose(masses(replay)[:4] / masses(replay).sum(), expected, rtol=1e-8)


@pytest.mark.parametrize("batch_size", [1, 16])
@pytest.mark.parametrize(
    ("alpha", "beta", "expected"),
    [
        (0.6, 0.4, [1, 0.8467453124, 0.7682293564, 0.716977624]),
        (0.9, 0.6, [1, 0.6877709091, 0.5525282941, 0.4730288234]),
        (0.9, 0.0, [1, 1, 1, 1]),
    ],
)
def test_importance_weights_by_hand_o10(alpha: float, beta: float, expected: list[float], batch_size: int):
    """A batch of one would have weight 1 if the largest weight were the batch's."""
    replay = o10_buffer(alpha, beta, batch_size=batch_size)
    for _ in range(60):
        sample = replay.sample()
        np.testing.assert_allclose(sample.batch.weight, np.array(expected)[sample.index], rtol=1e-6)


def test_importance_exponent_is_annealed():
    replay = build(batch_size=400, prioritization=replace(TINY, exponent=1.0, importance_anneal_samples=6))
    fill(replay, [2])
    sample = replay.sample()  # the first of six: β = .4 + .6·0/6
    replay.feedback(sample, np.where(sample.index == 0, 1.0, 2.0))
    weights = [float(replay.sample().batch.weight.min()) for _ in range(8)]
    betas = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(weights, [0.5**beta for beta in betas], rtol=1e-6)


def test_each_stratum_draws_one_transition():
    """Eight equal transitions and a batch of eight: each is drawn exactly once."""
    replay = build(batch_size=8, prioritization=PROPORTIONAL)
    fill(replay, [8])
    for _ in range(50):
        assert replay.sample().index.tolist() == list(range(8))


@pytest.mark.parametrize("shards", [0, 3])
def test_new_transitions_get_the_largest_priority_so_far(shards: int):
    """Schaul et al., algorithm 1. It is 1 before any feedback, and includes ε (1, as for demonstrations in DQfD)."""
    made = spec(prioritization=replace(PROPORTIONAL, epsilon=1.0), batch_size=16)
    replay = sharded(made, 3, shards, observation=VECTOR, action=ACTION)

    def stored() -> np.ndarray:
        found = masses(replay)
        return found[found > 0]

    replay.add(rows([0, 1], 0))
    assert stored() == pytest.approx([2.0**0.6] * 2)
    sample = replay.sample()
    replay.feedback(sample, np.array([3.0, 0.5])[sample.batch.obs[:, 0].astype(int)])  # by environment
    replay.add(rows([0, 2], [1, 0]))  # environment 2 is in another shard
    assert stored() == pytest.approx(np.array([4.0, 4.0, 1.5, 4.0]) ** 0.6)
    for _ in range(20):
        sample = replay.sample()
        replay.feedback(sample, np.full(16, 0.5))
    replay.add(rows(1, 1))
    assert stored() == pytest.approx(np.array([1.5, 1.5, 1.5, 4.0, 1.5]) ** 0.6)  # the largest ever


@pytest.mark.parametrize("rounds", [1, 2])
def test_feedback_skips_overwritten_transitions(rounds: int):
    """Also if the index has a new transition, a whole round later."""
    replay = build(2, capacity=8, batch_size=64, prioritization=PROPORTIONAL)
    fill(replay, [4, 4])
    sample = replay.sample()
    assert set(sample.index.tolist()) == set(range(8))
    replay.add(rows([0, 1], 4))
    replay.add(rows(0, 5))  # numbers 0 and 1 of environment 0, and 0 of environment 1, are overwritten
    if rounds == 2:
        fill(replay, [4, 4])
    replay.feedback(sample, np.full(64, 3.0))
    new, fed = 1.00001**0.6, 3.00001**0.6
    assert masses(replay) == pytest.approx([new, new, fed, fed, new, fed, fed, fed] if rounds == 1 else [new] * 8)


def test_duplicate_keeps_its_last_priority():
    replay = build(batch_size=5, prioritization=PROPORTIONAL)
    replay.add(rows(0, 0))
    replay.feedback(replay.sample(), np.array([1.0, 7.0, 3.0, 9.0, 2.0]))
    assert masses(replay)[0] == pytest.approx(2.00001**0.6)


def test_probabilities_and_weights_follow_overwritten_priorities():
    """The smallest priority is overwritten, and the largest changes."""
    replay = build(capacity=4, batch_size=4000, prioritization=replace(TINY, exponent=1.0))
    fill(replay, [4])
    sample = replay.sample()
    replay.feedback(sample, np.array([0.1, 2.0, 2.0, 8.0])[sample.index])
    fill(replay, [1])  # index 0, the smallest, becomes 8
    batch = replay.sample()
    assert np.bincount(batch.index) == pytest.approx([1600, 400, 400, 1600], abs=1)
    np.testing.assert_allclose(batch.batch.weight, np.array([0.25**0.4, 1, 1, 0.25**0.4])[batch.index], rtol=1e-6)


@pytest.mark.parametrize(
    ("priority", "error", "words"),
    [
        (np.array([1.0, np.nan]), NonFiniteError, "Priority 1 of the batch is nan"),
        (np.array([np.inf, 1.0]), NonFiniteError, "Priority 0 of the batch is inf"),
        (np.array([1.0, -0.1]), ValueError, "cannot be negative"),
        (np.array([[1.0], [1.0]]), ValueError, "shape"),
        (None, ValueError, "shape"),
    ],
)
def test_invalid_priorities_are_refused(priority: Any, error: type[Exception], words: str):
    replay = build(batch_size=2, prioritization=PROPORTIONAL)
    fill(replay, [2])
    with pytest.raises(error, match=words):
        replay.feedback(replay.sample(), priority)
    assert masses(replay)[:2] == pytest.approx([1.00001**0.6] * 2)


# ---------------------------------------------------------------------------------------------------- trees
SIZES = [1, 16, 17, 257, 5000]  # one to four levels, with and without padding


@pytest.mark.parametrize("size", SIZES)
def test_sum_tree_find_equals_a_cumulative_search(size: int):
    """Leaves and masses are integers, so no sum is rounded. A larger mass finds the last leaf that is not 0."""
    leaves = np.random.default_rng(size).integers(0, 5, size).astype(float)
    leaves[size // 2 :] = 0.0
    leaves[size // 2] = 2
    tree = SumTree(size)
    tree.set(np.arange(size), leaves)
    mass = np.arange(leaves.sum())
    assert tree.root == leaves.sum()
    assert np.array_equal(tree.find(mass), leaves.cumsum().searchsorted(mass, side="right"))
    assert tree.find(np.array([tree.root * (1 - 1e-16), tree.root, tree.root * 2])).tolist() == [size // 2] * 3


@pytest.mark.parametrize("size", SIZES[2:])
def test_sum_tree_never_finds_a_leaf_of_zero(size: int):
    """Leaves have gaps of zeros, and very different sizes, so their sums are rounded."""
    random = np.random.default_rng(size)
    leaves = random.random(size) ** 8 * 10.0 ** random.integers(-12, 4, size)
    leaves[random.random(size) < 0.4] = 0.0
    leaves[: size // 3] = leaves[-size // 4 :] = 0.0
    leaves[size // 2] = 0.7
    tree = SumTree(size)
    tree.set(np.arange(size), leaves)
    running = leaves.cumsum()
    assert (
        leaves[tree.find(np.concatenate([running, np.nextafter(running, 0), np.nextafter(running, np.inf)]))] > 0
    ).all()


@pytest.mark.parametrize("size", SIZES)
def test_updated_priority_trees_equal_new_trees(size: int):
    """Bit for bit, so a resumed buffer draws as one that was never saved."""
    random = np.random.default_rng(size)
    leaves, sums, minima = np.zeros(size), SumTree(size), PriorityTree(size, np.minimum, np.inf)
    for _ in range(50):
        index, value = random.integers(size, size=7), random.random(7) + 0.1
        for tree in (sums, minima):
            tree.set(index, value)
        leaves[index] = value  # the last of several
    new = SumTree(size), PriorityTree(size, np.minimum, np.inf)
    new[0].fill(leaves)
    new[1].fill(np.where(leaves > 0, leaves, np.inf))
    mass = random.random(100) * sums.root
    assert (sums.root, minima.root) == (new[0].root, new[1].root)
    assert minima.root == leaves[leaves > 0].min()
    assert np.array_equal(sums.find(mass), new[0].find(mass))
    assert np.array_equal(sums.leaves, leaves)
