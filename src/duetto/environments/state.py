"""Save an environment's own state in the middle of an episode, so that a resumed run goes on bit for bit.

Every layer (each wrapper, and the environment inside; also one that another holds as its `env`) is saved as its
attributes, those in `__slots__` too. One is
- simple (numbers, strings, None, arrays, random generators; lists, tuples, deques and dicts of these): saved,
- a space: its generator is saved, if it has been used,
- MuJoCo's MjData or MjModel: saved as its arrays, see `mujoco_state.py` (PyBullet's worlds: see `bullet.py`),
- without state that matters (what only draws): left as the new environment has it,
- a function, a method or a class: left so, too, but its name is saved. Where the new environment has another one, which
  a callback or a step had put there, it has not come back exactly,
- anything else: the environment is not savable, and `save` returns None rather than guess.

With them go simple `metadata`, and the process's two global generators, `random` and `np.random`, if they were used
since the environment was made: loading sets these.
State anywhere else (closures, class attributes, a module's globals) cannot be seen here; `rehearsal.py` finds it.

An environment with other state defines `state_dict()` and `load_state_dict(state)` itself, with nested dicts of arrays
and JSON values; they are used instead of its attributes (its `np_random` is saved in any case). `load_state_dict` may
return False where it could not restore the state exactly; the run then begins new episodes. A wrapper with the class
attribute `saves_what_is_inside = True` answers for the environment in it, too.
"""

from __future__ import annotations

import copy
import types
import zlib
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import FrameStackObservation, PassiveEnvChecker

from duetto.environments import bullet, generators, mujoco_state, values
from duetto.environments.faults import shown, summary
from duetto.errors import CheckpointError

# Constant, or set anew by whoever makes the environment.
_IGNORED_NAMES = {"spec", "metadata", "render_mode", "_saved_kwargs", "_cached_spec", "_metadata"}
_IGNORED_NAMES |= {"_ezpickle_args", "_ezpickle_kwargs", "mujoco_renderer"}
_RULES = (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType)
_IGNORED_TYPES = (EnvSpec, np.dtype, types.ModuleType, *_RULES)
_IGNORED_PACKAGES = {"pygame", "mujoco"}  # windows, clocks, what renders
# What a reset writes before anything reads it; until then it is the first frames of the stack under another name.
_REWRITTEN = (FrameStackObservation, "padding_value")
_GENERATORS = "generators"  # a key beside the layers' numbers


def save(env: gymnasium.Env) -> dict[str, Any] | None:
    """Return the state as nested dicts of arrays and JSON values; None if something in it cannot be saved."""
    try:
        return _save(env)
    except values.NotSimpleError:
        return None


def obstacle(env: gymnasium.Env) -> str:
    """Name the attribute, and its kind, that makes `save` return None; "" where none does."""
    try:
        _save(env)
    except values.NotSimpleError as error:
        return str(error)
    return ""


def load(env: gymnasium.Env, saved: dict[str, Any]) -> bool:
    """Put a state from `save` into an environment made in the same way, which must have been reset once.

    False where it did not come back exactly: the environment's own `load_state_dict` says so by returning False, or its
    MuJoCo model is another one.

    Raises:
        CheckpointError: The state is of another environment, or of other wrappers.
    """
    layers = list(_layers(env))
    kinds = [type(layer).__name__ for layer in layers]
    saved_kinds = [saved[str(depth)]["class"] for depth in range(len(saved.keys() - {_GENERATORS}))]
    if kinds != saved_kinds:
        raise CheckpointError(f"The saved environment is {saved_kinds}, this one is {kinds}. Make it in the same way.")
    exact = all(_load_layer(layer, saved[str(depth)]) for depth, layer in enumerate(layers))
    if _GENERATORS in saved:
        generators.load(layers, saved[_GENERATORS])
    return exact


def begin(env: gymnasium.Env) -> None:
    """Note that an environment is about to be used: what others drew from the global generators until now (JAX does,
    when it is imported) was not its doing.
    """
    generators.remember(next(_layers(env)))


def remember(env: gymnasium.Env) -> None:
    """Look at an environment that was just made: what does not change from here on need not be saved."""
    layers = list(_layers(env))
    generators.remember(layers[0])
    for layer in layers:
        mujoco_state.remember(layer)


class Saving(gymnasium.Wrapper):
    """A wrapper that makes `save` and `load` reachable through a vector environment's `call` and `set_attr`.

    Attributes:
        restored: Whether the last state that was set came back exactly.
    """

    restored = True
    restored: bool

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        remember(env)

    @property
    def saved_state(self) -> dict[str, Any] | None:
        """The state of the environment inside; setting it restores it."""
        return save(self.env)

    @saved_state.setter
    def saved_state(self, saved: dict[str, Any]) -> None:
        self.restored = load(self.env, saved)


def _layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    while True:
        if not isinstance(env, PassiveEnvChecker):  # remembers the last observation, and nothing that matters
            yield env
        inside = getattr(env, "env", None)
        if getattr(type(env), "saves_what_is_inside", False) or not isinstance(inside, gymnasium.Env):
            return
        if not isinstance(env, gymnasium.Wrapper) and _saves_itself(env):
            return
        env = inside


def _saves_itself(layer: gymnasium.Env) -> bool:
    return hasattr(type(layer), "state_dict") and hasattr(type(layer), "load_state_dict")


def _save(env: gymnasium.Env) -> dict[str, Any]:
    seen = values.Seen()
    saved = {str(depth): _save_layer(layer, seen) for depth, layer in enumerate(_layers(env))}
    return saved | {_GENERATORS: generators.save(list(_layers(env)), seen)}


def _save_layer(layer: gymnasium.Env, seen: values.Seen) -> dict[str, Any]:
    state: dict[str, Any] = {"class": type(layer).__name__, "attributes": {}}
    if metadata := _save_metadata(layer):
        state["metadata"] = metadata
    if bullet.is_bullet(layer):
        return state | {"bullet": bullet.save(layer)}
    if own := _saves_itself(layer):
        state["own"] = _own_state(layer)
    if not own and (rules := _rules(layer)):
        state["rules"] = rules
    for name, value in _attributes(layer):
        if (own and name != "_np_random") or _ignored(name, value) or (type(layer), name) == _REWRITTEN:
            continue
        if mujoco_state.is_data(value):
            state.setdefault("mjdata", {})[name] = mujoco_state.save_data(value)
        elif mujoco_state.is_model(value):
            state.setdefault("mjmodel", {})[name] = mujoco_state.save_model(layer, name)
        else:
            try:
                state["attributes"][name] = values.encode(value, seen)
            except values.NotSimpleError as error:
                raise values.NotSimpleError(f"{type(layer).__name__}.{name} is {error}") from error
    return state


def _own_state(layer: Any) -> dict[str, Any]:
    """Return a copy of the layer's own `state_dict()`, which may change later.

    Raises:
        NotSimpleError: It raises, or is no dict of arrays and JSON values.
    """
    where = f"{type(layer).__name__}.state_dict()"
    try:
        state = copy.deepcopy(layer.state_dict())
    except Exception as error:  # whatever a user's code raises
        raise values.NotSimpleError(f"{where} raised {summary(error)}") from error
    if type(state) is not dict:
        raise values.NotSimpleError(f"{where} is {shown(state)}, and no dict")
    if strange := values.strange(state):
        raise values.NotSimpleError(f"{where} has {strange}")
    return state


def _load_layer(layer: gymnasium.Env, state: dict[str, Any]) -> bool:
    slots = set(_slots(layer))
    for name, value in state["attributes"].items():
        held = getattr(layer, name, None) if name in slots else vars(layer).get(name)
        if _ignored(name, held) or (name not in slots and callable(getattr(type(layer), name, None))):
            raise CheckpointError(f"The saved state sets {name} of {type(layer).__name__}, which no state holds.")
        if name in slots:
            object.__setattr__(layer, name, values.decode(value))
        else:
            vars(layer)[name] = values.decode(value)
    models = [mujoco_state.load_model(getattr(layer, name), one) for name, one in state.get("mjmodel", {}).items()]
    for name, arrays in state.get("mjdata", {}).items():
        mujoco_state.load_data(getattr(layer, name), arrays)
    if "bullet" in state:
        bullet.load(layer, state["bullet"])
    if "metadata" in state:
        _load_metadata(layer, state["metadata"])
    own = "own" not in state or layer.load_state_dict(copy.deepcopy(state["own"])) is not False  # type: ignore[attr-defined]
    return own and all(models) and ("rules" not in state or state["rules"] == _rules(layer))


def _rules(layer: gymnasium.Env) -> dict[str, str]:
    """Return the attributes that are functions, methods or classes, each with a name that tells which one it is."""
    found = {name: value for name, value in _attributes(layer) if isinstance(value, _RULES)}
    return {name: _which(value) for name, value in found.items() if name not in _IGNORED_NAMES}


def _which(rule: Any) -> str:
    """Return a function's name with what tells it from others of that name: a lambda's code, and the simple values that
    it closes over.
    """
    function = getattr(rule, "__func__", rule)
    name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    if not isinstance(function, types.FunctionType):
        return name
    if "<lambda>" in name:
        code = function.__code__
        name += f" {zlib.crc32(code.co_code)} {code.co_names} {[one for one in code.co_consts if _is_plain(one)]}"
    return name + "".join(f" {one!r}" for one in map(_enclosed, function.__closure__ or ()) if _is_plain(one))


def _enclosed(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)


def _attributes(layer: gymnasium.Env) -> Iterator[tuple[str, Any]]:
    yield from vars(layer).items()
    yield from ((name, getattr(layer, name)) for name in _slots(layer) if hasattr(layer, name))


def _slots(layer: gymnasium.Env) -> Iterator[str]:
    for kind in type(layer).__mro__:
        named = vars(kind).get("__slots__", ())
        for name in (named,) if isinstance(named, str) else named:
            private = name.startswith("__") and not name.endswith("__")
            yield f"_{kind.__name__.lstrip('_')}{name}" if private else name


def _ignored(name: str, value: Any) -> bool:
    if name in _IGNORED_NAMES or isinstance(value, (gymnasium.Space, *_IGNORED_TYPES)):
        return True
    if name == "env" and isinstance(value, gymnasium.Env):  # the next layer
        return True
    if mujoco_state.is_data(value) or mujoco_state.is_model(value):
        return False
    return type(value).__module__.partition(".")[0] in _IGNORED_PACKAGES


def _save_metadata(layer: gymnasium.Env) -> Any:
    if isinstance(layer, gymnasium.Wrapper):  # has its environment's
        return None
    try:
        return values.encode(layer.metadata, values.Seen())
    except values.NotSimpleError:  # constant as a rule: not worth refusing the environment
        return None


def _load_metadata(layer: gymnasium.Env, saved: Any) -> None:
    layer.metadata.clear()  # in place: it may be the class's
    layer.metadata.update(values.decode(saved))
