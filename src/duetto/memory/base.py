"""What goes into a memory and what comes out of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from duetto.algorithms.base import Batch, Tree


class Experience(NamedTuple):
    """K real transitions of one vector step; the rows of one environment come in time order.

    Observations are arrays, or for Dict spaces dicts of arrays. `next_obs` is the observation that the action really
    produced: at an episode's end the final one, never that of the reset.
    """

    env: np.ndarray  # (K,) int64, which environment each row comes from
    obs: Tree  # (K, ...)
    action: np.ndarray  # (K, action size) float32 in [-1, 1]; Discrete: (K,) int64
    reward: np.ndarray  # (K,) float32
    next_obs: Tree  # (K, ...)
    terminated: np.ndarray  # (K,) bool, the task ended: no future counts
    truncated: np.ndarray  # (K,) bool, the episode was cut from outside: the future counts


class Sample(NamedTuple):
    """A batch, and where its items lie in the memory, for writing their priorities back."""

    batch: Batch
    index: np.ndarray  # (B,) int64, environment * rows + slot  # pyright: ignore[reportIncompatibleMethodOverride]
    stamp: np.ndarray  # (B,) int64, the number of the transition in its environment: tells whether it was overwritten
