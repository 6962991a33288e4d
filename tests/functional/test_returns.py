import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetto.functional.returns import (
    bootstrap,
    explained_variance,
    generalized_advantages,
    n_step_return,
    smoothed_action,
)

GAMMA = 0.9
FIVE_REWARDS = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
FIVE_VALUES = np.array([10.0, 20.0, 30.0, 40.0, 50.0])  # of the state after step t


def n_step_targets(n, terminated_at=None, truncated_at=None):
    """Return the n-step targets of SPEC O2's five-step trajectory, whose data ends after step 4."""
    at = np.arange(5)[:, None] + np.arange(n)
    flags = [np.array([t == end for t in range(5)]) for end in (terminated_at, truncated_at)]
    after_end = at >= 5
    reward = np.where(after_end, np.nan, FIVE_REWARDS[at % 5])  # steps after the data's end must not be read
    terminated, truncated = (flag[at % 5] for flag in flags)
    summed, discount, length = n_step_return(reward, terminated, truncated, 5 - np.arange(5), GAMMA)
    return summed + discount * FIVE_VALUES[np.arange(5) + length - 1]


# n=1 from t=0: 1 + .9·10 = 10. n=3 from t=0: 1 + .9·2 + .81·3 = 5.23, plus .729·30 = 27.1 if not terminated.
@pytest.mark.parametrize(
    ("n", "ends", "expected"),
    [
        (1, {}, [10, 20, 30, 40, 50]),
        (3, {}, [27.1, 37.1, 47.1, 49, 50]),
        (5, {}, [40.951, 44.39, 47.1, 49, 50]),
        (3, {"terminated_at": 2}, [5.23, 4.7, 3, 49, 50]),
        (3, {"truncated_at": 2}, [27.1, 29, 30, 49, 50]),
    ],
)
def test_n_step_targets_by_hand_o2(n, ends, expected):
    np.testing.assert_allclose(n_step_targets(n, **ends), expected, rtol=1e-12)


def test_n_step_discounts_of_unfinished_trajectory_o2():
    """SPEC O2: six steps, n=3; DI-engine's last discounts .729, .81, .9, 1 are one step too late (B4)."""
    flags = np.zeros((6, 3), bool)
    _, discount, length = n_step_return(np.ones((6, 3)), flags, flags, 6 - np.arange(6), GAMMA)
    np.testing.assert_allclose(discount, [0.729, 0.729, 0.729, 0.729, 0.81, 0.9])
    assert length.tolist() == [3, 3, 3, 3, 2, 1]


def test_bootstrap_rejects_column_with_row_c14(array):
    row, column = array([1.0, 2.0]), array([[1.0], [2.0]])
    for arguments in ((column, row, row), (row, column, row), (row, row, column)):
        with pytest.raises(ValueError, match=r"\(2, 1\)"):
            bootstrap(*arguments)


def test_smoothing_noise_shared_by_dimensions_is_rejected(array):
    with pytest.raises(ValueError, match=r"noise \(3, 1\)"):
        smoothed_action(array(np.zeros((3, 2))), array(np.zeros((3, 1))), 0.2, -0.5, 0.5)


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
def test_gae_matches_backward_loop(rollout):
    """Schulman et al. (2016), equation 16, as a loop over steps. Both flags may be set at once."""
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
        ([4, 2, 1.5], [1.5, 2, 4], 1 - (25 / 6) / (7 / 6)),  # errors [-2.5, 0, 2.5]: worse than a constant
        ([1, 2, 3], [5, 5, 5], 0.0),
    ],
)
def test_explained_variance_by_hand_o6(value, returns, expected):
    assert explained_variance(np.array(value, np.float32), np.array(returns, np.float32)) == pytest.approx(
        expected, abs=1e-6
    )
