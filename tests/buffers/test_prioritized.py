from dataclasses import replace

import numpy as np
import pytest
from memory_cases import ACTION, PROPORTIONAL, VECTOR, build, fill, masses, rows, spec
from shard_cases import sharded

from duetto.buffers.sampling import PriorityTree, SumTree
from duetto.errors import NonFiniteError

TINY = replace(PROPORTIONAL, epsilon=1e-12)


def give(replay, priorities):
    """Feed back a priority for every index, through as many samples as it takes."""
    priorities = np.array(priorities)
    left = set(range(len(priorities)))
    while left:
        sample = replay.sample()
        replay.feedback(sample, priorities[sample.index])
        left -= set(sample.index.tolist())


def o10_memory(alpha, beta, **changes):
    prioritization = replace(TINY, exponent=alpha, importance_exponent=beta)
    replay = build(prioritization=prioritization, **changes)
    fill(replay, [4])
    give(replay, [1.0, 2.0, 3.0, 4.0])
    return replay


def test_o10_how_often_each_comes():
    """30,000 batches of 4: independent draws would have sd sqrt(p(1-p)/120,000) ≤ 0.0014, strata less."""
    replay, expected = o10_memory(0.9, 0.4), [0.1106666785, 0.2065113241, 0.2974582404, 0.3853637571]
    drawn = np.concatenate([replay.sample().index for _ in range(30_000)])
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), expected, atol=0.0035)
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
def test_o10_weights_are_relative_to_all_stored(alpha, beta, expected, batch_size):
    """A batch of one would have weight 1 if the largest weight were the batch's."""
    replay = o10_memory(alpha, beta, batch_size=batch_size)
    seen = set()
    for _ in range(60):
        sample = replay.sample()
        seen |= set(sample.index.tolist())
        np.testing.assert_allclose(sample.batch.weight, np.array(expected)[sample.index], rtol=1e-6)
    assert seen == {0, 1, 2, 3}


def test_the_importance_exponent_is_annealed():
    replay = build(batch_size=400, prioritization=replace(TINY, exponent=1.0, importance_anneal_samples=6))
    fill(replay, [2])
    sample = replay.sample()  # the first of six: β = .4 + .6·0/6
    replay.feedback(sample, np.where(sample.index == 0, 1.0, 2.0))
    weights = [float(replay.sample().batch.weight.min()) for _ in range(8)]
    betas = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(weights, [0.5**beta for beta in betas], rtol=1e-6)


def test_each_stratum_gives_one():
    """Eight equal transitions and a batch of eight: every one comes exactly once."""
    replay = build(batch_size=8, prioritization=PROPORTIONAL)
    fill(replay, [8])
    for _ in range(50):
        assert replay.sample().index.tolist() == list(range(8))


def test_new_transitions_get_the_largest_priority_so_far():
    replay = build(batch_size=1, prioritization=replace(PROPORTIONAL, epsilon=0.25))
    replay.add(rows(0, 0))
    assert masses(replay)[0] == pytest.approx(1.25**0.6)  # the first |δ| is 1
    replay.feedback(replay.sample(), np.array([5.0]))
    replay.add(rows(0, 1))
    assert masses(replay)[:2] == pytest.approx([5.25**0.6] * 2)  # |δ| + ε for both
    give(replay, [0.5, 0.5])
    replay.add(rows(0, 2))
    assert masses(replay)[2] == pytest.approx(5.25**0.6)  # the largest ever, not of now


def test_priorities_below_one_leave_the_first_largest():
    replay = build(batch_size=1, prioritization=PROPORTIONAL)
    replay.add(rows(0, 0))
    replay.feedback(replay.sample(), np.array([0.2]))
    replay.add(rows(0, 1))
    assert masses(replay)[:2] == pytest.approx([0.20001**0.6, 1.00001**0.6])


def test_c18_an_overwritten_transition_is_left_alone():
    replay = build(2, capacity=8, batch_size=64, prioritization=PROPORTIONAL)
    fill(replay, [4, 4])
    sample = replay.sample()
    assert set(sample.index.tolist()) == set(range(8))
    replay.add(rows([0, 1], 4))
    replay.add(rows(0, 5))  # numbers 0 and 1 of environment 0, and 0 of environment 1, are gone
    replay.feedback(sample, np.full(64, 3.0))
    new, fed = 1.00001**0.6, 3.00001**0.6
    assert masses(replay) == pytest.approx([new, new, fed, fed, new, fed, fed, fed])


def test_c18_a_whole_round_later_too():
    replay = build(capacity=4, batch_size=16, prioritization=PROPORTIONAL)
    fill(replay, [4])
    sample = replay.sample()
    fill(replay, [4])  # every slot holds a successor at the same index
    replay.feedback(sample, np.full(16, 9.0))
    assert masses(replay) == pytest.approx([1.00001**0.6] * 4)
    replay.add(rows(0, 8))
    assert masses(replay)[0] == pytest.approx(9.00001**0.6)  # the largest |δ| fed back


def test_c19_of_duplicates_the_last_stays():
    replay = build(batch_size=5, prioritization=PROPORTIONAL)
    replay.add(rows(0, 0))
    sample = replay.sample()
    assert sample.index.tolist() == [0] * 5
    replay.feedback(sample, np.array([1.0, 7.0, 3.0, 9.0, 2.0]))
    assert masses(replay)[0] == pytest.approx(2.00001**0.6)


def test_a_zero_error_stays_possible():
    replay = build(batch_size=1000, prioritization=replace(PROPORTIONAL, epsilon=0.01))
    fill(replay, [2])
    give(replay, [0.0, 0.1])
    assert (np.bincount(replay.sample().index) > 0).all()


def test_overwriting_keeps_probabilities_right():
    """The least and the largest priority are overwritten: sums and the largest weight follow."""
    replay = build(capacity=4, batch_size=4000, prioritization=replace(TINY, exponent=1.0))
    fill(replay, [4])
    sample = replay.sample()
    replay.feedback(sample, np.array([0.1, 2.0, 2.0, 8.0])[sample.index])
    fill(replay, [1])  # index 0, the least, becomes 8
    assert masses(replay) == pytest.approx([8, 2, 2, 8])
    batch = replay.sample()
    assert np.bincount(batch.index) == pytest.approx([1600, 400, 400, 1600], abs=1)
    np.testing.assert_allclose(batch.batch.weight, np.array([0.25**0.4, 1, 1, 0.25**0.4])[batch.index], rtol=1e-6)


@pytest.mark.parametrize(
    ("priority", "error", "words"),
    [
        (np.array([1.0, np.nan]), NonFiniteError, "Priority 1 of the batch is nan"),
        (np.array([np.inf, 1.0]), NonFiniteError, "Priority 0 of the batch is inf"),
        (np.array([1.0, -0.1]), ValueError, "never negative"),
        (np.array([[1.0], [1.0]]), ValueError, "shape"),
        (np.array([1.0]), ValueError, "shape"),
        (None, ValueError, "shape"),
    ],
)
def test_priorities_that_are_none_are_refused(priority, error, words):
    replay = build(batch_size=2, prioritization=PROPORTIONAL)
    fill(replay, [2])
    sample = replay.sample()
    with pytest.raises(error, match=words):
        replay.feedback(sample, priority)
    assert masses(replay)[:2] == pytest.approx([1.00001**0.6] * 2)
    assert replay.needs_priorities


@pytest.mark.parametrize("shards", [0, 3])
def test_a_new_transition_is_as_likely_as_the_one_with_the_largest_error(shards):
    """Schaul et al., algorithm 1: a new row gets the largest p, which has ε in it (1, as of demonstrations in DQfD)."""
    made = spec(prioritization=replace(PROPORTIONAL, epsilon=1.0), batch_size=16)
    replay = sharded(made, 3, shards, observation=VECTOR, action=ACTION)
    replay.add(rows([0, 1], 0))
    errors = np.array([3.0, 0.5])  # by environment
    sample = replay.sample()
    replay.feedback(sample, errors[sample.batch.obs[:, 0].astype(int)])
    replay.add(rows([0, 2], [1, 0]))  # one beside the largest, one in a shard that has never seen it
    found = replay.state_dict()["items"]["mass"]
    assert found[found > 0] == pytest.approx(np.array([4.0, 4.0, 1.5, 4.0]) ** 0.6)


# ---------------------------------------------------------------------------------------------------- trees
SIZES = [1, 4, 16, 17, 256, 257, 5000]  # one to four levels, with and without padding


def sum_tree(leaves):
    tree = SumTree(len(leaves))
    tree.set(np.arange(len(leaves)), np.asarray(leaves, float))
    return tree


@pytest.mark.parametrize("size", SIZES)
def test_find_equals_a_search_in_the_running_sum(size):
    """Leaves and masses are integers, so that no sum is rounded."""
    leaves = np.random.default_rng(size).integers(0, 5, size).astype(float)
    leaves[-1] = 2
    tree = sum_tree(leaves)
    mass = np.arange(leaves.sum())
    assert tree.root == leaves.sum()
    assert np.array_equal(tree.find(mass), leaves.cumsum().searchsorted(mass, side="right"))


def sparse_leaves(size):
    """Ends and gaps of zeros, and numbers of very different sizes, whose sums must be rounded."""
    random = np.random.default_rng(size)
    leaves = random.random(size) ** 8 * 10.0 ** random.integers(-12, 4, size)
    leaves[random.random(size) < 0.4] = 0.0
    leaves[: size // 3] = leaves[-size // 4 :] = 0.0
    leaves[size // 2] = 0.7
    return leaves


@pytest.mark.parametrize("size", [17, 257, 5000])
def test_the_edges_of_the_mass_never_give_an_empty_leaf(size):
    leaves = sparse_leaves(size)
    tree = sum_tree(leaves)
    running = leaves.cumsum()
    edges = np.concatenate([running, np.nextafter(running, 0), np.nextafter(running, np.inf)])
    total = np.array([tree.root, tree.root * (1 - 1e-16), np.nextafter(tree.root, np.inf), tree.root * 1.01])
    assert (leaves[tree.find(edges)] > 0).all()
    assert (leaves[tree.find(total)] > 0).all()


@pytest.mark.parametrize("size", SIZES)
def test_past_the_end_comes_the_last_leaf(size):
    leaves = np.ones(size)
    leaves[size // 2 + 1 :] = 0.0
    tree = sum_tree(leaves)
    assert tree.find(np.array([tree.root * (1 - 1e-16), tree.root, tree.root * 2])).tolist() == [size // 2] * 3


@pytest.mark.parametrize("size", SIZES)
def test_changing_some_leaves_equals_building_anew(size):
    """Bit for bit: nothing accumulates, and a resumed memory continues as if it had never stopped."""
    random = np.random.default_rng(size)
    leaves, sums, minima = np.zeros(size), SumTree(size), PriorityTree(size, np.minimum, np.inf)
    for _ in range(50):
        index, value = random.integers(size, size=7), random.random(7) + 0.1
        for tree in (sums, minima):
            tree.set(index, value)
        leaves[index] = value  # the last of several
    anew = SumTree(size), PriorityTree(size, np.minimum, np.inf)
    anew[0].fill(leaves)
    anew[1].fill(np.where(leaves > 0, leaves, np.inf))
    mass = random.random(100) * sums.root
    assert (sums.root, minima.root) == (anew[0].root, anew[1].root)
    assert minima.root == leaves[leaves > 0].min()
    assert sums.root == pytest.approx(leaves.sum(), rel=1e-12)
    assert np.array_equal(sums.find(mass), anew[0].find(mass))
    assert np.array_equal(sums.leaves, leaves)
