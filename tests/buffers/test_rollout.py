"""Rollouts: advantages, epochs, stored arrays, and errors."""

from __future__ import annotations

import numpy as np
import pytest
from rollout_cases import add_o5_steps, build, o5_steps, only_batch, step, value_of

from duetto.errors import UsageError
from duetto.networks.spaces import Box


# ---------------------------------------------------------------------------------------------------- advantages
# SPEC O5. γ .9: δ = [1 + .9 - .5, 2 - 1, 3 + 2.25 - 1.5, 4 + 2.7 - 2] = [1.4, 1, 3.75, 4.7]; A_0 = 1.4 + .9 λ · 1.
# γ .99: δ = [1 + .99 - .5, 2 - 1, 3 + 2.475 - 1.5, 4 + 2.97 - 2]; A_0 = 1.49 + .9405.
@pytest.mark.parametrize(
    ("discount", "trace", "expected"),
    [
        (0.9, 0.8, [2.12, 1, 3.75, 4.7]),
        (0.99, 0.95, [2.4305, 1, 3.975, 4.97]),
        (0.9, 0.0, [1.4, 1, 3.75, 4.7]),
        (0.9, 1.0, [2.3, 1, 3.75, 4.7]),
    ],
)
def test_gae_advantages_and_returns_by_hand_o5(discount, trace, expected):
    rollout = build(discount=discount, trace=trace)
    add_o5_steps(rollout)
    batch = only_batch(rollout)
    np.testing.assert_allclose(batch.advantage, expected, rtol=1e-6)
    np.testing.assert_allclose(batch.returns, np.add(expected, [0.5, 1, 1.5, 2]), rtol=1e-6)
    np.testing.assert_allclose(batch.value, [0.5, 1, 1.5, 2])
    np.testing.assert_allclose(batch.log_prob, [-0.05, -0.1, -0.15, -0.2])
    assert batch.weight.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(("flag", "expected"), [("terminated", 2 - 1), ("truncated", 2 + 0.9 * 9 - 1)])
def test_advantages_of_an_episode_that_ends_with_the_rollout(flag, expected):
    """The next rollout does not change it."""
    rollout = build(steps=2)
    rollout.add(step(0, 1))
    rollout.add(step(1, 9, reward=2, **{flag: True}))
    np.testing.assert_allclose(only_batch(rollout).advantage, [0.9 + 0.72 * expected, expected], rtol=1e-6)
    rollout.add(step(0, 1))
    rollout.add(step(1, 2))
    np.testing.assert_allclose(only_batch(rollout).advantage, [0.9 + 0.72 * 0.8, 0.8], rtol=1e-6)


def test_first_vector_step_may_lack_an_environment():
    """As when a cluster loses an actor at its first step."""
    rollout = build(2)
    rollout.add(step([0], [1], reward=1, env=[1]))
    rollout.interrupt()
    for time in range(1, 4):
        rollout.add(step([time, 10], [time + 1, 10], reward=0))
    batch = only_batch(rollout)
    assert batch.weight.tolist() == [0, 1, 1, 1, 1, 1, 1, 1]
    np.testing.assert_allclose(batch.returns[1], 1 + 0.9 * 1, rtol=1e-6)  # r + γ V(next observation)


# ---------------------------------------------------------------------------------------------------- epochs
def test_batches_are_due_once_the_rollout_is_complete():
    rollout = build(2, steps=3, epochs=2)
    for _ in range(2):
        for time in range(3):
            assert list(rollout.due()) == []
            assert len(rollout) == 2 * time
            rollout.add(step([0, 1], [1, 2]))
        samples = list(rollout.due())
        assert len(samples) == 2
        assert {sample.age for sample in samples} == {6}
        assert len(rollout) == 0


def test_every_epoch_reuses_the_collected_values():
    """Log-probabilities, values and advantages do not change, and the value function is called only for the ends."""
    calls: list[int] = []

    def value(obs):
        calls.append(len(obs))
        return value_of(obs) + len(calls)

    rollout = build(epochs=3, value=value)
    add_o5_steps(rollout)
    first, *others = ([np.array(part) for part in sample.batch] for sample in rollout.due())
    assert len(others) == 2
    for other in others:
        for ours, theirs in zip(first, other, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert calls == [1, 1]  # the rollout's end and the truncated episode's


def test_explained_variance_is_logged_with_the_first_epoch():
    """Errors are the advantages [2.12, 1, 3.75, 4.7], returns [2.62, 2, 5.25, 6.7]."""
    rollout = build(epochs=2)
    add_o5_steps(rollout)
    first, second = rollout.due()
    expected = 1 - np.var([2.12, 1, 3.75, 4.7]) / np.var([2.62, 2, 5.25, 6.7])
    assert first.info == {"explained_variance": pytest.approx(expected, rel=1e-5)}
    assert second.info == {}


def test_value_function_always_gets_one_row_per_environment():
    """Another number of rows would make JAX compile again. Here 5 truncated ends make 3 calls, the last one padded."""
    asked = []

    def value(obs):
        asked.append(len(obs))
        return value_of(obs)

    rollout = build(2, value, steps=5)
    for time in range(5):
        rollout.add(step([time, 10 + time], [20 + time, 30 + time], truncated=[time < 3, time in (2, 4)]))
    found = only_batch(rollout).returns.reshape(5, 2)
    assert asked == [2] * 4
    np.testing.assert_allclose(found[:3, 0], [18, 18.9, 19.8], rtol=1e-6)  # γ V(end)
    np.testing.assert_allclose(found[[2, 4], 1], [28.8, 30.6], rtol=1e-6)


def test_recompute_advantages_uses_new_values():
    """After the first epoch the value function returns 1 more. Old log-probabilities stay.

    A_t = δ_t: at 0, 2.12 + .9 - 1 + .72 · (-1) = 1.3; at 1, 2 - 2; at 2, 3 + .9 · 3.5 - 2.5; at 3, 4 + .9 · 4 - 3.
    """
    more = [0.0]
    rollout = build(epochs=3, recompute_advantages=True, value=lambda obs: value_of(obs) + more[0])
    add_o5_steps(rollout)
    due = rollout.due()
    first = next(due).batch
    np.testing.assert_allclose(first.advantage, [2.12, 1, 3.75, 4.7], rtol=1e-6)
    more[0] = 1.0
    second = next(due).batch
    np.testing.assert_allclose(second.advantage, [1.3, 0, 3.65, 4.6], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second.value, [1.5, 2, 2.5, 3])
    np.testing.assert_allclose(second.returns, second.value + second.advantage)
    np.testing.assert_array_equal(second.log_prob, first.log_prob)


def test_divergence_above_target_kl_skips_the_remaining_epochs():
    rollout = build(epochs=4, target_kl=0.1)
    assert rollout.needs_divergence
    for divergences, epochs in (([0.05, 0.1, 0.11], 3), ([0.2], 1), ([0.0] * 4, 4)):
        add_o5_steps(rollout)
        seen = 0
        for _ in rollout.due():
            rollout.note_divergence(divergences[seen])
            seen += 1
        assert seen == epochs
        assert len(rollout) == 0
    assert not build().needs_divergence


# ---------------------------------------------------------------------------------------------------- stored arrays
def test_rollout_stores_copies_of_arrays():
    rollout = build()
    for experience in o5_steps():
        rollout.add(experience)
        for array in (experience.obs, experience.action, experience.reward, *experience.extras.values()):
            array += 100
        experience.next_obs[:] = 100
    np.testing.assert_allclose(only_batch(rollout).advantage, [2.12, 1, 3.75, 4.7], rtol=1e-6)


def test_rollout_stores_unclipped_actions():
    """Also beyond [-1, 1]: the environment clips them, but the log-probability is of the sampled action."""
    rollout = build(action=Box((2,), "float32", (-1.0, -1.0), (1.0, 1.0)), steps=1, num_envs=2)
    rollout.add(step([0, 0], [0, 0])._replace(action=np.array([[3.5, -0.5], [0, -7]], np.float32)))
    assert only_batch(rollout).action.tolist() == [[3.5, -0.5], [0, -7]]


# ---------------------------------------------------------------------------------------------------- errors
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
        (
            1,
            {"steps": 10**13},  # 30 bytes each: 5 floats, one integer and 2 flags
            "A rollout of 10000000000000 steps needs 279396.8 GiB of memory, which this machine does not have free. "
            "Lower rollout_steps.",
        ),
    ],
)
def test_invalid_rollout_sizes_are_refused(num_envs, changes, sentence):
    with pytest.raises(UsageError) as refusal:
        build(num_envs, **changes)
    assert str(refusal.value) == sentence
