"""The whole episodes that a replay memory still holds, step by step as they were made.

A ring of six transitions, after nine; d: the last one of its episode, o: the oldest that is left

    number          3  4  5  6  7  8
    ends                  d     d
    episode         x  x  x  a  a  .         x: has lost its beginning, or may have; .: still runs

What is cut at either end is counted, not handed out: an episode's return and its first observation would not be true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import Tree


class Episode(NamedTuple):
    """One episode of T steps, as the memory was given it."""

    env: int
    obs: Tree  # (T + 1, ...), the final observation last
    action: np.ndarray  # (T, ...)
    reward: np.ndarray  # (T,) float32
    terminated: bool
    truncated: bool


@dataclass
class LeftOut:
    """Rows of the memory that are in no episode that was handed out; a row is a step, but for a few in sequences."""

    without_beginning: int = 0  # an older part was overwritten, or may have been
    running: int = 0  # the episode had not ended
    unknown: int = 0  # where one ends is not kept, or it does not hang together

    @property
    def rows(self) -> int:
        """Rows of all three kinds together."""
        return self.without_beginning + self.running + self.unknown


class Stretch(NamedTuple):
    """The rows [first, first + steps) of an environment, by number."""

    env: int
    first: int
    steps: int

    @property
    def end(self) -> int:
        """The number of the row behind the last step's."""
        return self.first + self.steps


Rows = Callable[[str, int, np.ndarray], Any]  # a field of an environment's rows, by number


def of_transitions(read: Rows, written: np.ndarray, rows: int, left: LeftOut) -> Iterator[Episode]:
    """Yield the episodes of rings in which each row is a transition with its next observation."""
    for env, count in enumerate(written.tolist()):
        oldest = max(count - rows, 0)
        number = np.arange(oldest, count)
        terminated, truncated = (read(name, env, number) for name in ("terminated", "truncated"))
        ends = number[terminated | truncated] + 1
        starts = np.concatenate([[oldest], ends]).tolist()
        if oldest:
            left.without_beginning += int(starts[1] - oldest if len(ends) else count - oldest)
            starts = starts[1:]
        if starts:
            left.running += count - starts[-1]
        for first, end in pairwise(starts):
            obs, next_obs = (read(name, env, np.arange(first, end)) for name in ("obs", "next_obs"))
            if not _continues(obs, next_obs):
                left.unknown += end - first
                continue
            action, reward = (read(name, env, np.arange(first, end)) for name in ("action", "reward"))
            last = end - 1 - oldest
            yield Episode(env, _joined(obs, next_obs), action, reward, bool(terminated[last]), bool(truncated[last]))


def of_rows(read: Rows, stretches: Iterable[Stretch]) -> Iterator[Episode]:
    """Yield the episodes of rings that keep every observation once, the final one in the row behind the last step."""
    for stretch in stretches:
        env, step = stretch.env, np.arange(stretch.first, stretch.end)
        action, reward, terminated = (read(name, env, step) for name in ("action", "reward", "terminated"))
        ended = bool(terminated[-1])
        obs = read("obs", env, np.arange(stretch.first, stretch.end + 1))
        yield Episode(env, obs, action, reward, ended, not ended)


def from_sequences(env: int, first: np.ndarray, steps: np.ndarray, fresh: np.ndarray) -> list[Stretch]:
    """Return the episodes of an environment that its sequences, in order, cover from their beginnings on.

    L 4, overlap 2      first  steps  fresh
    .. cc cc               10      4  .         has lost its beginning
    aa aa                  20      4  x         the episode [20, 27)
       aa aa               22      4  .
          aa a             24      3  .
    """
    found: list[Stretch] = []
    for begin, count, begins in zip(first.tolist(), steps.tolist(), fresh.tolist(), strict=True):
        if begins:
            found.append(Stretch(env, begin, count))
        elif found and begin <= found[-1].end:
            last = found[-1]
            found[-1] = last._replace(steps=max(last.end, begin + count) - last.first)
    return found


def ended(
    stretches: list[Stretch], oldest: int, written: int, running: int | None, before: int, left: LeftOut
) -> list[Stretch]:
    """Return the stretches whose episodes are over, and count the rows between and around them in `left`.

    Args:
        stretches: The episodes of one environment, in order.
        oldest, written: Its rows are [oldest, written).
        running: The first row of the episode that runs, None where none does.
        before: Rows before each episode's first step.
        left: The counts, which are added to.
    """
    over = [stretch for stretch in stretches if stretch.first != running]
    begins = [stretch.first - before for stretch in over]
    begins.append(max(running - before, oldest) if running is not None else written)
    place = oldest
    for number, (begin, after) in enumerate(zip(begins, [*(one.end + 1 for one in over), written], strict=True)):
        if oldest and not number:
            left.without_beginning += max(begin - place, 0)
        else:
            left.unknown += max(begin - place, 0)
        place = after
    left.running += written - begins[-1]
    return over


def _continues(obs: Any, next_obs: Any) -> bool:
    """Whether each observation (T, ...) is what the step before led to."""
    if isinstance(obs, dict):
        return all(_continues(obs[name], next_obs[name]) for name in obs)
    return np.array_equal(obs[1:], next_obs[:-1], equal_nan=obs.dtype.kind == "f")


def _joined(obs: Any, next_obs: Any) -> Tree:
    if isinstance(obs, dict):
        return {name: np.concatenate([obs[name], next_obs[name][-1:]]) for name in obs}
    return np.concatenate([obs, next_obs[-1:]])
