"""One ring of transitions per environment, so that the transitions of one environment lie in time order.

    environment 0   [ 4  5  2  3 ]    4 rows; the 6 transitions 0 .. 5 were written, 0 and 1 are overwritten
    environment 1   [ 0  1  .  . ]    environments may be at different counts
    index             0  1  2  3 | 4  5  6  7       index = environment * rows + slot,  slot = number mod rows

A transition's *number* counts the writes of its environment from 0. It names the transition for ever, while its index
is handed on to a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from duetto.errors import CheckpointError
from duetto.functional import forms
from duetto.memory.fields import Field
from duetto.networks.pictures import Picked, Table, joined

MOST_WRITTEN = 2**48  # transitions of one environment, in a state that can be true


class Rings:
    """Preallocated arrays, one per field, over the rings of all environments."""

    def __init__(self, fields: dict[str, Field], num_envs: int, rows: int) -> None:
        self.rows = rows
        self.written: np.ndarray = np.zeros(num_envs, np.int64)
        self.arrays: dict[str, Any] = {name: field.allocate(num_envs * rows) for name, field in fields.items()}
        self.cuts: list[list[int]] = []  # [environment, number] of transitions that `cut` marked
        self._fields = fields

    @property
    def stored(self) -> np.ndarray:
        """(num_envs,), transitions that each environment's ring holds now."""
        return np.minimum(self.written, self.rows)

    def write(self, env: np.ndarray, values: dict[str, np.ndarray]) -> np.ndarray:
        """Append copies of K transitions, each to the ring of its environment; the oldest ones make room.

        Args:
            env: (K,) int, in 0 .. num_envs-1; the rows of one environment in time order.
            values: (K, ...) of every field.

        Returns:
            (K,), the indices written; one comes twice if more rows of one environment came than its ring has.

        Raises:
            ValueError, TypeError: fields, shapes or dtypes other than the memory's. Then nothing is written.
        """
        self._check(env, values)
        number = self.written[env]
        if len(env) > 1:
            number += _rank(env)
        index = env * self.rows + number % self.rows
        np.add.at(self.written, env, 1)
        for name, array in self.arrays.items():
            array[index] = values[name]
        return index

    def image_tables(self) -> dict[str, Table]:
        """Return the tables of all images that are not compressed, by their fields' names; from here on `read` and
        `frames` name their rows instead of copying them.
        """
        for name, field in self._fields.items():
            if field.is_image and isinstance(self.arrays[name], np.ndarray):
                self.arrays[name] = Table(self.arrays[name], bool(self.written.any()))
        return {name: array for name, array in self.arrays.items() if isinstance(array, Table)}

    def read(self, name: str, index: np.ndarray) -> Any:
        """A field (..., *shape) of the rows `index` (...)."""
        array = self.arrays[name]
        return Picked(array, index[..., None]) if isinstance(array, Table) else array.take(index, axis=0)

    def frames(self, name: str, index: np.ndarray) -> Any:
        """Return images (..., k C, H, W), each made of the k frames in the rows `index` (..., k)."""
        array = self.arrays[name]
        return Picked(array, index) if isinstance(array, Table) else joined(array.take(index, axis=0))

    def locate(self, item: np.ndarray) -> np.ndarray:
        """Index of the item-th stored transition, for item in 0 .. stored.sum()-1."""
        stored = self.stored
        ends = stored.cumsum()
        if len(stored) == 1 or ends[-1] == len(stored) * self.rows:
            return item  # no gaps between the rings
        env = ends.searchsorted(item, side="right")
        return item + (np.arange(len(stored)) * self.rows - (ends - stored))[env]

    def number(self, index: np.ndarray) -> np.ndarray:
        """Return the number (B,) of the transition stored at each index now; never that of an older or newer one."""
        env, slot = np.divmod(index, self.rows)
        newest = self.written[env] - 1
        return newest - (newest - slot) % self.rows

    def ahead(self, index: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return indices (B, n) of each transition and the n-1 after it, and how many of them exist (B,), 1 or more.

        Past the newest transition of an environment the indices point to its oldest ones, or to empty slots.
        """
        env, slot = np.divmod(index, self.rows)
        available = (self.written[env] - 1 - slot) % self.rows + 1
        return (env * self.rows)[:, None] + (slot[:, None] + np.arange(n)) % self.rows, available

    def segment(self, since: np.ndarray) -> dict[str, np.ndarray] | None:
        """Return the rows written after the counts `since` (num_envs,) and still stored; None if there are none.

        Returns:
            "start" and "count" (num_envs,): the numbers start .. start+count-1 of each environment; and every field,
            the environments' rows one after the other. Use the arrays before the next write: they may be views.

        Raises:
            ValueError: `since` of another shape, or larger than what was written.
        """
        if since.shape != self.written.shape or (since > self.written).any():
            raise ValueError(f"since is {since}, but the environments have written {self.written} transitions")
        start = np.maximum(since, self.written - self.rows)
        count = self.written - start
        if not count.any():
            return None
        env, number = _expand(start, count)
        index: Any = env * self.rows + number % self.rows
        if index[-1] - index[0] == len(index) - 1 and (np.diff(index) == 1).all():
            index = slice(index[0], index[-1] + 1)  # views: a million rows need no second place in memory
        return {"start": start, "count": count} | {name: array[index] for name, array in self.arrays.items()}

    def restore(self, written: np.ndarray, cuts: list[list[int]]) -> None:
        """Take over `written` (num_envs,) and `cuts` from a state.

        Raises:
            CheckpointError: Numbers that no rings can have come to.
        """
        if written.shape != self.written.shape or np.any((written < 0) | (written > MOST_WRITTEN)):
            raise CheckpointError(f"The checkpoint's memory cannot have written {written} transitions.")
        if not all(len(cut) == 2 and cut[0] < len(written) and cut[1] < written[cut[0]] for cut in cuts):
            raise CheckpointError(f"The checkpoint's memory has cuts where it has no transitions: {cuts[:9]}.")
        self.written[:], self.cuts = written, cuts

    def load(self, segment: dict[str, np.ndarray]) -> None:
        """Put the rows of `segment` back, after `written` was restored; rows overwritten by then are left out.

        So the order in which segments are loaded does not matter.

        Raises:
            CheckpointError: It holds other fields than these, or not as many rows as it says.
        """
        self._check_segment(segment)
        env, number = _expand(segment["start"], segment["count"])
        alive = (number >= self.written[env] - self.rows) & (number < self.written[env])
        index = (env * self.rows + number % self.rows)[alive]
        for name, array in self.arrays.items():
            array[index] = segment[name][alive]
        self._mark_cuts()

    def cut(self, envs: np.ndarray | None = None) -> None:
        """Mark each environment's newest transition as truncated: what is written next begins another episode.

        Only in those that `envs` (N,) bool says, unless it is None.

        The mark is kept in `cuts`, because a segment with the unmarked transition may have been saved already.
        """
        chosen = self.written > 0 if envs is None else envs & (self.written > 0)
        self.cuts += [[env, int(self.written[env]) - 1] for env in np.flatnonzero(chosen).tolist()]
        self._mark_cuts()

    def _mark_cuts(self) -> None:
        self.cuts = [[env, number] for env, number in self.cuts if number >= self.written[env] - self.rows]
        for env, number in self.cuts:
            index = env * self.rows + number % self.rows
            self.arrays["truncated"][index] = not self.arrays["terminated"][index]

    def _check_segment(self, segment: dict[str, np.ndarray]) -> None:
        """Check a segment before room is made for as many rows as `count` says: a stranger may have written it."""
        counts = forms.Rows(len(self.written), (), np.int64)
        forms.check(segment, {"start": counts, "count": counts}, "a segment of the memory")
        start, count = segment["start"], segment["count"]
        if np.any((start < 0) | (start > MOST_WRITTEN) | (count < 0) | (count > MOST_WRITTEN)):
            raise CheckpointError(f"A segment of the memory cannot hold {count} rows from {start} on.")
        rows = int(count.sum())
        try:
            _require_same(segment.keys() - {"start", "count"}, self.arrays.keys())
            for name, field in self._fields.items():
                field.check(name, segment[name], rows)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"A segment of the memory is not one of this run: {error}.") from error

    def _check(self, env: np.ndarray, values: dict[str, np.ndarray]) -> None:
        if values.keys() != self._fields.keys():
            _require_same(values.keys(), self._fields.keys())
        for name, field in self._fields.items():
            field.check(name, values[name], len(env))
        if len(env) and not 0 <= env.min() <= env.max() < len(self.written):
            raise ValueError(f"env is {env}, the memory has environments 0 to {len(self.written) - 1}")


def _rank(env: np.ndarray) -> np.ndarray:
    """Count the rows of the same environment before each row: [2, 0, 2, 2] -> [0, 0, 1, 2]."""
    order = env.argsort(kind="stable")
    grouped = env[order]
    rank = np.empty(len(env), np.int64)
    rank[order] = np.arange(len(env)) - grouped.searchsorted(grouped)
    return rank


def _expand(start: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return environment and number of every row of a segment: start [5, 2], count [2, 1] -> [0, 0, 1], [5, 6, 2]."""
    env = np.arange(len(count)).repeat(count)
    return env, np.arange(len(env)) + (start - (count.cumsum() - count)).repeat(count)


def _require_same(names: Iterable[str], expected: Iterable[str]) -> None:
    if set(names) != set(expected):
        raise ValueError(f"The fields are {sorted(names)}, the memory stores {sorted(expected)}")
