"""Exploration: sampling the policy, noise on actions, ε-greedy.

`Algorithm.explorer` makes an exploration from the algorithm's options. It draws the noise of `Algorithm.act` for all N
environments at once, with NumPy's generator or, in a compiled training loop, with JAX's (`learners.jax_random`).
Numbers that depend on the step are computed apart, in `schedule`: a compiled program cannot branch on the step.
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
    """Base of all explorations: without a state, and with deterministic evaluations."""

    def draw(
        self,
        random: np.random.Generator,
        state: np.ndarray,
        step: int,
        total_steps: int,
        action: Space,
        mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw noise for one action of each environment, (N, ...), and the next state, (N, `state_size`).

        `step` of `total_steps` are done, over all environments. `mask` (N, n) is True for allowed actions.
        """
        return self.noise(random, state, self.schedule(step, total_steps, len(state)), action, mask)

    def state_size(self, action: Space) -> int:
        """Return the columns of the state; it starts with zeros."""
        return action.size

    def schedule(self, step: int, total_steps: int, num_envs: int) -> np.ndarray:
        """Return the numbers of `noise` that depend on the step, float64 of one shape: by default none, (0,)."""
        return np.zeros(0)

    def noise(self, random: Any, state: Any, schedule: Any, action: Space, mask: Any = None) -> tuple[Any, Any]:
        """Return the result of `draw` for the numbers of `schedule`; arrays of NumPy or JAX."""
        raise NotImplementedError

    def for_envs(self, first: int, num_envs: int) -> Exploration:
        """Return the exploration of the environments from `first` on, of the run's `num_envs`."""
        return self

    def for_evaluation(
        self, random: np.random.Generator, num_envs: int, action: Space, mask: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Draw noise for the actions of an evaluation; None for deterministic ones."""
        return None

    def after_episode(self, state: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Return the state (N, A) after the episodes of the environments in `done` (N,) bool ended."""
        return state


@dataclass(frozen=True)
class PolicySampling(Exploration):
    """Exploration by sampling the policy, with `stochastic_evaluation` also in evaluations."""

    stochastic_evaluation: bool = False

    def noise(self, random: Any, state: Any, schedule: Any, action: Space, mask: Any = None) -> tuple[Any, Any]:
        """Draw standard normal or Gumbel noise, (N, action.size)."""
        return sampling_noise(action, random, (len(state),)), state

    @override
    def for_evaluation(
        self, random: np.random.Generator, num_envs: int, action: Space, mask: np.ndarray | None = None
    ) -> np.ndarray | None:
        return sampling_noise(action, random, (num_envs,)) if self.stochastic_evaluation else None


@dataclass(frozen=True)
class RepeatedSampling(PolicySampling):
    """Policy sampling with noise that stays for k ≤ `most` steps; k has a probability ∝ 1/k².

    All environments draw new noise at the same steps, whether or not an episode ends (FlashSAC, arXiv:2604.04539).
    """

    most: int = 16

    def state_size(self, action: Space) -> int:
        """Return a column for each number of an action, and one for the steps that the noise stays yet."""
        return action.size + 1

    def noise(self, random: Any, state: Any, schedule: Any, action: Space, mask: Any = None) -> tuple[Any, Any]:
        """Draw standard normal noise (N, A) and its steps, where none are left; otherwise keep the noise."""
        xp, left = array_namespace(state), state[0, -1]
        if isinstance(state, np.ndarray) and left >= 1:  # NumPy draws nothing then
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
    final_scale: float = 1.0  # the factor at the end of the run, from 1
    theta: float = 0.15  # of an Ornstein-Uhlenbeck process: how fast it returns to 0
    reset: bool = True  # restart it from 0 in each episode

    def schedule(self, step: int, total_steps: int, num_envs: int) -> np.ndarray:
        """Return the factor of the noise, ()."""
        return np.asarray(linear(step, total_steps, 1.0, self.final_scale))

    def noise(self, random: Any, state: Any, schedule: Any, action: Space, mask: Any = None) -> tuple[Any, Any]:
        """Draw noise for each environment and action dimension, (N, A), times the factor `schedule`."""
        if self.kind == "none":
            return array_namespace(state).zeros_like(state), state
        scale = float(schedule) if isinstance(schedule, np.ndarray) else schedule  # a Python float keeps float32
        if self.max_std:
            return self._mixed_noise(random, state, scale)
        normal = random.standard_normal(state.shape, dtype=np.float32)
        if self.kind == "gaussian":
            return scale * self.std * normal, state
        state = ornstein_uhlenbeck(state, normal, self.theta, self.std)
        return scale * state, state

    def _mixed_noise(self, random: Any, std: Any, scale: Any) -> tuple[Any, Any]:
        """Draw Gaussian noise (N, A) with the std (N, A) of each environment's episode, 0 where it is not drawn yet."""
        xp = array_namespace(std)
        drawn = self.std + (self.max_std - self.std) * random.random(len(std))[:, None]
        std = xp.where(std == 0, xp.astype(xp.asarray(drawn), std.dtype), std)
        return scale * std * random.standard_normal(std.shape, dtype=np.float32), std

    def after_episode(self, state: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Return the state (N, A), where an episode ended 0: with `reset`, or if each episode has its own std."""
        if not (self.reset or self.max_std):
            return state
        return array_namespace(state).where(done[:, None], np.float32(0), state)


@dataclass(frozen=True)
class EpsilonGreedy(Exploration):
    """ε-greedy exploration: noise (N, 1) int64 is a random action with probability ε, else -1 for the greedy one."""

    kind: EpsilonSchedule
    start: float
    end: float
    steps: int  # over which ε falls
    ladder_exponent: float  # environment i of N has ε^(1 + α i / (N-1))
    evaluation: float  # ε of evaluations
    first: int = 0  # number of the first environment ...
    of: int = 0  # ... of so many; 0 for all

    def for_envs(self, first: int, num_envs: int) -> Exploration:
        """Return the exploration from environment `first` on, with the ladder of all `num_envs`."""
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
