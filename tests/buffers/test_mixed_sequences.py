"""Sequences with demonstrations beside them: SPEC E3, E5, O10, R12, R14; states, stacked images, single steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from memory_cases import equal
from mixed_cases import EXPERT, LINEAR, Episode, demo, masses, sequences
from sequence_cases import World, look_ahead
from sequence_cases import spec as sequence_spec

from duetto.errors import UsageError

ALL = {"share": 0.5, "batch_size": 64}


# ---------------------------------------------------------------------------------------------------- cutting
def cuts(memory: Any) -> list[tuple[int, int, bool]]:
    found = memory.state_dict()["items"]
    return list(zip(found["index"].tolist(), found["real"].tolist(), found["is_first"].tolist(), strict=True))


@pytest.mark.parametrize("learn_from_start", [True, False])
@pytest.mark.parametrize(("burn_in", "unroll", "overlap"), [(2, 4, 2), (0, 4, 0), (2, 6, 4), (1, 3, 3)])
def test_demonstrations_are_cut_as_the_agents_episodes_are(burn_in, unroll, overlap, learn_from_start):
    """Of every length up to three sequences: the same rows, the same numbers of real steps."""
    lengths = range(1, 3 * (burn_in + unroll) + 1)
    options = {"burn_in": burn_in, "unroll": unroll, "overlap": overlap, "learn_from_start": learn_from_start}
    made = sequences(lengths, own=lengths, **options)
    assert cuts(made._experts) == cuts(made._agent)
    assert len(cuts(made._agent)) > len(lengths) - burn_in


def test_without_learn_from_start_the_first_steps_only_warm_up():
    made = sequences((9, 2), share=1.0, batch_size=64, learn_from_start=False)
    batch = made.sample().batch
    assert batch.obs.obs[..., 0].max() == EXPERT  # the second, of two steps, has nothing to learn from
    assert set(batch.obs.obs[:, :-1, 1][batch.mask > 0].tolist()) == set(range(2, 9))


def test_demonstrations_without_anything_to_learn_from_are_refused():
    with pytest.raises(UsageError, match="all are shorter than the burn-in"):
        sequences((2, 1), learn_from_start=False)


def test_what_a_sequence_of_a_demonstration_holds():
    """γ = .9, n = 2, of an episode of 7 steps that terminates: sequences (0, 6) and (4, 3), rewards 0 .. 6."""
    made = sequences((7,), share=1.0, batch_size=64, one_step=True)
    batch = made.sample().batch
    options = sequence_spec()
    episode: Any = type("E", (), {"reward": list(range(7)), "action": list(range(7)), "terminated": True})
    for row in range(64):
        window, start = batch.obs, int(batch.obs.obs[row, 0, 1])
        end = min(start + 6, 7)
        assert start in (0, 4)
        real = end - start
        np.testing.assert_array_equal(window.obs[row, : real + 1, 1], range(start, end + 1))
        np.testing.assert_array_equal(batch.action[row, :real], range(start, end))
        np.testing.assert_array_equal(window.previous_action[row, : real + 1], range(start - 1, end))  # -1: none
        np.testing.assert_array_equal(window.previous_reward[row, 1 : real + 1], range(start, end))
        assert window.previous_reward[row, 0] == max(0, start - 1)
        assert window.starts[row].tolist() == [start == 0] + [False] * 6
        for t in range(real):
            reward, discount, ahead = look_ahead(episode, start + t, end, options)
            np.testing.assert_allclose((batch.reward[row, t], batch.discount[row, t]), (reward, discount), rtol=1e-6)
            assert batch.ahead[row, t] == t + ahead
            assert batch.one_step.reward[row, t] == start + t
            assert batch.one_step.discount[row, t] == np.float32(0.9 if start + t < 6 else 0)
            assert batch.one_step.ahead[row, t] == t + 1
        assert not batch.mask[row, real:].any()


# ---------------------------------------------------------------------------------------------------- states, images
def test_demonstrations_begin_from_a_zero_state():
    """The agent's sequences from the state that they were collected with, `World`'s numbers; nothing when alone."""
    made = sequences((9,), own=(9,), carry=True, **ALL)
    batch = made.sample().batch
    carry = batch.obs.carry["h"]
    assert carry.dtype == np.float32
    assert carry.shape == (64, 1, 3)
    assert not carry[batch.expert == 1].any()
    own = batch.obs.obs[batch.expert == 0]
    np.testing.assert_array_equal(carry[batch.expert == 0][:, 0, 0], 100.5 + own[:, 0, 1] - 1000)
    assert next(sequences((9,), carry=True, pretraining=1).pretraining()).batch.obs.carry == {}


def picture(number: int, steps: int, stacked: int) -> tuple[Episode, np.ndarray]:
    """An episode of stacks that drop their oldest frame, and its frames."""
    frames = np.random.default_rng(number).integers(0, 256, (stacked + steps, 5, 5)).astype(np.uint8)
    obs = np.stack([frames[t : t + stacked] for t in range(steps + 1)])
    return demo(number, steps, discrete=True)._replace(obs=obs), obs


def test_stacked_images_are_kept_once():
    world = World(observation="image", stacked=3)
    made = sequences([picture(i, 9, 3)[0] for i in range(2)], world, (9,), **ALL, n_step=1)
    rows = made._experts.segment(np.zeros(1, np.int64))
    assert rows is not None
    assert rows["obs"].shape == (2 * (9 + 3), 1, 5, 5)
    batch = made.sample().batch
    expected = np.concatenate([picture(i, 9, 3)[1] for i in range(2)])
    for window in batch.obs.obs[batch.expert == 1]:
        (start,) = np.flatnonzero((expected == window[0]).all(axis=(1, 2, 3)))
        for position in range(len(window)):
            last = min(start + position, 9 if start <= 9 else 19)
            np.testing.assert_array_equal(window[position], expected[last])


# ---------------------------------------------------------------------------------------------------- priorities
def test_o10_in_both_memories():
    """η = .9, padding left out: [.1, .5, .2] for an episode of three steps is .4766666667; and twice [.1, .5] for a
    demonstration of two .9·1 + .1·.6.
    """
    made = sequences((2,), own=(3,), prioritization=LINEAR, **ALL)
    error = np.array([[0.1, 0.5, 0.2, np.nan, 7.0, -1.0]] * 64)
    sample = made.sample()
    error[sample.batch.expert == 1, :3] *= 2
    made.feedback(sample, error)
    np.testing.assert_allclose(masses(made, "agent"), [0.4766666667], rtol=1e-9)
    np.testing.assert_allclose(masses(made, "experts"), [0.96], rtol=1e-9)


def test_batches_wait_for_the_agents_first_sequence():
    """However many demonstrations there are; then those that were due before follow."""
    world = World()
    made = sequences((50,), world, own=(), train_every=2)
    due = []
    for _ in range(6):
        made.add(world.step(0, ""))
        due.append(len(list(made.due())))
    assert due == [0, 0, 0, 0, 0, 3]


@pytest.mark.parametrize("carry", [False, True])
def test_what_is_restored_goes_on_as_it_would_have(carry):
    options: dict[str, Any] = {"carry": carry, "pretraining": 2, "prioritization": LINEAR, "share": 0.5}
    made, random = sequences((9, 3), own=(9, 3), **options), np.random.default_rng(0)
    made.feedback(next(made.pretraining()), random.random((4, 6)))
    for _ in range(3):
        made.feedback(made.sample(), random.random((4, 6)))
    again = sequences((9, 3), own=(), seed=9, **options)
    segment = made.segment(np.zeros(1, np.int64))
    again.load_state_dict(made.state_dict())
    assert segment is not None
    again.load_segment(segment)
    assert again.pretraining_left == 1
    for _ in range(10):
        ours, theirs, error = made.sample(), again.sample(), random.random((4, 6))
        assert equal(ours, theirs)
        made.feedback(ours, error)
        again.feedback(theirs, error)
