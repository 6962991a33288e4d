from dataclasses import replace

import numpy as np
import pytest
from memory_cases import PROPORTIONAL
from sequence_cases import World, build

from duetto.errors import NonFiniteError
from duetto.functional.priorities import sequence_priority

TINY = replace(PROPORTIONAL, epsilon=1e-12)
LINEAR = replace(TINY, exponent=1.0)


def masses(replay):
    return replay.state_dict()["items"]["mass"]


def filled(episodes=4, steps=3, **changes):
    """Episodes of `steps` steps, each a sequence of its own; their steps start at 0, steps, ..."""
    replay, world = build(**({"prioritization": PROPORTIONAL} | changes)), World()
    for _ in range(episodes):
        world.episode(replay, steps)
    return replay, world


def give(replay, priorities):
    """Feed back one error for every step of a sequence, by its place, until every sequence has had its turn."""
    place = {index: number for number, index in enumerate(replay.state_dict()["items"]["index"].tolist())}
    left = set(place)
    while left:
        sample = replay.sample()
        error = np.array([priorities[place[index]] for index in sample.index.tolist()])
        replay.feedback(sample, error[:, None].repeat(6, axis=1))
        left -= set(sample.index.tolist())


def test_o10_sequence_priority():
    mask = np.array([[1, 1, 1], [0, 1, 1]])
    error = np.array([[0.1, 0.5, 0.2], [9.0, 0.5, 0.2]])
    # .9·.5 + .1·.8/3 = .4766666667; without the first step .9·.5 + .1·.35 = .485
    np.testing.assert_allclose(sequence_priority(error, mask, 0.9), [0.4766666667, 0.485], rtol=1e-9)
    np.testing.assert_allclose(sequence_priority(error, mask, 0.0), [0.8 / 3, 0.35])
    np.testing.assert_allclose(sequence_priority(error, mask, 1.0), [0.5, 0.5])


def test_o10_padding_changes_nothing():
    """Not even NaN; with the two zeros counted it would be .466."""
    mask = np.array([[1, 1, 1, 0, 0]])
    for nothing in (0.0, 9.0, np.nan):
        error = np.array([[0.1, 0.5, 0.2, nothing, nothing]])
        np.testing.assert_allclose(sequence_priority(error, mask, 0.9), [0.4766666667], rtol=1e-9)


def test_o10_in_the_memory():
    """An episode of three steps in sequences of six: mask 1 1 1 0 0 0."""
    replay, _ = filled(1, prioritization=replace(LINEAR, epsilon=0.01))
    sample = replay.sample()
    assert sample.batch.mask[0].tolist() == [1, 1, 1, 0, 0, 0]
    replay.feedback(sample, np.array([[0.1, 0.5, 0.2, np.nan, 7.0, -1.0]] * 4))
    np.testing.assert_allclose(masses(replay), [0.4866666667], rtol=1e-9)  # + ε


def test_the_burn_in_does_not_count():
    """The second sequence of an episode starts at step 4, its first two steps only warm the state up."""
    replay, world = build(prioritization=LINEAR, batch_size=8), World()
    world.episode(replay, 10)
    replay.feedback(replay.sample(), np.array([[8.0, 8.0, 0.1, 0.5, 0.2, 0.1]] * 8))
    # .9·8 + .1·16.9/6 and .9·.5 + .1·.9/4
    np.testing.assert_allclose(masses(replay), [7.4816666667, 0.4725], rtol=1e-9)


def test_c18_what_disappeared_is_left_alone():
    """12 rows of episodes with three steps: four fit. The next one overwrites the first two: it needs three rows, and
    the row before the second sequence is one of them.
    """
    replay, world = filled(4, batch_size=64, capacity=12)
    sample = replay.sample()
    assert set(sample.index.tolist()) == {0, 3, 6, 9}
    world.episode(replay, 3)
    assert replay.state_dict()["items"]["index"].tolist() == [0, 6, 9]
    replay.feedback(sample, np.full((64, 6), 3.0))
    assert masses(replay) == pytest.approx([1.00001**0.6, 3.00001**0.6, 3.00001**0.6])
    assert set(replay.sample().index.tolist()) == {0, 6, 9}


def test_all_sequences_are_equally_likely():
    """Of three environments with 3 and 1 sequences and none. 8 batches of 5000: sd of a count is 86.6."""
    replay, world = build(3, batch_size=5000), World(3)
    world.episode(replay, 14, env=0)
    world.episode(replay, 2, env=1)
    world.episode(replay, 2, "", env=2)
    assert len(replay) == 4
    counts = np.bincount(np.concatenate([replay.sample().index for _ in range(8)]))
    assert counts[counts > 0] == pytest.approx([10_000] * 4, abs=4.5 * 87)
    assert np.flatnonzero(counts).tolist() == [0, 4, 8, replay.rows]
    assert replay.sample().batch.weight.tolist() == [1.0] * 5000


def test_an_error_that_is_not_finite_is_named_by_its_step():
    replay, _ = filled(batch_size=2)
    error = np.ones((2, 6))
    error[1, 2] = np.nan
    with pytest.raises(NonFiniteError, match="Priority 1, step 2 of the batch is nan"):
        replay.feedback(replay.sample(), error)
