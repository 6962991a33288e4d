"""How an algorithm explores: the random numbers that go into an action, and the process that they come from.

An exploration is a value of its own that an algorithm makes of its fields (`Algorithm.explorer`). Its numbers are
drawn on the host for all N environments at once, and reach `Algorithm.act` as `noise`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from duetto.functional.noise import ornstein_uhlenbeck
from duetto.functional.schedules import exploration_ladder, falling, linear
from duetto.networks import masks, policies
from duetto.networks.spaces import Space


class Exploration:
    """Base of all explorations: without a state, and evaluations take the policy's best guess."""

    def draw(
        self,
        random: np.random.Generator,
        state: np.ndarray,
        step: int,
        total_steps: int,
        action: Space,
        mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Numbers for one action of each environment, (N, ...), and the process's next state, (N, action.size).

        `step` of `total_steps` have been made, over all environments. `mask` (N, n) says which actions are allowed.
        """
        raise NotImplementedError

    def among(self, first: int, num_envs: int) -> Exploration:
        """The exploration of some of `num_envs` environments, from the `first` on; as many as `draw` gets states of."""
        return self

    def for_evaluation(
        self, random: np.random.Generator, num_envs: int, action: Space, mask: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Numbers for the actions of an evaluation; None for the policy's best guess."""
        return None

    def after_episode(self, state: np.ndarray, done: np.ndarray) -> np.ndarray:
        """The state (N, A) once the episodes of the environments in `done` (N,) bool are over."""
        return state


@dataclass(frozen=True)
class Sampled(Exploration):
    """Exploration by the policy's own distribution: numbers to sample it with; `stochastic_evaluation` samples
    evaluations.
    """

    stochastic_evaluation: bool = False

    def draw(
        self,
        random: np.random.Generator,
        state: np.ndarray,
        step: int,
        total_steps: int,
        action: Space,
        mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Standard normal or Gumbel numbers, (N, action.size)."""
        return policies.noise(action, random, (len(state),)), state

    def for_evaluation(
        self, random: np.random.Generator, num_envs: int, action: Space, mask: np.ndarray | None = None
    ) -> np.ndarray | None:
        """See the class."""
        return policies.noise(action, random, (num_envs,)) if self.stochastic_evaluation else None


@dataclass(frozen=True)
class ActionNoise(Exploration):
    """Noise that is added to an action of a deterministic policy, times a factor that changes linearly."""

    kind: Literal["gaussian", "ou", "none"]
    std: float  # in units of the action range [-1, 1]
    scale: float = 1.0  # the factor at the start
    final_scale: float = 1.0  # and once it has changed
    scale_steps: int = 0  # over which it changes; 0 takes the whole run
    stops: bool = False  # no noise at all after those steps
    theta: float = 0.15  # of an Ornstein-Uhlenbeck process: how fast it returns to 0
    dt: float = 0.0  # its time step; 0 is skrl's form
    reset: bool = True  # it starts from 0 with each episode

    def draw(
        self,
        random: np.random.Generator,
        state: np.ndarray,
        step: int,
        total_steps: int,
        action: Space,
        mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scaled noise for each environment and each action dimension, (N, A)."""
        steps = self.scale_steps or total_steps
        scale = linear(step, steps, self.scale, self.final_scale)
        if self.kind == "none" or (self.stops and step >= steps):
            return np.zeros_like(state), state
        normal = random.standard_normal(state.shape, dtype=np.float32)
        if self.kind == "gaussian":
            return scale * self.std * normal, state
        state = ornstein_uhlenbeck(state, normal, self.theta, self.std, self.dt)
        return scale * state, state

    def after_episode(self, state: np.ndarray, done: np.ndarray) -> np.ndarray:
        """The state (N, A); if `reset`, Ornstein-Uhlenbeck noise starts again from 0 where an episode is over."""
        return np.where(done[:, None], np.float32(0), state) if self.reset else state


@dataclass(frozen=True)
class EpsilonGreedy(Exploration):
    """Exploration by a random action with probability ε: numbers (N, 1) int64, that action or -1 for the greedy one."""

    kind: Literal["linear", "exponential", "ladder"]
    start: float
    end: float
    steps: int  # over which ε falls
    ladder_exponent: float  # environment i of N has ε^(1 + α i / (N-1))
    evaluation: float  # ε of evaluations
    first: int = 0  # environment, where these are some ...
    of: int = 0  # ... of so many; 0 where they are all

    def among(self, first: int, num_envs: int) -> Exploration:
        """The exploration of some of `num_envs` environments; the ladder runs over all of them."""
        return replace(self, first=first, of=num_envs)

    def draw(
        self,
        random: np.random.Generator,
        state: np.ndarray,
        step: int,
        total_steps: int,
        action: Space,
        mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """See the class."""
        return _random_actions(random, self.epsilons(step, len(state)), action, mask), state

    def epsilons(self, step: int, num_envs: int) -> np.ndarray:
        """ε of each environment, (N,)."""
        if self.kind == "ladder":
            ladder = exploration_ladder(self.of or num_envs, self.start, self.ladder_exponent)
            return ladder[self.first : self.first + num_envs]
        return np.full(num_envs, falling(self.kind, step, self.steps, self.start, self.end))

    def for_evaluation(
        self, random: np.random.Generator, num_envs: int, action: Space, mask: np.ndarray | None = None
    ) -> np.ndarray | None:
        """See `evaluation`."""
        return _random_actions(random, np.full(num_envs, self.evaluation), action, mask) if self.evaluation else None


def _random_actions(
    random: np.random.Generator, epsilon: np.ndarray, action: Space, mask: np.ndarray | None
) -> np.ndarray:
    """(N, 1) int64: with probability ε a uniformly random one of the allowed actions, else -1."""
    explores = random.random(len(epsilon)) < epsilon
    some = random.integers(action.size, size=len(epsilon)) if mask is None else masks.drawn(random, mask)
    return np.where(explores, some, -1)[:, None]
