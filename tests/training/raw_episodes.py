"""Environments that write down what was done to them, and what a memory ought to hold of it, from that alone.

Nothing here uses a collector, a memory or a stepper: an episode is what its environment saw. What networks had in mind
is found by running them over the episode from its first observation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from duetto.learners import Learner
from duetto.networks.layers import SequenceInput

LOW, HIGH = np.array([-1, 2], np.float32), np.array([3, 2.5], np.float32)


@dataclass
class Episode:
    """T steps: one observation more than actions and rewards."""

    obs: list[np.ndarray]
    actions: list[Any] = field(default_factory=list)  # as the environment got them
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated

    def __len__(self) -> int:
        return len(self.actions)


class Recording(gymnasium.Env):
    """Random numbers to see and to earn, no two alike; episodes of 1 to 9 steps, which end in both ways."""

    made: list[Recording] = []  # noqa: RUF012 (all that are alive, in the order they were made)

    def __init__(self, choices: bool = False) -> None:
        self.observation_space = Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = Discrete(4, start=2) if choices else Box(LOW, HIGH, dtype=np.float32)
        self.episodes: list[Episode] = []
        Recording.made.append(self)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.left, self.terminates = int(self.np_random.integers(1, 10)), bool(self.np_random.integers(2))
        self.episodes.append(Episode([self.see()]))
        return self.episodes[-1].obs[-1].copy(), {}

    def see(self) -> np.ndarray:
        return self.np_random.uniform(-2, 3, 3).astype(np.float32)

    def step(self, action: Any) -> Any:
        episode = self.episodes[-1]
        assert not episode.over, "a step after the episode's end"
        self.left -= 1
        episode.obs.append(self.see())
        episode.actions.append(np.array(action))
        episode.rewards.append(float(self.np_random.normal()))
        episode.terminated = self.left == 0 and self.terminates
        episode.truncated = self.left == 0 and not self.terminates
        return episode.obs[-1].copy(), episode.rewards[-1], episode.terminated, episode.truncated, {}


@dataclass(frozen=True)
class Place:
    """A step of an episode."""

    env: int
    episode: Episode
    time: int


class Record:
    """What all environments saw, and which step an observation is of."""

    def __init__(self, envs: list[Recording]) -> None:
        self.envs = envs
        self._places = {
            obs.tobytes(): Place(env, episode, time)
            for env, one in enumerate(envs)
            for episode in one.episodes
            for time, obs in enumerate(episode.obs)
        }

    def place(self, obs: np.ndarray) -> Place:
        return self._places[obs.tobytes()]

    def episodes(self) -> list[Episode]:
        return [episode for env in self.envs for episode in env.episodes]


def as_learned(action: Any) -> Any:
    """An environment's action as algorithms give it: choices from 0, numbers in [-1, 1]."""
    if np.ndim(action) == 0:
        return np.int64(action - 2)
    return ((action - LOW) / (HIGH - LOW) * 2 - 1).astype(np.float32)


def previous_action(episode: Episode, time: int) -> Any:
    if time:
        return as_learned(episode.actions[time - 1])
    return np.int64(-1) if np.ndim(episode.actions[0]) == 0 else np.zeros(2, np.float32)


def previous_reward(episode: Episode, time: int) -> float:
    return episode.rewards[time - 1] if time else 0.0


class Minds:
    """A recurrent learner's states before each step of episodes, by running it from their starts, step by step."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._known: dict[int, list[dict[str, np.ndarray]]] = {}
        self._actions: dict[int, list[Any]] = {}

    def carry(self, place: Place) -> dict[str, np.ndarray]:
        """(layers, size) each, before the observation of that step."""
        return self._of(place)[place.time]

    def action(self, place: Place) -> Any:
        """What the policy would do there without noise."""
        self._of(place)
        return self._actions[id(place.episode)][place.time]

    def value(self, place: Place) -> float:
        """V of that observation."""
        value, _ = self._learner.remember("value", self._window(place, self.carry(place)))
        return float(value[0])

    def _of(self, place: Place) -> list[dict[str, np.ndarray]]:
        key = id(place.episode)
        if key not in self._known:
            shapes = self._learner.carry_shapes().items()
            carries, actions = [{name: np.zeros(shape, np.float32) for name, shape in shapes}], []
            for time in range(len(place.episode.obs)):
                window = self._window(Place(place.env, place.episode, time), carries[-1])
                action, carry = self._learner.remember("act", window, None)
                carries.append({name: part[0] for name, part in carry.items()})
                actions.append(action[0])
            self._known[key], self._actions[key] = carries, actions
        return self._known[key]

    def _window(self, place: Place, carry: dict[str, np.ndarray]) -> SequenceInput:
        episode, time = place.episode, place.time
        reward = np.array([previous_reward(episode, time)], np.float32)
        return SequenceInput(
            obs=place.episode.obs[place.time][None, None],
            previous_action=np.asarray(previous_action(episode, time))[None, None],
            previous_reward=self._learner.algorithm.seen_reward(reward)[:, None],
            starts=np.array([[time == 0]]),
            carry={name: part[None] for name, part in carry.items()},
            is_first=np.array([time == 0]),
            query_steps=None,
        )
