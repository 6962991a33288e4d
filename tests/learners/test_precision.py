"""bfloat16 computes networks faster and less exactly; parameters, targets and losses stay float32."""

import numpy as np
import policy_cases
import pytest
from learning_cases import batch, build, small
from policy_cases import ACTIONS, noise, rollout

from duetto import UsageError
from duetto.algorithms import TD3


def test_outputs_are_not_rounded_to_bfloat16(backend):
    """bfloat16 rounds values near 300 to even numbers, so smaller differences would vanish."""
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


def test_categorical_values_are_not_rounded_to_bfloat16(backend):
    """Rounded logits would change the mean by up to 0.01."""
    learner = build(backend, small(TD3, critic="categorical", num_atoms=3, value_range=(-5.0, 5.0)), precision="bf16")
    parameters, p = learner.parameters(), np.float32([0.2, 0.4877, 0.3123])
    for name in ("critic", "target_critic"):
        last = max(key for key in parameters[name] if key.endswith(".weight"))
        parameters[name][last] = np.zeros_like(parameters[name][last])
        bias = last.replace("weight", "bias")
        parameters[name][bias] = np.broadcast_to(np.log(p), parameters[name][bias].shape).copy()
    learner.load_parameters(parameters)
    assert learner.update(batch(64)).value("q_mean") == pytest.approx(5 * (p[2] - p[0]), abs=1e-5)


def test_policy_std_is_not_rounded_to_bfloat16(backend):
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


def test_unknown_precision_is_rejected(backend):
    with pytest.raises(UsageError, match=r"precision is 'bfloat16'; it must be one of float32, bf16\."):
        build(backend, small(), precision="bfloat16")


def test_bfloat16_ratios_are_one_before_first_update(backend):
    """log π and log π_old have the same precision, so every ratio is 1 at first."""
    algorithm = policy_cases.small(policy_gain=1.0, minibatches=1, hidden=(64, 64), initial_log_std=-1.0)
    learner = policy_cases.build(backend, algorithm, action="numbers", precision="bf16")
    one = rollout(64, action="numbers")
    taken, extras = learner.collect(one.obs, noise(ACTIONS["numbers"], 64))
    metrics = learner.update(one._replace(action=taken, **extras))
    assert metrics.value("approx_kl_k2") < 1e-10
    assert metrics.value("clip_fraction") == 0
    assert learner.update(one._replace(action=taken, **extras)).value("approx_kl_k2") > 1e-9  # the policy has moved
