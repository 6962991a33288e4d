"""Which distribution a network's output stands for, and the random numbers that it samples with."""

import numpy as np
import pytest
from learning_cases import box

from duetto.functional.distributions import Categorical, DiagonalGaussian, MultiCategorical
from duetto.networks.action_distributions import distribution, num_outputs, sampling_noise
from duetto.networks.spaces import Dict, Discrete, MultiDiscrete

CHOICE, CHOICES, NUMBERS = Discrete(4), MultiDiscrete((2, 3)), box(2, 2)


def test_how_many_outputs():
    """One for each choice; a mean and a standard deviation for each number."""
    assert [num_outputs(space) for space in (CHOICE, CHOICES, NUMBERS)] == [4, 5, 8]


def test_what_they_stand_for():
    parameters = np.arange(16.0).reshape(2, 8)
    one = distribution(CHOICE, parameters[:, :4])
    assert isinstance(one, Categorical)
    np.testing.assert_array_equal(one.logits, parameters[:, :4])
    some = distribution(CHOICES, parameters[:, :5])
    assert isinstance(some, MultiCategorical)
    np.testing.assert_array_equal(some.parts[0].logits, parameters[:, :2])
    np.testing.assert_array_equal(some.parts[1].logits, parameters[:, 2:5])
    numbers = distribution(NUMBERS, parameters)
    assert isinstance(numbers, DiagonalGaussian)
    np.testing.assert_array_equal(numbers.mean, parameters[:, :4])
    np.testing.assert_array_equal(numbers.log_std, parameters[:, 4:])


def test_of_several_spaces_each_has_its_own():
    space = Dict((("a", NUMBERS), ("b", CHOICES)))
    parameters = np.arange(26.0).reshape(2, 13)
    assert num_outputs(space) == 13
    numbers, choices = distribution(space, parameters).parts
    np.testing.assert_array_equal(numbers.log_std, parameters[:, 4:8])
    np.testing.assert_array_equal(choices.parts[1].logits, parameters[:, 10:])
    drawn = sampling_noise(space, np.random.default_rng(0), (3,))
    assert drawn.shape == (3, 9)
    np.testing.assert_array_equal(drawn[:, :4], sampling_noise(NUMBERS, np.random.default_rng(0), (3,)))


# 400,000 numbers: the standard error of the mean is .002, of the variance .003 (normal) or .007 (Gumbel).
@pytest.mark.parametrize(
    ("space", "mean", "variance"),
    [(NUMBERS, 0.0, 1.0), (CHOICE, 0.5772157, np.pi**2 / 6), (CHOICES, 0.5772157, np.pi**2 / 6)],
)
def test_standard_normal_or_gumbel_numbers(space, mean, variance):
    drawn = sampling_noise(space, np.random.default_rng(0), (1000, 400 // space.size))
    assert drawn.shape == (1000, 400 // space.size, space.size)
    assert drawn.dtype == np.float32
    assert drawn.mean() == pytest.approx(mean, abs=0.01)
    assert drawn.var() == pytest.approx(variance, abs=0.03)
    assert np.abs(np.corrcoef(drawn.reshape(-1, space.size).T) - np.eye(space.size)).max() < 0.02


def test_sampling_with_it_gives_the_probabilities():
    """Of float32 numbers too. 200,000 samples: the standard deviation of a frequency is at most .0011."""
    drawn = sampling_noise(CHOICES, np.random.default_rng(1), (200_000,))
    logits = np.log(np.array([0.3, 0.7, 0.005, 0.2, 0.795], np.float32))
    samples = distribution(CHOICES, np.broadcast_to(logits, drawn.shape)).sample(drawn)
    assert np.bincount(samples[:, 0]) / 200_000 == pytest.approx([0.3, 0.7], abs=0.005)
    assert np.bincount(samples[:, 1]) / 200_000 == pytest.approx([0.005, 0.2, 0.795], abs=0.005)
    joint = np.mean((samples[:, 0] == 0) & (samples[:, 1] == 1))
    assert joint == pytest.approx(0.06, abs=0.004)  # the parts are independent


class Ends:
    """A generator that draws the least and the greatest number that a real one can."""

    def random(self, shape, dtype):
        drawn = np.zeros(shape, dtype)
        drawn[..., 1:] = np.float32(1) - np.float32(2**-24)
        return drawn


def test_no_number_is_infinite():
    """-log(-log(0)) and -log(-log(1)) would be, and would decide whatever the logits are."""
    drawn = sampling_noise(CHOICE, Ends(), (2,))
    assert np.isfinite(drawn).all()
    assert drawn[0].tolist() == pytest.approx([-np.log(-np.log(1e-20)), *[-np.log(2**-24)] * 3], rel=1e-5)
