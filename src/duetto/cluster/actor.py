"""An actor: it acts in its share of the environments with the weights that it receives, and returns blocks of steps.

    weights   version 0 ........ version 1 ........
    block     0: T vector steps  1: T vector steps       and after each: the actor's state

A block depends only on the actor's state before it, on the trainer's `Order` and on the weights. So a new process that
replaces the actor makes the same block.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any, NamedTuple

import cloudpickle

from duetto.algorithms.base import Algorithm
from duetto.buffers import Experience
from duetto.buffers.base import concatenated
from duetto.environments import Episode, VecEnv, env_registry, make
from duetto.environments.obs_tree import Tree
from duetto.functional import state_schema
from duetto.functional.running_stats import Moments
from duetto.functional.state_schema import ANY
from duetto.learners import policy
from duetto.learners.policy import Parameters
from duetto.training.collector import Collector
from duetto.training.normalizer import Normalizer


def pack(environment: Any, options: dict[str, Any]) -> bytes:
    """Pickle the arguments of `environments.make`. A user's objects may raise any error.

    A class from a file is pickled by value, since an actor may be on a machine without the file.
    """
    environment = env_registry.resolved(environment)
    packed = cloudpickle.dumps((environment, options, env_registry.registration(environment)))
    return pickle.dumps((sys.path, packed))


class ActorRole(NamedTuple):
    """A function that is sent to an actor's process and makes the `BlockActor` there."""

    recipe: bytes  # the result of `pack`
    algorithm: Algorithm
    backend: Any
    precision: Any
    threads: int
    num_envs: int  # of the whole run

    def __call__(self, share: range) -> BlockActor:
        """Make the actor of the environments in `share`. Raises ImportError if a module is not installed here."""
        path, packed = pickle.loads(self.recipe)
        sys.path += [place for place in path if place not in sys.path]
        environment, options, spec = pickle.loads(packed)
        env_registry.register_spec(spec)
        return BlockActor(make(environment, num_envs=len(share), **options), share, self)


class Weights(NamedTuple):
    """The parameters and statistics that actors act with, as nested dicts. The weights of a version never change."""

    version: int
    updates: int  # number of the learner's updates until this version
    parameters: Parameters  # of the acting networks
    observed: dict[str, Any]  # statistics of observations
    rewarded: dict[str, Any] | None  # statistics of rewards, if they are scaled
    largest: float  # largest absolute discounted sum of rewards so far


class Order(NamedTuple):
    """The trainer's request to an actor for one block.

    Schedules of exploration and `random_steps` depend on `step`. In the mode `async`, `step` is an estimate, because
    the trainer does not know yet which blocks it will use before this block.
    """

    steps: int  # vector steps to make
    step: int  # the run's step at the first of them
    stride: int  # steps of the run from one vector step to the next
    total: int  # the run's step at which schedules end


class Block(NamedTuple):
    """T vector steps that an actor has made."""

    updates: int  # `Weights.updates` of the weights that made it
    experience: Experience  # rows in order; environments are numbered as in the run
    counts: list[int]  # rows of each vector step
    episodes: list[list[Episode]]  # for each vector step, the episodes that it ended
    observed: dict[str, Moments]  # statistics of the block's observations
    rewarded: Moments | None  # statistics of the block's rewards
    largest: float  # largest absolute discounted sum of rewards until the end of the block


class BlockActor:
    """The object in an actor's process. It makes blocks of steps in its environments."""

    def __init__(self, stepper: VecEnv, share: range, role: ActorRole) -> None:
        self._stepper, self._role, self._first = stepper, role, share.start
        stepper.first = share.start
        spaces = (stepper.observation_space, stepper.action_space)
        how: dict[str, Any] = {"backend": role.backend, "precision": role.precision, "threads": role.threads}
        self._acting = policy.build(role.algorithm, *spaces, **how)
        self._version = -1
        self._begin(0)

    def _begin(self, seed: int) -> None:
        algorithm, stepper = self._role.algorithm, self._stepper
        self._normalizer = Normalizer(stepper.observation_space, *algorithm.observation_scaling())
        everybody = self._role.num_envs
        self._collector = Collector(algorithm, stepper, self._acting, self._normalizer, seed, everybody)

    def describe(self) -> dict[str, Any]:
        """Return the attributes of the environments that the trainer needs."""
        engine, names = self._stepper.engine, ("label", "layout", "single_action_space", "stacked", "metadata")
        own = {name: getattr(engine, name) for name in names}
        return own | {"name": self._stepper.name}

    def reset(self, seed: int) -> Tree:
        """Start new episodes and exploration with this actor's seed; return the first observations."""
        self._begin(seed)
        self._stepper.reset(seed)
        return self._stepper.obs

    def block(self, order: Order, weights: Weights) -> Block:
        """Make the block that `order` describes, with these weights."""
        self._load(weights)
        steps, episodes = [], []
        for step in range(order.steps):
            experience, ended = self._collector.collect(order.step + step * order.stride, order.total)
            steps.append(experience._replace(env=experience.env + self._first))
            episodes.append([episode._replace(env=episode.env + self._first) for episode in ended])
        rewards = self._collector.rewards
        made = (concatenated(steps), [len(step.env) for step in steps], episodes)
        news = (self._normalizer.news, rewards and rewards.news, rewards.largest if rewards else 0.0)
        return Block(weights.updates, *made, *news)

    def _load(self, weights: Weights) -> None:
        if weights.version != self._version:
            self._acting.load_parameters(weights.parameters)
            self._version = weights.version
        self._normalizer.follow({name: Moments(**part) for name, part in weights.observed.items()})
        if self._collector.rewards is not None and weights.rewarded is not None:
            self._collector.rewards.follow(Moments(**weights.rewarded))
            self._collector.rewards.largest = weights.largest

    def state(self) -> dict[str, Any]:
        """Return the state, except weights, that the next steps depend on; {} before the first reset."""
        if not self._stepper.started:
            return {}
        return {"stepper": self._stepper.state_dict(), "collector": self._collector.state_dict()}

    def restore(self, state: dict[str, Any]) -> list[str]:
        """Restore `state`; return, for each environment, why it started a new episode, or "" if it did not."""
        state_schema.check(state, {"stepper": ANY, "collector": Collector.STATE}, "stepper/environments")
        self._begin(0)
        self._stepper.load_state_dict(state["stepper"])
        self._collector.load_state_dict(state["collector"])
        if not self._stepper.resumed_exactly:
            self._collector.interrupt(~self._stepper.restored)
        why = "; ".join(self._stepper.not_restored) or "its state cannot be saved"
        return ["" if restored else why for restored in self._stepper.restored.tolist()]

    def close(self) -> None:
        """Release the environments."""
        self._stepper.close()
