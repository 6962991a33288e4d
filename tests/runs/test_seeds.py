"""The `seeds` argument of train, sweep and tune."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from duetto.errors import UsageError
from duetto.runs.argument_checks import parse_seeds


@pytest.mark.parametrize(
    ("seeds", "numbers"),
    [
        *[(three, (0, 1, 2)) for three in (3, "3", "0-2", "0,1,2", [0, 1, 2], range(3), np.int64(3), np.arange(3))],
        ("5-5", (5,)),
        ("0-1, 9,12-13", (0, 1, 9, 12, 13)),
        ((7, 3), (7, 3)),
    ],
)
def test_seeds_are_a_count_or_a_list(seeds: Any, numbers: tuple[int, ...]):
    found = parse_seeds(seeds)
    assert found == numbers
    assert {type(seed) for seed in found} == {int}


@pytest.mark.parametrize(
    "seeds",
    [
        *("", "3-1", "1,1", "a", "1,,2", "-1", "0-", "1.5", "0..3", "-2", "0-999999"),
        *(0, -1, True, 2.0, None, np.array(2.5), b"3"),
        *([], [0.5], [True], [-1], [1, 1], np.arange(2.0), np.array([1, 1])),
    ],
)
def test_invalid_seeds_are_refused(seeds: Any):
    with pytest.raises(UsageError, match="it must be a number of seeds"):
        parse_seeds(seeds)
