"""Episode storage: the newest steps of every environment, with each observation and each frame stored once.

A step is an item of a ring per environment. Its *index* is env * rows + number % rows; its *number* counts the steps of
its environment from 0. Observations lie in one pool of *places*. Each step names the places of its observation's frames
(one place without stacks), oldest first, and then the place of the newest frame of its next observation:

    number            0      1      2 (end)  3            an episode of three steps, then another one
    observation       a      b      c        x            d is the final observation
    next              b      c      d        y
    places            0 1    1 2    2 3      4 5          pool   a b c d x y

    stacks of three   ~~a    ~ab    abc      ~~x          ~: a frame from before the episode, whatever it shows
    places            0123   1234   2345     6789

A step that continues an episode shares places with the step before it. A place is free again once no stored step names
it. The pool has a place for each step and an eighth more, which takes memory only if it is used: enough for final
observations of episodes of 8 steps on average, or with four stacked frames of 32. For shorter episodes the pool grows.

A checkpoint's segment holds the steps since the last one. A step that does not continue the step before it (`first`)
brings what that step led to and whether its episode was cut there, because the segment with that step may be older.
What the newest step led to belongs to the state: it is not known yet whether the next step continues from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from duetto.algorithms.base import Tree
from duetto.buffers.base import Experience
from duetto.buffers.experience import before
from duetto.buffers.storage_fields import STEP, Field, Stacks, Values, named, step_values, transition_fields, unnamed
from duetto.errors import CheckpointError
from duetto.functional import state_schema
from duetto.functional.state_schema import ArrayOf
from duetto.networks.spaces import Space

MOST_WRITTEN = 2**48  # steps of one environment in a valid state
FINAL, EARLIER = "final/", "earlier/"  # prefixes of a segment's arrays with one row for each `first` step

Segment = dict[str, np.ndarray]


class BrokenEpisodeError(ValueError):
    """An observation inside an episode is not what the step before led to."""

    def __init__(self, name: str, env: int) -> None:
        super().__init__(name, env)  # so that a shard can send it
        self.name: str = name
        self.env: int = env

    def __str__(self) -> str:
        return (
            f"{self.name} of environment {self.env} is not what the step before led to, though its episode did not end "
            "there"
        )


@dataclass
class _Loading:
    """Components of a saved storage that wait until all its steps are loaded."""

    missing: int  # steps
    first: np.ndarray  # (items,) bool, does not continue the step before
    final: np.ndarray  # (items,) int32, for first steps the place that the step before led to
    cut: np.ndarray  # (items,) bool, for first steps whether the step before was truncated
    newest: np.ndarray  # (num_envs,) int32, the place that the newest step led to
    truncated: np.ndarray  # (num_envs,) bool, the newest step's flag


class EpisodeStorage:
    """The newest `rows` steps of every environment.

    Attributes:
        rows: Steps that each environment's ring can hold.
        written: (num_envs,) int64, steps ever stored.
        open: (num_envs,) bool, the newest step's episode continues.
        columns: "action", "reward", "terminated" and "truncated" of every index.
    """

    def __init__(
        self, observation: Space, action: Space, num_envs: int, rows: int, stacked: int = 1, first_env: int = 0
    ) -> None:
        """`stacked` is the number of frames that each image is a stack of, `first_env` the first number in errors."""
        self._first_env = first_env
        self._fields = transition_fields(observation, action)
        self._stacks = Stacks(observation, stacked)
        self.rows: int = rows
        self.stacked: int = stacked
        self.written: np.ndarray = np.zeros(num_envs, np.int64)
        self.open: np.ndarray = np.zeros(num_envs, bool)
        items = num_envs * rows
        self.columns: dict[str, Any] = {name: self._fields[name].allocate(items) for name in STEP}
        self._frame_fields = self._stacks.fields({n: f for n, f in self._fields.items() if n.split("/")[0] == "obs"})
        self._pool: dict[str, Any] = {
            name: field.allocate(items, items // 8 + num_envs * (stacked + 1))
            for name, field in self._frame_fields.items()
        }
        self._places = np.full((stacked + 1, items), -1, np.int32)  # of each step; see above
        self._after = np.full((stacked, num_envs), -1, np.int32)  # places of what each newest step led to
        self._used = 0  # places of the pool that were ever used
        self._free: list[int] = []
        self._checks = 0
        self._loading: _Loading | None = None

    def __len__(self) -> int:
        return int(self.stored.sum())

    @property
    def stored(self) -> np.ndarray:
        """(num_envs,), steps that each environment's ring holds now."""
        return np.minimum(self.written, self.rows)

    # ------------------------------------------------------------------------------------------------ adding
    def check(self, steps: Experience, strict: bool = False) -> np.ndarray:
        """Return which steps (K,) continue the step before them; `add` needs it.

        With `strict`, an observation inside an episode that differs from what the step before led to is an error.
        Otherwise it is stored anew. In a vector step of stacked frames, the newest ones are compared, and whole stacks
        of one environment in turn.

        Raises:
            ValueError, TypeError: Shapes, dtypes or environments other than the storage's; a broken episode.
            UsageError: Images that are no stacks of as many frames as they should be.
            CheckpointError: A checkpoint was loaded without all its steps.
        """
        self.check_complete()
        values = step_values(steps)
        if values.keys() != self._fields.keys():
            raise ValueError(f"The fields are {sorted(values)}, the memory stores {sorted(self._fields)}")
        env = steps.env
        for name, field in self._fields.items():
            field.check(name, values[name], len(env))
        if not len(env):
            return np.zeros(0, bool)
        if not 0 <= env.min() <= env.max() < len(self.written):
            raise ValueError(f"env is {env}, the memory has environments 0 to {len(self.written) - 1}")
        self._checks += 1
        last = before(env)
        checked = np.array([self._checks % len(env)]) if (last < 0).all() else np.arange(len(env))
        self._stacks.check_steps(steps, checked, self._first_env)
        return self._continues(steps, last, checked, strict)

    def add(self, steps: Experience, continues: np.ndarray) -> np.ndarray:
        """Store one checked step of each of K environments; return the indices (K,) of its items."""
        env = steps.env
        number = self.written[env]
        index = self._index(env, number)
        self.written[env] += 1
        ended = steps.terminated | steps.truncated
        self.open[env] = ~ended
        for name, column in self.columns.items():
            column[index] = getattr(steps, name)
        obs, next_obs = (dict(named("obs", tree)) for tree in (steps.obs, steps.next_obs))
        places = np.empty((len(self._places), len(env)), np.int32)
        places[:-1] = self._after[:, env]
        if not continues.all():
            begins = np.flatnonzero(~continues)
            places[:-1, begins] = self._allocate((self.stacked, len(begins)))
            for name, part in obs.items():
                self._put(name, places[:-1, begins], part[begins])
        places[-1] = self._allocate(len(env))
        newest = self._stacks.newest(next_obs)
        for name, pool in self._pool.items():
            pool[places[-1]] = newest[name]
        full = number >= self.rows
        if full.any():
            self._release(index, self._index(env, number + 1), places, full)
        self._places[:, index] = places
        self._after[:, env] = places[1:]
        return index

    def interrupt(self, envs: np.ndarray | None = None) -> np.ndarray:
        """Truncate the running episodes of all environments, or of those in `envs` (N,) bool; return which (K,)."""
        env = np.flatnonzero(self.open if envs is None else self.open & envs)
        self.open[env] = False
        self.columns["truncated"][self._index(env, self.written[env] - 1)] = True
        return env

    def _continues(self, steps: Experience, last: np.ndarray, checked: np.ndarray, strict: bool) -> np.ndarray:
        """Compare with what the steps before led to: the newest frames of all steps, and of `checked` ones the rest.

        `last` (K,) is the row of the step before, -1 if that is stored already.
        """
        env, running, inside = steps.env, self.open[steps.env], last >= 0
        obs, wanted = dict(named("obs", steps.obs)), self._take(self._after[-1, env])
        if inside.any():  # more than one step of an environment
            running = np.where(inside, ~(steps.terminated | steps.truncated)[last], running)
            for name, part in self._stacks.newest(dict(named("obs", steps.next_obs))).items():
                wanted[name][inside] = part[last[inside]]
            checked = checked[~inside[checked]]
        continues = running
        for name, part in self._stacks.newest(obs).items():
            continues = continues & _same(part.astype(wanted[name].dtype, copy=False), wanted[name])
            if name in self._stacks and len(checked):
                whole = self._observation(self._after[:, env[checked]], name)[name]
                continues[checked] &= _same(obs[name][checked], whole)
            if strict and (broken := running & ~continues).any():
                raise BrokenEpisodeError(name, self._first_env + int(env[broken.argmax()]))
        return continues

    # ------------------------------------------------------------------------------------------------ reading
    def observation(self, index: np.ndarray) -> Tree:
        """Return the observations (..., *shape) of the steps `index` (...)."""
        return unnamed("obs", self._observation(self._places[:-1].take(index, axis=1)))

    def next_observation(self, index: np.ndarray) -> Tree:
        """Return the observations (..., *shape) that the steps `index` (...) led to."""
        return unnamed("obs", self._observation(self._places[1:].take(index, axis=1)))

    def observations(self, index: np.ndarray, following: np.ndarray) -> Tree:
        """Return the observations of steps; where `following` (bool, like `index`), those that they led to."""
        places = self._places[:-1].take(index, axis=1)
        places[:, following] = self._places[1:, index[following]]
        return unnamed("obs", self._observation(places))

    def next_part(self, name: str, index: np.ndarray) -> np.ndarray:
        """Return one part, which is no stack, of the observations that the steps `index` led to."""
        return self._pool[f"obs/{name}"].take(self._places[-1].take(index), axis=0)

    def index(self, env: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return the indices (B, ...) of the steps `number` (B, ...) of the environments `env` (B,)."""
        return self._index(env.reshape(-1, *[1] * (number.ndim - 1)), number)

    def locate(self, item: np.ndarray) -> np.ndarray:
        """Return the index of the item-th stored step, for item in 0 .. stored.sum()-1."""
        stored = self.stored
        ends = stored.cumsum()
        if len(stored) == 1 or ends[-1] == len(stored) * self.rows:
            return item  # no gaps between the rings
        env = ends.searchsorted(item, side="right")
        return item + (np.arange(len(stored)) * self.rows - (ends - stored))[env]

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

    def continuing(self, index: np.ndarray) -> np.ndarray:
        """Return whether each step (K,) continues the one before it, which has to be stored."""
        env, slot = np.divmod(index, self.rows)
        return self._places[-2, index] == self._places[-1, self._index(env, slot - 1)]

    def _observation(self, places: np.ndarray, *names: str) -> Values:
        """Return the observations (..., *shape) whose frames are at `places` (stack, ...); only `names` if given."""
        found = {}
        for name in names or self._pool:
            pool = self._pool[name]
            if name in self._stacks:
                frames = pool.take(np.moveaxis(places, 0, -1), axis=0)
                found[name] = frames.reshape(*places.shape[1:], -1, *frames.shape[-2:])  # (..., stack * C, H, W)
            else:
                found[name] = pool.take(places[-1], axis=0)
        return found

    # ------------------------------------------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Return everything but the steps, as arrays (num_envs, ...)."""
        env, some = np.arange(len(self.written)), self.written > 0
        newest = self._index(env, self.written - 1)
        state = {
            "written": self.written.copy(),
            "open": self.open.copy(),
            "truncated": self.columns["truncated"][newest] & some,
            "newest": self._take(self._places[-1, newest], some),
        }
        if self.stacked > 1:  # the frames before the oldest step's newest one
            oldest = self._places[:-2, self._index(env, self.written - self.stored)]
            state["earlier"] = self._take(np.moveaxis(oldest, 0, -1), some, self._stacks)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`; the steps follow with `load_segment`.

        Raises:
            CheckpointError: Another form, or numbers that no storage can have come to.
        """
        envs = len(self.written)
        form: dict[str, Any] = {"written": self.written, "open": self.open, "truncated": self.open}
        form["newest"] = {name: field.rows(envs) for name, field in self._frame_fields.items()}
        if self.stacked > 1:
            form["earlier"] = {name: field.rows(envs) for name, field in self._earlier_fields().items()}
        state_schema.check(state, form, "memory/envs")
        written = state["written"]
        if np.any((written < 0) | (written > MOST_WRITTEN)):
            raise CheckpointError(f"The checkpoint's memory cannot have written {written} transitions.")
        self.written[:], self.open[:] = written, state["open"] & (written > 0)
        self._places[:], self._used, self._free = -1, 0, []
        items, env = self._places.shape[1], np.flatnonzero(written)
        newest = np.full(envs, -1, np.int32)
        newest[env] = self._allocate(len(env))
        self._store(newest[env], {name: part[env] for name, part in state["newest"].items()})
        if self.stacked > 1:
            oldest = self._index(env, (written - self.stored)[env])
            self._load_earlier(oldest, {name: part[env] for name, part in state["earlier"].items()})
        flags, final = np.zeros((2, items), bool), np.full(items, -1, np.int32)
        self._loading = _Loading(len(self), flags[0], final, flags[1], newest, state["truncated"])
        self._link()

    def segment(self, since: np.ndarray) -> Segment:
        """Return the steps stored after the counts `since` (num_envs,) that are still there.

        Returns:
            "start" and "count" (num_envs,): the numbers start .. start+count-1 of each environment. Then the fields of
            every step, the environments' steps one after the other: the four of `columns`, "first", and of each part of
            the observation the newest frame. For each `first` step: "final/<part>" and "final/truncated" of the step
            before it, and "earlier/<part>", its frames but the newest.

        Raises:
            ValueError: `since` of another shape, or larger than the number of steps.
        """
        if since.shape != self.written.shape or (since > self.written).any():
            raise ValueError(f"since is {since}, but the environments have written {self.written} transitions")
        start = np.maximum(since, self.written - self.rows)
        count = self.written - start
        env, number = expand(start, count)
        index, before = self._index(env, number), self._index(env, number - 1)
        known = number > np.maximum(self.written - self.rows, 0)[env]  # the step before is stored
        own = self._places[-2, index]
        first = ~known | (own != self._places[-1, before])
        segment = {"start": start, "count": count, "first": first}
        segment |= {name: column[index] for name, column in self.columns.items()} | self._take(own)
        before, known = before[first], known[first]
        segment[FINAL + "truncated"] = known & self.columns["truncated"][before]
        final = self._take(np.where(known, self._places[-1, before], own[first]))
        segment |= {FINAL + name: part for name, part in final.items()}
        if self.stacked > 1:
            frames = self._take(np.moveaxis(self._places[:-2, index[first]], 0, -1), only=self._stacks)
            segment |= {EARLIER + name: part for name, part in frames.items()}
        return segment

    def load_segment(self, segment: Segment) -> None:
        """Put the steps of a segment back, in any order of segments; steps overwritten by then are left out.

        Raises:
            CheckpointError: It has other fields, or not as many steps as it says.
        """
        self._check_segment(segment)
        if self._loading is None:
            return
        env, number = expand(segment["start"], segment["count"])
        index, oldest = self._index(env, number), np.maximum(self.written - self.rows, 0)[env]
        wanted = (number >= oldest) & (number < self.written[env])
        wanted[wanted] = self._places[-2, index[wanted]] < 0  # not loaded yet
        for name, column in self.columns.items():
            column[index[wanted]] = segment[name][wanted]
        own = self._allocate(int(np.count_nonzero(wanted)))
        self._places[-2, index[wanted]] = own
        self._store(own, {name: segment[name][wanted] for name in self._pool})
        first = wanted & segment["first"]
        at, row = index[first], np.cumsum(segment["first"])[first] - 1
        self._loading.first[at], self._loading.cut[at] = True, segment[FINAL + "truncated"][row]
        after = number[first] > oldest[first]  # what led to the oldest step is gone
        final = self._allocate(int(np.count_nonzero(after)))
        self._loading.final[at[after]] = final
        self._store(final, {name: segment[FINAL + name][row[after]] for name in self._pool})
        if self.stacked > 1:
            new = self._places[0, at] < 0
            names = self._earlier_fields()
            self._load_earlier(at[new], {name: segment[EARLIER + name][row[new]] for name in names})
        self._loading.missing -= len(own)
        self._link()

    def check_complete(self) -> None:
        """Raise CheckpointError while steps of a loaded state are missing."""
        if self._loading is not None:
            raise CheckpointError(f"The checkpoint's memory lacks {self._loading.missing} of its transitions.")

    def _link(self) -> None:
        """Name the places of steps that continue the step before, and set the flags of steps cut later on."""
        loading = self._loading
        if loading is None or loading.missing:
            return
        self._loading = None
        env, number = expand(self.written - self.stored, self.stored)
        index, before = self._index(env, number), self._index(env, number - 1)
        shared = (number > (self.written - self.stored)[env]) & ~loading.first[index]
        for frame in reversed(range(self.stacked - 1)):
            self._places[frame, index[shared]] = self._places[frame + 1, before[shared]]
        after = self._index(env, number + 1)
        newest = number == self.written[env] - 1
        ends = loading.first[after]
        self._places[-1, index] = np.where(ends, loading.final[after], self._places[-2, after])
        self._places[-1, index[newest]] = loading.newest[env[newest]]
        self.columns["truncated"][index[ends]] = loading.cut[after[ends]]
        self.columns["truncated"][index[newest]] = loading.truncated[env[newest]]
        self._after[:, env[newest]] = self._places[1:, index[newest]]

    def _load_earlier(self, index: np.ndarray, parts: Values) -> None:
        """Store the frames (K, stack - 1, ...) that come before the newest one of K steps."""
        places = self._allocate((self.stacked - 1, len(index)))
        self._places[:-2, index] = places
        for name, part in parts.items():
            self._pool[name][places] = np.swapaxes(part, 0, 1)

    def _earlier_fields(self) -> dict[str, Field]:
        """Return the fields of the frames of each stack but the newest."""
        fields = {name: field for name, field in self._frame_fields.items() if name in self._stacks}
        return {name: Field((self.stacked - 1, *field.shape), field.dtype) for name, field in fields.items()}

    def _check_segment(self, segment: Segment) -> None:
        """Check a segment before room is made for as many steps as `count` says: a stranger may have written it."""
        counts, flag = ArrayOf(len(self.written), (), np.int64), Field((), np.dtype(np.bool_))
        form: dict[str, Any] = {"start": counts, "count": counts, "first": flag.rows()}
        state_schema.check(segment, form, "a segment of the memory")
        start, count = segment["start"], segment["count"]
        if np.any((start < 0) | (start > MOST_WRITTEN) | (count < 0) | (count > MOST_WRITTEN)):
            raise CheckpointError(f"A segment of the memory cannot hold {count} rows from {start} on.")
        of_each = {name: self._fields[name] for name in STEP} | {"first": flag} | self._frame_fields
        of_first = {FINAL + "truncated": flag} | {FINAL + n: field for n, field in self._frame_fields.items()}
        of_first |= {EARLIER + name: field for name, field in self._earlier_fields().items()}
        form = {name: field.rows(int(count.sum())) for name, field in of_each.items()}
        form |= {name: field.rows(int(np.count_nonzero(segment["first"]))) for name, field in of_first.items()}
        state_schema.check(segment, form, "a segment of the memory")

    # ------------------------------------------------------------------------------------------------ places
    def _index(self, env: np.ndarray, number: np.ndarray) -> np.ndarray:
        return env * self.rows + number % self.rows

    def _allocate(self, shape: int | tuple[int, int]) -> np.ndarray:
        """Return free places, and let the pool grow if it has too few."""
        count = math.prod(shape) if isinstance(shape, tuple) else shape
        reused = [self._free.pop() for _ in range(min(count, len(self._free)))]
        end = self._used + count - len(reused)
        size = len(next(iter(self._pool.values())))
        if end > size:
            for name, array in self._pool.items():  # a copy: rare, because there are spare places
                self._pool[name] = np.concatenate([array, self._frame_fields[name].allocate(end - size + size // 4)])
        places = np.array([*reused, *range(self._used, end)], np.int32).reshape(shape)
        self._used = end
        return places

    def _release(self, index: np.ndarray, following: np.ndarray, new: np.ndarray, full: np.ndarray) -> None:
        """Free the places of the steps at `index` (K,), where `full`, that the steps after them do not name.

        `new` are the places of the steps that overwrite them, which follow them if a ring has one row.
        """
        old = self._places[:, index]
        after = new if self.rows == 1 else self._places[:, following]
        shared = after[-2] == old[-1]
        self._free += old[0, full].tolist()
        if not shared.all():
            self._free += old[1:, full & ~shared].ravel().tolist()

    def _put(self, name: str, places: np.ndarray, part: np.ndarray) -> None:
        """Store whole observations (K, ...) at `places` (stack, K)."""
        if name in self._stacks:
            frames = part.reshape(len(part), self.stacked, *self._frame_fields[name].shape)
            self._pool[name][places] = np.swapaxes(frames, 0, 1)
        else:
            self._pool[name][places[-1]] = part

    def _store(self, places: np.ndarray, parts: Values) -> None:
        for name, part in parts.items():
            self._pool[name][places] = part

    def _take(self, places: np.ndarray, some: np.ndarray | None = None, only: Any = None) -> Values:
        """Return the pool's arrays at places; zeros except where `some`, and `only` these parts."""
        found = {name: pool.take(places, axis=0) for name, pool in self._pool.items() if only is None or name in only}
        if some is not None:
            for part in found.values():
                part[~some] = 0
        return found


def _same(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Compare rows (K, ...): (K,) bool; NaN equals NaN."""
    equal = (one == other).reshape(len(one), -1)
    if one.dtype.kind == "f" and not equal.all():
        equal |= (np.isnan(one) & np.isnan(other)).reshape(equal.shape)
    return equal.all(axis=1)


def expand(start: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return environment and number of every row of a segment: start [5, 2], count [2, 1] -> [0, 0, 1], [5, 6, 2]."""
    env = np.arange(len(count)).repeat(count)
    return env, np.arange(len(env)) + (start - (count.cumsum() - count)).repeat(count)
