"""Action distributions on NumPy, PyTorch and JAX arrays, compared with PyTorch's distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import distributions as theirs

from duetto.functional.distributions import (
    Categorical,
    DiagonalGaussian,
    Joint,
    SquashedGaussian,
)

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(0, 2, (6, 4)).astype(np.float32)
MEAN, LOG_STD = RANDOM.normal(0, 2, (2, 6, 3)).astype(np.float32) * [[[1.0]], [[0.5]]]
CHOICE = np.array([0, 1, 2, 3, 3, 0])
NUMBERS = RANDOM.normal(0, 3, (6, 3)).astype(np.float32)


def close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=tolerance)


# SPEC O6: Σ e = 2.7182818 + 1 + .3678794 + 1 = 5.0861613, its logarithm 1.6265234.
def test_categorical_log_probs_by_hand_o6(array):
    policy = Categorical(array([[1, 0, -1, 0]]))
    close(policy.log_probs, [[-0.626523375, -1.626523375, -2.626523375, -1.626523375]], 1e-6)
    close(policy.entropy(), [1.1644062178], 1e-6)


def test_categorical_matches_pytorch(array):
    policy, reference = Categorical(array(LOGITS)), theirs.Categorical(logits=torch.from_numpy(LOGITS))
    close(policy.log_prob(integers_like(policy.logits, CHOICE)), reference.log_prob(torch.from_numpy(CHOICE)))
    close(policy.entropy(), reference.entropy())
    np.testing.assert_array_equal(policy.mode(), LOGITS.argmax(axis=1))


def test_gaussian_matches_pytorch(array):
    policy = DiagonalGaussian(array(MEAN), array(LOG_STD))
    reference = theirs.Independent(theirs.Normal(torch.tensor(MEAN), torch.tensor(LOG_STD).exp()), 1)
    close(policy.log_prob(array(NUMBERS)), reference.log_prob(torch.from_numpy(NUMBERS)))
    close(policy.entropy(), reference.entropy())
    close(policy.mode(), MEAN)


# Expected in float64: -½·noise² - log_std - ½·log 2π. With log_std -20, mean + std · noise rounds the noise away.
@pytest.mark.parametrize("log_std", [-20.0, 0.0, 2.0])
def test_sample_log_prob_is_computed_from_noise(array, log_std):
    mean, noise = np.array([[1.0, -0.5, 0.3]]), np.array([[0.75, -0.5, 2.0]])
    each = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    gaussian = DiagonalGaussian(array(mean), array(np.full((1, 3), log_std)))
    close(gaussian.log_density(array(noise)), each.sum(axis=1), 1e-6)
    before = mean + np.exp(log_std) * noise
    squashed = SquashedGaussian(gaussian.mean, gaussian.log_std).sample_and_log_prob(array(noise))[1]
    close(squashed, (each - np.log(4) + 2 * np.logaddexp(before, -before)).sum(axis=1), 1e-5)


def test_squashed_log_prob_is_finite_near_bounds(array):
    policy = SquashedGaussian(array(np.zeros((4, 1))), array(np.zeros((4, 1))))
    assert np.isfinite(np.asarray(policy.log_prob(array([[1], [-1], [0.9999999], [0]])))).all()


def integers_like(array, values):
    """Convert integers to an array of the same framework."""
    if isinstance(array, torch.Tensor):
        return torch.from_numpy(values)
    return values if isinstance(array, np.ndarray) else jnp.asarray(values)


# ---------------------------------------------------------------------------------------------------- sampling


def test_joint_sample_uses_separate_noise_per_action(array):
    policy = Joint((Categorical(array([[0, 0]])), Categorical(array([[0, 0, 0]]))))
    assert np.asarray(policy.sample(array([[0, 1, 0, 0, 1]]))).tolist() == [[1, 2]]
    assert np.asarray(policy.sample(array([[1, 0, 0, 1, 0]]))).tolist() == [[0, 1]]


def test_gumbel_sampling_frequencies_match_probabilities():
    """100,000 samples: the standard deviation of a frequency is at most .0016."""
    noise = np.random.default_rng(1).gumbel(size=(100_000, 4))
    logits = np.broadcast_to(LOGITS[0].astype(np.float64), noise.shape)
    frequencies = np.bincount(Categorical(logits).sample(noise), minlength=4) / 100_000
    np.testing.assert_allclose(frequencies, np.exp(Categorical(LOGITS[0]).log_probs), atol=0.007)


def test_noise_or_action_of_wrong_shape_is_rejected(array):
    """One noise value for all logits would always select the largest logit."""
    with pytest.raises(ValueError, match=r"logits \(6, 4\), noise \(6, 1\)"):
        Categorical(array(LOGITS)).sample(array(np.zeros((6, 1))))
    with pytest.raises(ValueError, match=r"mean \(6, 3\), noise \(3,\)"):
        DiagonalGaussian(array(MEAN), array(LOG_STD)).sample(array(np.zeros(3)))
    with pytest.raises(ValueError, match=r"mean \(6, 3\), action \(6, 1\)"):
        DiagonalGaussian(array(MEAN), array(LOG_STD)).log_prob(array(np.zeros((6, 1))))


# ---------------------------------------------------------------------------------------------------- extremes
EXTREME = np.array([[1e4, -1e4, 0], [-1e30, 0, 0], [1e38, 1e38, -1e38], [-100, -100, -100]], np.float32)


def test_extreme_logits_give_finite_log_probs(array):
    """The rows have one certain choice, and two, two and three equally likely choices."""
    policy = Categorical(array(EXTREME))
    assert np.isfinite(np.asarray(policy.log_probs)).all()
    close(policy.entropy(), [0, np.log(2), np.log(2), np.log(3)], 1e-6)
    close(
        policy.log_prob(integers_like(policy.logits, np.array([0, 1, 0, 2]))),
        [0, -np.log(2), -np.log(2), -np.log(3)],
        1e-6,
    )


def test_extreme_logits_give_finite_gradients():
    """d log π(a) / d logits is one-hot(a) minus the probabilities; the entropy's gradient is 0 at these logits."""
    choice = np.array([0, 1, 0, 2])
    wanted = np.array([[0, 0, 0], [0, 0.5, -0.5], [0.5, -0.5, 0], [-1 / 3, -1 / 3, 2 / 3]])
    logits = torch.tensor(EXTREME, requires_grad=True)
    policy = Categorical(logits)
    for value, expected in ((policy.log_prob(torch.from_numpy(choice)), wanted), (policy.entropy(), np.zeros((4, 3)))):
        (gradient,) = torch.autograd.grad(value.sum(), logits, retain_graph=True)
        close(gradient, expected, 1e-6)
    close(jax.grad(lambda x: Categorical(x).log_prob(jnp.asarray(choice)).sum())(jnp.asarray(EXTREME)), wanted, 1e-6)
    close(jax.grad(lambda x: Categorical(x).entropy().sum())(jnp.asarray(EXTREME)), np.zeros((4, 3)), 1e-6)


def test_squashed_gaussian_gradients_match_pytorch():
    """Gradients of log π(a) + Σ a by mean and log std, for reparameterized samples a."""
    noise = np.random.default_rng(3).normal(size=(6, 3)).astype(np.float32)
    values = [x.astype(np.float32) for x in (0.3 * MEAN, LOG_STD - 0.5)]

    def ours(mean, log_std, noise):
        action, log_prob = SquashedGaussian(mean, log_std).sample_and_log_prob(noise)
        return log_prob.sum() + action.sum()

    inputs = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in values]
    mean, log_std = inputs
    before = mean + log_std.exp() * torch.from_numpy(noise)
    reference = theirs.TransformedDistribution(theirs.Normal(mean, log_std.exp()), [theirs.TanhTransform(cache_size=1)])
    action = reference.transforms[0](before)  # cached, so that its inverse is exact
    expected = torch.autograd.grad(reference.log_prob(action).sum() + action.sum(), inputs)
    leaves = [torch.tensor(x, requires_grad=True) for x in values]
    found = torch.autograd.grad(ours(*leaves, torch.from_numpy(noise)), leaves)
    others = jax.grad(ours, (0, 1))(*map(jnp.asarray, values), jnp.asarray(noise))
    for one, other, wanted in zip(found, others, expected, strict=True):
        close(one, wanted, 1e-4)
        close(other, wanted, 1e-4)
