import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetto.functional.advantages import explained_variance, generalized_advantages

REWARD, VALUE = np.array([1.0, 2, 3, 4]), np.array([0.5, 1, 1.5, 2])
TERMINATED, TRUNCATED = np.array([0, 1, 0, 0], bool), np.array([0, 0, 1, 0], bool)
# What each step led to: V(s1); 9, which nothing counts on; V(final_obs) = 2.5, not V(s3) = 2; V(s4).
NEXT_VALUE = np.array([1.0, 9, 2.5, 3])
NEVER = np.zeros(4, bool)


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
def test_o5_with_a_terminated_and_a_truncated_end(discount, trace, expected):
    found = generalized_advantages(REWARD, VALUE, NEXT_VALUE, TERMINATED, TRUNCATED, discount, trace)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert found.dtype == np.float64


# γ .9, λ .8: δ = [1.4, 2 + 1.35 - 1, 3 + 1.8 - 1.5, 4.7]; A_2 = 3.3 + .72 · 4.7, A_1 = 2.35 + .72 A_2, ...
@pytest.mark.parametrize(
    ("discount", "trace", "expected"),
    [(0.9, 0.8, [6.5569856, 7.16248, 6.684, 4.7]), (0.99, 0.95, [11.0399357925, 10.1541050425, 8.154285, 4.97])],
)
def test_o5_without_ends(discount, trace, expected):
    found = generalized_advantages(REWARD, VALUE, np.array([1, 1.5, 2, 3]), NEVER, NEVER, discount, trace)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@st.composite
def rollouts(draw):
    steps, envs = draw(st.integers(1, 40)), draw(st.integers(1, 3))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    reward, value, next_value = random.normal(size=(3, steps, envs))
    ending = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    terminated, truncated = random.random((2, steps, envs)) < ending
    discount, trace = (draw(st.sampled_from([0.0, 0.5, 0.99, 1.0])) for _ in range(2))
    return reward, value, next_value, terminated, truncated, discount, trace


@given(rollouts())
def test_doubling_is_the_backward_loop(rollout):
    """Schulman et al. (2016), equation 16, backwards, one environment after the other. Both flags may be set."""
    reward, value, next_value, terminated, truncated, discount, trace = rollout
    expected = np.zeros_like(reward)
    for env in range(reward.shape[1]):
        running = 0.0
        for t in reversed(range(len(reward))):
            future = 0.0 if terminated[t, env] else discount * next_value[t, env]
            if terminated[t, env] or truncated[t, env]:
                running = 0.0
            running = reward[t, env] + future - value[t, env] + discount * trace * running
            expected[t, env] = running
    np.testing.assert_allclose(generalized_advantages(*rollout), expected, rtol=1e-9, atol=1e-12)


# SPEC O6. Errors [.5, 0, 1], variance 1/6; returns [1.5, 2, 4], variance 7/6: 1 - 1/7.
@pytest.mark.parametrize(
    ("value", "returns", "expected"),
    [
        ([1, 2, 3], [1.5, 2, 4], 0.8571428571),
        ([1.5, 2, 4], [1.5, 2, 4], 1.0),
        ([2.5, 3, 5], [1.5, 2, 4], 1.0),  # a constant error does not vary
        ([7, 7, 7], [1.5, 2, 4], 0.0),
        ([4, 2, 1.5], [1.5, 2, 4], 1 - (25 / 6) / (7 / 6)),  # errors [-2.5, 0, 2.5]: worse than a constant
        ([1, 2, 3], [5, 5, 5], 0.0),
    ],
)
def test_o6_explained_variance(value, returns, expected):
    assert explained_variance(np.array(value, np.float32), np.array(returns, np.float32)) == pytest.approx(
        expected, abs=1e-6
    )
