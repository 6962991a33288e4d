"""The collector: it chooses actions, steps the environments and returns transitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from duetto.algorithms.base import Algorithm, Tree
from duetto.buffers import Experience
from duetto.environments import Episode, VecEnv, obs_tree
from duetto.functional import state_schema
from duetto.functional.rng import generator, restore_rng, rng_state
from duetto.functional.state_schema import ANY, ARRAY, ArrayOf, OptionalOf
from duetto.learners import Policy
from duetto.networks import masks
from duetto.training.normalizer import Normalizer, RewardScaler
from duetto.training.policy import Recurrence


class Source(ABC):
    """The interface of a trainer's source of experience (transitions).

    Attributes:
        STATE: The schema of `state_dict`.
        rewards: The scaler of rewards; None if rewards are not scaled.
    """

    STATE: ClassVar[Any]
    rewards: RewardScaler | None = None

    @abstractmethod
    def collect(self, step: int, total_steps: int) -> tuple[Experience, list[Episode]]:
        """Collect and return the next experience, and the episodes that ended in it.

        `step` is the number of earlier steps; schedules of exploration end at `total_steps`.
        """

    def interrupt(self, envs: np.ndarray | None = None) -> None:  # noqa: B027 - a source may have nothing to do
        """End the running episodes of all environments, or where `envs` (N,) is True, because new episodes start."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return everything that later experience depends on, except the environments."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""


class Collector(Source):
    """A source that makes one vector step per call. It owns the exploration noise and its random numbers."""

    STATE: ClassVar[dict[str, Any]] = {
        "noise": ARRAY,
        "random": ANY,
        "rewards": OptionalOf(RewardScaler.STATE),
        "recurrence": OptionalOf(Recurrence.STATE),
    }

    def __init__(
        self,
        algorithm: Algorithm,
        stepper: VecEnv,
        learner: Policy,
        normalizer: Normalizer,
        seed: int,
        of: int | None = None,
    ) -> None:
        """Create a collector for the environments of `stepper`.

        On a cluster, `stepper` has only some of the run's environments, and `of` is the number of all environments.
        """
        self._algorithm, self._explorer = algorithm, algorithm.explorer()
        if of is not None:
            self._explorer = self._explorer.for_envs(stepper.first, of)
        self._stepper = stepper
        self._learner = learner
        self._normalizer = normalizer
        self._random = generator(seed, "exploration", stepper.first)
        self._noise = np.zeros((stepper.num_envs, self._explorer.state_size(stepper.action_space)), np.float32)
        spec = algorithm.memory()
        scaling = algorithm.reward_scaling()
        self.rewards: RewardScaler | None = scaling and RewardScaler(stepper.num_envs, spec.discount, *scaling)
        self._recurrence = Recurrence(learner, stepper.action_space, stepper.num_envs) if learner.recurrent else None

    @override
    def collect(self, step: int, total_steps: int) -> tuple[Experience, list[Episode]]:
        obs = self._stepper.obs
        if self._normalizer.mode in ("collected", "steps"):
            waiting = self._stepper.engine.pending
            self._normalizer.observe(obs_tree.take(obs, np.flatnonzero(~waiting)) if waiting.any() else obs)
        action, extras = self._act(obs, step, total_steps)
        transition, episodes = self._stepper.step(action)
        if self._normalizer.stored:
            obs, next_obs = self._normalizer(transition.obs), self._normalizer(transition.next_obs)
            transition = transition._replace(obs=obs, next_obs=next_obs)
        if len(transition.env) < self._stepper.num_envs:
            extras = {name: values[transition.env] for name, values in extras.items()}
        if self._recurrence is not None:  # networks get unscaled rewards, as in evaluations
            self._recurrence.rewarded(transition.reward, transition.env)
            extras["seen_reward"] = self._algorithm.seen_reward(transition.reward)
        if self.rewards is not None:
            done = transition.terminated | transition.truncated
            transition = transition._replace(reward=self.rewards(transition.reward, transition.env, done))
        return Experience(*transition, extras), episodes

    def _act(self, obs: Tree, step: int, total_steps: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return actions (N, ...) for all environments, and the arrays to store with them."""
        at_random = step < self._algorithm.first_random_steps()
        if at_random and self._recurrence is None:
            return self._stepper.sample_actions(self._random), {}
        space = self._stepper.action_space
        mask = masks.mask_of(obs)
        # Reset the noise at an episode's start, not at its end: if an environment resets in a separate step, noise is
        # drawn between the two.
        if np.count_nonzero(self._stepper.starts):
            self._noise = self._explorer.after_episode(self._noise, self._stepper.starts)
        noise, self._noise = self._explorer.draw(self._random, self._noise, step, total_steps, space, mask)
        scaled = self._normalizer(obs)
        if self._recurrence is None:
            return self._learner.collect(scaled, noise)
        window = self._recurrence.window(scaled, self._stepper.starts)
        before = {f"carry/{name}": part for name, part in window.carry.items()} | {
            "previous_action": window.previous_action[:, 0],
            "previous_reward": window.previous_reward[:, 0],
            "starts": window.is_first,
        }
        (action, extras), carry = self._learner.call_with_carry("collect", window, noise)
        if at_random:
            action, extras = self._stepper.sample_actions(self._random), {}
        self._recurrence.step(carry, action)
        after = {f"next_carry/{name}": part for name, part in carry.items()}
        return action, extras | before | after

    @override
    def interrupt(self, envs: np.ndarray | None = None) -> None:
        ended = np.ones(self._stepper.num_envs, bool) if envs is None else envs
        self._noise = self._explorer.after_episode(self._noise, ended)
        if self.rewards is not None:
            self.rewards.interrupt(envs)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the exploration noise, its random generator, the reward scaler and the recurrence."""
        scaling = None if self.rewards is None else self.rewards.state_dict()
        recurrence = None if self._recurrence is None else self._recurrence.state_dict()
        return {
            "noise": self._noise.copy(),
            "random": rng_state(self._random),
            "rewards": scaling,
            "recurrence": recurrence,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`. Raises CheckpointError if the shapes differ."""
        state_schema.check(state, {"noise": ArrayOf(self._stepper.num_envs, None)}, "collector")
        self._noise = np.array(state["noise"], np.float32)
        restore_rng(self._random, state["random"])
        if self.rewards is not None:
            self.rewards.load_state_dict(state["rewards"])
        if self._recurrence is not None:
            self._recurrence.load_state_dict(state["recurrence"])
