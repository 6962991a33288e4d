import numpy as np
import pytest

from duetto.functional.policy_gradient import clipped_surrogate, clipped_value_error, normalized, weighted_mean

# SPEC O6, clip .1. Probabilities: old [.25, .5, .2, .1], new [.3, .4, .21, .2].
RATIO, ADVANTAGE = [1.2, 0.8, 1.05, 2.0], [1.0, -1, 2, -2]
OLD_VALUE, VALUE, RETURNS = [1.0, 2, 3, 4], [1.05, 2.5, 2.7, 4.2], [1.5, 2.2, 2, 5]
ONES = np.ones(4)


def test_clipped_surrogate_by_hand_o6(array):
    """Clipped ratios [1.1, .9, 1.05, 1.1]. The second is max(.8, .9) · -1; the last is not clipped, as -4 < -2.2."""
    found = clipped_surrogate(array(RATIO), array(ADVANTAGE), array(0.1))
    np.testing.assert_allclose(found, [1.1, -0.9, 2.1, -4], rtol=1e-6)
    assert float(found.mean()) == pytest.approx(-0.425, rel=1e-6)


# d surrogate / d ratio is A, but 0 if the ratio is beyond the clip range in the direction that A favors.
@pytest.mark.parametrize(
    ("ratio", "advantage", "gradient"),
    [(1.2, 1, 0), (0.8, -1, 0), (1.05, 2, 2), (0.8, 1, 1), (1.2, -1, -1), (2, -2, -2), (0.95, -1, -1)],
)
def test_surrogate_gradient_is_zero_beyond_clip_range(ratio, advantage, gradient):
    import jax
    import torch

    x = torch.tensor(float(ratio), requires_grad=True)
    clipped_surrogate(x, torch.tensor(float(advantage)), torch.tensor(0.1)).backward()
    assert x.grad is not None
    assert x.grad.item() == pytest.approx(gradient)
    found = jax.grad(lambda x: clipped_surrogate(x, jax.numpy.float32(advantage), jax.numpy.float32(0.1)))(float(ratio))
    assert float(found) == pytest.approx(gradient)


def test_clipped_value_error_by_hand_o6(array):
    """V_clip [1.05, 2.1, 2.9, 4.1]: the larger of [.2025, .09, .49, .64] and [.2025, .01, .81, .81]."""
    found = clipped_value_error(array(VALUE), array(OLD_VALUE), array(RETURNS), array(0.1))
    np.testing.assert_allclose(found, [0.2025, 0.09, 0.81, 0.81], rtol=1e-5)
    assert 0.5 * float(found.mean()) == pytest.approx(0.2390625, rel=1e-5)


def test_zero_weight_rows_are_ignored(array):
    """Four rows of O6, and two rows of weight 0 with large values."""
    weight, junk = array([1, 0, 1, 1, 0, 1]), [1e4, -1e4]
    advantage = array(np.insert(ADVANTAGE, [1, 3], junk))
    assert float(weighted_mean(advantage, weight)) == 0.0
    found = np.asarray(normalized(advantage, weight))
    np.testing.assert_allclose(found[[0, 2, 3, 5]], [0.5477225545, -0.5477225545, 1.095445109, -1.095445109], rtol=1e-6)


def test_normalization_of_at_most_one_valid_row_is_zero(array):
    """All rows of a minibatch, or all except one, may be automatic resets, whose weight is 0."""
    assert float(weighted_mean(array(ADVANTAGE), array([0, 0, 0, 0]))) == 0.0
    np.testing.assert_array_equal(normalized(array([3, 3, 3, 3]), array(ONES)), np.zeros(4))
    for weight in ([0, 0, 0, 0], [0, 0, 1, 0]):
        found = np.asarray(normalized(array(ADVANTAGE), array(weight)))
        assert np.isfinite(found).all()
        assert (found * weight == 0).all()
