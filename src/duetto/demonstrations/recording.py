"""Let an expert act, and keep whole episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import NamedTuple, Protocol

import numpy as np

from duetto.demonstrations.episodes import Demonstration
from duetto.demonstrations.form import limits
from duetto.environments import Stepper, Transition, Tree
from duetto.errors import UsageError
from duetto.functional.trees import mapped, merged
from duetto.networks import masks
from duetto.networks.spaces import Space

MOST_TRIES = 20  # episodes for each one that is kept: whoever needs more is no expert


class Expert(Protocol):
    """The interface to whoever knows what to do."""

    def __call__(self, obs: Tree, starts: np.ndarray) -> np.ndarray:
        """Return actions (N, ...) for observations (N, ...); `starts` (N,) is True where an episode begins."""
        ...

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        """Note the rewards (K,) that its last actions brought in the environments `env` (K,)."""


class Game(NamedTuple):
    """A whole episode of the environment: what it was reset with, its real score, its demonstrations in order."""

    seed: int
    score: float
    demonstrations: list[Demonstration]


def record(
    expert: Expert, stepper: Stepper, episodes: int, seed: int, keep: Callable[[float], bool] = lambda score: True
) -> Iterator[Game]:
    """Yield `episodes` whole episodes, begun with seed, seed + 1, ... and in that order.

    Those whose score is not one to `keep` are left out, and later seeds take their place. So what comes out does not
    depend on how many environments run side by side.

    Raises:
        UsageError: Nearly all of them are left out.
    """
    if episodes < 1:
        raise UsageError(f"episodes is {episodes}; it must be at least 1.")
    played: dict[int, Game | None] = {}  # by seed, those that wait for one with a lower seed; None: left out
    kept, tried, upcoming = 0, 0, seed

    def more(running: int) -> bool:
        return kept + running < episodes

    for game in _play(expert, stepper, seed, more):
        good = keep(game.score)
        played[game.seed] = game if good else None
        kept, tried = kept + good, tried + 1
        if tried >= MOST_TRIES * (kept + 1):
            raise UsageError(
                f"Only {kept} of {tried} episodes were good enough to be kept. Ask for less (--minimum-return, "
                "--only-successes), or take a better expert."
            )
        while upcoming in played:
            ready = played.pop(upcoming)
            upcoming += 1
            if ready is not None:
                yield ready


def _play(expert: Expert, stepper: Stepper, seed: int, more: Callable[[int], bool]) -> Iterator[Game]:
    """Yield games as they end; another one begins while `more(number of games that run)`."""
    stepper.reset(seed)
    upcoming = seed
    running: dict[int, _Tape] = {}
    for env in range(stepper.num_envs):
        if more(len(running)):
            running[env] = _Tape(upcoming, stepper.action_space)
            upcoming += 1
    while running:
        transition, ended = stepper.step(expert(stepper.obs, stepper.starts))
        expert.rewarded(transition.reward, transition.env)
        for row, env in enumerate(transition.env.tolist()):
            if env in running:
                running[env].add(transition, row)
        for episode in ended:
            if episode.env not in running:
                continue
            tape = running.pop(episode.env)
            yield Game(tape.seed, episode.total_reward, tape.demonstrations)
            if more(len(running)):
                stepper.reset_env(episode.env, upcoming)
                running[episode.env] = _Tape(upcoming, stepper.action_space)
                upcoming += 1


class _Tape:
    """A record of one environment since a game began in it."""

    def __init__(self, seed: int, action: Space) -> None:
        self.seed, self._limits = seed, limits(action)
        self.demonstrations: list[Demonstration] = []
        self._rows: list[tuple[Transition, int]] = []

    def add(self, transition: Transition, row: int) -> None:
        """Take a row of a transition; where a game goes on after a lost life, the next demonstration begins."""
        self._rows.append((transition, row))
        if transition.terminated[row] or transition.truncated[row]:
            self.demonstrations.append(_cut(self._rows, *self._limits))
            self._rows = []


def _cut(rows: list[tuple[Transition, int]], low: np.ndarray, high: np.ndarray) -> Demonstration:
    """Make a demonstration of rows; actions beyond a bound, as a Gaussian policy gives them, are clipped to it, as the
    environment did.
    """
    last, row = rows[-1]
    trees = [(step.obs, i) for step, i in rows] + [(last.next_obs, row)]
    obs: Tree = merged(np.stack, [mapped(itemgetter(i), masks.parted(tree)[0]) for tree, i in trees])
    action = np.stack([step.action[i] for step, i in rows])
    return Demonstration(
        obs,
        np.clip(action, low, high, dtype=action.dtype) if action.dtype.kind == "f" else action,
        np.array([step.reward[i] for step, i in rows], np.float32),
        bool(last.terminated[row]),
        bool(last.truncated[row]),
    )
