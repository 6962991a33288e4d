"""bfloat16 computes networks faster and less exactly; parameters, targets and losses stay float32."""

import numpy as np
import policy_cases
import pytest
from learning_cases import batch, build, small
from policy_cases import ACTIONS, OBSERVATIONS, noise, rollout

from duetto import UsageError
from duetto.algorithms import TD3


def test_what_leaves_a_network_is_not_rounded(backend):
    """Values near 300 in bfloat16 are even numbers: differences smaller than that would teach nothing."""
    learner = build(backend, small(TD3, policy_delay=1, discount=0.99), precision="bf16")
    parameters = learner.parameters()
    for name in ("critic", "target_critic"):
        last = max(key for key in parameters[name] if key.endswith(".weight"))
        parameters[name][last] = np.zeros_like(parameters[name][last])
        bias = last.replace("weight", "bias")
        parameters[name][bias] = np.full_like(parameters[name][bias], 300.7)
    learner.load_parameters(parameters)
    one = batch(256)
    metrics = learner.update(one)
    target = one.reward + one.discount * np.float32(300.7)
    assert metrics.value("q_max") == pytest.approx(300.7, abs=1e-3)
    assert metrics.value("target_max") == pytest.approx(target.max(), abs=1e-3)
    assert metrics.value("critic_loss") == pytest.approx(2 * np.mean((300.7 - target) ** 2), rel=1e-4)


def test_a_std_is_not_rounded(backend):
    algorithm = policy_cases.small(initial_log_std=-0.7321, minibatches=1)
    learner = policy_cases.build(backend, algorithm, action="numbers", precision="bf16")
    one = rollout(64, action="numbers")
    taken, extras = learner.collect(one.obs, noise(ACTIONS["numbers"], 64))
    entropy = learner.update(one._replace(action=taken, **extras)).value("entropy")
    size = taken.shape[1]
    assert entropy == pytest.approx(size * (0.5 * np.log(2 * np.pi * np.e) - 0.7321), abs=1e-5)


def test_bfloat16_parameters_keep_small_steps(backend):
    """In bfloat16 itself a step of 1e-5 on a weight of .1 would be lost to rounding."""
    learner = build(backend, small(critic_learning_rate=1e-5), precision="bf16")
    before = learner.parameters()["critic"]["layers.0.weight"]
    learner.update(batch())
    moved = np.abs(learner.parameters()["critic"]["layers.0.weight"] - before)
    assert np.median(moved) == pytest.approx(1e-5, rel=0.05)


def test_another_name_is_refused(backend):
    with pytest.raises(UsageError, match=r"precision is 'bfloat16'; it must be one of float32, bf16\."):
        build(backend, small(), precision="bfloat16")


@pytest.mark.parametrize(("observation", "action"), [("vector", "numbers"), ("image", "choice")])
def test_policies_in_bfloat16_are_near_float32(backend, observation, action):
    """Values, the policies' probabilities and what is learned from them."""
    algorithm = policy_cases.small(policy_gain=0.1, minibatches=2, entropy_coefficient=0.01)
    size = 64 if observation == "vector" else 16
    one = rollout(size, observation=OBSERVATIONS[observation], action=action)
    exact, rough = (
        policy_cases.build(backend, algorithm, OBSERVATIONS[observation], action, precision=precision)
        for precision in ("float32", "bf16")
    )
    drawn = noise(ACTIONS[action], size)
    ours, theirs = (learner.collect(one.obs, drawn)[1] for learner in (exact, rough))
    assert theirs["log_prob"].dtype == theirs["value"].dtype == np.float32
    assert not np.array_equal(ours["value"], theirs["value"])
    np.testing.assert_allclose(ours["value"], theirs["value"], atol=0.02 * np.abs(ours["value"]).max())
    metrics = [learner.update(one) for learner in (exact, rough)]
    assert metrics[0].names == metrics[1].names
    np.testing.assert_allclose(*(np.asarray(one.values) for one in metrics), rtol=0.03, atol=0.02)
    for name, values in rough.parameters()["agent"].items():
        assert values.dtype == np.float32, name
        np.testing.assert_allclose(values, exact.parameters()["agent"][name], atol=2e-3)


@pytest.mark.parametrize("action", ["choice", "numbers"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_what_was_collected_is_compared_in_the_same_precision(backend, precision, action):
    """Nothing was learned yet, so every ratio is 1: log π and log π_old are rounded alike."""
    algorithm = policy_cases.small(policy_gain=1.0, minibatches=1, hidden=(64, 64), initial_log_std=-1.0)
    learner = policy_cases.build(backend, algorithm, action=action, precision=precision)
    one = rollout(64, action=action)
    taken, extras = learner.collect(one.obs, noise(ACTIONS[action], 64))
    metrics = learner.update(one._replace(action=taken, **extras))
    assert metrics.value("approx_kl_k2") < 1e-10
    assert metrics.value("clip_fraction") == 0
    assert learner.update(one._replace(action=taken, **extras)).value("approx_kl_k2") > 1e-9  # then it has moved
