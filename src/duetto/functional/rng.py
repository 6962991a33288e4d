"""Random generators, one for each purpose, derived from the run's seed; their states can be saved.

NumPy draws the random numbers that learning depends on (JAX only in compiled loops, `learners.jax_random`). So both
frameworks see the same numbers for the same seed, and checkpoints contain no framework's generator.
"""

from __future__ import annotations

import operator
import zlib
from typing import Any

import numpy as np

from duetto.errors import CheckpointError


def as_int(value: Any) -> Any:
    """Return an integer of any library as an int; return anything else unchanged, including bools and floats."""
    if isinstance(value, bool):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return value


def generator(seed: int, purpose: str, worker: int = 0) -> np.random.Generator:
    """Return the random generator for a run's seed, a purpose and a worker; all generators are independent."""
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), worker]))


def rng_state(random: np.random.Generator) -> dict[str, Any]:
    """Return the generator's state as a JSON value."""
    return dict(random.bit_generator.state)


def restore_rng(random: np.random.Generator, state: dict[str, Any]) -> None:
    """Set the generator to a state from `rng_state`. Raises CheckpointError for an invalid state."""
    try:
        random.bit_generator.state = state
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"The checkpoint's state of a random generator is invalid ({error!r}).") from error
