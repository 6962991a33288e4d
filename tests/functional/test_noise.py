import numpy as np
import pytest

from duetto.functional.array_ops import ornstein_uhlenbeck


def chains(steps: int, theta: float, sigma: float, mean: float = 0.0) -> np.ndarray:
    """The last two values of 4000 independent chains."""
    random = np.random.default_rng(0)
    x = before = np.zeros(4000)
    for _ in range(steps):
        before, x = x, ornstein_uhlenbeck(x, random.standard_normal(4000) + mean, theta, sigma)
    return np.stack([before, x])


def test_o8_forced_normals(array):
    """θ .15, σ .2: 0 + .2 = .2; .2 - .03 - .2 = -.03; -.03 + .0045 + .1 = .0745; .0745 · .85; · .85 + .4."""
    x, seen = array([0.0]), []
    for normal in (1.0, -1.0, 0.5, 0.0, 2.0):
        x = ornstein_uhlenbeck(x, array([normal]), 0.15, 0.2)
        seen.append(float(x[0]))
    np.testing.assert_allclose(seen, [0.2, -0.03, 0.0745, 0.063325, 0.45382625], rtol=1e-5)


# After k steps the variance is σ² (1 - (1-θ)^2k) / (1 - (1-θ)²); SPEC wants 2 %.
@pytest.mark.parametrize(
    ("steps", "std"), [(1, 0.2), (2, 0.262488), (5, 0.340244), (10, 0.372233), (400, 0.3796631983)]
)
def test_o8_std_after_some_steps(steps, std):
    x = chains(steps, 0.15, 0.2)[1]
    assert x.std() == pytest.approx(std, rel=0.02)
    assert abs(x.mean()) < 0.02


@pytest.mark.parametrize(("theta", "sigma", "std"), [(0.15, 0.1, 0.1898315991), (0.1, 0.2, 0.4588314677)])
def test_o8_stationary_std(theta, sigma, std):
    assert chains(400, theta, sigma)[1].std() == pytest.approx(std, rel=0.02)


def test_o8_autocorrelation_is_one_minus_theta():
    assert np.corrcoef(chains(400, 0.15, 0.2))[0, 1] == pytest.approx(0.85, abs=0.02)


def test_o8_a_mean_of_the_normals_is_magnified():
    """Pitfall 21: the stationary mean is σ · mean / θ = .2 / .15."""
    assert chains(400, 0.15, 0.2, mean=1.0)[1].mean() == pytest.approx(1.333333, abs=0.025)
