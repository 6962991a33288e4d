"""Distributions over actions against PyTorch's own, for NumPy, PyTorch and JAX arrays."""

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
def test_o6_logits(array):
    policy = Categorical(array([[1, 0, -1, 0]]))
    close(policy.log_probs, [[-0.626523375, -1.626523375, -2.626523375, -1.626523375]], 1e-6)
    close(policy.entropy(), [1.1644062178], 1e-6)


def test_categorical(array):
    policy, reference = Categorical(array(LOGITS)), theirs.Categorical(logits=torch.from_numpy(LOGITS))
    close(policy.log_prob(like(policy.logits, CHOICE)), reference.log_prob(torch.from_numpy(CHOICE)))
    close(policy.entropy(), reference.entropy())
    np.testing.assert_array_equal(policy.mode(), LOGITS.argmax(axis=1))


def test_gaussian(array):
    policy = DiagonalGaussian(array(MEAN), array(LOG_STD))
    reference = theirs.Independent(theirs.Normal(torch.tensor(MEAN), torch.tensor(LOG_STD).exp()), 1)
    close(policy.log_prob(array(NUMBERS)), reference.log_prob(torch.from_numpy(NUMBERS)))
    close(policy.entropy(), reference.entropy())
    close(policy.mode(), MEAN)


# 1 + e^.6931472 · [.5, -1] = [2, -1] before tanh.
def test_a_squashed_gaussian_is_a_gaussian_through_tanh(array):
    policy = SquashedGaussian(array([[1, 1]] * 2), array([[0.6931472] * 2] * 2))
    close(policy.sample(array([[0.5, -1], [0, 0]])), np.tanh([[2, -1], [1, 1]]), 1e-6)
    close(policy.mode(), np.tanh([[1, 1], [1, 1]]), 1e-6)


# In float64: log N(u) - log(1 - tanh² u), where 1 - tanh² u = 4 / (e^u + e^-u)². tanh(±10) is ±1 to float32's last bit,
# and atanh of that is infinite.
def test_its_log_probability_comes_from_the_number_before_tanh(array):
    before = np.array([[0.1, -0.3], [10, -10], [60, -60]])
    mean, noise = before - 0.5, np.full(before.shape, 0.5)
    expected = -0.125 - 0.5 * np.log(2 * np.pi) - np.log(4) + 2 * np.logaddexp(before, -before)
    action, log_prob = SquashedGaussian(array(mean), array(np.zeros_like(mean))).sample_and_log_prob(array(noise))
    close(action, np.tanh(before), 1e-6)
    close(log_prob, expected.sum(axis=1), 1e-5)


# In float64, with the noise .75, -.5, 2: -½·noise² - log_std - ½·log 2π. At -14, mean + std · noise keeps one digit of
# the noise; at -20, none.
@pytest.mark.parametrize("log_std", [-20.0, -16.0, -14.0, 0.0, 2.0])
def test_log_probabilities_of_samples_come_from_their_noise(array, log_std):
    mean, noise = np.array([[1.0, -0.5, 0.3]]), np.array([[0.75, -0.5, 2.0]])
    each = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    gaussian = DiagonalGaussian(array(mean), array(np.full((1, 3), log_std)))
    close(gaussian.log_density(array(noise)), each.sum(axis=1), 1e-6)
    before = mean + np.exp(log_std) * noise
    squashed = SquashedGaussian(gaussian.mean, gaussian.log_std).sample_and_log_prob(array(noise))[1]
    close(squashed, (each - np.log(4) + 2 * np.logaddexp(before, -before)).sum(axis=1), 1e-5)


def test_near_the_ends_of_its_range_log_probabilities_stay_finite(array):
    policy = SquashedGaussian(array(np.zeros((4, 1))), array(np.zeros((4, 1))))
    assert np.isfinite(np.asarray(policy.log_prob(array([[1], [-1], [0.9999999], [0]])))).all()


def test_samples_come_with_their_log_probabilities(array):
    """Where atanh is exact enough."""
    noise = array(0.3 * np.random.default_rng(2).normal(size=(6, 3)))
    policy = SquashedGaussian(array(0.2 * MEAN), array(LOG_STD - 1.0))
    action, log_prob = policy.sample_and_log_prob(noise)
    np.testing.assert_array_equal(action, policy.sample(noise))
    assert log_prob.shape == (6,)
    close(log_prob, policy.log_prob(action), 1e-3)


def like(array, values):
    """Integers as an array of the same framework."""
    if isinstance(array, torch.Tensor):
        return torch.from_numpy(values)
    return values if isinstance(array, np.ndarray) else jnp.asarray(values)


# ---------------------------------------------------------------------------------------------------- sampling
def test_a_choice_is_the_largest_of_logits_and_noise(array):
    """[1, 2] + [.5, 0] and [1, 2] + [1.5, 0]: 1.5 < 2 and 2.5 > 2."""
    policy = Categorical(array([[1, 2], [1, 2]]))
    assert np.asarray(policy.sample(array([[0.5, 0], [1.5, 0]]))).tolist() == [1, 0]


def test_each_of_several_choices_has_its_own_noise(array):
    policy = Joint((Categorical(array([[0, 0]])), Categorical(array([[0, 0, 0]]))))
    assert np.asarray(policy.sample(array([[0, 1, 0, 0, 1]]))).tolist() == [[1, 2]]
    assert np.asarray(policy.sample(array([[1, 0, 0, 1, 0]]))).tolist() == [[0, 1]]


def test_gumbel_noise_gives_the_probabilities():
    """100,000 samples: the standard deviation of a frequency is at most .0016."""
    noise = np.random.default_rng(1).gumbel(size=(100_000, 4))
    logits = np.broadcast_to(LOGITS[0].astype(np.float64), noise.shape)
    frequencies = np.bincount(Categorical(logits).sample(noise), minlength=4) / 100_000
    np.testing.assert_allclose(frequencies, np.exp(Categorical(LOGITS[0]).log_probs), atol=0.007)


def test_normal_noise_is_shifted_and_stretched(array):
    """1 + e^.6931472 · [1, -2] = [3, -3], -1 + e^0 · [1, -2]: each dimension with its own std."""
    policy = DiagonalGaussian(array([[1, -1], [1, -1]]), array([[0.6931472, 0.0]] * 2))
    close(policy.sample(array([[1, 1], [-2, -2]])), [[3, 0], [-3, -3]])


def test_noise_of_another_shape_is_refused(array):
    """One number for all would choose by the logits alone."""
    with pytest.raises(ValueError, match=r"logits \(6, 4\), noise \(6, 1\)"):
        Categorical(array(LOGITS)).sample(array(np.zeros((6, 1))))
    with pytest.raises(ValueError, match=r"mean \(6, 3\), noise \(3,\)"):
        DiagonalGaussian(array(MEAN), array(LOG_STD)).sample(array(np.zeros(3)))
    with pytest.raises(ValueError, match=r"mean \(6, 3\), action \(6, 1\)"):
        DiagonalGaussian(array(MEAN), array(LOG_STD)).log_prob(array(np.zeros((6, 1))))


# ---------------------------------------------------------------------------------------------------- extremes
EXTREME = np.array([[1e4, -1e4, 0], [-1e30, 0, 0], [1e38, 1e38, -1e38], [-100, -100, -100]], np.float32)


def test_extreme_logits_stay_finite(array):
    """The entropies are those of one certain choice, of two, of two and of three that are equally likely."""
    policy = Categorical(array(EXTREME))
    assert np.isfinite(np.asarray(policy.log_probs)).all()
    close(policy.entropy(), [0, np.log(2), np.log(2), np.log(3)], 1e-6)
    close(policy.log_prob(like(policy.logits, np.array([0, 1, 0, 2]))), [0, -np.log(2), -np.log(2), -np.log(3)], 1e-6)


def test_their_gradients_too():
    """Of log π(a), by the logits: 1 at a minus the probabilities; of the entropy: 0 where nothing is to be gained."""
    choice = np.array([0, 1, 0, 2])
    wanted = np.array([[0, 0, 0], [0, 0.5, -0.5], [0.5, -0.5, 0], [-1 / 3, -1 / 3, 2 / 3]])
    logits = torch.tensor(EXTREME, requires_grad=True)
    policy = Categorical(logits)
    for value, expected in ((policy.log_prob(torch.from_numpy(choice)), wanted), (policy.entropy(), np.zeros((4, 3)))):
        (gradient,) = torch.autograd.grad(value.sum(), logits, retain_graph=True)
        close(gradient, expected, 1e-6)
    close(jax.grad(lambda x: Categorical(x).log_prob(jnp.asarray(choice)).sum())(jnp.asarray(EXTREME)), wanted, 1e-6)
    close(jax.grad(lambda x: Categorical(x).entropy().sum())(jnp.asarray(EXTREME)), np.zeros((4, 3)), 1e-6)


def test_gradients_are_pytorchs():
    """Of log π(a) + H, by everything that a policy is made from."""

    def loss(policy, action):
        return (policy.log_prob(action) + policy.entropy()).sum()

    inputs = [
        torch.tensor(x, requires_grad=True) for x in (LOGITS, MEAN.astype(np.float32), LOG_STD.astype(np.float32))
    ]
    logits, mean, log_std = inputs
    references = (theirs.Categorical(logits=logits), theirs.Independent(theirs.Normal(mean, log_std.exp()), 1))
    actions = (torch.from_numpy(CHOICE), torch.from_numpy(NUMBERS))
    expected = torch.autograd.grad(sum(map(loss, references, actions)), inputs)
    found = torch.autograd.grad(sum(map(loss, (Categorical(logits), DiagonalGaussian(mean, log_std)), actions)), inputs)

    def ours(logits, mean, log_std):
        return loss(Categorical(logits), jnp.asarray(CHOICE)) + loss(
            DiagonalGaussian(mean, log_std), jnp.asarray(NUMBERS)
        )

    arrays = [jnp.asarray(x.detach().numpy()) for x in inputs]
    for one, other, reference in zip(found, jax.grad(ours, (0, 1, 2))(*arrays), expected, strict=True):
        close(one, reference, 1e-4)
        close(other, reference, 1e-4)


def test_gradients_of_a_squashed_gaussian_are_pytorchs():
    """Of log π(a) + Σ a for samples a through the noise, by mean and std."""
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


def test_the_gradient_of_the_tanh_correction_is_twice_tanh():
    """d/du of -log(1 - tanh² u) is 2 tanh u: 0 at u = 0, and 2 where tanh is 1 to float32's last bit."""
    mean = np.array([[50.0, -50.0, 0.0, -0.0, 0.1, -0.1, -1.0]], np.float32)
    zeros = np.zeros_like(mean)
    leaf = torch.tensor(mean, requires_grad=True)
    policy = SquashedGaussian(leaf, torch.from_numpy(zeros))
    (found,) = torch.autograd.grad(policy.sample_and_log_prob(torch.from_numpy(zeros))[1].sum(), leaf)
    close(found, 2 * np.tanh(mean), 1e-6)
    other = jax.grad(lambda x: SquashedGaussian(x, jnp.asarray(zeros)).sample_and_log_prob(zeros)[1].sum())(mean)
    close(other, 2 * np.tanh(mean), 1e-6)
