"""A batch, dealt in equal shares to several learners.

    batch                rows 0 1 2 3 4 5 6 7                      shares of two     0 1 2 3 | 4 5 6 7
    batch cut in parts   5 0 3 1 | 7 2 4 6     (M, B), see `split`                   5 0, 7 2 | 3 1, 4 6

So each learner has the same number of rows of every part, in the batch's order, and the mean of their means is the
whole part's.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import Algorithm, RolloutSpec
from duetto.errors import DuettoError, UsageError
from duetto.functional.trees import mapped, merged
from duetto.networks.spaces import Space


class Share(NamedTuple):
    """One learner's share of an update's inputs; see `Learner._update`."""

    batch: Any
    rows: np.ndarray | None
    noise: Any


def deal(batch: Any, rows: np.ndarray | None, noise: Any, number: int) -> list[Share]:
    """The shares of `number` learners. Noise with a number for each row is dealt, too; other noise goes to everyone.

    Raises:
        DuettoError: The rows do not come out even.
    """
    size = len(batch.weight) if rows is None else rows.shape[1]
    if size % number:
        raise DuettoError(f"A batch of {size} rows cannot be dealt to {number} learners in equal shares.")
    each = size // number
    shares = []
    for rank in range(number):
        own = slice(rank * each, (rank + 1) * each)
        kept = mapped(lambda array, own=own: array[own] if has_rows(array, size) else array, noise)
        if rows is None:
            shares.append(Share(mapped(itemgetter(own), batch), None, kept))
        else:
            chosen = rows[:, own]
            order = np.arange(chosen.size, dtype=rows.dtype).reshape(chosen.shape)
            shares.append(Share(mapped(itemgetter(chosen.ravel()), batch), order, kept))
    return shares


def together(trees: Sequence[Any]) -> Any:
    """Equal trees as one, with their arrays and numbers stacked along a first axis."""
    return merged(np.stack, trees)


def has_rows(array: Any, size: int) -> bool:
    """Whether an array of noise has a number for each of `size` rows."""
    return np.ndim(array) > 0 and len(array) == size


def check(algorithm: Algorithm, observation: Space, action: Space, number: int, num_envs: int, backend: str) -> None:
    """Raise UsageError where `number` learners cannot have equal shares of what the algorithm learns from."""
    if number == 1:
        return
    size, what = _size(algorithm, num_envs)
    if size % number:
        fitting = ", ".join(str(n) for n in range(1, min(size, 16) + 1) if not size % n)
        raise UsageError(
            f"{what}, which cannot be dealt to {number} learners in equal shares. Give another number of them "
            f"(--learners): {fitting}."
        )
    specs = algorithm.networks(observation, action).values()
    if backend == "torch" and any(spec.custom is None and spec.statistics for spec in specs):
        raise UsageError(
            f"{algorithm.name()}'s networks are normalised over the rows of a whole batch, of which each of several "
            "PyTorch learners has a share only. Leave out learners (--learners), or take --backend jax or "
            "--network layer_norm."
        )


def _size(algorithm: Algorithm, num_envs: int) -> tuple[int, str]:
    """Number of rows that are dealt at a time, and the beginning of a sentence that says so."""
    spec = algorithm.memory()
    if not isinstance(spec, RolloutSpec):
        return spec.batch_size, f"A batch has {spec.batch_size:,} rows (batch_size)"
    rows = num_envs if spec.recurrent else spec.steps * num_envs
    if rows % spec.minibatches:  # `memory.build` says it: no number of learners helps
        return 0, ""
    size = rows // spec.minibatches
    unit = "environments" if spec.recurrent else "rows"
    return size, f"A minibatch has {size:,} {unit} ({rows:,} of a rollout in {spec.minibatches:,} minibatches)"
