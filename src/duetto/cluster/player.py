"""An actor that acts: blocks of steps in its share of the environments, with networks that it is given.

    weights   version 0 ........ version 1 ........
    block     0: T vector steps  1: T vector steps       and behind each: where the actor stands

A block follows from where the actor stood, the order and the weights, and from nothing else: made again elsewhere it is
the same block.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import Algorithm
from duetto.environments import Episode, Stepper
from duetto.environments.trees import Tree
from duetto.functional.scaling import Moments
from duetto.learners import acting
from duetto.learners.parameters import Parameters
from duetto.memory import Experience
from duetto.training.collector import Collector
from duetto.training.normalizer import Normalizer


class Role(NamedTuple):
    """What an actor must know to act."""

    algorithm: Algorithm
    backend: Any
    precision: Any
    num_envs: int  # of the run

    def take(self, stepper: Stepper, share: range) -> Player:
        """Who does that, in an actor's environments."""
        return Player(stepper, share, self)


class Weights(NamedTuple):
    """What actors act with; a version of it is never changed."""

    version: int
    updates: int  # that were made until then
    parameters: Parameters  # of the acting networks
    observed: dict[str, Moments]  # statistics of observations
    rewarded: Moments | None  # and of rewards, where these are scaled


class Order(NamedTuple):
    """A block that is wanted.

    By the steps schedules of exploration go, and `random_steps`. At the pace `free` they are an estimate, as if blocks
    were handed out one after the other: where several are handed out side by side, their steps come up to as many
    blocks earlier or later.
    """

    number: int  # of this actor's, from 0
    steps: int  # vector steps
    step: int  # of the run, that its first one is
    stride: int  # steps of the run from one vector step to the next
    total: int  # steps in which schedules end


class Block(NamedTuple):
    """T vector steps."""

    number: int
    version: int
    updates: int  # of the weights
    experience: Experience  # all of them, one after the other; environments have their numbers in the run
    counts: list[int]  # rows of each
    episodes: list[list[Episode]]  # that ended with each
    observed: dict[str, Moments]  # statistics of what was observed in it
    rewarded: Moments | None
    state: dict[str, Any]  # where the actor stands behind it
    idle: float  # seconds between the last block and this one


class Player:
    """Acts in a share of a run's environments."""

    def __init__(self, stepper: Stepper, share: range, role: Role) -> None:
        self._stepper, self._role, self._first = stepper, role, share.start
        stepper.first = share.start
        spaces = (stepper.observation_space, stepper.action_space)
        self._acting = acting.build(role.algorithm, *spaces, backend=role.backend, precision=role.precision)
        self._version, self._since = -1, 0.0
        self._begin(0)

    def _begin(self, seed: int) -> None:
        algorithm, stepper = self._role.algorithm, self._stepper
        self._normalizer = Normalizer(stepper.observation_space, *algorithm.observation_scaling())
        everybody = self._role.num_envs
        self._collector = Collector(algorithm, stepper, self._acting, self._normalizer, seed, everybody)

    def reset(self, seed: int) -> Tree:
        """Begin new episodes, and to explore anew, by a seed of this actor's; the first observations."""
        self._begin(seed)
        self._stepper.reset(seed)
        return self._stepper.obs

    def block(self, order: Order, weights: Weights) -> Block:
        """See Block."""
        idle = time.perf_counter() - self._since if self._since else 0.0
        self._load(weights)
        steps, episodes = [], []
        for step in range(order.steps):
            experience, ended = self._collector.collect(order.step + step * order.stride, order.total)
            steps.append(experience._replace(env=experience.env + self._first))
            episodes.append([episode._replace(env=episode.env + self._first) for episode in ended])
        rewards = self._collector.rewards
        news = (self._normalizer.news, rewards and rewards.news)
        self._since = time.perf_counter()
        what = (joined(steps), [len(step.env) for step in steps], episodes)
        return Block(order.number, weights.version, weights.updates, *what, *news, self.state(), idle)

    def _load(self, weights: Weights) -> None:
        if weights.version < self._version:
            raise RuntimeError(f"weights of version {weights.version} are older than those here, {self._version}")
        if weights.version > self._version:
            self._acting.load(weights.parameters)
            self._version = weights.version
        self._normalizer.follow(weights.observed)
        if self._collector.rewards is not None and weights.rewarded is not None:
            self._collector.rewards.follow(weights.rewarded)

    def state(self) -> dict[str, Any]:
        """All that the next blocks depend on but weights."""
        return {"stepper": self._stepper.state_dict(), "collector": self._collector.state_dict()}

    def restore(self, state: dict[str, Any]) -> bool:
        """Undo `state`; False where new episodes had to begin. Without random numbers it explores anew."""
        stepper, collector = state["stepper"], state["collector"]
        self._begin(stepper["seed"] + stepper["steps"])
        if collector["random"] is None:
            collector = collector | {"random": self._collector.state_dict()["random"]}
        self._stepper.load_state_dict(stepper)
        self._collector.load_state_dict(collector)
        if not self._stepper.resumed_exactly:
            self._collector.interrupt()
        return self._stepper.resumed_exactly

    def close(self) -> None:
        """Release the environments."""
        self._stepper.close()


def joined(steps: list[Experience]) -> Experience:
    """One after the other."""
    return Experience(*(concatenated([step[i] for step in steps]) for i in range(len(Experience._fields))))


def cut(steps: Experience, counts: list[int]) -> list[Experience]:
    """Undo `joined`: so many rows each."""
    ends = np.cumsum(counts)
    slices = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    return [Experience(*(rows(part, one) for part in steps)) for one in slices]


def side_by_side(blocks: list[Block]) -> Experience:
    """The rows of all of them: those of the first vector step, then those of the second; in each, in their order."""
    if len(blocks) == 1:
        return blocks[0].experience
    step = np.concatenate([np.arange(len(block.counts)).repeat(block.counts) for block in blocks])
    place = np.empty(len(step), np.int64)  # where each row goes
    place[step.argsort(kind="stable")] = np.arange(len(step))
    places = np.split(place, np.cumsum([sum(block.counts) for block in blocks])[:-1])
    return Experience(
        *(_put([block.experience[i] for block in blocks], places) for i in range(len(Experience._fields)))
    )


def _put(parts: list[Any], places: list[np.ndarray]) -> Any:
    """Rows of trees to their places, with one copy; of what only some of them have, nothing."""
    if not isinstance(parts[0], np.ndarray):
        names = [name for name in parts[0] if all(name in part for part in parts)]
        return {name: _put([part[name] for part in parts], places) for name in names}
    whole = np.empty((sum(map(len, places)), *parts[0].shape[1:]), parts[0].dtype)
    for part, place in zip(parts, places, strict=True):
        whole[place] = part
    return whole


def concatenated(parts: list[Any]) -> Any:
    """Trees of arrays with rows; of what only some of them have, nothing."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: concatenated([part[name] for part in parts]) for name in names}


def rows(tree: Any, which: slice) -> Any:
    """Those rows of a tree of arrays."""
    return tree[which] if isinstance(tree, np.ndarray) else {name: rows(part, which) for name, part in tree.items()}
