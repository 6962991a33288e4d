import numpy as np
import pytest

from duetto.functional.policy_gradient import clipped_surrogate, clipped_value_error, normalized, weighted_mean

# SPEC O6, clip .1. Probabilities: old [.25, .5, .2, .1], new [.3, .4, .21, .2].
RATIO, ADVANTAGE = [1.2, 0.8, 1.05, 2.0], [1.0, -1, 2, -2]
OLD_VALUE, VALUE, RETURNS = [1.0, 2, 3, 4], [1.05, 2.5, 2.7, 4.2], [1.5, 2.2, 2, 5]
ONES = np.ones(4)


def test_o6_surrogate(array):
    """Clipped ratios [1.1, .9, 1.05, 1.1]. The second is max(.8, .9) · -1, and the last is left as it is: -4 < -2.2."""
    found = clipped_surrogate(array(RATIO), array(ADVANTAGE), array(0.1))
    np.testing.assert_allclose(found, [1.1, -0.9, 2.1, -4], rtol=1e-6)
    assert float(found.mean()) == pytest.approx(-0.425, rel=1e-6)


# The gradient by the ratio is A, but 0 where the ratio has gone too far in the direction that A asks for.
@pytest.mark.parametrize(
    ("ratio", "advantage", "gradient"),
    [(1.2, 1, 0), (0.8, -1, 0), (1.05, 2, 2), (0.8, 1, 1), (1.2, -1, -1), (2, -2, -2), (0.95, -1, -1)],
)
def test_the_gradient_ends_where_the_ratio_has_gone_far_enough(ratio, advantage, gradient):
    import jax
    import torch

    x = torch.tensor(float(ratio), requires_grad=True)
    clipped_surrogate(x, torch.tensor(float(advantage)), torch.tensor(0.1)).backward()
    assert x.grad is not None
    assert x.grad.item() == pytest.approx(gradient)
    found = jax.grad(lambda x: clipped_surrogate(x, jax.numpy.float32(advantage), jax.numpy.float32(0.1)))(float(ratio))
    assert float(found) == pytest.approx(gradient)


def test_o6_clipped_value_error(array):
    """V_clip [1.05, 2.1, 2.9, 4.1]: the larger of [.2025, .09, .49, .64] and [.2025, .01, .81, .81]."""
    found = clipped_value_error(array(VALUE), array(OLD_VALUE), array(RETURNS), array(0.1))
    np.testing.assert_allclose(found, [0.2025, 0.09, 0.81, 0.81], rtol=1e-5)
    assert 0.5 * float(found.mean()) == pytest.approx(0.2390625, rel=1e-5)


# Unbiased: mean 2.5, Σ 5, √(5/3) = 1.2909944; √(10/3) = 1.8257419 for the second. Biased they would be
# [-1.3416407745, ...] and [.632455528, ...].
@pytest.mark.parametrize(
    ("advantage", "expected"),
    [
        ([1.0, 2, 3, 4], [-1.1618949949, -0.3872983316, 0.3872983316, 1.1618949949]),
        (ADVANTAGE, [0.5477225545, -0.5477225545, 1.095445109, -1.095445109]),
    ],
)
def test_o6_normalised_advantages(array, advantage, expected):
    found = np.asarray(normalized(array(advantage), array(ONES)))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.std(ddof=1) == pytest.approx(1, rel=1e-6)


def test_pitfall_25_equal_advantages_are_normalised_to_nothing(array):
    np.testing.assert_array_equal(normalized(array([3, 3, 3, 3]), array(ONES)), np.zeros(4))


def test_a_row_of_weight_0_does_not_count(array):
    """Four rows, and two more that hold anything."""
    weight, junk = array([1, 0, 1, 1, 0, 1]), [1e4, -1e4]
    advantage = array(np.insert(ADVANTAGE, [1, 3], junk))
    assert float(weighted_mean(advantage, weight)) == 0.0
    found = np.asarray(normalized(advantage, weight))
    np.testing.assert_allclose(found[[0, 2, 3, 5]], [0.5477225545, -0.5477225545, 1.095445109, -1.095445109], rtol=1e-6)


def test_where_nothing_counts_the_mean_is_0_and_a_single_row_has_no_spread(array):
    """A minibatch of resets, or of all resets but one: rows of a vector environment that were no steps."""
    assert float(weighted_mean(array(ADVANTAGE), array([0, 0, 0, 0]))) == 0.0
    for weight in ([0, 0, 0, 0], [0, 0, 1, 0]):
        found = np.asarray(normalized(array(ADVANTAGE), array(weight)))
        assert np.isfinite(found).all()
        assert (found * weight == 0).all()


def test_weights_in_between(array):
    """(1 · 1 + .5 · 4) / 1.5 = 2."""
    assert float(weighted_mean(array([1, 4]), array([1, 0.5]))) == pytest.approx(2.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, column: weighted_mean(x, column),
        lambda x, column: normalized(x, column),
        lambda x, column: clipped_surrogate(x, column, 0.1),
        lambda x, column: clipped_value_error(x, column, x, 0.1),
        lambda x, column: clipped_value_error(x, x, column, 0.1),
    ],
)
def test_c14_a_column_is_refused(array, call):
    with pytest.raises(ValueError, match=r"equal shapes: .*\(4, 1\)"):
        call(array(ONES), array(ONES[:, None]))
