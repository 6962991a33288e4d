"""Random generators: one for each purpose, all derived from the run's seed, all able to save their state.

Every random number that learning depends on is drawn here, on the host, by NumPy. So both frameworks see the same
numbers from the same seed, and a checkpoint needs to know nothing about either framework's generator.
"""

from __future__ import annotations

import operator
import zlib
from typing import Any

import numpy as np

from duetto.errors import CheckpointError


def plain(given: Any) -> Any:
    """A whole number of whatever kind, NumPy's for one, as an int; all else as it is, true and false and 1.0 too."""
    if isinstance(given, bool):
        return given
    try:
        return operator.index(given)
    except TypeError:
        return given


def generator(seed: int, purpose: str, worker: int = 0) -> np.random.Generator:
    """A generator of its own for (run seed, purpose, worker): adding one purpose never changes another's numbers."""
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), worker]))


def state_of(random: np.random.Generator) -> dict[str, Any]:
    """The generator's state as a JSON value."""
    return _plain(random.bit_generator.state)


def restore(random: np.random.Generator, state: dict[str, Any]) -> None:
    """Set the generator to a state from `state_of`; a state that is none raises CheckpointError."""
    try:
        random.bit_generator.state = state
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"What should be a random generator's state is none ({error!r}).") from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
