"""Episodes as rows in one ring per environment: every observation once, and with it the step taken from it.

    an episode of 3 steps, then one that runs; stacks of 3 frames
    number         0  1  2  3  4  5  6  7  8  9 10         counts an environment's rows for ever
    observation    ~  ~ o0 o1 o2 o3  ~  ~ o0 o1 o2         ~: only a frame from before the episode
    action         .  . a0 a1 a2  .  .  . a0 a1  .         o3: where the first episode ended, no step follows
                                                           number 10: waits for its action

The row that waits is not `written` yet: its slot holds the observation, so that it can be read, but a checkpoint's
segments hold only rows that never change again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.algorithms.base import Tree
from duetto.functional import forms
from duetto.memory.base import Experience
from duetto.memory.fields import Field, compressed, named, transition_fields, unnamed
from duetto.memory.frames import Stacks
from duetto.memory.rings import Rings
from duetto.networks.pictures import Table
from duetto.networks.spaces import Space

STEP = ("action", "reward", "terminated")  # beside the observation; where an episode is cut is seen from its sequences


class BrokenEpisodeError(ValueError):
    """An observation inside an episode that is not what the step before led to."""

    def __init__(self, name: str, env: int) -> None:
        super().__init__(name, env)  # so that a shard can send it
        self.name: str = name
        self.env: int = env

    def __str__(self) -> str:
        return (
            f"{self.name} of environment {self.env} is not what the step before led to, though its episode did not end "
            "there"
        )


class EpisodeRings:
    """The newest rows of every environment, and how far its running episode is.

    Attributes:
        running: (num_envs,) bool, an episode has begun and did not end.
        steps: (num_envs,) int64, of the running episode, or else of the last one.
    """

    def __init__(
        self, observation: Space, action: Space, num_envs: int, rows: int, stacked: int, compress: bool = False
    ) -> None:
        self._fields = transition_fields(observation, action)
        self._stacks = Stacks(observation, stacked)
        stored = row_fields(observation, action, stacked)
        self._rings = Rings(compressed(stored) if compress else stored, num_envs, rows)
        self._blank = {name: np.zeros(field.shape, field.dtype) for name, field in stored.items()}
        self._newest = {
            name: np.zeros((num_envs, *field.shape), field.dtype)
            for name, field in self._fields.items()
            if name.split("/")[0] == "obs"
        }
        self.running: np.ndarray = np.zeros(num_envs, bool)
        self.steps: np.ndarray = np.zeros(num_envs, np.int64)

    @property
    def rows(self) -> int:
        """Rows of each environment's ring."""
        return self._rings.rows

    @property
    def written(self) -> np.ndarray:
        """(num_envs,) int64, rows ever written, without the one that waits for its action."""
        return self._rings.written

    @property
    def oldest(self) -> np.ndarray:
        """(num_envs,) int64, number of the oldest row that is still there; 0 or less while all are."""
        return self.written + self.running - self.rows

    @property
    def lead(self) -> int:
        """How many rows before an observation are needed: for its stack, and for the action and reward before it."""
        return max(1, self._stacks.frames - 1)

    @property
    def before(self) -> int:
        """How many rows with frames from before it an episode begins with."""
        return self._stacks.frames - 1

    def check(self, experience: Experience) -> None:
        """Raise an error for steps that `add` could not store.

        Raises:
            ValueError, TypeError: shapes, dtypes or environments other than the memory's; an observation inside an
                episode that is not what the step before led to.
            UsageError: observations that are no stacks of as many frames as they should be.
        """
        values = _values(experience)
        if values.keys() != self._fields.keys():
            raise ValueError(f"The fields are {sorted(values)}, the memory stores {sorted(self._fields)}")
        env = experience.env
        for name, field in self._fields.items():
            field.check(name, values[name], len(env))
        if not len(env):
            return
        if not 0 <= env.min() <= env.max() < len(self.running):
            raise ValueError(f"env is {env}, the memory has environments 0 to {len(self.running) - 1}")
        obs, next_obs = (dict(named("obs", tree)) for tree in (experience.obs, experience.next_obs))
        self._stacks.check(env, obs, next_obs)
        self._check_continues(experience, obs, next_obs)

    def add(self, experience: Experience) -> np.ndarray:
        """Store one checked step of each of K environments, and return the numbers (K,) of its rows."""
        env, obs, next_obs = experience.env, dict(named("obs", experience.obs)), dict(named("obs", experience.next_obs))
        begins = ~self.running[env]
        for frame in range(self._stacks.frames - 1 if begins.any() else 0):
            self._write(env[begins], {name: part[begins] for name, part in self._stacks.earlier(obs, frame).items()})
        number = self.written[env]
        step = {"action": experience.action, "reward": experience.reward, "terminated": experience.terminated}
        self._rings.write(env, self._stacks.newest(obs) | step)
        self.steps[env] = np.where(begins, 1, self.steps[env] + 1)
        for name, part in next_obs.items():
            self._newest[name][env] = part
        self.running[env] = True
        self.finish(env[experience.terminated | experience.truncated])
        self._show_newest()
        return number

    def finish(self, env: np.ndarray) -> None:
        """End the running episodes of the environments `env` (K,) with what their newest step led to."""
        if not len(env):
            return
        self._write(env, self._stacks.newest({name: part[env] for name, part in self._newest.items()}))
        self.running[env] = False

    def number(self, index: np.ndarray) -> np.ndarray:
        """Return the number (B,) of the row written last at each index (environment * rows + slot)."""
        return self._rings.number(index)

    def index(self, env: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return the indices (B, ...) of the rows `number` (B, ...) of the environments `env` (B,)."""
        return env.reshape(-1, *[1] * (number.ndim - 1)) * self.rows + number % self.rows

    def read(self, name: str, env: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Read one field of rows, (B, ..., *shape); see `index` for the arguments."""
        return self._rings.arrays[name].take(self.index(env, number), axis=0)

    def observation(self, env: np.ndarray, number: np.ndarray) -> Tree:
        """Return the observations (B, ..., *shape) of rows, with stacks of frames rebuilt."""
        parts = {}
        for name in self._newest:
            if name in self._stacks:
                frames = self.index(env, number[..., None] + self._stacks.offsets)
                parts[name] = self._rings.frames(name, frames)
            else:
                parts[name] = self._rings.read(name, self.index(env, number))
        return unnamed("obs", parts)

    def image_tables(self) -> dict[str, Table]:
        """See `Rings.image_tables`."""
        return self._rings.image_tables()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the written rows."""
        return {
            "written": self.written.copy(),
            "running": self.running.copy(),
            "steps": self.steps.copy(),
            "newest": {name: part.copy() for name, part in self._newest.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; the rows follow with `load`. CheckpointError for other shapes."""
        own = {"written": self.written, "running": self.running, "steps": self.steps, "newest": self._newest}
        forms.check(state, own, "memory/episodes")
        self._rings.restore(state["written"], [])
        self.running[:], self.steps[:] = state["running"], state["steps"]
        for name, part in self._newest.items():
            part[:] = state["newest"][name]

    @staticmethod
    def emptied(state: dict[str, Any]) -> dict[str, Any]:
        """Return a saved state changed so that no row was written, and no episode runs."""
        return state | {name: np.zeros_like(state[name]) for name in ("written", "running", "steps")}

    def segment(self, since: np.ndarray) -> dict[str, np.ndarray] | None:
        """See `Rings.segment`."""
        return self._rings.segment(since)

    def load(self, segment: dict[str, np.ndarray]) -> None:
        """See `Rings.load`."""
        self._rings.load(segment)
        self._show_newest()  # in its slot lay a row that is still written, but overwritten

    def _write(self, env: np.ndarray, parts: dict[str, np.ndarray]) -> None:
        """Write rows without a step; fields that `parts` lacks are zeros, but one has to be there."""
        blank = {name: np.broadcast_to(value, (len(env), *value.shape)) for name, value in self._blank.items()}
        self._rings.write(env, blank | parts)

    def _show_newest(self) -> None:
        """Put the observations that wait for their action where they will be written."""
        env = np.flatnonzero(self.running)
        index = self.index(env, self.written[env])
        for name, part in self._stacks.newest(self._newest).items():
            self._rings.arrays[name][index] = part[env]

    def _check_continues(
        self, experience: Experience, obs: dict[str, np.ndarray], next_obs: dict[str, np.ndarray]
    ) -> None:
        env, done = experience.env, experience.terminated | experience.truncated
        before = _before(env)
        inside = before >= 0
        running = np.where(inside, ~done[before], self.running[env])
        for name, part in obs.items():
            expected = self._newest[name][env]
            expected[inside] = next_obs[name][before[inside]]
            broken = running & _differ(part.astype(expected.dtype, copy=False), expected)
            if broken.any():
                raise BrokenEpisodeError(name, int(env[broken.argmax()]))


def row_fields(observation: Space, action: Space, stacked: int) -> dict[str, Field]:
    """Every field of a row: an observation, of stacks only the newest frame, and the step taken from it."""
    fields = transition_fields(observation, action)
    observed = {name: field for name, field in fields.items() if name.split("/")[0] == "obs"}
    return Stacks(observation, stacked).fields(observed) | {name: fields[name] for name in STEP}


def _values(experience: Experience) -> dict[str, np.ndarray]:
    return {
        **dict(named("obs", experience.obs)),
        "action": experience.action,
        "reward": experience.reward,
        **dict(named("next_obs", experience.next_obs)),
        "terminated": experience.terminated,
        "truncated": experience.truncated,
    }


def _before(env: np.ndarray) -> np.ndarray:
    """Return the row before each row in the same environment, -1 for none: [2, 0, 2, 2] -> [-1, -1, 0, 2]."""
    order = env.argsort(kind="stable")
    same = env[order][1:] == env[order][:-1]
    before = np.full(len(env), -1)
    before[order[1:][same]] = order[:-1][same]
    return before


def _differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Compare rows (K, ...): (K,) bool, true where they differ; NaN equals NaN."""
    different = one != other
    if one.dtype.kind == "f":
        different &= ~(np.isnan(one) & np.isnan(other))
    return different.any(axis=tuple(range(1, different.ndim)))
