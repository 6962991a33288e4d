import numpy as np
import pytest

from duetto.functional.running_stats import initial_moments, normalize, update_moments


# SPEC O12, from (mean 0, var 1, count 1) and the batch [1, 2, 3]: δ = 2, total 4, mean 0 + 2·3/4 = 1.5;
# var (1·1 + 3·s² + 4·1·3/4) / 4 with s² = 2/3: 6/4 = 1.5.
def test_moments_and_normalization_by_hand_o12():
    variances, outputs, ten = (1.5, 4.0555555556), [-0.4082482871, 0.4082482871, 1.2247448614], 3.6414658918
    batch = np.array([1.0, 2.0, 3.0], np.float32)
    moments = update_moments(initial_moments(()), batch)
    assert (moments.mean, moments.count) == (1.5, 4.0)
    assert moments.variance == pytest.approx(variances[0], rel=1e-9)
    np.testing.assert_allclose(normalize(batch, moments), outputs, rtol=1e-6)
    moments = update_moments(moments, np.array([4.0, 6.0]))
    assert moments.count == 6.0
    assert moments.mean == pytest.approx(2.6666666667)
    assert moments.variance == pytest.approx(variances[1], rel=1e-9)
    np.testing.assert_allclose(normalize([10.0], moments), [ten], rtol=1e-6)


def test_initial_moments_normalize_to_identity():
    x = np.array([[-3.0, 0.5]], np.float32)
    np.testing.assert_allclose(normalize(x, initial_moments((2,))), x, rtol=1e-7)


def test_moments_do_not_depend_on_batching():
    """The batches include one of one row, whose unbiased variance is NaN, and an empty one."""
    x = np.random.default_rng(0).normal(3.0, 2.0, (50, 2))
    whole, parts = update_moments(initial_moments((2,)), x), initial_moments((2,))
    for rows in (x[:1], x[1:13], x[:0], x[13:]):
        parts = update_moments(parts, rows)
    for one, other in zip(parts, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_normalize_clips_outliers():
    moments = update_moments(initial_moments((1,)), np.zeros((99, 1)))  # std .1
    np.testing.assert_array_equal(normalize([[9.0], [-9.0]], moments), [[5.0], [-5.0]])
    np.testing.assert_array_equal(normalize([[9.0], [-9.0]], moments, clip=2.0), [[2.0], [-2.0]])
