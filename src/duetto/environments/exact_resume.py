"""Resume an environment in the middle of an episode by repeating the episode.

    run         reset    step    step    set_attr  step    checkpoint
    recorded    start    action  action  change    action  and a checksum of all results
    resume      the same reset, steps and changes in a new environment; then the checksum is compared

The states of the random generators at an episode's reset, and the actions since then, determine the episode.
`EpisodeRecorder`, the outermost wrapper of every single environment, records:

- `begin`: the seed of the reset, and the states of the generators before the reset (`rng_state.places`),
- `actions`: the actions as the environment got them, one row of bytes each,
- `changes`: the attributes that `set_attr` changed, and after how many steps; changes from earlier episodes are made
  before the reset,
- `checksum`: of all rewards, and of all observations if an observation has at most `LARGEST` bytes. If it is larger,
  only the checkpoint's observation is compared. An episode that ends during its replay counts as different.

If the process's global generators (`random`, `np.random`) have changed at the second or third reset or at a checkpoint,
Duetto assumes that the environment draws from them, and records their states at each later reset. Such an environment
is restored exactly if it is the only environment in its process.

If an environment defines `state_dict()` and `load_state_dict(state)`, Duetto calls these methods instead. The state
consists of nested dicts of arrays and JSON values. An environment with state that outlives an episode (counters,
curricula, caches) needs these methods, since a repeated episode does not restore this state.

Recording does not change an environment's results. After a resume, an environment starts a new episode if its checksum
differs, its replay raises an error, its episode is too long, or its episodes cannot be repeated (`resets_only` in its
metadata, or `RecordVideo` around it). The other environments continue their episodes.
"""

from __future__ import annotations

import ast
import copy
import math
from array import array as numbers
from contextlib import suppress
from time import perf_counter
from typing import Any, NamedTuple
from zlib import crc32

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, RecordVideo, TimeLimit
from typing_extensions import override

from duetto.environments import rng_state
from duetto.environments.actions import Structure, structure
from duetto.environments.errors import shown, summary
from duetto.environments.obs_tree import array
from duetto.environments.spaces import Layout
from duetto.errors import CheckpointError
from duetto.functional import state_schema
from duetto.functional.state_schema import ANY, ARRAY, INTEGER, DictOf, ListOf, OptionalOf
from duetto.storage.tree_codec import encode_tree

LONGEST = 100_000  # maximum steps of an episode that is repeated
PATIENCE = 300.0  # maximum seconds that all steps of such an episode took when it was recorded
LARGEST = 1024  # maximum bytes of an observation that is in the checksum

# Wrappers without state, except for a TimeLimit's count; they may surround an environment with a state_dict().
_COUNTING = (OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit)
_WITHOUT_STATE = (*_COUNTING, gymnasium.ActionWrapper, gymnasium.RewardWrapper)
_BEFORE = -1  # `Change.steps` of a change before the reset
_CHANGES = {"changes": DictOf({"steps": INTEGER, "name": str, "value": ANY})}
_OWN = {"own": {}, "counts": ListOf(int), "generators": DictOf(ANY)}
_REPLAY = {
    "begin": {"seed": OptionalOf(INTEGER), "first": bool, "generators": DictOf(ANY)},
    "actions": ARRAY,
    "checksum": int,
    "generators": DictOf(ANY),
}
ELSEWHERE = (
    "its episode differed when it was repeated: it has state that outlives an episode, or draws from random generators "
    "outside of it"
)


class Change(NamedTuple):
    """A change of an attribute: after how many steps of the episode, its name, and its new value from `encode`."""

    steps: int
    name: str
    value: Any


class Restored(NamedTuple):
    """The outcome of a load."""

    why: str  # why the environment was not restored; "" if it was
    obs: Any = None  # of the current step, as is `info`; with `load_state_dict()`, of the reset before this call
    info: dict[str, Any] = {}  # noqa: RUF012 - never changed


class EpisodeRecorder(gymnasium.Wrapper):
    """A wrapper that records the current episode and can repeat it; results pass through unchanged.

    `step` takes an action for a Dict or Tuple space as a row (A,), which `Structure` converts.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._obstacle = ""  # why no episode may be repeated
        if any((layer.metadata or {}).get("resets_only") for layer in rng_state.layers(env)):
            self._obstacle = "its metadata says resets_only"
        elif any(isinstance(layer, RecordVideo) for layer in rng_state.layers(env)):
            self._obstacle = "RecordVideo around it would write its files again"
        self._own: Any = _own_layer(env)
        self._records = not self._obstacle and self._own is None
        self._structure = Structure(structure(env.action_space))
        nested = self._structure.nested
        self._dtype = np.dtype(np.float64 if nested else env.action_space.dtype)
        self._shape = (sum(self._structure.sizes.values()),) if nested else env.action_space.shape or ()
        self._size = self._dtype.itemsize * math.prod(self._shape)  # bytes of an action
        leaves = Layout(env.observation_space).leaves
        small = sum(leaf.dtype.itemsize * math.prod(leaf.shape) for leaf in leaves) <= LARGEST
        self._summed = leaves if small else []
        self._array = small and isinstance(env.observation_space, gymnasium.spaces.Box)
        self._places: list[rng_state.Place] = []
        self._resets = 0
        self._begin: dict[str, Any] = {}
        self._actions, self._rewards = bytearray(), numbers("d")
        self._changes: list[Change] = []
        self._checksum, self._seconds = 0, 0.0
        self._too_long = False
        self._process: dict[str, Any] = {}  # states of the global generators before the first reset
        self._draws = False  # whether the environment draws from the global generators

    @override
    def reset(self, **kwargs: Any) -> Any:
        if not self._records:
            return self.env.reset(**kwargs)
        self._resets += 1
        seed = kwargs.get("seed")
        if self._resets < 4 or seed is not None:
            self._places = rng_state.places(self.env)
            self._look_at_process()
        self._begin = {"generators": rng_state.save(self._places), "seed": seed, "first": self._resets == 1}
        if self._draws or self._resets == 1:
            self._begin["process"] = self._process if self._resets == 1 else rng_state.process_state()
        self._actions, self._rewards, self._seconds, self._too_long = bytearray(), numbers("d"), 0.0, False
        newest = {change.name: change._replace(steps=_BEFORE) for change in self._changes}
        self._changes = list(newest.values())
        first = self.env.reset(**kwargs)
        self._checksum = self._sum(first[0] if isinstance(first, tuple) else None, 0)
        return first

    def _look_at_process(self) -> None:
        """Find out whether the environment draws from the process's global generators."""
        if not self._process:
            self._process = rng_state.process_state()
        elif not self._draws:
            before, now = (encode_tree("process", state) for state in (self._process, rng_state.process_state()))
            self._draws = before != now

    @override
    def step(self, action: Any) -> Any:
        if not self._records:
            return self.env.step(self._structure.nest(action))
        self._actions += np.asarray(action, self._dtype).tobytes()
        before = perf_counter()
        given = self.env.step(self._structure.nest(action))
        self._seconds += perf_counter() - before
        try:
            obs, reward, _, _, _ = given
            self._rewards.append(float(reward))
        except Exception:  # an invalid result, which ends the run
            return given
        try:
            self._checksum = crc32(obs, self._checksum) if self._array else self._sum(obs, self._checksum)
        except (TypeError, ValueError, BufferError):  # a list, or an array that is not contiguous
            self._checksum = self._sum(obs, self._checksum)
        if len(self._actions) > LONGEST * self._size or self._seconds > PATIENCE:
            self._actions, self._rewards, self._too_long = bytearray(), numbers("d"), True
        return given

    def _sum(self, obs: Any, checksum: int) -> int:
        """Return the checksum updated with an observation, up to the first part that cannot be read."""
        with suppress(Exception):  # a user's objects may raise anything; the invalid observation ends the run
            for leaf in self._summed:
                checksum = crc32(np.ascontiguousarray(array(leaf.find(obs))).data, checksum)
        return checksum

    # ------------------------------------------------------------------------------------------- attributes
    @override
    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set an attribute and record the change. If no checkpoint can store `value`, a resume starts a new episode."""
        done = self.env.set_wrapper_attr(name, value, force=force)
        try:
            change = Change(len(self._actions) // self._size if self._begin else _BEFORE, name, encode(value))
            self._changes = [*(one for one in self._changes if one[:2] != change[:2]), change]
        except TypeError:
            self._obstacle = f"its {name} was set to a value that no checkpoint holds"
        return done

    # ------------------------------------------------------------------------------------------- states
    def save(self) -> dict[str, Any]:
        """Return a state for `load`: nested dicts of arrays and JSON values.

        If the state has the key "why", `load` cannot restore the episode, for this reason.
        """
        saved = {"changes": {str(i): change._asdict() for i, change in enumerate(self._changes)}}
        too_long = f"its episode has more than {LONGEST:,} steps, or took more than {PATIENCE:.0f} s"
        if why := self._obstacle or (too_long if self._too_long else ""):
            return saved | {"why": why}
        if self._own is not None:
            return saved | self._save_own()
        self._look_at_process()
        begin = dict(self._begin)
        process = begin.pop("process", None)
        if self._draws and process is not None:
            begin["process"], saved["process"] = process, rng_state.process_state()
        return saved | {
            "begin": begin,
            "actions": np.frombuffer(bytes(self._actions), np.uint8),
            "checksum": crc32(self._rewards, self._checksum),
            "generators": rng_state.save(rng_state.places(self.env)),
        }

    def _save_own(self) -> dict[str, Any]:
        try:
            state = copy.deepcopy(self._own.state_dict())
            encode_tree("own", state)
        except Exception as error:  # a user's code may raise anything; TypeError: a checkpoint cannot store the state
            return {"why": f"{type(self._own).__name__}.state_dict() cannot be saved ({summary(error)})"}
        counts = [limit._elapsed_steps for limit in self._limits()]
        return {"own": state, "counts": counts, "generators": rng_state.save(rng_state.places(self.env))}

    def _limits(self) -> list[TimeLimit]:
        return [layer for layer in rng_state.layers(self.env) if isinstance(layer, TimeLimit)]

    def load(self, saved: dict[str, Any]) -> Restored:
        """Continue where `save` was called.

        If the result has a `why`, the caller must reset the environment. Changed attributes are already set again.

        Raises:
            CheckpointError: The state is not of this environment.
        """
        state_schema.check(saved, _CHANGES, "stepper/environments")
        changes = [Change(**one) for one in saved["changes"].values()]
        self._changes = []
        rng_state.seed(self.env, 0)  # so that the spaces have generators
        try:
            if why := self._obstacle or saved.get("why"):
                restored = Restored(str(why))
            else:
                restored = self._load_own(saved, changes) if "own" in saved else self._repeat(saved, changes)
        except CheckpointError:
            raise
        except (Exception, SystemExit) as error:
            restored = Restored(f"repeating its episode raised {summary(error)}")
        if restored.why:
            self._apply(changes)
        return restored

    def _load_own(self, saved: dict[str, Any], changes: list[Change]) -> Restored:
        if self._own is None:
            return Restored("it has no load_state_dict() any more")
        state_schema.check(saved, _OWN, "stepper/environments")
        self._apply(changes)
        obs, info = self.env.reset(seed=0)
        for limit, count in zip(self._limits(), saved["counts"], strict=True):
            limit._elapsed_steps = count
        exact = self._own.load_state_dict(copy.deepcopy(saved["own"])) is not False
        exact = rng_state.load(self.env, saved["generators"]) and exact
        return Restored("" if exact else "its load_state_dict() returned False", obs, info)

    def _repeat(self, saved: dict[str, Any], changes: list[Change]) -> Restored:
        state_schema.check(saved, _REPLAY, "stepper/environments")
        begin, actions = saved["begin"], saved["actions"]
        if actions.dtype != np.uint8 or actions.size % self._size:
            raise CheckpointError("The checkpoint's recorded actions are not of this environment.")
        if not begin["first"]:  # an environment's first reset may build objects that later resets reuse
            self.env.reset(seed=0)
        self._resets, self._draws = 0 if begin["first"] else 3, "process" in begin
        self._apply(changes, _BEFORE)
        if not rng_state.load(self.env, begin["generators"]):
            return Restored("it has other random generators now")
        self._process = begin.get("process", {})
        if self._draws:
            rng_state.set_process_state(begin["process"])
        self._places = rng_state.places(self.env)
        obs, info = self.reset(seed=begin["seed"])
        self._changes = [change for change in changes if change.steps == _BEFORE]
        for steps, row in enumerate(actions.copy().view(self._dtype).reshape(-1, *self._shape)):
            self._apply(changes, steps)
            obs, _, terminated, truncated, info = self.step(row)
            if terminated or truncated:  # the recorded episode did not end
                return Restored(ELSEWHERE)
        self._apply(changes, len(actions) // self._size)
        if self._too_long:
            return Restored(f"repeating its episode took more than {PATIENCE:.0f} s")
        exact = crc32(self._rewards, self._checksum) == saved["checksum"]
        exact = exact and rng_state.load(self.env, saved["generators"])
        return Restored("" if exact else ELSEWHERE, obs, info)

    def _apply(self, changes: list[Change], steps: int | None = None) -> None:
        """Set again the attributes that were changed after `steps` steps of the episode; None: after any number."""
        for change in changes:
            if steps in (None, change.steps):
                self.set_wrapper_attr(change.name, decode(change.value), force=False)


def _recorder_states(saved: Any) -> list[dict[str, Any]]:
    """Return the saved state of each recorder, from the saved state of one or several engines."""
    if not isinstance(saved, dict):
        return []
    return [saved] if "changes" in saved else [state for part in saved.values() for state in _recorder_states(part)]


def obstacles(saved: Any) -> list[str]:
    """Return the reasons why environments start new episodes if this saved state is loaded, each reason once."""
    return list(dict.fromkeys(one["why"] for one in _recorder_states(saved) if "why" in one))


def attributes(saved: Any) -> dict[str, Any]:
    """Return the attributes that `set_attr` changed, from a saved state: values by name."""
    return {
        change["name"]: decode(change["value"]) for one in _recorder_states(saved) for change in one["changes"].values()
    }


def encode(value: Any) -> Any:
    """Encode a value for a checkpoint: an array, a state as in `tree_codec`, or a Python literal, such as a tuple.

    Raises:
        TypeError: The value is none of these.
    """
    plain: Any = np.array(value) if isinstance(value, np.generic) else value
    with suppress(TypeError):
        encode_tree("attribute", {"value": plain})
        return plain.copy() if isinstance(plain, np.ndarray) else {"plain": copy.deepcopy(plain)}
    with suppress(ValueError, SyntaxError):
        ast.literal_eval(text := repr(value))
        return {"literal": text}
    raise TypeError(f"No checkpoint holds {shown(value)}.")


def decode(value: Any) -> Any:
    """Undo `encode`; an array without axes becomes a NumPy scalar."""
    if not isinstance(value, dict):
        return value.copy()[()]
    return copy.deepcopy(value["plain"]) if "plain" in value else ast.literal_eval(value["literal"])


def _own_layer(env: gymnasium.Env) -> gymnasium.Env | None:
    """Return the outermost layer with a `state_dict()`; None if none has it, or a wrapper around it may have state."""
    for layer in rng_state.layers(env):
        if hasattr(type(layer), "state_dict") and hasattr(type(layer), "load_state_dict"):
            return layer
        if not isinstance(layer, _WITHOUT_STATE):
            return None
    return None
