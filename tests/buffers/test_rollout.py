"""Rollouts: which steps are learned from, with which advantages, how often."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from rollout_cases import OBSERVED, build, o5, o5_steps, one, spec, step, worth

from duetto import buffers
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete


# ---------------------------------------------------------------------------------------------------- advantages
# SPEC O5; the arithmetic is in tests/functional/test_returns.py.
@pytest.mark.parametrize(
    ("discount", "trace", "expected"),
    [
        (0.9, 0.8, [2.12, 1, 3.75, 4.7]),
        (0.99, 0.95, [2.4305, 1, 3.975, 4.97]),
        (0.9, 0.0, [1.4, 1, 3.75, 4.7]),
        (0.9, 1.0, [2.3, 1, 3.75, 4.7]),
    ],
)
def test_o5_through_the_memory(discount, trace, expected):
    rollout = build(discount=discount, trace=trace)
    o5(rollout)
    batch = one(rollout)
    np.testing.assert_allclose(batch.advantage, expected, rtol=1e-6)
    np.testing.assert_allclose(batch.returns, np.add(expected, [0.5, 1, 1.5, 2]), rtol=1e-6)
    np.testing.assert_allclose(batch.value, [0.5, 1, 1.5, 2])
    np.testing.assert_allclose(batch.log_prob, [-0.05, -0.1, -0.15, -0.2])
    assert batch.weight.tolist() == [1, 1, 1, 1]


def test_an_end_that_is_both_counts_on_nothing():
    rollout = build(steps=2)
    rollout.add(step(1, 9, reward=2, terminated=True, truncated=True))
    rollout.add(step(0, 1))
    np.testing.assert_allclose(one(rollout).advantage, [1, 0.9])


@pytest.mark.parametrize(("flag", "expected"), [("terminated", 2 - 1), ("truncated", 2 + 0.9 * 9 - 1)])
def test_an_episode_may_end_with_the_rollout(flag, expected):
    """And then the next rollout does not reach back."""
    rollout = build(steps=2)
    rollout.add(step(0, 1))
    rollout.add(step(1, 9, reward=2, **{flag: True}))
    np.testing.assert_allclose(one(rollout).advantage, [0.9 + 0.72 * expected, expected], rtol=1e-6)
    rollout.add(step(0, 1))
    rollout.add(step(1, 2))
    np.testing.assert_allclose(one(rollout).advantage, [0.9 + 0.72 * 0.8, 0.8], rtol=1e-6)


def test_each_environment_has_a_trace_of_its_own():
    """O5 beside the same steps without ends, and beside itself one step later: columns do not mix."""
    rollout = build(3)
    values = [0.5, 1, 1.5, 2, 3]
    for time, (first, last) in enumerate(zip([*o5_steps()], [None, *o5_steps()[:3]], strict=True)):
        third = last or step(7, 0.5, reward=0)
        parts = [first, step(values[time], values[time + 1], reward=time + 1), third]
        rows = {"value": [], "next_value": [], "reward": [], "terminated": [], "truncated": []}
        for part in parts:
            rows["value"].append(part.obs[0, 1])
            rows["next_value"].append(part.next_obs[0, 1])
            for name in ("reward", "terminated", "truncated"):
                rows[name].append(getattr(part, name)[0])
        rollout.add(step(**rows))
    found = one(rollout).advantage.reshape(4, 3)
    np.testing.assert_allclose(found[:, 0], [2.12, 1, 3.75, 4.7], rtol=1e-6)
    np.testing.assert_allclose(found[:, 1], [6.5569856, 7.16248, 6.684, 4.7], rtol=1e-6)
    later = [-6.55 + 0.72 * 2.12, 2.12, 1, 3.75]  # δ of the step before: 0 + .9 · .5 - 7
    np.testing.assert_allclose(found[:, 2], later, rtol=1e-6)


def test_values_are_asked_for_n_rows_at_a_time():
    """Of what the last steps led to, and of final observations; another number of rows would be compiled anew."""
    asked = []

    def value(obs):
        asked.append(obs.copy())
        return worth(obs)

    rollout = build(2, value, steps=5)
    for time in range(5):  # five truncated ends, of which two fill one question, and the last is asked for twice
        rollout.add(step([time, 10 + time], [20 + time, 30 + time], truncated=[time < 3, time in (2, 4)]))
    batch = one(rollout)
    assert [obs.tolist() for obs in asked] == [
        [[0, 24], [1, 34]],
        [[0, 20], [0, 21]],
        [[0, 22], [1, 32]],
        [[1, 34], [1, 34]],
    ]
    found = batch.returns.reshape(5, 2)
    np.testing.assert_allclose(found[:3, 0], [18, 18.9, 19.8], rtol=1e-6)  # γ V(end)
    np.testing.assert_allclose(found[[2, 4], 1], [28.8, 30.6], rtol=1e-6)


def test_a_rollout_may_begin_without_an_environment():
    """As on a cluster, where an actor is lost at the very first step."""
    rollout = build(2)
    rollout.add(step([0], [1], reward=1, env=[1]))
    rollout.interrupt()
    for time in range(1, 4):
        rollout.add(step([time, 10], [time + 1, 10], reward=0))
    batch = one(rollout)
    assert batch.weight.tolist() == [0, 1, 1, 1, 1, 1, 1, 1]
    np.testing.assert_allclose(batch.returns[1], 1 + 0.9 * 1, rtol=1e-6)  # r + γ V(what it led to), cut there


# ---------------------------------------------------------------------------------------------------- epochs
def test_nothing_is_due_before_the_rollout_is_complete():
    rollout = build(2, steps=3, epochs=2)
    for _ in range(2):  # and the second is like the first
        for time in range(3):
            assert list(rollout.due()) == []
            assert len(rollout) == 2 * time
            rollout.add(step([0, 1], [1, 2]))
        samples = list(rollout.due())
        assert len(samples) == 2
        assert {sample.age for sample in samples} == {6}
        assert len(rollout) == 0


def test_every_epoch_is_the_same_rollout():
    """Pitfall 24: log-probabilities, values and advantages stay those that it was collected with."""
    drift = [0.0]
    rollout = build(epochs=3, value=lambda obs: worth(obs) + drift[0])
    o5(rollout)
    seen = []
    for sample in rollout.due():
        seen.append([np.array(part) for part in sample.batch])
        drift[0] += 1  # the value function moves while it is learned from
    assert len(seen) == 3
    for other in seen[1:]:
        for ours, theirs in zip(seen[0], other, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_values_are_not_asked_for_again_between_epochs():
    calls = Counter()

    def value(obs):
        calls["all"] += 1
        return worth(obs)

    rollout = build(epochs=5, value=value)
    o5(rollout)
    list(rollout.due())
    assert calls["all"] == 2  # once for the rollout's end, once for the truncated one


def test_advantages_may_be_recomputed_with_the_new_values():
    """After the first epoch the value function gives 1 more everywhere. Old log-probabilities stay.

    A_t = δ_t: at 0, 2.12 + .9 - 1 + .72 · (-1) = 1.3; at 1, 2 - 2; at 2, 3 + .9 · 3.5 - 2.5; at 3, 4 + .9 · 4 - 3.
    """
    more = [0.0]
    rollout = build(epochs=3, recompute_advantages=True, value=lambda obs: worth(obs) + more[0])
    o5(rollout)
    due = rollout.due()
    first = next(due).batch
    np.testing.assert_allclose(first.advantage, [2.12, 1, 3.75, 4.7], rtol=1e-6)
    more[0] = 1.0
    second = next(due).batch
    np.testing.assert_allclose(second.advantage, [1.3, 0, 3.65, 4.6], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second.value, [1.5, 2, 2.5, 3])
    np.testing.assert_allclose(second.returns, second.value + second.advantage)
    np.testing.assert_array_equal(second.log_prob, first.log_prob)


def test_beyond_the_divergence_no_further_epoch():
    rollout = build(epochs=4, target_kl=0.1)
    assert rollout.needs_divergence
    for divergences, epochs in (([0.05, 0.1, 0.11], 3), ([0.2], 1), ([0.0] * 4, 4)):
        o5(rollout)
        seen = 0
        for _ in rollout.due():
            rollout.note_divergence(divergences[seen])
            seen += 1
        assert seen == epochs
        assert len(rollout) == 0
    assert not build().needs_divergence


def test_explained_variance_comes_with_the_first_epoch():
    """Errors are the advantages [2.12, 1, 3.75, 4.7], returns [2.62, 2, 5.25, 6.7]."""
    rollout = build(epochs=2)
    o5(rollout)
    first, second = rollout.due()
    expected = 1 - np.var([2.12, 1, 3.75, 4.7]) / np.var([2.62, 2, 5.25, 6.7])
    assert first.info == {"explained_variance": pytest.approx(expected, rel=1e-5)}
    assert second.info == {}


# ---------------------------------------------------------------------------------------------------- what is kept
def test_stored_arrays_are_copies():
    rollout = build()
    for experience in o5_steps():
        rollout.add(experience)
        for array in (experience.obs, experience.action, experience.reward, *experience.extras.values()):
            array += 100
        experience.next_obs[:] = 100
    np.testing.assert_allclose(one(rollout).advantage, [2.12, 1, 3.75, 4.7], rtol=1e-6)


IMAGE = Box((2, 3, 3), "uint8", (0,), (255,))


def test_observations_keep_their_parts_and_dtypes():
    """P8: images stay uint8 until a minibatch goes to the network."""
    space = Dict((("image", IMAGE), ("joints", Box((2,), "float64", (-1, -1), (1, 1))), ("mission", Discrete(9))))
    rollout = build(2, lambda obs: obs["joints"][:, 0], space, MultiDiscrete((3, 4)), steps=1)
    obs = {"image": np.full((2, 2, 3, 3), 200, np.uint8), "joints": np.full((2, 2), 0.5), "mission": np.array([4, 5])}
    rollout.add(step([0, 0], [0, 0])._replace(obs=obs, next_obs=obs, action=np.array([[2, 3], [1, 0]])))
    batch = one(rollout)
    assert {name: (part.dtype, part.shape) for name, part in batch.obs.items()} == {
        "image": (np.uint8, (2, 2, 3, 3)),
        "joints": (np.float32, (2, 2)),
        "mission": (np.int64, (2,)),
    }
    assert (batch.obs["image"] == 200).all()
    assert batch.obs["mission"].tolist() == [4, 5]
    assert batch.action.tolist() == [[2, 3], [1, 0]]


def test_actions_are_kept_as_they_were_sampled():
    """Also beyond [-1, 1]: an environment clips them, the probability is of what was sampled."""
    rollout = build(action=Box((2,), "float32", (-1.0, -1.0), (1.0, 1.0)), steps=1, num_envs=2)
    rollout.add(step([0, 0], [0, 0])._replace(action=np.array([[3.5, -0.5], [0, -7]], np.float32)))
    assert one(rollout).action.tolist() == [[3.5, -0.5], [0, -7]]


# ---------------------------------------------------------------------------------------------------- numbers
@pytest.mark.parametrize(
    ("num_envs", "changes", "sentence"),
    [
        (
            3,
            {"steps": 5, "minibatches": 4},
            "A rollout of 5 steps in 3 environment(s) has 15 steps, which cannot be cut into 4 equal minibatches. "
            "Change rollout_steps, num_envs or minibatches.",
        ),
        (2, {"steps": 4, "minibatches": 8}, "8 minibatches of 8 steps have one step each. Choose fewer minibatches."),
    ],
)
def test_numbers_that_make_no_minibatches_are_refused(num_envs, changes, sentence):
    with pytest.raises(UsageError) as refusal:
        build(num_envs, **changes)
    assert str(refusal.value) == sentence


def test_a_rollout_that_does_not_fit_says_how_much_it_needs():
    """10^13 steps of 2 + 1 + 1 + 1 floats, one integer and 2 flags, 30 bytes: 279,396.8 GiB."""
    with pytest.raises(UsageError, match=r"A rollout of 10{13} steps needs 279396\.8 GiB.*Lower rollout_steps"):
        buffers.build(spec(steps=10**13), OBSERVED, Discrete(4), 1, np.random.default_rng(0), worth)
