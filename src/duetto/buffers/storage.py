"""Episode storage: the newest steps of every environment, with each observation and each frame stored once.

A step is an item of a ring per environment. Its *index* is env * rows + number % rows; its *number* counts the steps of
its environment from 0. Frames of observations lie in a second ring per environment, in the order in which they came. A
step knows the number of the newest frame of its observation; the frame after it is the newest of its next observation:

    number            0     1     2 (end)  3             an episode of three steps, then another one
    observation       a     b     c        x             d is the final observation
    next              b     c     d        y
    frame             0     1     2        4             frames  a b c d x y

    stacks of three   ~~a   ~ab   abc      ~~x           ~: a frame from before the episode
    frame             2     3     4        8             frames  ~ ~ a b c d ~ ~ x y

A step that continues its episode adds one frame; another step adds all frames of its observation first. The ring of
frames has a sixteenth more places than that of steps, and grows if episodes are so short that it is not enough.

A checkpoint's segment holds the steps since the last one, and all their frames.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.algorithms.base import Tree
from duetto.buffers.base import Experience
from duetto.buffers.sampling import PriorityLine
from duetto.buffers.storage_fields import STEP, Stacks, Values, named, too_large, transition_fields, unnamed
from duetto.errors import CheckpointError
from duetto.functional import state_schema
from duetto.functional.state_schema import ArrayOf
from duetto.networks.spaces import Space

MOST_WRITTEN = 2**48  # steps of one environment in a valid state
_IN_SEGMENTS = ("action", "reward", "terminated")  # a step may be truncated after its segment was written

Segment = dict[str, np.ndarray]


class EpisodeStorage:
    """The newest `rows` steps of every environment.

    Attributes:
        rows: Steps that each environment's ring can hold.
        written: (num_envs,) int64, steps ever stored.
        open: (num_envs,) bool, the newest step's episode has not ended.
        columns: "action", "reward", "terminated" and "truncated" of every index.
    """

    def __init__(self, observation: Space, action: Space, num_envs: int, rows: int, stacked: int = 1) -> None:
        """`stacked` is the number of frames that each image is a stack of."""
        whole = transition_fields(observation, action)
        self._stacks = Stacks(observation, stacked)
        self.rows: int = rows
        self.stacked: int = stacked
        self.written: np.ndarray = np.zeros(num_envs, np.int64)
        self.open: np.ndarray = np.zeros(num_envs, bool)
        self._frames = np.zeros(num_envs, np.int64)  # ever stored
        self._size = rows + rows // 16 + stacked + 1  # places of an environment's ring of frames
        self._limit = np.full(num_envs, self._size)  # the frame before which no frame is overwritten that is needed
        self._frame_fields = self._stacks.fields({n: f for n, f in whole.items() if n.split("/")[0] == "obs"})
        try:
            self.columns: dict[str, Any] = {name: whole[name].allocate(num_envs * rows) for name in STEP}
            self._places = np.full((2, num_envs * rows), -1, np.int32)  # where a step's frame and the one after it lie
            self._pool: dict[str, Any] = {
                n: field.allocate(num_envs * self._size) for n, field in self._frame_fields.items()
            }
        except MemoryError as error:
            fields = [*(whole[name] for name in STEP), *self._frame_fields.values()]
            what, hint = f"replay_capacity {num_envs * rows}", "Lower replay_capacity."
            raise too_large(what, hint, fields, num_envs * rows) from error
        self._missing = 0  # steps of a loaded state whose segments have not come

    def __len__(self) -> int:
        return int(self.stored.sum())

    @property
    def stored(self) -> np.ndarray:
        """(num_envs,), steps that each environment's ring holds now."""
        return np.minimum(self.written, self.rows)

    # ------------------------------------------------------------------------------------------------ adding
    def add(self, steps: Experience) -> np.ndarray:
        """Store copies of steps, one of each of K environments; return the indices (K,) of their items.

        `obs` is stored where it differs from the last step's `next_obs`, as at an episode's start.

        Raises:
            CheckpointError: A checkpoint was loaded without all its steps.
        """
        self.check_complete()
        obs, next_newest = dict(named("obs", steps.obs)), self._stacks.frame(dict(named("obs", steps.next_obs)))
        env = steps.env
        number, first = self.written[env], self._frames[env]
        continues = self._continues(env, obs, first)
        frame = np.where(continues, first, first + self.stacked) - 1
        if any((frame + 1 >= self._limit[env]).tolist()):
            self._make_room(env, number, frame)
        if not all(continues.tolist()):
            starts = np.flatnonzero(~continues)
            for back in range(self.stacked):
                places = self._place(env[starts], frame[starts] - back)
                for name, part in self._stacks.frame(obs, back).items():
                    self._pool[name][places] = part[starts]
        places = self._place(env, frame + 1)
        for name, part in next_newest.items():
            self._pool[name][places] = part
        index = self.index(env, number)
        for name, column in self.columns.items():
            column[index] = getattr(steps, name)
        self.written[env] = number + 1
        self._frames[env] = frame + 2
        self._places[0, index], self._places[1, index] = self._place(env, frame), places
        self.open[env] = ~(steps.terminated | steps.truncated)
        return index

    def interrupt(self, envs: np.ndarray | None = None) -> np.ndarray:
        """Truncate the running episodes of all environments, or of those in `envs` (N,) bool; return which (K,)."""
        env = np.flatnonzero(self.open if envs is None else self.open & envs)
        self.open[env] = False
        self.columns["truncated"][self.index(env, self.written[env] - 1)] = True
        return env

    def _continues(self, env: np.ndarray, obs: Values, first: np.ndarray) -> np.ndarray:
        """Return which steps (K,) continue the step before: their observation is the newest frame, `first` - 1."""
        same = self.open[env]
        if any(same.tolist()):
            newest = self._place(env, first - 1)
            for name, part in self._stacks.frame(obs).items():
                pool = self._pool[name]
                equal = part.astype(pool.dtype, copy=False) == pool.take(newest, axis=0)
                same = same & equal.reshape(len(env), -1).all(axis=1)
        return same

    def _make_room(self, env: np.ndarray, number: np.ndarray, frame: np.ndarray) -> None:
        """Raise the limits of environments that add the steps `number`; the ring grows if it has too few places."""
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
        """Return the observations (..., *shape) of the steps `index` (...), or after the steps where `ahead` is 1.

        `ahead` is 0, 1, or an array of these like `index`.
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

    def next_part(self, name: str, index: np.ndarray) -> np.ndarray:
        """Return one part, which is no stack, of the observations that the steps `index` led to."""
        return self._pool[f"obs/{name}"].take(self._places[1].take(index), axis=0)

    @property
    def line(self) -> PriorityLine:
        """The line of all stored steps, which are items of mass 1."""
        count = len(self)
        return PriorityLine(count, count, 1.0)

    def find(self, item: np.ndarray) -> np.ndarray:
        """Return the index of the item-th stored step, for item in 0 .. stored.sum()-1."""
        stored = self.stored
        ends = stored.cumsum()
        if len(stored) == 1 or ends[-1] == len(stored) * self.rows:
            return item  # no gaps between the rings
        env = ends.searchsorted(item, side="right")
        return item + (np.arange(len(stored)) * self.rows - (ends - stored))[env]

    def mass(self, index: np.ndarray) -> np.ndarray:
        """Return the masses (B,) of items."""
        return np.ones(len(index))

    def number(self, index: np.ndarray) -> np.ndarray:
        """Return the number (B,) of the step stored at each index."""
        env, slot = np.divmod(index, self.rows)
        newest = self.written[env] - 1
        return newest - (newest - slot) % self.rows

    def ahead(self, index: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return indices (B, n) of each step and the n-1 after it, and how many of them exist (B,), 1 or more.

        Past the newest step of an environment the indices point to its oldest steps, or to empty slots.
        """
        env, slot = np.divmod(index, self.rows)
        available = (self.written[env] - 1 - slot) % self.rows + 1
        return (env * self.rows)[:, None] + (slot[:, None] + np.arange(n)) % self.rows, available

    # ------------------------------------------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Return everything but the steps, as arrays (num_envs, ...); "truncated" has a bit for each step."""
        env, some = np.arange(len(self.written)), self.written > 0
        oldest = self._frame(self.index(env, self.written - self.stored))
        return {
            "written": self.written.copy(),
            "open": self.open.copy(),
            "truncated": np.packbits(self.columns["truncated"].reshape(-1, self.rows), axis=1),
            "frames": self._frames.copy(),
            "needed": np.where(some, oldest - (self.stacked - 1), self._frames),  # the oldest frame
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`; the steps follow with `load_segment`.

        Raises:
            CheckpointError: Another form, or numbers that no storage can have come to.
        """
        bits = ArrayOf(len(self.written), (-(-self.rows // 8),), np.uint8)
        form = dict.fromkeys(("written", "frames", "needed"), self.written) | {"open": self.open, "truncated": bits}
        state_schema.check(state, form, "memory/envs")
        written, frames, needed = (state[name] for name in ("written", "frames", "needed"))
        stored = np.minimum(written, self.rows)
        possible = (needed >= 0) & (needed <= frames) & (frames - needed <= stored * (self.stacked + 1))
        if np.any((written < 0) | (written > MOST_WRITTEN) | (frames > 2 * MOST_WRITTEN) | ~possible):
            raise CheckpointError(f"The checkpoint's memory cannot have written {written} transitions.")
        if (places := int((frames - needed).max())) > self._size:
            self._grow(places)
        self.written[:], self.open[:], self._frames[:] = written, state["open"] & (written > 0), frames
        self._places[:], self._limit[:], self._missing = -1, needed + self._size, len(self)
        bits = np.unpackbits(state["truncated"].astype(np.uint8), axis=1, count=self.rows)
        self.columns["truncated"][:] = bits.ravel()

    def segment(self, since: np.ndarray) -> Segment:
        """Return the steps stored after the counts `since` (num_envs,) that are still there.

        Returns:
            "start" and "count" (num_envs,): the numbers start .. start+count-1 of each environment. Then the fields of
            every step, the environments' steps one after the other: `columns` except "truncated", and "frame".
            "frame_start", "frame_count" and the parts of the observation: their frames.
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
        """Put the steps of a segment back, in any order of segments; steps overwritten by then are left out.

        Raises:
            CheckpointError: It has other fields, or not as many steps as it says.
        """
        self._check_segment(segment)
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
            raise CheckpointError(f"The checkpoint's memory lacks {self._missing} of its transitions.")

    def _check_segment(self, segment: Segment) -> None:
        """Check a segment of unknown origin before memory is allocated for its rows."""
        names = ("start", "count", "frame_start", "frame_count")
        what = "a segment of the memory"
        state_schema.check(segment, dict.fromkeys(names, ArrayOf(len(self.written), (), np.int64)), what)
        start, count, first, frames = (segment[name] for name in names)
        if any(np.any((part < 0) | (part > 2 * MOST_WRITTEN)) for part in (start, count, first, frames)):
            raise CheckpointError(f"A segment of the memory cannot hold {count} rows from {start} on.")
        total, size = int(count.sum()), int(frames.sum())
        form = {name: ArrayOf.like(self.columns[name], total) for name in _IN_SEGMENTS}
        form |= {"frame": ArrayOf(total, (), np.int64)}
        form |= {name: ArrayOf.like(pool, size) for name, pool in self._pool.items()}
        state_schema.check(segment, form, what)

    # ------------------------------------------------------------------------------------------------ places
    def index(self, env: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return the indices of the steps `number` of the environments `env`, which broadcast."""
        return env * self.rows + number % self.rows

    def _frame(self, index: np.ndarray) -> np.ndarray:
        """Return the number (K,) of the newest frame of the observation of each step."""
        env = index // self.rows
        newest = self._frames[env] - 1
        return newest - (newest - (self._places[0, index] - env * self._size)) % self._size

    def _set_frame(self, index: np.ndarray, frame: np.ndarray) -> None:
        for ahead in (0, 1):
            self._places[ahead, index] = self._place(index // self.rows, frame + ahead)

    def _place(self, env: np.ndarray, frame: np.ndarray) -> np.ndarray:
        return env * self._size + frame % self._size


def expand(start: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return environment and number of every row of a segment: start [5, 2], count [2, 1] -> [0, 0, 1], [5, 6, 2]."""
    env = np.arange(len(count)).repeat(count)
    return env, np.arange(len(env)) + (start - (count.cumsum() - count)).repeat(count)
