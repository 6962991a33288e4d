"""What learners with a share each make of it comes, by their mean, to what one makes of all rows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from duetto.functional import shares
from duetto.functional.policy_gradient import normalized, weighted_mean
from duetto.functional.targets import standardize

X = np.array([1.0, 2.0, 3.0, 8.0, -4.0, 0.5])
WEIGHT = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 1.0])  # three count in the first share, one in the second


def dealt(function: Callable[..., Any], *arrays: np.ndarray, number: int = 2) -> list[Any]:
    """What each share's learner gets: they run side by side, and add up where all have come to."""
    barrier, terms = Barrier(number), [np.zeros(())] * number

    def learner(rank: int) -> Any:
        def total(x: np.ndarray) -> np.ndarray:
            terms[rank] = x
            barrier.wait(5)
            found = np.sum(terms, axis=0)
            barrier.wait(5)
            return found

        with shares.dealt(number, total):
            return function(*(np.split(array, number)[rank] for array in arrays))

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(learner, range(number)))


def test_alone_a_share_is_everything():
    np.testing.assert_array_equal(shares.total(X), X)
    np.testing.assert_array_equal(shares.mean(X), X)


def test_total_and_mean():
    assert dealt(lambda x: shares.total(x.sum()), X) == [10.5, 10.5]
    assert dealt(lambda x: shares.mean(x.sum()), X) == [5.25, 5.25]


def test_a_weighted_mean_divides_by_all_weights():
    """(1 + 2 + 3 + 0.5) / 4; half of 4 weights is 2, so the shares give 6 / 2 and 0.5 / 2."""
    assert dealt(weighted_mean, X, WEIGHT) == [3.0, 0.25]
    assert weighted_mean(X, WEIGHT) == np.mean([3.0, 0.25])


@pytest.mark.parametrize("number", [2, 3])
def test_advantages_are_normalised_with_the_moments_of_all(number: int):
    np.testing.assert_allclose(np.concatenate(dealt(normalized, X, WEIGHT, number=number)), normalized(X, WEIGHT))


def test_rewards_are_standardised_with_the_moments_of_all():
    found = dealt(lambda x: standardize(x, np.mean), X)
    np.testing.assert_allclose(np.concatenate(found), standardize(X, np.mean))
