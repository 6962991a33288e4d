"""Resume an environment in the middle of an episode by repeating the episode.

    run         reset      step step  set_attr  step   checkpoint
    kept        begin      told told  changes   told   and a checksum of all that came back
    resume      the same reset, steps and changes in a new environment; then the checksum is compared

An episode follows from the random generators at its reset and from what the environment was told since.
`EpisodeRecorder`, the outermost wrapper of every single environment, keeps both:

- `begin`: the reset's arguments and, from before it, the states of the generators (`rng_state.places`),
- `told`: the actions as the environment got them, packed by its action space,
- `changes`: what `set_attr` changed, and after how many steps; what was set earlier comes before the reset,
- `checksum`: of rewards, ends and observations of at most `LARGEST` bytes; of larger ones the current one is compared.

An environment that draws from the process's global generators (`random`, `np.random`) is found at its second reset or
at a checkpoint; from then on they are kept with each reset, too. It comes back exactly if it is alone in its process.

An environment that defines `state_dict()` and `load_state_dict(state)`, of nested dicts of arrays and JSON values, is
saved by these instead. State that outlives an episode (counters, curricula, caches) is not repeated: define them.

Recording changes no number. An environment that does not come back begins a new episode, and only that one: if the
checksum differs or the replay raises, if its episode is too long or its process would take too long, or if episodes
cannot be repeated (`resets_only` in its metadata, `RecordVideo` around it). `load` returns why.
"""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any, NamedTuple
from zlib import crc32

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, RecordVideo, TimeLimit

from duetto.environments import rng_state
from duetto.environments.actions import single
from duetto.environments.errors import shown, summary
from duetto.environments.plain_values import decode, encode, is_plain, strange
from duetto.errors import CheckpointError
from duetto.functional import state_schema
from duetto.functional.state_schema import ANY, ARRAY, DictOf, ListOf

LONGEST = 100_000  # steps of an episode that is repeated
PATIENCE = 300.0  # seconds that the episodes of one process may take
LARGEST = 1024  # bytes of an observation that is in the checksum

# Around an environment that saves itself, these have nothing to be saved; a TimeLimit has its count.
_COUNTING = (OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit)
_WITHOUT_STATE = (*_COUNTING, gymnasium.ActionWrapper, gymnasium.RewardWrapper)
_BEFORE = -1  # the number of steps of a change that came before the reset
_ENDS = struct.Struct("<d??")
_FORM = {
    "begin": {"seed": ANY, "options": ANY, "first": bool, "generators": DictOf(ANY)},
    "told": ARRAY,
    "changes": ListOf(ANY),
    "values": DictOf(ANY),
    "checksum": int,
    "generators": DictOf(ANY),
    "seconds": float,
}


class Restored(NamedTuple):
    """The outcome of a load."""

    why: str  # it did not come back; "" if it did
    obs: Any = None  # its current observation and info; of its own state, those of the reset before
    info: dict[str, Any] = {}  # noqa: RUF012 - never changed


class EpisodeRecorder(gymnasium.Wrapper):
    """A wrapper that records the current episode, and repeats a recorded one."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._never = _never(env)
        self._own: Any = _own_layer(env)
        self._records = not self._never and self._own is None
        self._packing = _Packing(env.action_space)
        self._most = LONGEST * self._packing.size
        self._summed, self._array = _is_small(env.observation_space)
        self._places: list[rng_state.Place] = []
        self._resets = 0
        self._begin: dict[str, Any] = {}
        self._told = bytearray()
        self._changes: list[tuple[int, str, Any]] = []
        self._checksum, self._seconds = 0, 0.0
        self._why = ""  # this episode cannot be repeated
        self._process: dict[str, Any] = {}  # the global generators at the first reset
        self._draws = False  # from these

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """See gymnasium.Env."""
        given: dict[str, Any] = {"seed": seed, "options": options}
        arguments = {name: value for name, value in given.items() if value is not None}
        if self._records:
            self._begins(arguments)
        before = perf_counter()
        first = self.env.reset(**arguments)
        self._seconds = perf_counter() - before
        if self._records:
            self._checksum = self._sum(first[0] if isinstance(first, tuple) else None, 0)
        return first

    def _begins(self, arguments: dict[str, Any]) -> None:
        self._resets += 1
        if self._resets < 4 or arguments.get("seed") is not None:
            self._places = rng_state.places(self.env)
            self._look_at_process()
        begin = {"generators": rng_state.save(self._places), "arguments": arguments, "first": self._resets == 1}
        if self._draws or self._resets == 1:
            begin["process"] = self._process if self._resets == 1 else rng_state.process_state()
        self._begin, self._why = begin, ""
        self._told = bytearray()
        if self._changes:
            newest = {name: value for _, name, value in self._changes}
            self._changes = [(_BEFORE, name, value) for name, value in newest.items()]

    def _look_at_process(self) -> None:
        """Find out whether the environment draws from the process's global generators."""
        if not self._process:
            self._process = rng_state.process_state()
        elif not self._draws:
            self._draws = not rng_state.same(self._process, rng_state.process_state())

    def step(self, action: Any) -> Any:
        """See gymnasium.Env."""
        if not self._records:
            return self.env.step(action)
        self._told += self._packing.pack(action)
        before = perf_counter()
        given = self.env.step(action)
        self._seconds += perf_counter() - before
        try:
            obs, reward, terminated, truncated, _ = given
            checksum = crc32(_ENDS.pack(reward, terminated, truncated), self._checksum)
        except Exception:  # it gives what no environment may, which ends the run
            return given
        try:
            self._checksum = crc32(obs, checksum) if self._array else self._sum(obs, checksum)
        except (TypeError, ValueError, BufferError):  # a list, or an array with gaps
            self._checksum = self._sum(obs, checksum)
        if len(self._told) > self._most:
            self._told, self._why = bytearray(), f"its episode has more than {LONGEST:,} steps"
        return given

    def _sum(self, value: Any, checksum: int) -> int:
        """Return the checksum of an observation, or of anything that is none, after another."""
        if not self._summed:
            return checksum
        if isinstance(value, dict | tuple | list):
            for part in value.values() if isinstance(value, dict) else value:
                checksum = self._sum(part, checksum)
            return checksum
        try:
            array = np.ascontiguousarray(value)
            return crc32(repr(value).encode() if array.dtype.hasobject else array.data, checksum)
        except Exception:  # whatever a user's objects raise
            return checksum

    # ------------------------------------------------------------------------------------------- attributes
    def has_wrapper_attr(self, name: str) -> bool:
        """See gymnasium.Env; the recorder's own attributes are nobody's."""
        return self.env.has_wrapper_attr(name)

    def get_wrapper_attr(self, name: str) -> Any:
        """See gymnasium.Env."""
        return self.env.get_wrapper_attr(name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """See gymnasium.Env. Plain values are recorded; with another one in it, an episode is not repeated."""
        done = self.env.set_wrapper_attr(name, value, force=force)
        if not done:
            return False
        if is_plain(value):
            steps = len(self._told) // self._packing.size if self._begin else _BEFORE
            self._changes.append((steps, name, copy.deepcopy(value)))
        elif self._records:
            self._never = f"its {name} was set to what no checkpoint holds"
        return True

    # ------------------------------------------------------------------------------------------- states
    def save(self) -> dict[str, Any]:
        """Return what `load` needs as nested dicts of arrays and JSON values; {"why": a sentence} if it is not kept."""
        if self._own is not None:
            return self._save_own()
        if why := self._never or self._why:
            return {"why": why} | self._saved_changes()
        self._look_at_process()
        seed, options = (self._begin["arguments"].get(name) for name in ("seed", "options"))
        if not is_plain(options):
            return {"why": "its reset had options that no checkpoint holds"} | self._saved_changes()
        begin = {name: self._begin[name] for name in ("generators", "first")}
        saved = {"begin": begin | {"seed": seed, "options": encode(options)}}
        if self._draws and "process" in self._begin:
            saved["begin"]["process"] = self._begin["process"]
            saved["process"] = rng_state.process_state()
        return (
            saved
            | self._saved_changes()
            | {
                "told": np.frombuffer(bytes(self._told), np.uint8),
                "checksum": self._checksum,
                "generators": rng_state.save(rng_state.places(self.env)),
                "seconds": float(round(self._seconds)),  # whole ones, or no two checkpoints of a seed were equal
            }
        )

    def _save_own(self) -> dict[str, Any]:
        where = f"{type(self._own).__name__}.state_dict()"
        try:
            state = copy.deepcopy(self._own.state_dict())
        except Exception as error:  # whatever a user's code raises
            return {"why": f"{where} raised {summary(error)}"} | self._saved_changes()
        wrong = f"is {shown(state)}, and no dict" if type(state) is not dict else strange(state)
        if wrong:
            return {"why": f"{where} {wrong}"} | self._saved_changes()
        counts = [layer._elapsed_steps for layer in rng_state.layers(self.env) if isinstance(layer, TimeLimit)]
        generators = rng_state.save(rng_state.places(self.env))
        return {"own": state, "counts": counts, "generators": generators} | self._saved_changes()

    def _saved_changes(self) -> dict[str, Any]:
        """Return the changes: when and what in a list, and to what in a dict, since lists hold no arrays."""
        return {
            "changes": [[steps, name] for steps, name, _ in self._changes],
            "values": {str(i): encode(value) for i, (_, _, value) in enumerate(self._changes)},
        }

    def load(self, saved: dict[str, Any], repeats: bool = True) -> Restored:
        """Go on where `save` was called. Without success the environment has to be reset, and has what was set in it.

        Raises:
            CheckpointError: It is no state of this environment.
        """
        changes = _loaded_changes(saved)
        self._changes = []
        rng_state.seed(self.env, 0)  # spaces of the class become its own
        try:
            if why := self._never or saved.get("why"):
                restored = Restored(str(why))
            elif "own" in saved:
                restored = self._load_own(saved, changes)
            elif not repeats:
                restored = Restored(f"repeating the episodes of its process would take more than {PATIENCE:.0f} s")
            else:
                restored = self._repeat(saved, changes)
        except CheckpointError:
            raise
        except (Exception, SystemExit) as error:
            restored = Restored(f"repeating its episode raised {summary(error)}")
        if restored.why:
            self._apply(changes, math.inf)
        return restored

    def _load_own(self, saved: dict[str, Any], changes: list[tuple[int, str, Any]]) -> Restored:
        if self._own is None:
            return Restored("it has no load_state_dict() any more")
        state_schema.check(saved, {"own": {}, "counts": ListOf(int), "generators": DictOf(ANY)}, "stepper/environments")
        self._apply(changes, math.inf)
        obs, info = self.env.reset(seed=0)
        limits = [layer for layer in rng_state.layers(self.env) if isinstance(layer, TimeLimit)]
        for layer, count in zip(limits, saved["counts"], strict=True):
            layer._elapsed_steps = count
        exact = self._own.load_state_dict(copy.deepcopy(saved["own"])) is not False
        exact = rng_state.load(self.env, saved["generators"]) and exact
        return Restored("" if exact else "its load_state_dict() said so", obs, info)

    def _repeat(self, saved: dict[str, Any], changes: list[tuple[int, str, Any]]) -> Restored:
        state_schema.check(saved, _FORM, "stepper/environments")
        begin = saved["begin"]
        if not begin["first"]:  # the first reset may build what later ones find
            self.env.reset(seed=0)
        self._resets, self._draws = 0 if begin["first"] else 3, "process" in begin
        self._apply(changes, _BEFORE)
        if not rng_state.load(self.env, begin["generators"]):
            return Restored("its random generators are others")
        self._process = begin.get("process", {})
        if self._draws:
            rng_state.set_process_state(begin["process"])
        arguments = {name: decode(begin[name]) for name in ("seed", "options") if begin[name] is not None}
        self._places = rng_state.places(self.env)
        obs, info = self.reset(**arguments)
        self._changes = [one for one in changes if one[0] == _BEFORE]
        for steps, action in enumerate(self._packing.unpack(saved["told"])):
            self._apply(changes, steps)
            obs, _, _, _, info = self.step(action)
        self._apply(changes, len(saved["told"]) // self._packing.size)
        exact = self._checksum == saved["checksum"]
        now = rng_state.save(rng_state.places(self.env))
        own = [path for path in saved["generators"] if not path.startswith(rng_state.SPACE)]
        exact = exact and all(path in now and rng_state.same(now[path], saved["generators"][path]) for path in own)
        return Restored("" if exact and rng_state.load(self.env, saved["generators"]) else ELSEWHERE, obs, info)

    def _apply(self, changes: list[tuple[int, str, Any]], steps: float) -> None:
        """Make the changes of after so many steps; all of them for infinity."""
        for when, name, value in changes:
            if when == steps or steps == math.inf:
                self.set_wrapper_attr(name, copy.deepcopy(value), force=False)


ELSEWHERE = (
    "its episode led elsewhere when it was repeated: it has state that outlives an episode, or draws from generators "
    "that are not its own"
)


def load_all(recorders: Sequence[EpisodeRecorder], saved: Sequence[dict[str, Any]]) -> Iterator[Restored]:
    """Load the environments of this process, then its global generators."""
    seconds = sum(one["seconds"] for one in saved if isinstance(one, dict) and type(one.get("seconds")) is float)
    for env, one in zip(recorders, saved, strict=True):
        yield env.load(one, repeats=seconds <= PATIENCE)
    for one in saved:
        if "process" in one:
            rng_state.set_process_state(one["process"])


def seconds_of(saved: Any) -> float:
    """Return how long the episodes in a saved state take to repeat, one after the other."""
    if not isinstance(saved, dict):
        return 0.0
    own = saved.get("seconds") if "told" in saved else None
    return (own if type(own) is float else 0.0) + sum(map(seconds_of, _parts(saved)))


def obstacles(saved: Any) -> list[str]:
    """Return why environments in a saved state of them begin new episodes, each reason once."""
    if not isinstance(saved, dict):
        return []
    found = [saved["why"]] if isinstance(saved.get("why"), str) else []
    return list(dict.fromkeys(found + [why for part in _parts(saved) for why in obstacles(part)]))


def draw_globally(saved: Any) -> bool:
    """Whether environments in a saved state draw from the process's global generators."""
    return isinstance(saved, dict) and ("process" in saved or any(map(draw_globally, _parts(saved))))


def _parts(saved: dict[str, Any]) -> list[Any]:
    """Return the parts of a saved state, without an environment's own."""
    return [part for name, part in saved.items() if name != "own"]


def recorder(env: gymnasium.Env) -> EpisodeRecorder:
    """Wrap an environment, unless it is wrapped already."""
    return env if isinstance(env, EpisodeRecorder) else EpisodeRecorder(env)


def _loaded_changes(saved: dict[str, Any]) -> list[tuple[int, str, Any]]:
    if not isinstance(saved, dict):
        raise CheckpointError("The checkpoint has no state of an environment where one should be.")
    try:
        return [(int(n), str(name), decode(saved["values"][str(i)])) for i, (n, name) in enumerate(saved["changes"])]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"What the checkpoint says was set in an environment is nothing ({error!r}).") from error


# ------------------------------------------------------------------------------------------- an environment
def _never(env: gymnasium.Env) -> str:
    """Return why no episode of this environment may be repeated; "" if it may."""
    for layer in rng_state.layers(env):
        if (layer.metadata or {}).get("resets_only"):
            return "its metadata says resets_only"
        if isinstance(layer, RecordVideo):
            return "RecordVideo around it would write its files again"
    return ""


def _own_layer(env: gymnasium.Env) -> gymnasium.Env | None:
    """Return the layer that saves itself and all that is inside it; None if there is none, or another outside it has
    state.
    """
    for layer in rng_state.layers(env):
        kind = type(layer)
        if hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict"):
            return layer
        if not isinstance(layer, _WITHOUT_STATE):
            return None
    return None


def _is_small(space: gymnasium.Space) -> tuple[bool, bool]:
    """Whether observations are in the checksum; and whether they are single arrays."""
    sizes = [np.dtype(leaf.dtype).itemsize * math.prod(leaf.shape or ()) for leaf in _leaves(space)]
    small = sum(sizes) <= LARGEST
    return small, small and isinstance(space, gymnasium.spaces.Box)


def _leaves(space: gymnasium.Space) -> list[gymnasium.Space]:
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, gymnasium.spaces.Dict) else space.spaces
        return [leaf for part in parts for leaf in _leaves(part)]
    return [space]


class _Packing:
    """Actions of one space as bytes, and back.

    Attributes:
        size: Bytes of an action.
    """

    def __init__(self, space: gymnasium.Space) -> None:
        self._space = space
        self._kinds = [(np.dtype(leaf.dtype), tuple(leaf.shape or ())) for leaf in _leaves(space)]
        self.size: int = sum(dtype.itemsize * math.prod(shape) for dtype, shape in self._kinds)
        self._dtype = None if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple) else self._kinds[0][0]

    def pack(self, action: Any) -> bytes:
        """Return an action as bytes."""
        if self._dtype is not None:
            return np.asarray(action, self._dtype).tobytes()
        parts = zip(_flat(action, self._space), self._kinds, strict=True)
        return b"".join(np.asarray(part, dtype).tobytes() for part, (dtype, _) in parts)

    def unpack(self, told: np.ndarray) -> Iterator[Any]:
        """Yield the actions. CheckpointError if there is not a whole number of them."""
        if told.dtype != np.uint8 or told.size % self.size:
            raise CheckpointError("The checkpoint's recorded actions are none of this environment.")
        rows, first, columns = told.reshape(-1, self.size), 0, []
        for dtype, shape in self._kinds:
            last = first + dtype.itemsize * math.prod(shape)
            columns.append(rows[:, first:last].copy().view(dtype).reshape(len(rows), *shape))
            first = last
        for parts in zip(*columns, strict=True):
            yield _shaped(self._space, iter(parts))


def _flat(action: Any, space: gymnasium.Space) -> Iterator[Any]:
    if isinstance(space, gymnasium.spaces.Dict):
        for key, part in space.spaces.items():
            yield from _flat(action[key], part)
    elif isinstance(space, gymnasium.spaces.Tuple):
        for one, part in zip(action, space.spaces, strict=True):
            yield from _flat(one, part)
    else:
        yield action


def _shaped(space: gymnasium.Space, parts: Iterator[Any]) -> Any:
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _shaped(part, parts) for key, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_shaped(part, parts) for part in space.spaces)
    return single(next(parts))
