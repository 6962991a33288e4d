"""Exploration: sampling the policy, noise on actions, ε-greedy.

`Algorithm.explorer` makes an exploration from the algorithm's options. The exploration draws the noise of
`Algorithm.act` for all N environments at once, with NumPy's generator or, in a compiled training loop, with JAX's
(`learners.jax_random`). `schedule` computes all numbers that depend on the step, because a compiled program cannot
branch on the step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace
from typing_extensions import override

from duetto.functional.array_ops import ornstein_uhlenbeck
from duetto.functional.schedules import epsilon_schedule, exploration_ladder, linear
from duetto.networks import masks
from duetto.networks.heads import sampling_noise
from duetto.networks.spaces import Space

EpsilonSchedule = Literal["linear", "exponential", "ladder"]
Noise = Literal["gaussian", "ou", "none"]


class Exploration:
    """Base of all explorations.

    Noise may depend on earlier noise. For this, an exploration has a state (N, `state_size`), such as the values of
    Ornstein-Uhlenbeck processes. By default, evaluations are deterministic, and the state remains after an episode.
    """

    def draw(
        self,
        random: np.random.Generator,
        state: np.ndarray,
        step: int,
        total_steps: int,
        action: Space,
        mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw noise (N, ...) for one action of each environment, and return it with the next state (N, `state_size`).

        `step` is the number of the run's steps so far and `total_steps` the step at which schedules end, summed over
        all environments. `mask` (N, n) is True for allowed actions.
        """
        return self.noise(random, state, self.schedule(step, total_steps, len(state)), action, mask)

    def state_size(self, action: Space) -> int:
        """Return the number of columns of the state. The first state is all zeros."""
        return action.size

    def schedule(self, step: int, total_steps: int, num_envs: int) -> np.ndarray:
        """Return the numbers for `noise` that depend on the step: float64 of a fixed shape, (0,) if there are none."""
        return np.zeros(0)

    def noise(self, random: Any, state: Any, schedule: Any, action: Space, mask: Any = None) -> tuple[Any, Any]:
        """Return noise and the next state, in NumPy or JAX. `schedule` is the result of the method `schedule`."""
        raise NotImplementedError

    def for_envs(self, first: int, num_envs: int) -> Exploration:
        """Return the exploration for a cluster's actor, whose first environment is number `first` of `num_envs`."""
        return self

    def for_evaluation(
        self, random: np.random.Generator, num_envs: int, action: Space, mask: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Draw noise for the actions of an evaluation; None for deterministic actions."""
        return None

    def after_episode(self, state: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Return the state (N, `state_size`) for the next step. `done` (N,) is True where an episode ended."""
        return state


@dataclass(frozen=True)
class PolicySampling(Exploration):
    """Exploration by sampling the policy; with `stochastic_evaluation` also in evaluations."""

    stochastic_evaluation: bool = False

    def noise(self, random: Any, state: Any, schedule: Any, action: Space, mask: Any = None) -> tuple[Any, Any]:
        """Draw noise (N, action.size): standard normal for continuous numbers, Gumbel for discrete choices."""
        return sampling_noise(action, random, (len(state),)), state

    @override
    def for_evaluation(
        self, random: np.random.Generator, num_envs: int, action: Space, mask: np.ndarray | None = None
    ) -> np.ndarray | None:
        return sampling_noise(action, random, (num_envs,)) if self.stochastic_evaluation else None


@dataclass(frozen=True)
class RepeatedSampling(PolicySampling):
    """Policy sampling that keeps its noise for k ≤ `most` steps; k has a probability ∝ 1/k².

    All environments draw new noise at the same steps, even within episodes (FlashSAC, arXiv:2604.04539).
    """

    most: int = 16

    def state_size(self, action: Space) -> int:
        """Return the number of columns of the state: the noise, and a column with its remaining number of steps."""
        return action.size + 1

    def noise(self, random: Any, state: Any, schedule: Any, action: Space, mask: Any = None) -> tuple[Any, Any]:
        """Keep the noise (N, A) while it has steps left; otherwise draw new noise and its number of steps."""
        xp, left = array_namespace(state), state[0, -1]
        if isinstance(state, np.ndarray) and left >= 1:  # outside of a compiled loop, draw nothing
            return state[:, :-1], np.where(np.arange(state.shape[1]) < action.size, state, left - 1)
        chances = 1.0 / np.arange(1, self.most + 1) ** 2
        steps = 1 + (np.cumsum(chances / chances.sum())[:-1] < random.random()).sum()
        drawn, _ = super().noise(random, state, schedule, action, mask)
        noise = xp.where(left < 1, drawn, state[:, :-1])
        remaining = xp.where(left < 1, steps, left) - 1
        return noise, xp.concat([noise, xp.full((len(noise), 1), remaining, dtype=noise.dtype)], axis=1)


@dataclass(frozen=True)
class ActionNoise(Exploration):
    """Noise on a deterministic policy's actions, times a factor that changes linearly."""

    kind: Noise
    std: float  # in units of the action range [-1, 1]
    max_std: float = 0.0  # above 0: each episode draws its std, uniform between `std` and this
    final_scale: float = 1.0  # factor of the noise at the end of schedules; it changes linearly from 1
    theta: float = 0.15  # rate at which an Ornstein-Uhlenbeck process returns to 0
    reset: bool = True  # restart the process from 0 in each episode

    def schedule(self, step: int, total_steps: int, num_envs: int) -> np.ndarray:
        """Return the factor of the noise at this step, an array of shape ()."""
        return np.asarray(linear(step, total_steps, 1.0, self.final_scale))

    def noise(self, random: Any, state: Any, schedule: Any, action: Space, mask: Any = None) -> tuple[Any, Any]:
        """Draw noise for each environment and action dimension, (N, A), times the factor `schedule`."""
        if self.kind == "none":
            return array_namespace(state).zeros_like(state), state
        scale = float(schedule) if isinstance(schedule, np.ndarray) else schedule  # a Python float keeps float32
        if self.kind == "gaussian" and self.max_std:  # the state is each episode's std; 0 marks a new episode
            xp = array_namespace(state)
            drawn = self.std + (self.max_std - self.std) * random.random(len(state))[:, None]
            std = xp.where(state == 0, xp.astype(xp.asarray(drawn), state.dtype), state)
            return scale * std * random.standard_normal(std.shape, dtype=np.float32), std
        normal = random.standard_normal(state.shape, dtype=np.float32)
        if self.kind == "gaussian":
            return scale * self.std * normal, state
        state = ornstein_uhlenbeck(state, normal, self.theta, self.std)
        return scale * state, state

    def after_episode(self, state: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Return the state (N, A), 0 where an episode ended; unchanged without `reset` (Gaussian noise: `max_std`)."""
        if not (self.max_std if self.kind == "gaussian" else self.reset):
            return state
        return array_namespace(state).where(done[:, None], np.float32(0), state)


@dataclass(frozen=True)
class EpsilonGreedy(Exploration):
    """ε-greedy exploration.

    The noise (N, 1) is a random action with probability ε, and otherwise -1, which means the greedy action.
    """

    kind: EpsilonSchedule
    start: float
    end: float
    steps: int  # over which ε falls
    ladder_exponent: float  # environment i of N has ε^(1 + α i / (N-1))
    evaluation: float  # ε of evaluations
    first: int = 0  # on a cluster, the number of the actor's first environment in the run
    of: int = 0  # number of environments in the run; 0 if this process has all of them

    def for_envs(self, first: int, num_envs: int) -> Exploration:
        """Return the exploration for a cluster's actor. A ladder's ε depends on an environment's number in the run."""
        return replace(self, first=first, of=num_envs)

    def schedule(self, step: int, total_steps: int, num_envs: int) -> np.ndarray:
        """Return ε of each environment, (N,)."""
        if self.kind == "ladder":
            ladder = exploration_ladder(self.of or num_envs, self.start, self.ladder_exponent)
            return ladder[self.first : self.first + num_envs]
        return np.full(num_envs, epsilon_schedule(self.kind, step, self.steps, self.start, self.end))

    @override
    def noise(self, random: Any, state: Any, schedule: Any, action: Space, mask: Any = None) -> tuple[Any, Any]:
        return _random_actions(random, schedule, action, mask), state

    @override
    def for_evaluation(
        self, random: np.random.Generator, num_envs: int, action: Space, mask: np.ndarray | None = None
    ) -> np.ndarray | None:
        return _random_actions(random, np.full(num_envs, self.evaluation), action, mask) if self.evaluation else None


def _random_actions(random: Any, epsilon: Any, action: Space, mask: Any) -> Any:
    """Draw (N, 1) integers: with probability ε a uniformly random allowed action, else -1."""
    explores = random.random(len(epsilon)) < epsilon
    some = random.integers(action.size, size=len(epsilon)) if mask is None else masks.sample_allowed(random, mask)
    return array_namespace(some).where(explores, some, -1)[:, None]
