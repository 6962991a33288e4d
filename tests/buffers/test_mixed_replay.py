"""Replay buffers with demonstrations: SPEC E1 - E6, O10 with two buffers, O13b, Q3, Q4."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import memory_cases
import numpy as np
import pytest
from memory_cases import ACTION, PROPORTIONAL, VECTOR, rows
from mixed_cases import (
    EXPERT,
    LINEAR,
    demo,
    demonstration_counts,
    episodes_of,
    masses,
    mixing_spec,
    sequence_buffer,
    set_priorities,
    transition_buffer,
)

from duetto import buffers
from duetto.errors import CheckpointError, UsageError
from duetto.networks.spaces import Box, Dict


# ---------------------------------------------------------------------------------------------------- share
def test_demonstration_share_of_batches_o13b():
    """2,000 batches: sd of the mean is .08, of the sd 2 %, of P(K = 16) .007."""
    found = demonstration_counts(transition_buffer(share=0.25, batch_size=64), 2000)
    assert found.mean() == pytest.approx(16, abs=0.35)
    assert found.std() == pytest.approx(3.4641, rel=0.08)
    assert (found == 16).mean() == pytest.approx(0.114517, abs=0.03)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_expert_flags_mark_demonstrations_e2_e5(share: float):
    """The agent's items come first."""
    made = transition_buffer(share=share, batch_size=8, prioritization=PROPORTIONAL)
    for _ in range(20):
        sample = made.sample()
        batch = sample.batch
        assert batch.expert.dtype == np.float32
        np.testing.assert_array_equal(batch.expert, np.sort(batch.obs[:, 0] >= EXPERT))
        assert {len(part) for part in (*batch[:-1], sample.index, sample.stamp)} == {8}
        assert sample.info == {"demonstrations": batch.expert.mean()}
        assert share == 0.5 or (batch.expert == share).all()


def test_share_of_zero_equals_the_agents_buffer():
    """The same generator, bit for bit, with priorities and weights."""
    made = transition_buffer(share=0.0, batch_size=8, prioritization=PROPORTIONAL, seed=5)
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


def test_dict_observations_of_both_buffers_are_joined():
    space = Dict((("a", Box((1,), "float32", (-np.inf,), (np.inf,))), ("b", VECTOR)))
    episode = demo(0, 3)._replace(obs={"a": np.full((4, 1), 7, np.float32), "b": demo(0, 3).obs})
    spec = memory_cases.spec(batch_size=32, n_step=2, one_step=True, demonstrations=mixing_spec(share=0.5))
    made = buffers.build(spec, space, ACTION, 1, np.random.default_rng(0), demonstrations=episodes_of([episode]))
    own = rows(0, 0)
    first = {"a": np.zeros((1, 1), np.float32), "b": own.obs}
    made.add(own._replace(obs=first, next_obs=first))
    batch = made.sample().batch
    for tree in (batch.obs, batch.next_obs, batch.one_step.ahead):
        np.testing.assert_array_equal(tree["a"][:, 0], 7 * batch.expert)
        np.testing.assert_array_equal(tree["b"][:, 0], EXPERT * batch.expert)


def test_demonstrations_are_never_overwritten_e4():
    """The capacity is the agent's alone, and checkpoints do not contain demonstrations."""
    made = transition_buffer((3, 2), share=0.5, batch_size=64, capacity=10, own=500, prioritization=PROPORTIONAL)
    batch = made.sample().batch
    own = batch.expert == 0
    assert set(map(tuple, batch.obs[~own].tolist())) == {(100, 0), (100, 1), (100, 2), (101, 0), (101, 1)}
    assert batch.obs[own, 1].min() >= 490
    assert len(made) == made.rows == 10
    assert made.written.tolist() == [500]
    assert made.segment(np.zeros(1, np.int64))["obs"][:, 0].max() < EXPERT


# ---------------------------------------------------------------------------------------------------- priorities
OWN, THEIRS = [5.0, 3.0, 2.0], [7.0, 3.0]


def test_each_buffer_has_its_own_priorities_and_weights_e3_o10():
    """β = .6: P = [.5, .3, .2] for the agent, P = [.7, .3] for demonstrations. 200 batches: sd of a share .013."""
    made = transition_buffer((2,), share=0.5, batch_size=16, prioritization=LINEAR)
    set_priorities(made, OWN, THEIRS)
    expected = {0: [0.57707996, 0.78405268, 1], 1: [0.60146994, 1]}
    drawn = [made.sample() for _ in range(200)]
    for sample in drawn:
        for flag, weights in expected.items():
            of = sample.batch.expert == flag
            np.testing.assert_allclose(sample.batch.weight[of], np.array(weights)[sample.index[of]], rtol=1e-6)
    index = np.concatenate([sample.index for sample in drawn])
    expert = np.concatenate([sample.batch.expert for sample in drawn]).astype(bool)
    np.testing.assert_allclose(np.bincount(index[expert]) / expert.sum(), [0.7, 0.3], atol=0.05)
    np.testing.assert_allclose(np.bincount(index[~expert]) / (~expert).sum(), [0.5, 0.3, 0.2], atol=0.05)
    made.add(rows(0, 3))
    np.testing.assert_allclose(masses(made, "agent"), [5, 3, 2, 5])  # the largest of its own buffer
    np.testing.assert_allclose(masses(made, "experts"), [7, 3])


@pytest.mark.parametrize(("epsilon", "expected"), [(1.0, 1.5), (0.0, 0.501)])
def test_demonstrations_can_have_a_larger_epsilon_q4(epsilon: float, expected: float):
    made = transition_buffer(
        (2,), share=0.5, batch_size=64, prioritization=replace(LINEAR, epsilon=0.001), priority_epsilon=epsilon
    )
    made.feedback(made.sample(), np.full(64, 0.5))
    np.testing.assert_allclose(masses(made, "agent"), 0.501)
    np.testing.assert_allclose(masses(made, "experts"), expected)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_every_batch_anneals_the_importance_exponents_of_both_buffers(share: float):
    anneal = replace(LINEAR, importance_exponent=0.4, importance_anneal_samples=6)
    made = transition_buffer((2,), share=share, batch_size=32, prioritization=anneal)
    for _ in range(4):
        made.sample()
    assert [made.state_dict()[part]["sampler"]["sampled"] for part in ("agent", "experts")] == [4, 4]


# ---------------------------------------------------------------------------------------------------- by_priority
def test_share_by_priority_equals_the_priority_share_q3():
    """10 of 20, instead of the share .25. 600 batches of 16, sd of the mean .005."""
    made = transition_buffer((2,), batch_size=16, by_priority=True, prioritization=LINEAR)
    set_priorities(made, OWN, THEIRS)
    assert demonstration_counts(made, 600).mean() / 16 == pytest.approx(0.5, abs=0.022)
    set_priorities(made, [30.0, 30.0, 30.0], THEIRS)
    assert demonstration_counts(made, 600).mean() / 16 == pytest.approx(0.1, abs=0.014)


@pytest.mark.parametrize("anneal", [0, 10])
@pytest.mark.parametrize("batch_size", [1, 16])
def test_share_by_priority_weights_equal_a_single_buffer_q3(anneal: int, batch_size: int):
    """Also while β rises, and in batches of one item, which come from one buffer."""
    spec = replace(LINEAR, importance_anneal_samples=anneal)
    made = transition_buffer((2,), batch_size=batch_size, by_priority=True, prioritization=spec)
    set_priorities(made, OWN, THEIRS)
    count = made.state_dict()["agent"]["sampler"]["sampled"]
    beta = [0.6 + 0.4 * min(1.0, (count + i) / anneal) if anneal else 0.6 for i in range(30)]
    for i in range(30):
        batch = made.sample().batch
        place = batch.obs[:, 1].astype(int)
        priority = np.where(batch.expert > 0, np.array([*THEIRS, 0.0])[place], np.array(OWN)[place])
        np.testing.assert_allclose(batch.weight, (2 / priority) ** beta[i], rtol=1e-6)


def test_new_items_get_the_epsilon_of_their_buffer_q3():
    """Before any error |δ| counts as 1; ε is 1 for demonstrations, 1e-12 for the agent."""
    made = transition_buffer((2,), batch_size=16, priority_epsilon=1.0, by_priority=True, prioritization=LINEAR)
    np.testing.assert_allclose(masses(made, "agent"), [1, 1, 1])
    np.testing.assert_allclose(masses(made, "experts"), [2, 2])
    set_priorities(made, [0.5, 0.5, 0.5], [7.0, 3.0])
    made.add(rows(0, 3))
    np.testing.assert_allclose(masses(made, "agent"), [0.5, 0.5, 0.5, 7])
    np.testing.assert_allclose(masses(made, "experts"), [8, 4])


# ---------------------------------------------------------------------------------------------------- pretraining
@pytest.mark.parametrize("by_priority", [False, True])
def test_pretraining_batches_contain_only_demonstrations_e6(by_priority: bool):
    options = {"by_priority": by_priority, "batch_size": 8, "prioritization": LINEAR}
    made = transition_buffer((2,), own=0, pretraining=3, **options)
    assert made.pretraining_left == 3
    for left, sample in zip((2, 1, 0), made.pretraining(), strict=True):
        assert made.pretraining_left == left
        assert sample.batch.expert.tolist() == [1.0] * 8
        assert (sample.batch.weight <= 1).all()
        made.feedback(sample, np.full(8, 4.0))
    np.testing.assert_allclose(masses(made, "experts"), [4, 4])
    assert list(made.pretraining()) == []
    fewer = transition_buffer((2,), own=0, pretraining=1, **options)
    fewer.load_state_dict(made.state_dict())  # the user edited config.yaml
    assert fewer.pretraining_left == 0
    assert list(fewer.pretraining()) == []
    assert list(made.due()) == []
    made.add(rows(0, 0))
    assert len(list(made.due())) == 1


# ---------------------------------------------------------------------------------------------------- mistakes
def test_incompatible_demonstration_options_are_refused():
    with pytest.raises(UsageError, match="share_by_priority requires prioritized replay"):
        transition_buffer(by_priority=True)
    with pytest.raises(UsageError, match="all are shorter than the burn-in"):
        sequence_buffer((2, 1), learn_from_start=False)


@pytest.mark.parametrize("change", ["obs", "action", "reward", "end", "one more", "one less"])
def test_changed_demonstrations_are_refused(change: str):
    def build(demos: list[Any]) -> Any:
        spec = memory_cases.spec(demonstrations=mixing_spec())
        return buffers.build(spec, VECTOR, ACTION, 1, np.random.default_rng(0), demonstrations=episodes_of(demos))

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
def test_demonstration_sequences_start_with_zero_hidden_states():
    """The agent's sequences start from the state of their collection. Demonstrations alone have no hidden states."""
    made = sequence_buffer((9,), own=(9,), carry=True, share=0.5, batch_size=64)
    batch = made.sample().batch
    carry = batch.obs.carry["h"]
    assert (carry.dtype, carry.shape) == (np.float32, (64, 1, 3))
    assert not carry[batch.expert == 1].any()
    own = batch.obs.obs[batch.expert == 0]
    np.testing.assert_array_equal(carry[batch.expert == 0][:, 0, 0], 100.5 + own[:, 0, 1] - 1000)
    assert next(sequence_buffer((9,), carry=True, pretraining=1).pretraining()).batch.obs.carry == {}
