"""An actor that chooses actions: it makes blocks of steps in its share of the environments, with weights it is sent.

    weights   version 0 ........ version 1 ........
    block     0: T vector steps  1: T vector steps       and after each: the actor's state

A block follows from the actor's state, the order and the weights, and from nothing else: made again elsewhere it is
the same block.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from duetto.algorithms.base import Algorithm
from duetto.buffers import BlockHeader, BlockRef, Experience
from duetto.buffers.experience import joined
from duetto.environments import Episode, VecEnv
from duetto.environments.obs_tree import Tree
from duetto.environments.sharding import tails
from duetto.functional.running_stats import Moments
from duetto.learners import policy
from duetto.learners.parameters import Parameters
from duetto.training.collector import Collector
from duetto.training.normalizer import Normalizer


class Role(NamedTuple):
    """What an actor must know to act."""

    algorithm: Algorithm
    backend: Any
    precision: Any
    threads: int
    num_envs: int  # of the run

    def take(self, stepper: VecEnv, share: range) -> BlockActor:
        """The player that acts in an actor's environments."""
        return BlockActor(stepper, share, self)


class Weights(NamedTuple):
    """What actors act with; a version of it is never changed."""

    version: int
    updates: int  # that were made until then
    parameters: Parameters  # of the acting networks
    observed: dict[str, Moments]  # statistics of observations
    rewarded: Moments | None  # and of rewards, where these are scaled


class Order(NamedTuple):
    """An order for a block.

    Schedules of exploration and `random_steps` go by its steps. In the mode `async` these are an estimate, as if blocks
    were handed out one after the other: where several are handed out side by side, their steps come up to as many
    blocks earlier or later.
    """

    number: int  # of this actor's, from 0
    steps: int  # vector steps
    step: int  # of the run, that its first one is
    stride: int  # steps of the run from one vector step to the next
    total: int  # steps in which schedules end


class Block(NamedTuple):
    """T vector steps that an actor has made."""

    number: int
    version: int
    updates: int  # of the weights
    experience: Experience | BlockHeader | BlockRef  # one after the other; environments have their numbers in the run
    counts: list[int]  # rows of each
    episodes: list[list[Episode]]  # that ended with each
    observed: dict[str, Moments]  # statistics of what was observed in it
    rewarded: Moments | None
    state: dict[str, Any]  # where the actor stands behind it, as `tails` of the state before it
    idle: float  # seconds between the last block and this one
    broken: bool = False  # the episodes before it broke off with an actor: whoever accepts it knows

    def parted(self) -> tuple[Block, Experience]:
        """The block with a header instead of its steps, and the steps."""
        assert isinstance(self.experience, Experience)
        return self._replace(experience=BlockHeader.of(self.experience, self.counts)), self.experience


class BlockActor:
    """The part of an actor that chooses actions in its share of the run's environments."""

    def __init__(self, stepper: VecEnv, share: range, role: Role) -> None:
        self._stepper, self._role, self._first = stepper, role, share.start
        stepper.first = share.start
        spaces = (stepper.observation_space, stepper.action_space)
        how: dict[str, Any] = {"backend": role.backend, "precision": role.precision, "threads": role.threads}
        self._acting = policy.build(role.algorithm, *spaces, **how)
        self._version, self._since = -1, 0.0
        self._known: dict[str, Any] = {}  # the state that was sent last, or given
        self._begin(0)

    def _begin(self, seed: int) -> None:
        algorithm, stepper = self._role.algorithm, self._stepper
        self._normalizer = Normalizer(stepper.observation_space, *algorithm.observation_scaling())
        everybody = self._role.num_envs
        self._collector = Collector(algorithm, stepper, self._acting, self._normalizer, seed, everybody)

    def reset(self, seed: int) -> Tree:
        """Begin new episodes and exploration with this actor's seed; returns the first observations."""
        self._begin(seed)
        self._known = {}
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
        known, self._known = self._known, self.state()
        state = tails(self._known, known)
        return Block(order.number, weights.version, weights.updates, *what, *news, state, idle)

    def _load(self, weights: Weights) -> None:
        if weights.version < self._version:
            raise RuntimeError(f"weights of version {weights.version} are older than those here, {self._version}")
        if weights.version > self._version:
            self._acting.load_parameters(weights.parameters)
            self._version = weights.version
        self._normalizer.follow(weights.observed)
        if self._collector.rewards is not None and weights.rewarded is not None:
            self._collector.rewards.follow(weights.rewarded)

    def state(self) -> dict[str, Any]:
        """The actor's state: everything but the weights that its next blocks depend on."""
        return {"stepper": self._stepper.state_dict(), "collector": self._collector.state_dict()}

    def restore(self, state: dict[str, Any]) -> bool:
        """Undo `state`; False if new episodes had to begin. Without random numbers in it, exploration begins anew."""
        stepper, collector, self._known = state["stepper"], state["collector"], state
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
