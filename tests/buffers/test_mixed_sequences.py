"""Sequences with demonstrations beside them: SPEC E3, E5, O10, R12, R14; states, stacked images, single steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from memory_cases import PROPORTIONAL
from mixed_cases import EXPERT, LINEAR, Episode, demo, masses, sequences, sizes
from sequence_cases import World, build, flat, look_ahead
from sequence_cases import spec as sequence_spec

from duetto.errors import UsageError

ALL = {"share": 0.5, "batch_size": 64}


def test_o13b_a_quarter_of_64():
    found = sizes(sequences(share=0.25, batch_size=64), 1500)  # sd of the mean .09
    assert found.mean() == pytest.approx(16, abs=0.4)
    assert found.std() == pytest.approx(3.4641, rel=0.08)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_e2_e5_who_is_in_a_batch_and_what_flags_say(share):
    made = sequences(share=share, batch_size=8, prioritization=PROPORTIONAL)
    for _ in range(20):
        sample = made.sample()
        batch = sample.batch
        assert batch.expert.dtype == np.float32
        np.testing.assert_array_equal(batch.expert, batch.obs.obs[:, 0, 0] >= EXPERT)
        assert {len(part) for part in (*flat(batch).values(), sample.index, sample.stamp)} == {8}
        made.feedback(sample, np.ones((8, 6)))


def test_a_share_of_nothing_draws_as_the_agents_memory_alone():
    options: dict[str, Any] = {"batch_size": 8, "prioritization": PROPORTIONAL, "seed": 5}
    world, again = World(), World()
    made = sequences(world=world, share=0.0, own=(9, 3), carry=True, **options)
    alone = build(stored_carry=True, **options)
    for length in (9, 3):
        for t in range(length):
            alone.add(again.step(0, "terminated" if t == length - 1 else "", carry=True))
    for _ in range(20):
        ours, theirs = made.sample(), alone.sample()
        mine = flat(ours.batch)
        assert not mine.pop("expert").any()
        for name, value in flat(theirs.batch).items():
            np.testing.assert_array_equal(mine[name], value, err_msg=name)
        error = np.random.default_rng(0).random((8, 6))
        made.feedback(ours, error)
        alone.feedback(theirs, error)


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


def test_r12_start_and_length_by_hand():
    """L 8, overlap 4: T = 3, 9, 13."""
    made = sequences((3, 9, 13), burn_in=4, unroll=4, overlap=4)
    # (0, 3) | (0, 8) (4, 5) | (0, 8) (4, 8) (8, 5)
    rows = [(0, 3, True), (3, 8, True), (7, 5, False), (12, 8, True), (16, 8, False), (20, 5, False)]
    assert cuts(made._experts) == rows


def test_r14_every_step_of_a_demonstration_is_learned_from():
    for length in range(1, 20):
        made = sequences((length,), share=1.0, batch_size=64, prioritization=replace(PROPORTIONAL, exponent=0.0))
        batch = made.sample().batch
        seen = batch.obs.obs[:, :-1, 1][batch.mask > 0]
        assert set(seen.tolist()) == set(range(length))


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


def test_q7_single_steps_are_those_of_a_memory_with_n_1():
    def sample(**changes):
        world = World()
        made = sequences((7, 4), world, (9, 3), **ALL, **changes)
        made.add(world.step(0, "truncated"))
        return made.sample().batch

    batch, single = sample(n_step=3, one_step=True), sample(n_step=1)
    np.testing.assert_array_equal(batch.obs.obs, single.obs.obs)
    ours, theirs = batch.first_step(), (single.reward, single.discount, single.next_obs)
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    np.testing.assert_array_equal(ours[2].query_steps, theirs[2].query_steps)
    assert np.abs(batch.ahead - single.ahead).max() == 2
    assert sample(n_step=1, one_step=True).one_step is None


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


@pytest.mark.parametrize("step", range(1, 6))
def test_demonstrations_that_are_no_stacks_are_refused(step):
    episode, _ = picture(0, 5, 3)
    episode.obs[step] = episode.obs[step][::-1]
    with pytest.raises(UsageError, match="no stack of 3 frames"):
        sequences([episode], World(observation="image", stacked=3))


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


def wanted(sample) -> np.ndarray:
    """Priorities 5, 3, 2 for the agent's sequences of three steps, 7 and 3 for the demonstrations."""
    place = sample.index // 3
    return np.where(sample.batch.expert == 1, np.array([7.0, 3.0, 3.0])[place], np.array([5.0, 3.0, 2.0])[place])


def test_o10_weights_are_normalised_in_each_buffer():
    """β = .6: agent P = [.5, .3, .2], demonstrations P = [.7, .3]."""
    made = sequences((3, 3), own=(3, 3, 3), prioritization=LINEAR, **ALL)
    sample = made.sample()
    made.feedback(sample, wanted(sample)[:, None].repeat(6, axis=1))
    np.testing.assert_allclose(masses(made, "agent"), [5, 3, 2])
    np.testing.assert_allclose(masses(made, "experts"), [7, 3])
    sample = made.sample()
    own = np.array([0.57707996, 0.78405268, 1])[sample.index // 3]
    theirs = np.array([0.60146994, 1, 0])[sample.index // 3]
    np.testing.assert_allclose(sample.batch.weight, np.where(sample.batch.expert == 1, theirs, own), rtol=1e-6)


def test_c18_what_disappeared_is_left_alone_and_demonstrations_stay():
    world = World()
    made = sequences((3,), world, (3, 3, 3, 3), capacity=12, prioritization=LINEAR, **ALL)
    sample = made.sample()
    for _ in range(4):
        for t in range(3):
            made.add(world.step(0, "terminated" if t == 2 else ""))
    made.feedback(sample, np.full((64, 6), 9.0))
    np.testing.assert_allclose(masses(made, "agent"), 1)
    np.testing.assert_allclose(masses(made, "experts"), [9])
    assert made.sample().batch.expert.any()


def test_by_priority():
    """Shares and weights as for single steps: 10 of 20, and (2 / p)^.6."""
    made = sequences((3, 3), own=(3, 3, 3), by_priority=True, prioritization=LINEAR, batch_size=64)
    for _ in range(3):
        sample = made.sample()
        made.feedback(sample, wanted(sample)[:, None].repeat(6, axis=1))
    assert sizes(made, 500).mean() == pytest.approx(32, abs=0.8)
    sample = made.sample()
    np.testing.assert_allclose(sample.batch.weight, (2 / wanted(sample)) ** 0.6, rtol=1e-6)


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
        for name, value in flat(ours.batch).items():
            np.testing.assert_array_equal(value, flat(theirs.batch)[name], err_msg=name)
        made.feedback(ours, error)
        again.feedback(theirs, error)
