"""Episode storage: the newest steps of every environment, with each observation and each frame stored once.

Each environment has two ring buffers:

- Steps. The *number* of a step is its position among all steps of its environment, from 0. Its *index* is
  env * rows + number % rows.
- Frames, in order. An observation is one frame, or a stack of frames. Each step refers to the newest frame of its
  observation. The frame after this one is the newest frame of the step's next observation.

    number            0     1     2 (end)  3             an episode of three steps, then another episode
    observation       a     b     c        x             d is the final observation of the first episode
    next              b     c     d        y
    frame             0     1     2        4             frames  a b c d x y

    stacks of three   ~~a   ~ab   abc      ~~x           ~: a frame from before the episode
    frame             2     3     4        8             frames  ~ ~ a b c d ~ ~ x y

A step that continues its episode adds one frame: the newest of its next observation. The first step of an episode
also adds all frames of its observation. The ring of frames has 1/16 more places than the ring of steps. It grows if
episodes are so short that they need more.

A checkpoint writes a *segment*: the steps since the previous checkpoint, and all their frames.

The second part of the file derives names, shapes and dtypes of a buffer's arrays from the spaces.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from duetto.algorithms.base import Tree
from duetto.buffers.base import Experience, without_prefix
from duetto.buffers.sampling import PriorityLine
from duetto.errors import CheckpointError, UsageError
from duetto.functional.pytree import tree_map
from duetto.networks.spaces import Box, Dict, MultiDiscrete, Space, num_columns

MOST_WRITTEN = 2**48  # max number of steps of one environment; checkpoints with more are invalid
STEP = ("action", "reward", "terminated", "truncated")  # the fields of a step, without its observations
_IN_SEGMENTS = ("action", "reward", "terminated")  # without "truncated", which can change after a segment is written

Segment = dict[str, np.ndarray]
Values = dict[str, np.ndarray]  # the parts of observations (N, ...), with the names of `transition_fields`


class EpisodeStorage:
    """The newest `rows` steps of every environment.

    Attributes:
        rows: Steps that each environment's ring can hold.
        written: (num_envs,) int64, the number of steps stored since the start, including overwritten ones.
        open: (num_envs,) bool, whether the episode of the newest step still runs.
        ended: A counter that rises when an episode ends or a state is loaded. Then cached episode ends are outdated.
        columns: The arrays "action", "reward", "terminated" and "truncated", with a row for every index.
    """

    def __init__(self, observation: Space, action: Space, num_envs: int, rows: int, stacked: int = 1) -> None:
        """`stacked` is the number of frames in each stacked image."""
        whole = transition_fields(observation, action)
        self._stacks = Stacks(observation, stacked)
        self.rows: int = rows
        self.stacked: int = stacked
        self.written: np.ndarray = np.zeros(num_envs, np.int64)
        self.open: np.ndarray = np.zeros(num_envs, bool)
        self.ended: int = 0
        self._frames = np.zeros(num_envs, np.int64)  # frames stored since the start
        self._size = rows + rows // 16 + stacked + 1  # places in the ring of frames of one environment
        self._limit = np.full(num_envs, self._size)  # frames from this number on would overwrite needed frames
        self._frame_fields = self._stacks.fields({n: f for n, f in whole.items() if n.split("/")[0] == "obs"})
        try:
            self.columns: dict[str, Any] = {name: whole[name].allocate(num_envs * rows) for name in STEP}
            self._places = np.full((2, num_envs * rows), -1, np.int32)  # in `_pool`: newest frames of obs, next_obs
            self._pool: dict[str, Any] = {
                n: field.allocate(num_envs * self._size) for n, field in self._frame_fields.items()
            }
        except MemoryError as error:
            fields = [*(whole[name] for name in STEP), *self._frame_fields.values()]
            what, hint = f"replay_capacity {num_envs * rows}", "Lower replay_capacity."
            raise too_large(what, hint, fields, num_envs * rows) from error
        self._missing = 0  # steps of a loaded state whose segments are not loaded yet

    def __len__(self) -> int:
        return int(self.stored.sum())

    @property
    def stored(self) -> np.ndarray:
        """(num_envs,), the number of steps now in each environment's ring."""
        return np.minimum(self.written, self.rows)

    # ------------------------------------------------------------------------------------------------ adding
    def add(self, steps: Experience) -> np.ndarray:
        """Store copies of one step of each of K environments; return the steps' indices (K,).

        `obs` is stored only at the start of an episode, or if it differs from `next_obs` of the previous step.

        Raises:
            CheckpointError: A checkpoint was loaded without all its steps.
        """
        self.check_complete()
        obs, next_newest = dict(named("obs", steps.obs)), self._stacks.frame(dict(named("obs", steps.next_obs)))
        env = steps.env
        number, first = self.written[env], self._frames[env]
        continues = self._continues(env, obs, first)
        frame = np.where(continues, first, first + self.stacked) - 1  # `first`: next free frame
        if any((frame + 1 >= self._limit[env]).tolist()):
            self._make_room(env, number, frame)
        if not all(continues.tolist()):
            starts = np.flatnonzero(~continues)
            for back in range(self.stacked):
                places = self._place(env[starts], frame[starts] - back)
                for name, part in self._stacks.frame(obs, back).items():
                    self._pool[name][places] = part[starts]
        places = self._place(env, frame + 1)
        for name, part in next_newest.items():  # `next_obs`, which is also `obs` of the next step
            self._pool[name][places] = part
        index = self.index(env, number)
        for name, column in self.columns.items():
            column[index] = getattr(steps, name)
        self.written[env] = number + 1
        self._frames[env] = frame + 2
        self._places[0, index], self._places[1, index] = self._place(env, frame), places
        self.open[env] = ~(steps.terminated | steps.truncated)
        self.ended += len(env) - int(np.count_nonzero(self.open[env]))
        return index

    def interrupt(self, envs: np.ndarray | None = None) -> np.ndarray:
        """Truncate running episodes, and return their environments (K,).

        `envs` (N,) bool selects environments; by default all.
        """
        env = np.flatnonzero(self.open if envs is None else self.open & envs)
        self.open[env] = False
        self.ended += len(env)
        self.columns["truncated"][self.index(env, self.written[env] - 1)] = True
        return env

    def _continues(self, env: np.ndarray, obs: Values, first: np.ndarray) -> np.ndarray:
        """Return (K,) bool: True if a step continues an episode, because its observation equals the newest frame."""
        same = self.open[env]
        if any(same.tolist()):
            newest = self._place(env, first - 1)
            for name, part in self._stacks.frame(obs).items():
                pool = self._pool[name]
                equal = part.astype(pool.dtype, copy=False) == pool.take(newest, axis=0)
                same = same & equal.reshape(len(env), -1).all(axis=1)
        return same

    def _make_room(self, env: np.ndarray, number: np.ndarray, frame: np.ndarray) -> None:
        """Raise `_limit` for the environments `env`, which add their steps `number`. Grow a ring that is too small."""
        oldest = np.maximum(number + 1 - self.rows, 0)
        needed = np.where(oldest < number, self._frame(self.index(env, oldest)), frame) - (self.stacked - 1)
        if (places := int((frame + 2 - needed).max())) > self._size:
            self._grow(places + self._size // 4)
        self._limit[env] = needed + self._size

    def _grow(self, size: int) -> None:
        stored, index = np.minimum(self._frames, self._size), np.arange(self._places.shape[1])
        of_steps, (env, frame) = self._frame(index), expand(self._frames - stored, stored)
        before = self._place(env, frame)
        self._size = size
        for name, pool in self._pool.items():
            self._pool[name] = self._frame_fields[name].allocate(len(self.written) * size)
            self._pool[name][self._place(env, frame)] = pool[before]
        self._set_frame(index, of_steps)

    # ------------------------------------------------------------------------------------------------ reading
    def observation(self, index: np.ndarray, ahead: Any = 0) -> Tree:
        """Return the observations of the steps at `index`, or their next observations.

        `index` is (...), and the result (..., *shape). `ahead` is 0 for observations, 1 for next observations, or an
        array (...) with a 0 or 1 for each step.
        """
        if isinstance(ahead, int):
            newest = self._places[ahead].take(index)
        else:
            newest = np.where(ahead, *(places.take(index) for places in self._places[::-1]))
        found = {}
        for name, pool in self._pool.items():
            if name in self._stacks:
                first = (index // self.rows * self._size)[..., None]
                places = first + (newest[..., None] - first + np.arange(1 - self.stacked, 1)) % self._size
                frames = pool.take(places, axis=0)
                found[name] = frames.reshape(*index.shape, -1, *frames.shape[-2:])  # (..., stack * C, H, W)
            else:
                found[name] = pool.take(newest, axis=0)
        return unnamed("obs", found)

    @property
    def line(self) -> PriorityLine:
        """The `PriorityLine` of all stored steps. Each step is an item with p^α = 1."""
        count = len(self)
        return PriorityLine(count, count, 1.0)

    def find(self, item: np.ndarray) -> np.ndarray:
        """Return the index of each item. Items are the stored steps, numbered from 0, environment after environment."""
        stored = self.stored
        ends = stored.cumsum()
        if len(stored) == 1 or ends[-1] == len(stored) * self.rows:
            return item  # no gaps between the rings
        env = ends.searchsorted(item, side="right")
        return item + (np.arange(len(stored)) * self.rows - (ends - stored))[env]

    def mass(self, index: np.ndarray) -> np.ndarray:
        """Return p^α of each item, (B,): always 1."""
        return np.ones(len(index))

    def number(self, index: np.ndarray) -> np.ndarray:
        """Return the number (B,) of the step stored at each index."""
        env, slot = np.divmod(index, self.rows)
        newest = self.written[env] - 1
        return newest - (newest - slot) % self.rows

    def ahead(self, index: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices (B, n) of each step and the n-1 steps after it, and a count (B,).

        The count is the number of stored steps from this step on. If it is below n, only the first `count` indices are
        valid.
        """
        env, slot = np.divmod(index, self.rows)
        available = (self.written[env] - 1 - slot) % self.rows + 1
        return (env * self.rows)[:, None] + (slot[:, None] + np.arange(n)) % self.rows, available

    # ------------------------------------------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Return the state without the steps, as arrays (num_envs, ...). "truncated" has one bit for each step."""
        env, some = np.arange(len(self.written)), self.written > 0
        oldest = self._frame(self.index(env, self.written - self.stored))
        return {
            "written": self.written.copy(),
            "open": self.open.copy(),
            "truncated": np.packbits(self.columns["truncated"].reshape(-1, self.rows), axis=1),
            "frames": self._frames.copy(),
            "needed": np.where(some, oldest - (self.stacked - 1), self._frames),  # the oldest frame that a step needs
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`. Load the steps with `load_segment` afterwards.

        Raises:
            CheckpointError: The state has impossible counts of steps or frames.
        """
        written, frames, needed = (state[name] for name in ("written", "frames", "needed"))
        stored = np.minimum(written, self.rows)
        possible = (needed >= 0) & (needed <= frames) & (frames - needed <= stored * (self.stacked + 1))
        if np.any((written < 0) | (written > MOST_WRITTEN) | (frames > 2 * MOST_WRITTEN) | ~possible):
            raise CheckpointError(
                f"The checkpoint's replay buffer has impossible counts: {written} steps, {frames} frames."
            )
        if (places := int((frames - needed).max())) > self._size:
            self._grow(places)
        self.written[:], self.open[:], self._frames[:] = written, state["open"] & (written > 0), frames
        self._places[:], self._limit[:], self._missing = -1, needed + self._size, len(self)
        self.ended += 1
        bits = np.unpackbits(state["truncated"], axis=1, count=self.rows)
        self.columns["truncated"][:] = bits.ravel()

    def segment(self, since: np.ndarray) -> Segment:
        """Return each environment i's stored steps from number `since[i]` on.

        Returns:
            "start" and "count" (num_envs,): the segment has the steps start .. start+count-1 of each environment.
            "frame", and `columns` except "truncated": the fields of these steps, ordered by environment.
            "frame_start" and "frame_count" (num_envs,): in the same way, the frames of each environment.
            The parts of the observation, such as "obs": these frames, ordered by environment.
        """
        start, all_envs = np.maximum(since, self.written - self.rows), np.arange(len(since))
        count = self.written - start
        first = np.where(count > 0, self._frame(self.index(all_envs, start)) - (self.stacked - 1), self._frames)
        env, number = expand(start, count)
        index = self.index(env, number)
        segment = {"start": start, "count": count, "frame_start": first, "frame_count": self._frames - first}
        segment |= {name: self.columns[name][index] for name in _IN_SEGMENTS} | {"frame": self._frame(index)}
        places = self._place(*expand(first, segment["frame_count"]))
        return segment | {name: pool[places] for name, pool in self._pool.items()}

    def load_segment(self, segment: Segment) -> None:
        """Load the steps of a segment, except steps that were overwritten later. Segments may be loaded in any order.

        Raises:
            CheckpointError: A count is negative, or differs from the number of actions or frames.
        """
        rows = {"action": segment["count"], next(iter(self._pool)): segment["frame_count"]}
        if any(
            len(segment[name]) != count.sum() or min(count.min(), segment["start"].min()) < 0
            for name, count in rows.items()
        ):  # before memory is allocated
            raise CheckpointError("A segment of the replay buffer has another number of steps than it says.")
        env, number = expand(segment["start"], segment["count"])
        index, oldest = self.index(env, number), np.maximum(self.written - self.rows, 0)[env]
        wanted = (number >= oldest) & (number < self.written[env])
        wanted[wanted] = self._places[0, index[wanted]] < 0  # not loaded yet
        for name in _IN_SEGMENTS:
            self.columns[name][index[wanted]] = segment[name][wanted]
        self._set_frame(index[wanted], segment["frame"][wanted])
        self._missing -= int(np.count_nonzero(wanted))
        env, frame = expand(segment["frame_start"], segment["frame_count"])
        there = (frame >= (self._limit - self._size)[env]) & (frame < self._frames[env])
        for name, pool in self._pool.items():
            pool[self._place(env[there], frame[there])] = segment[name][there]

    def check_complete(self) -> None:
        """Raise CheckpointError while steps of a loaded state are missing."""
        if self._missing:
            raise CheckpointError(f"The checkpoint's replay buffer lacks {self._missing} of its transitions.")

    # ------------------------------------------------------------------------------------------------ places
    def index(self, env: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return the index of each step, given by its environment `env` and its `number`. The arrays broadcast."""
        return env * self.rows + number % self.rows

    def _frame(self, index: np.ndarray) -> np.ndarray:
        """Return the number (K,) of the newest frame of each step's observation."""
        env = index // self.rows
        newest = self._frames[env] - 1
        return newest - (newest - (self._places[0, index] - env * self._size)) % self._size

    def _set_frame(self, index: np.ndarray, frame: np.ndarray) -> None:
        for ahead in (0, 1):
            self._places[ahead, index] = self._place(index // self.rows, frame + ahead)

    def _place(self, env: np.ndarray, frame: np.ndarray) -> np.ndarray:
        return env * self._size + frame % self._size


def expand(start: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the environment and the number of each row of a segment.

    For example, start [5, 2] and count [2, 1] give [0, 0, 1] and [5, 6, 2].
    """
    env = np.arange(len(count)).repeat(count)
    return env, np.arange(len(env)) + (start - (count.cumsum() - count)).repeat(count)


# ---------------------------------------------------------------------------------------------------- fields
@dataclass(frozen=True)
class Field:
    """Shape and dtype of a value, such as the action, of a single step."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """The size of one value in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def allocate(self, *count: int) -> np.ndarray:
        """Return an array (*count, *shape). Floats start as NaN, which exposes a read of unwritten values."""
        return np.full((*count, *self.shape), np.nan if self.dtype.kind == "f" else 0, self.dtype)


class Stacks:
    """The parts of an observation that are stacks of frames, channels first.

    If `frames` is above 1, every image is a stack of that many frames.
    """

    def __init__(self, space: Space, frames: int) -> None:
        parts = named("obs", dict(space.parts) if isinstance(space, Dict) else space)
        images = {name: part for name, part in parts if frames > 1 and isinstance(part, Box) and part.is_image}
        self._channels = {name: image.shape[0] // frames for name, image in images.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._channels

    def fields(self, whole: dict[str, Field]) -> dict[str, Field]:
        """Return the fields of observations, with each stack replaced by a single frame."""
        return whole | {n: replace(whole[n], shape=(c, *whole[n].shape[1:])) for n, c in self._channels.items()}

    def frame(self, obs: Values, back: int = 0) -> Values:
        """Return one frame of each stack, `back` frames before the newest.

        If `back` is 0, the result also has the other parts of the observation. Otherwise these parts are zeros.
        """
        found = tree_map(np.zeros_like, obs) if back else dict(obs)
        for name, size in self._channels.items():
            end = obs[name].shape[1] - back * size
            found[name] = obs[name][:, end - size : end]
        return found


def too_large(what: str, hint: str, fields: Iterable[Field], count: int) -> UsageError:
    """Return the error for `count` rows of these fields that do not fit into memory."""
    needed = count * sum(field.nbytes for field in fields) / 2**30
    return UsageError(f"{what} needs {needed:.1f} GiB of memory, which this machine does not have free. {hint}")


def step_fields(observation_space: Space, action_space: Space, recurrent: bool) -> dict[str, Field]:
    """Return all fields of a step in a rollout, by name."""
    kept = transition_fields(observation_space, action_space)
    fields = {name: field for name, field in kept.items() if not name.startswith("next_obs")}
    fields |= dict.fromkeys(("log_prob", "value"), fields["reward"])
    if not recurrent:
        return fields
    context = {"previous_action": "action", "previous_reward": "reward", "starts": "terminated"}
    return fields | {name: fields[like] for name, like in context.items()}


def transition_fields(observation_space: Space, action_space: Space) -> dict[str, Field]:
    """Return all fields of a transition, by name: "obs/<key>" and "next_obs/<key>" for Dict observations."""
    parts = dict(observation_space.parts) if isinstance(observation_space, Dict) else observation_space
    flag, number = Field((), np.dtype(np.bool_)), Field((), np.dtype(np.float32))
    in_columns = isinstance(action_space, Box | Dict)
    return {
        **{name: _field(part) for name, part in named("obs", parts)},
        "action": Field((num_columns(action_space),), number.dtype) if in_columns else _field(action_space),
        "reward": number,
        **{name: _field(part) for name, part in named("next_obs", parts)},
        "terminated": flag,
        "truncated": flag,
    }


def named(name: str, value: Tree) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an observation with their names: `name`, or "<name>/<key>" for each key of a dict."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"{name}/{key}", part
    else:
        yield name, value


def unnamed(name: str, values: dict[str, np.ndarray]) -> Tree:
    """Return an observation from its named parts: the inverse of `named`. Ignore other values."""
    if name in values:
        return values[name]
    return without_prefix(values, f"{name}/")


def _field(space: Any) -> Field:
    """Return the field of a space. Images stay uint8, which saves memory; other numbers become float32 or int64."""
    if not isinstance(space, Box):
        return Field((len(space.nvec),) if isinstance(space, MultiDiscrete) else (), np.dtype(np.int64))
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f":
        dtype = np.dtype(np.float32)
    return Field(space.shape, dtype if dtype in (np.float32, np.uint8, np.bool_) else np.dtype(np.int64))
