"""Replay with demonstrations beside it: SPEC E1 - E6, O10 with two buffers, O13b, Q3, Q4, R12."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import memory_cases
import numpy as np
import pytest
from memory_cases import ACTION, PROPORTIONAL, VECTOR, rows
from mixed_cases import EXPERT, LINEAR, demo, give, given, masses, mixing, sequences, sizes, steps
from sequence_cases import World

from duetto import buffers
from duetto.errors import CheckpointError, UsageError
from duetto.networks.spaces import Box, Dict


def of_experts(batch) -> np.ndarray:
    """What the observations say."""
    return batch.obs[:, 0] >= EXPERT


# ---------------------------------------------------------------------------------------------------- how many
def test_o13b_a_quarter_of_64():
    """6,000 batches: the mean's sd is .045, the sd's 1 %, that of P(K = 16) .0041."""
    found = sizes(steps(share=0.25, batch_size=64), 6000)
    assert found.mean() == pytest.approx(16, abs=0.2)
    assert found.std() == pytest.approx(3.4641, rel=0.04)
    assert (found == 16).mean() == pytest.approx(0.114517, abs=0.0175)
    assert ((found < 6) | (found > 28)).mean() < 0.003


@pytest.mark.parametrize("prioritization", [None, PROPORTIONAL])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_e2_e5_who_is_in_a_batch_and_what_flags_say(share, prioritization):
    made = steps(share=share, batch_size=8, prioritization=prioritization)
    for _ in range(20):
        sample = made.sample()
        batch = sample.batch
        assert batch.expert.dtype == np.float32
        np.testing.assert_array_equal(batch.expert, of_experts(batch))
        assert {len(part) for part in (*batch[:-1], sample.index, sample.stamp)} == {8}
        assert sample.info == {"demonstrations": batch.expert.mean()}
        assert (np.diff(batch.expert) >= 0).all()  # the agent's come first
    if share != 0.5:
        assert (batch.expert == share).all()


def test_a_share_of_nothing_draws_as_the_agents_memory_alone():
    """The same generator, bit for bit, priorities and weights included."""
    made = steps(share=0.0, batch_size=8, prioritization=PROPORTIONAL, seed=5)
    alone = memory_cases.build(seed=5, batch_size=8, prioritization=PROPORTIONAL)
    memory_cases.fill(alone, [3])
    random = np.random.default_rng(0)
    for _ in range(20):
        ours, theirs = made.sample(), alone.sample()
        for name in ("obs", "action", "reward", "discount", "next_obs", "weight"):
            np.testing.assert_array_equal(getattr(ours.batch, name), getattr(theirs.batch, name))
        np.testing.assert_array_equal(ours.index, theirs.index)
        error = random.random(8)
        made.feedback(ours, error)
        alone.feedback(theirs, error)
    np.testing.assert_array_equal(masses(made, "agent"), memory_cases.masses(alone)[:3])


# ---------------------------------------------------------------------------------------------------- what they hold
def test_q7_single_steps_are_those_of_a_memory_with_n_1():
    """Of the agent's and of demonstrations, with both kinds of ends; the same generators draw the same items."""

    def build(**changes):
        made = steps((3, 2), own=0, share=0.5, batch_size=64, **changes)
        for number in range(9):
            made.add(rows(0, number, terminated=number == 3, truncated=number == 6))
        return made

    batch, single = build(n_step=3, one_step=True).sample().batch, build(n_step=1).sample().batch
    np.testing.assert_array_equal(batch.obs, single.obs)
    assert batch.one_step is not None
    for ours, theirs in zip(batch.first_step(), (single.reward, single.discount, single.next_obs), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
    assert np.abs(batch.reward - single.reward).max() > 0
    assert build(n_step=1, one_step=True).sample().batch.one_step is None
    assert build(n_step=3).sample().batch.one_step is None


def test_parts_of_observations_are_joined():
    space = Dict((("a", Box((1,), "float32", (-np.inf,), (np.inf,))), ("b", VECTOR)))
    episode = demo(0, 3)._replace(obs={"a": np.full((4, 1), 7, np.float32), "b": demo(0, 3).obs})
    made = buffers.build(
        memory_cases.spec(batch_size=32, n_step=2, one_step=True, demonstrations=mixing(share=0.5)),
        space,
        ACTION,
        1,
        np.random.default_rng(0),
        demonstrations=given([episode]),
    )
    own = rows(0, 0)
    first = {"a": np.zeros((1, 1), np.float32), "b": own.obs}
    made.add(own._replace(obs=first, next_obs=first))
    batch = made.sample().batch
    assert batch.one_step is not None
    for tree in (batch.obs, batch.next_obs, batch.one_step.ahead):
        np.testing.assert_array_equal(tree["a"][:, 0], 7 * batch.expert)
        np.testing.assert_array_equal(tree["b"][:, 0], EXPERT * batch.expert)


def test_e4_demonstrations_outlive_everything():
    made = steps((3, 2), share=0.5, batch_size=64, capacity=10, own=500, prioritization=PROPORTIONAL)
    batch = made.sample().batch
    own = batch.expert == 0
    assert set(map(tuple, batch.obs[~own].tolist())) == {(100, 0), (100, 1), (100, 2), (101, 0), (101, 1)}
    assert batch.obs[own, 1].min() >= 490
    assert len(made) == made.rows == 10
    assert made.written.tolist() == [500]


def test_the_capacity_is_the_agents_alone():
    made = steps((300,), capacity=10, batch_size=8)
    segment = made.segment(np.zeros(1, np.int64))
    assert segment is not None
    assert segment["obs"][:, 0].max() < EXPERT  # nor are demonstrations in a checkpoint's segments


# ---------------------------------------------------------------------------------------------------- priorities
def test_o10_weights_are_normalised_in_each_buffer():
    """β = .6: agent P = [.5, .3, .2], demonstrations P = [.7, .3]."""
    made = steps((2,), share=0.5, batch_size=16, prioritization=LINEAR)
    give(made, [5.0, 3.0, 2.0], [7.0, 3.0])
    expected = {0: [0.57707996, 0.78405268, 1], 1: [0.60146994, 1]}
    for _ in range(20):
        sample = made.sample()
        for flag, weights in expected.items():
            of = sample.batch.expert == flag
            np.testing.assert_allclose(sample.batch.weight[of], np.array(weights)[sample.index[of]], rtol=1e-6)
        assert sample.batch.weight.dtype == np.float32


def test_e3_priorities_go_back_to_where_their_items_came_from():
    made = steps((2,), share=0.5, batch_size=16, prioritization=LINEAR)
    give(made, [5.0, 3.0, 2.0], [7.0, 3.0])
    np.testing.assert_allclose(masses(made, "agent"), [5, 3, 2])
    np.testing.assert_allclose(masses(made, "experts"), [7, 3])
    drawn = [made.sample() for _ in range(500)]  # 4,000 of each: sd .008
    index = np.concatenate([sample.index for sample in drawn])
    expert = np.concatenate([sample.batch.expert for sample in drawn]).astype(bool)
    np.testing.assert_allclose(np.bincount(index[expert]) / expert.sum(), [0.7, 0.3], atol=0.03)
    np.testing.assert_allclose(np.bincount(index[~expert]) / (~expert).sum(), [0.5, 0.3, 0.2], atol=0.03)
    made.add(rows(0, 3))
    assert masses(made, "agent")[3] == pytest.approx(5)  # the largest of its own memory


def test_c18_a_stale_index_is_left_alone_and_the_demonstrations_are_not():
    made = steps((2,), share=0.5, batch_size=64, capacity=3, prioritization=LINEAR)
    sample = made.sample()
    made.add(rows(0, 3))  # takes the place of number 0
    made.feedback(sample, np.full(64, 4.0))
    np.testing.assert_allclose(masses(made, "agent"), [1, 4, 4])
    np.testing.assert_allclose(masses(made, "experts"), [4, 4])


def test_q4_demonstrations_have_a_bonus():
    epsilons = {"prioritization": replace(LINEAR, epsilon=0.001), "priority_epsilon": 1.0}
    made = steps((2,), share=0.5, batch_size=64, **epsilons)
    made.feedback(made.sample(), np.full(64, 0.5))
    np.testing.assert_allclose(masses(made, "agent"), 0.501)
    np.testing.assert_allclose(masses(made, "experts"), 1.5)
    made = steps((2,), share=0.5, batch_size=64, **epsilons | {"priority_epsilon": 0.0})
    made.feedback(made.sample(), np.full(64, 0.5))
    np.testing.assert_allclose(masses(made, "experts"), 0.501)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_importance_exponent_rises_with_every_batch_whatever_it_holds(share):
    """Of the agent's and the demonstrations' items alike, so that both have the same at the end."""
    anneal = replace(LINEAR, importance_exponent=0.4, importance_anneal_samples=6)
    made = steps((2,), share=share, batch_size=32, prioritization=anneal)
    for _ in range(4):
        made.sample()
    assert [made.state_dict()[part]["sampler"]["sampled"] for part in ("agent", "experts")] == [4, 4]


# ---------------------------------------------------------------------------------------------------- one memory
JOINT = {"by_priority": True, "prioritization": LINEAR}
OWN, THEIRS = [5.0, 3.0, 2.0], [7.0, 3.0]


def test_q3_the_share_is_that_of_their_priorities():
    """10 of 20: as if nothing had been said about a share, which is .25. 3,000 batches of 16, sd of the mean .0023."""
    made = steps((2,), batch_size=16, **JOINT)
    give(made, OWN, THEIRS)
    found = sizes(made, 3000)
    assert found.mean() / 16 == pytest.approx(0.5, abs=0.01)
    give(made, [30.0, 30.0, 30.0], THEIRS)
    assert sizes(made, 3000).mean() / 16 == pytest.approx(0.1, abs=0.006)


@pytest.mark.parametrize("anneal", [0, 10])
def test_q3_weights_are_those_of_one_memory(anneal):
    """Also while β rises; and whatever a batch holds, with batches of one that are all of one kind."""
    spec = replace(LINEAR, importance_anneal_samples=anneal)
    for batch_size in (1, 16):
        made = steps((2,), batch_size=batch_size, by_priority=True, prioritization=spec)
        give(made, OWN, THEIRS)
        count = made.state_dict()["agent"]["sampler"]["sampled"]
        beta = [0.6 + 0.4 * min(1.0, (count + i) / anneal) if anneal else 0.6 for i in range(30)]
        for i in range(30):
            batch = made.sample().batch
            place = batch.obs[:, 1].astype(int)
            priority = np.where(batch.expert > 0, np.array([*THEIRS, 0.0])[place], np.array(OWN)[place])
            np.testing.assert_allclose(batch.weight, (2 / priority) ** beta[i], rtol=1e-6)


def test_q3_each_memory_adds_its_own_epsilon_to_what_is_new():
    """Before any error |δ| counts as 1; the experts' ε is 1, the agent's 1e-12."""
    made = steps((2,), batch_size=16, priority_epsilon=1.0, **JOINT)
    np.testing.assert_allclose(masses(made, "agent"), [1, 1, 1])
    np.testing.assert_allclose(masses(made, "experts"), [2, 2])
    give(made, [0.5, 0.5, 0.5], [7.0, 3.0])
    made.add(rows(0, 3))
    np.testing.assert_allclose(masses(made, "agent"), [0.5, 0.5, 0.5, 7])
    np.testing.assert_allclose(masses(made, "experts"), [8, 4])


# ---------------------------------------------------------------------------------------------------- when
def test_batches_are_due_as_without_demonstrations():
    """Their steps count for nothing: learning_starts 3, train_every 2, gradient_steps 2."""
    made = steps((50,), own=0, learning_starts=3, train_every=2, gradient_steps=2)
    due = []
    for number in range(7):
        made.add(rows(0, number))
        due.append(len(list(made.due())))
    assert due == [0, 0, 0, 0, 2, 0, 2]


def test_e6_pretraining_is_so_many_whole_batches_of_demonstrations():
    made = steps((2,), own=0, pretraining=3, share=0.25, batch_size=8, prioritization=LINEAR)
    assert made.pretraining_left == 3
    for left, sample in zip((2, 1, 0), made.pretraining(), strict=True):
        assert made.pretraining_left == left
        assert sample.batch.expert.tolist() == [1.0] * 8
        made.feedback(sample, np.full(8, 4.0))
    np.testing.assert_allclose(masses(made, "experts"), [4, 4])
    assert list(made.pretraining()) == []
    fewer = steps((2,), own=0, pretraining=1, share=0.25, batch_size=8, prioritization=LINEAR)
    fewer.load_state_dict(made.state_dict())  # of a run whose config.yaml was edited since
    assert fewer.pretraining_left == 0
    assert list(fewer.pretraining()) == []
    assert list(made.due()) == []
    made.add(rows(0, 0))
    assert len(list(made.due())) == 1


@pytest.mark.parametrize("by_priority", [False, True])
def test_e6_pretraining_by_priority_before_there_is_anything_else(by_priority):
    made = steps((2,), own=0, pretraining=2, by_priority=by_priority, batch_size=8, prioritization=LINEAR)
    for sample in made.pretraining():
        assert np.isfinite(sample.batch.weight).all()
        assert sample.batch.weight.max() <= 1


# ---------------------------------------------------------------------------------------------------- refusals
def test_a_share_by_priority_needs_priorities():
    with pytest.raises(UsageError, match="share_by_priority requires prioritized replay"):
        steps(by_priority=True)


# ---------------------------------------------------------------------------------------------------- checkpoints
@pytest.mark.parametrize("change", ["obs", "action", "reward", "end", "one more", "one less"])
def test_other_demonstrations_are_refused(change):
    def build(demos):
        spec = memory_cases.spec(demonstrations=mixing())
        return buffers.build(spec, VECTOR, ACTION, 1, np.random.default_rng(0), demonstrations=given(demos))

    first = demo(0, 3)
    other = {
        "obs": [first._replace(obs=first.obs + (first.obs == 3)), demo(1, 2)],
        "action": [first._replace(action=first.action[::-1]), demo(1, 2)],
        "reward": [first._replace(reward=first.reward + 1), demo(1, 2)],
        "end": [demo(0, 3, terminated=False), demo(1, 2)],
        "one more": [first, demo(1, 2), demo(2, 2)],
        "one less": [first],
    }
    state = build([first, demo(1, 2)]).state_dict()
    build([first, demo(1, 2)]).load_state_dict(state)
    with pytest.raises(CheckpointError, match="The contents of the demonstrations have changed"):
        build(other[change]).load_state_dict(state)


# ---------------------------------------------------------------------------------------------------- sequences
ALL = {"share": 0.5, "batch_size": 64}


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
