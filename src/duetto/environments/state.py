"""Saving an environment's own state in the middle of an episode, so that a resumed run goes on bit for bit.

Every layer (each wrapper, and the environment inside) is saved as its attributes. An attribute is
- simple (numbers, strings, None, arrays, random generators; lists, tuples, deques and dicts of these): saved,
- MuJoCo's MjData: saved as all arrays that the model sizes (PyBullet's worlds: see `bullet.py`),
- without state that matters (spaces, functions, what only draws): left as the new environment has it,
- anything else: the environment is not savable, and `save` returns None rather than guess.

An environment with other state defines `state_dict()` and `load_state_dict(state)` itself, with nested dicts of arrays
and JSON values; they are used instead of its attributes (its `np_random` is saved in any case). `load_state_dict` may
return False where it could not restore the state exactly; the run then begins new episodes. Do the same when
attributes are not all: a MuJoCo environment that edits its MjModel, or one that draws from global generators. A wrapper
with the class attribute `saves_what_is_inside = True` answers for the environment in it, too.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv
from gymnasium.wrappers import PassiveEnvChecker

from duetto.environments import bullet, values
from duetto.errors import CheckpointError

# Constant, or set anew by whoever makes the environment.
_IGNORED_NAMES = {"env", "spec", "metadata", "render_mode", "_saved_kwargs", "_cached_spec", "_metadata"}
_IGNORED_NAMES |= {"_ezpickle_args", "_ezpickle_kwargs", "mujoco_renderer"}
_IGNORED_TYPES = (
    gymnasium.Space,
    EnvSpec,
    np.dtype,
    type,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.ModuleType,
)
_IGNORED_PACKAGES = {"pygame", "mujoco"}  # windows, clocks; the model, which environments leave as it is


def save(env: gymnasium.Env) -> dict[str, Any] | None:
    """The state as nested dicts of arrays and JSON values; None if something in it cannot be saved."""
    seen = values.Seen()
    try:
        return {str(depth): _save_layer(layer, seen) for depth, layer in enumerate(_layers(env))}
    except values.NotSimpleError:
        return None


def load(env: gymnasium.Env, saved: dict[str, Any]) -> bool:
    """Put a state from `save` into an environment made in the same way, which must have been reset once.

    False where the environment's own `load_state_dict` says, by returning False, that it could not come back exactly.

    Raises:
        CheckpointError: The state is of another environment, or of other wrappers.
    """
    layers = list(_layers(env))
    kinds = [type(layer).__name__ for layer in layers]
    saved_kinds = [saved[str(depth)]["class"] for depth in range(len(saved))]
    if kinds != saved_kinds:
        raise CheckpointError(f"The saved environment is {saved_kinds}, this one is {kinds}. Make it in the same way.")
    return all(_load_layer(layer, saved[str(depth)]) for depth, layer in enumerate(layers))


class Saving(gymnasium.Wrapper):
    """Makes `save` and `load` reachable through a vector environment's `call` and `set_attr`.

    Attributes:
        restored: Whether the last state that was set came back exactly.
    """

    restored = True

    @property
    def saved_state(self) -> dict[str, Any] | None:
        """The state of the environment inside; setting it restores it."""
        return save(self.env)

    @saved_state.setter
    def saved_state(self, saved: dict[str, Any]) -> None:
        self.restored = load(self.env, saved)


class SavingVectorEnv(AsyncVectorEnv):
    """Subprocesses whose environments are each wrapped in `Saving`."""


def _layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    while True:
        if not isinstance(env, PassiveEnvChecker):  # remembers the last observation, and nothing that matters
            yield env
        if not isinstance(env, gymnasium.Wrapper) or getattr(type(env), "saves_what_is_inside", False):
            return
        env = env.env


def _save_layer(layer: gymnasium.Env, seen: values.Seen) -> dict[str, Any]:
    state: dict[str, Any] = {"class": type(layer).__name__, "attributes": {}}
    if bullet.is_bullet(layer):
        return state | {"bullet": bullet.save(layer)}
    own = hasattr(type(layer), "state_dict") and hasattr(type(layer), "load_state_dict")
    if own:
        state["own"] = layer.state_dict()  # type: ignore[attr-defined]
    for name, value in vars(layer).items():
        if (own and name != "_np_random") or _ignored(name, value):
            continue
        if _is_mjdata(value):
            state.setdefault("mjdata", {})[name] = _save_mjdata(value)
        else:
            state["attributes"][name] = values.encode(value, seen)
    return state


def _load_layer(layer: gymnasium.Env, state: dict[str, Any]) -> bool:
    for name, value in state["attributes"].items():
        if _ignored(name, vars(layer).get(name)) or callable(getattr(type(layer), name, None)):
            raise CheckpointError(f"The saved state sets {name} of {type(layer).__name__}, which no state holds.")
        vars(layer)[name] = values.decode(value)
    for name, arrays in state.get("mjdata", {}).items():
        _load_mjdata(getattr(layer, name), arrays)
    if "bullet" in state:
        bullet.load(layer, state["bullet"])
    return "own" not in state or layer.load_state_dict(state["own"]) is not False  # type: ignore[attr-defined]


def _ignored(name: str, value: Any) -> bool:
    if name in _IGNORED_NAMES or isinstance(value, _IGNORED_TYPES):
        return True
    return type(value).__module__.partition(".")[0] in _IGNORED_PACKAGES and not _is_mjdata(value)


def _is_mjdata(value: Any) -> bool:
    return type(value).__name__ == "MjData" and type(value).__module__.startswith("mujoco")


def _save_mjdata(data: Any) -> dict[str, Any]:
    """All arrays that the model sizes, not positions and velocities alone.

    Ant's reward reads xpos and cfrc_ext of the step before, and the solver starts from qacc_warmstart. What the
    contacts size is computed anew by each step; an array is one of these if a fresh MjData has it in another size.
    """
    fresh = type(data)(data.model)
    saved: dict[str, Any] = {"time": float(data.time)}
    for name in dir(data):
        value = None if name.startswith("_") else getattr(data, name)
        if isinstance(value, np.ndarray) and value.size and value.shape == getattr(fresh, name).shape:
            saved[name] = value.copy()
    return saved


def _load_mjdata(data: Any, saved: dict[str, Any]) -> None:
    for name, value in saved.items():
        if name == "time":
            data.time = value
        else:
            getattr(data, name)[...] = value  # in place: the memory is MuJoCo's
