"""Seeded batches for the golden traces of the learners: NumPy arrays by name, as from a buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Space

ROWS = 32  # of a batch of transitions, of a rollout, and of observations to act on
SEQUENCES, BURN_IN, UNROLL = 8, 2, 5
ENVIRONMENTS, STEPS = 8, 6  # of a rollout of recurrent networks, and of acting with hidden states
Random = np.random.Generator
Fields = dict[str, Any]


def box(*shape: int) -> Box:
    return Box(-np.inf, np.inf, shape)


VECTOR, IMAGE = box(5), Box(0, 255, (4, 36, 36), np.uint8)  # the smallest image for the Nature network
PARTS = Dict(goal=Discrete(3), switches=MultiDiscrete([2, 3]), where=box(2, 2))
GOALS = Dict(achieved_goal=box(2), desired_goal=box(2), observation=box(3))
NUMBERS, CHOICE, CHOICES = Box(-1, 1, (2,)), Discrete(3), MultiDiscrete([2, 3])
JOINT = Dict(aim=NUMBERS, buttons=CHOICES, move=CHOICE)


def observations(space: Space[Any], random: Random, *shape: int) -> Any:
    """Return random observations (*shape, ...), by part for a Dict."""
    if isinstance(space, Dict):
        return {name: observations(part, random, *shape) for name, part in space.items()}
    if isinstance(space, Box):
        whole = (*shape, *space.shape)
        pixels = space.dtype == np.uint8
        return random.integers(256, size=whole, dtype=np.uint8) if pixels else random.standard_normal(whole, np.float32)
    return actions(space, masks(space, random, *shape, share=1), random, *shape)


def masks(space: Any, random: Random, *shape: int, share: float = 0.6) -> np.ndarray:
    """Return masks (*shape, n) that allow a share of all options, and at least one of each choice."""
    sizes = space.nvec if isinstance(space, MultiDiscrete) else [space.n]
    parts = [random.random((*shape, n)) < share for n in sizes]
    for part in parts:
        np.put_along_axis(part, random.integers(part.shape[-1], size=(*shape, 1)), values=True, axis=-1)
    return np.concatenate(parts, -1)


def actions(space: Any, allowed: np.ndarray | None, random: Random, *shape: int) -> np.ndarray:
    """Return random actions as networks give them: numbers in [-1, 1], allowed choices, a Dict's parts side by side."""
    if isinstance(space, Dict):
        parts = [actions(part, None, random, *shape).reshape(*shape, -1) for part in space.values()]
        return np.concatenate(parts, -1).astype(np.float32)
    if isinstance(space, Box):
        return random.uniform(-1, 1, (*shape, *space.shape)).astype(np.float32)
    allowed = masks(space, random, *shape, share=1) if allowed is None else allowed
    likely = random.random(allowed.shape) * allowed
    if isinstance(space, Discrete):
        return likely.argmax(-1)
    return np.stack([part.argmax(-1) for part in np.split(likely, np.cumsum(space.nvec)[:-1], -1)], -1)


@dataclass(frozen=True)
class Source:
    """A source of batches for one case."""

    kind: str  # transitions, sequences, rollout, recurrent_rollout
    observation: Space[Any]
    action: Space[Any]
    masked: bool  # whether some actions are forbidden
    experts: float  # share of demonstrations; NaN if batches do not mark them
    one_step: bool  # whether batches have one-step targets in addition to n-step returns
    carry: Mapping[str, tuple[int, ...]]  # shapes of hidden states

    def batch(self, update: int) -> Fields:
        """Return the batch of an update: without importance weights or padded rows for even ones, with them for odd."""
        return getattr(self, self.kind)(np.random.default_rng((41, update)), weighted=update % 2 == 1)

    def observed(self, random: Random, *shape: int) -> Fields:
        """Return observations (*shape, ...) and masks of actions."""
        allowed = masks(self.action, random, *shape) if self.masked else None
        return {"obs": observations(self.observation, random, *shape), "allowed": allowed}

    def stretch(self, random: Random, size: int, steps: int, at: np.ndarray) -> Fields:
        """Return successive observations with all that recurrent networks see; the first two start an episode."""
        fresh, starts = np.arange(size) < 2, np.zeros((size, steps), bool)
        starts[:, 0] = fresh
        return self.observed(random, size, steps) | {
            "previous_action": actions(self.action, None, random, size, steps),
            "previous_reward": random.standard_normal((size, steps), np.float32),
            "starts": starts,
            "fresh": fresh,
            "carry": {
                name: random.normal(size=(size, *shape)).astype(np.float32) for name, shape in self.carry.items()
            },
            "at": np.tile(at, (size, 1)),
        }

    def transitions(self, random: Random, weighted: bool) -> Fields:
        """Return transitions of one to three steps, a quarter of which ends in a terminal state."""
        now, ahead = (self.observed(random, ROWS) for _ in range(2))
        terminated, goals = random.random((2, ROWS)) < 0.25, self.observation == GOALS
        reward = np.where(terminated[0], 0, -1) if goals else random.standard_normal(ROWS)
        single = (random.standard_normal(ROWS).astype(np.float32), np.float32(0.9) * ~terminated[1], ahead["obs"])
        return now | {
            "action": actions(self.action, now["allowed"], random, ROWS),
            "reward": reward.astype(np.float32),
            "discount": np.where(terminated[0], 0, 0.9 ** random.integers(1, 4, ROWS)).astype(np.float32),
            "next_obs": ahead["obs"],
            "next_allowed": ahead["allowed"],
            "weight": random.uniform(0.1 if weighted else 1, 1, ROWS).astype(np.float32),
            **self.demonstrated(random, ROWS),
            "one_step": single if self.one_step else None,
        }

    def demonstrated(self, random: Random, size: int) -> Fields:
        """Return which rows are demonstrations."""
        experts = (random.random(size) < self.experts).astype(np.float32)
        return {"expert": None if np.isnan(self.experts) else experts}

    def sequences(self, random: Random, weighted: bool) -> Fields:
        """Return sequences with burn-in; the last is padded. Demonstrations have a hidden state of zeros, or none."""
        size, length = SEQUENCES, BURN_IN + UNROLL
        at = np.arange(length)
        found = self.stretch(random, size, length + 1, at) | self.demonstrated(random, size)
        own = np.ones(size) if found["expert"] is None else 1 - found["expert"]
        states = {name: (part * own[:, None, None]).astype(np.float32) for name, part in found["carry"].items()}
        ahead, soon = (np.tile(np.minimum(at + steps, length), (size, 1)) for steps in (2, 1))
        going = random.random((size, length)) > 0.15
        mask = ((at >= BURN_IN) | found["fresh"][:, None]).astype(np.float32)
        mask[-1, -3:] = 0
        allowed = found["allowed"][:, :-1] if self.masked else None
        single = (random.standard_normal((size, length), np.float32), np.float32(0.9) * going, soon)
        return found | {
            "carry": states if own.any() else {},
            "action": actions(self.action, allowed, random, size, length),
            "reward": 3 * random.standard_normal((size, length), np.float32),
            "discount": (going * 0.9 ** (ahead - at)).astype(np.float32),
            "ahead": ahead,
            "weight": random.uniform(0.1 if weighted else 1, 1, size).astype(np.float32),
            "mask": mask,
            "one_step": single if self.one_step else None,
        }

    def rollout(self, random: Random, weighted: bool) -> Fields:
        """Return the steps of a rollout, in any order."""
        return self._collected(self.observed(random, ROWS), random, weighted, ROWS)

    def recurrent_rollout(self, random: Random, weighted: bool) -> Fields:
        """Return a rollout of whole environments, in which episodes start at any step."""
        found = self.stretch(random, ENVIRONMENTS, STEPS, np.arange(STEPS))
        found["starts"][:, 1:] = random.random((ENVIRONMENTS, STEPS - 1)) < 0.2
        return self._collected(found, random, weighted, ENVIRONMENTS, STEPS)

    def _collected(self, found: Fields, random: Random, weighted: bool, *shape: int) -> Fields:
        taken = actions(self.action, found["allowed"], random, *shape)
        value, advantage = (random.standard_normal(shape, np.float32) for _ in range(2))
        parts = self.action.values() if isinstance(self.action, Dict) else [self.action]
        new = {Box: -2.0, Discrete: -1.1, MultiDiscrete: -1.8}  # about what a new network gives
        mean = sum(new[type(part)] for part in parts)
        real = random.random(shape) < (0.75 if weighted else 1)
        return found | {
            "action": taken,
            "log_prob": np.where(real, random.normal(mean, 0.2, shape), -1e3).astype(np.float32),
            "value": value,
            "advantage": advantage,
            "returns": value + advantage,
            "weight": real.astype(np.float32),
        }
