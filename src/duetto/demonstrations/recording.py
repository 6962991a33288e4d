"""Record whole episodes that an expert plays, and replay a recorded episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import NamedTuple, Protocol

import numpy as np

from duetto.demonstrations.types import Demonstration, Demonstrations, limits
from duetto.environments import Transition, Tree, VecEnv, obs_tree
from duetto.errors import UsageError
from duetto.functional.pytree import tree_map, tree_map_many
from duetto.networks import masks

MOST_TRIES = 20  # stop if fewer than one of 20 episodes is kept


class Expert(Protocol):
    """The interface of an expert: an agent, a script or a person."""

    def __call__(self, obs: Tree, starts: np.ndarray) -> np.ndarray:
        """Return actions (N, ...) for observations (N, ...). `starts` (N,) is True where an episode starts."""
        ...

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        """Receive `reward` (K,), the rewards of the last actions in the environments with the numbers `env` (K,)."""


class RecordingEndedError(Exception):
    """Raised by an expert to end the recording. Episodes that have already ended are kept."""


class RecordedGame(NamedTuple):
    """A whole episode of the environment: its seed, undiscounted return, and demonstrations.

    With Atari's `episodic_life`, it has a demonstration for each life. Otherwise it has one.
    """

    seed: int
    score: float
    demonstrations: list[Demonstration]


def record(
    expert: Expert, stepper: VecEnv, episodes: int, seed: int, keep: Callable[[float], bool] = lambda score: True
) -> Iterator[RecordedGame]:
    """Yield `episodes` whole episodes in the order of their seeds: seed, seed + 1, ...

    An episode is skipped if `keep(score)` is False; an episode with a later seed replaces it. The result does not
    depend on the number of environments.

    Raises:
        UsageError: `keep` rejects nearly all episodes.
    """
    if episodes < 1:
        raise UsageError(f"episodes is {episodes}; it must be at least 1.")
    stepper.reset(seed)
    running = {env: RecordedGame(seed + env, 0.0, []) for env in range(min(stepper.num_envs, episodes))}
    rows: list[list[tuple[Transition, int]]] = [[] for _ in range(stepper.num_envs)]  # not yet in a demonstration
    played: dict[int, list[RecordedGame]] = {}  # finished games by seed, waiting for lower seeds; []: rejected
    kept, tried, upcoming, unused = 0, 0, seed, seed + len(running)
    while running:
        transition, ended = stepper.step(expert(stepper.obs, stepper.starts))
        expert.rewarded(transition.reward, transition.env)
        for row, env in enumerate(transition.env.tolist()):
            if env not in running:
                continue
            rows[env].append((transition, row))
            if transition.terminated[row] or transition.truncated[row]:  # with `episodic_life`, also at a lost life
                running[env].demonstrations.append(_cut(rows[env], *limits(stepper.action_space)))
                rows[env].clear()
        for episode in ended:
            if episode.env not in running:
                continue
            game = running.pop(episode.env)._replace(score=episode.total_reward)
            played[game.seed] = [game] if keep(game.score) else []
            kept, tried = kept + len(played[game.seed]), tried + 1
            if tried >= MOST_TRIES * (kept + 1):
                raise UsageError(
                    f"Only {kept} of {tried} episodes were good enough to be kept. Relax --minimum-return or "
                    "--only-successes, or use a better expert."
                )
            while upcoming in played:
                yield from played.pop(upcoming)
                upcoming += 1
            if kept + len(running) < episodes:
                stepper.reset_env(episode.env, unused)
                running[episode.env] = RecordedGame(unused, 0.0, [])
                unused += 1


def _cut(rows: list[tuple[Transition, int]], low: np.ndarray, high: np.ndarray) -> Demonstration:
    """Return a demonstration of these rows. Clip actions to their bounds, as the environment does."""
    last, row = rows[-1]
    trees = [(step.obs, i) for step, i in rows] + [(last.next_obs, row)]
    obs: Tree = tree_map_many(np.stack, [tree_map(itemgetter(i), masks.split_mask(tree)[0]) for tree, i in trees])
    action = np.stack([step.action[i] for step, i in rows])
    return Demonstration(
        obs,
        np.clip(action, low, high, dtype=action.dtype) if action.dtype.kind == "f" else action,
        np.array([step.reward[i] for step, i in rows], np.float32),
        bool(last.terminated[row]),
        bool(last.truncated[row]),
    )


class EpisodePlayer:
    """A policy that repeats the recorded actions of an episode.

    If the episode is one life of an Atari game, the whole game is repeated.

    Raises:
        UsageError: There is no such episode, or its seed is unknown.
    """

    def __init__(self, demonstrations: Demonstrations, number: int) -> None:
        seeds, parts = demonstrations.seeds, demonstrations.parts
        if not 0 <= number < len(demonstrations):
            raise UsageError(
                f"There is no episode {number}. {demonstrations.source} has 0 to {len(demonstrations) - 1}."
            )
        self._where = f"Episode {number} of {demonstrations.source}"
        seed = seeds[number]
        if seed is None:
            raise UsageError(f"{self._where} cannot be replayed: its seed is unknown.")
        self.seed = seed
        first = last = number - parts[number]
        while last + 1 < len(parts) and parts[last + 1] == last + 1 - first:
            last += 1
        self._steps = [
            ([(name, part[i : i + 1]) for name, part in obs_tree.parts(episode.obs)], episode.action[i : i + 1])
            for episode in demonstrations.episodes[first : last + 1]
            for i in range(episode.length)
        ]
        self._next = 0

    @property
    def finished(self) -> bool:
        """Whether all recorded actions have been returned."""
        return self._next == len(self._steps)

    def __call__(self, obs: Tree) -> np.ndarray:
        """Return the next action (1, ...). Raise UsageError if `obs` (1, ...) differs from the recorded one."""
        seen = dict(obs_tree.parts(obs))
        if self.finished or any(not np.array_equal(seen[name], part) for name, part in self._steps[self._next][0]):
            raise UsageError(
                f"{self._where} cannot be replayed: at step {self._next} the environment returns another observation "
                "than when it was recorded. Its version may differ, or its seed does not determine all its random "
                "numbers. Atari games that were recorded without pictures cannot be replayed: ale-py's vector "
                "environment, which recorded them, draws other random numbers."
            )
        self._next += 1
        return self._steps[self._next - 1][1]
