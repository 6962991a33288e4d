import numpy as np
import pytest

from duetto.functional.returns import n_step_return

GAMMA = 0.9
REWARD = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
VALUE = np.array([10.0, 20.0, 30.0, 40.0, 50.0])  # of the state after step t


def targets(n, terminated_at=None, truncated_at=None):
    """SPEC O2's rows: the windows of a five-step trajectory whose data ends after step 4."""
    at = np.arange(5)[:, None] + np.arange(n)
    flags = [np.array([t == end for t in range(5)]) for end in (terminated_at, truncated_at)]
    behind = at >= 5
    reward = np.where(behind, np.nan, REWARD[at % 5])  # what lies behind the data's end must not be looked at
    terminated, truncated = (flag[at % 5] for flag in flags)
    summed, discount, length = n_step_return(reward, terminated, truncated, 5 - np.arange(5), GAMMA)
    return summed + discount * VALUE[np.arange(5) + length - 1]


# n=1 from t=0: 1 + .9·10 = 10. n=3 from t=0: 1 + .9·2 + .81·3 = 5.23, and + .729·30 = 27.1 where the future counts.
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
def test_o2(n, ends, expected):
    np.testing.assert_allclose(targets(n, **ends), expected, rtol=1e-12)


def test_discounts_of_an_unfinished_trajectory():
    """SPEC O2: six steps, n=3; DI's third discount factor .. .729, .81, .9, 1 is one step too late (B4)."""
    flags = np.zeros((6, 3), bool)
    _, discount, length = n_step_return(np.ones((6, 3)), flags, flags, 6 - np.arange(6), GAMMA)
    np.testing.assert_allclose(discount, [0.729, 0.729, 0.729, 0.729, 0.81, 0.9])
    assert length.tolist() == [3, 3, 3, 3, 2, 1]


def test_an_end_behind_the_data_does_not_count():
    """A window of one available step, with the flags of an unrelated transition behind it."""
    flag = np.array([[False, True]])
    summed, discount, length = n_step_return(np.array([[1.0, 7.0]]), flag, flag, np.array([1]), GAMMA)
    assert (summed[0], discount[0], length[0]) == (1.0, 0.9, 1)
