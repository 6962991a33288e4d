"""Make single environments like an object that a user handed over, with what was set on it, to evaluate or film.

They are deep copies: `gymnasium.make` with an object's `spec` knows nothing of `env.unwrapped.gravity = 0.0`. Where no
copy can be made, it is made anew, and `note` says what that leaves out.

A copy must share nothing that acts with the object, or evaluations would disturb training:
- an environment that says how it is pickled by its constructor's arguments (EzPickle) is copied by its attributes,
- functions set on it that lead back to the object, and PyBullet's worlds, which are numbers to Python, are no copies,
- Gymnasium's RecordVideo is left out: the copy would write over the object's own files.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import EzPickle
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.wrappers import RecordVideo
from gymnasium.wrappers import vector as around

from duetto.environments.engines import label_of
from duetto.errors import UsageError

# Around a vector environment, these change nothing of what is learned from.
_ONLY_WATCH = (around.RecordEpisodeStatistics, around.RecordVideo, around.HumanRendering)


class Another:
    """A factory of environments like a given one: each call makes another.

    Attributes:
        note: A sentence for the user where one was made anew; "" where all were copies.
    """

    def __init__(self, environment: gymnasium.Env | VectorEnv) -> None:
        """Raises UsageError where a single environment would be another task than this vector environment."""
        self.__name__: str = label_of(environment)
        self.note: str = ""
        self._single: gymnasium.Env | None = None
        self._anew: Callable[[str | None], gymnasium.Env] | None = None
        if isinstance(environment, VectorEnv):
            self._take_vector(environment)
        else:
            self._take_single(environment)

    def _take_vector(self, environment: VectorEnv) -> None:
        if names := wrappers_of(environment):
            raise UsageError(
                f"{self.__name__} has {', '.join(names)} around the whole vector environment; single environments, as "
                "evaluations and videos need them, would be without. Put such wrappers around each environment, inside "
                "the functions that make them."
            )
        inner = environment.unwrapped
        if not isinstance(inner, SyncVectorEnv | AsyncVectorEnv):
            raise UsageError(
                f"No single environment for evaluations and videos can be made from {self.__name__}, a "
                f"{type(inner).__name__}. Pass an id, or a function that makes a single environment."
            )
        first = inner.env_fns[0]
        self._single = inner.envs[0] if isinstance(inner, SyncVectorEnv) else None
        self._anew = lambda _: first()
        self._source = "its first function"

    def _take_single(self, environment: gymnasium.Env) -> None:
        spec = environment.spec
        self._single, self._source = environment, "its id"
        if spec is not None:
            spec = copy.copy(spec)
            kept = [one for one in spec.additional_wrappers if one.name != RecordVideo.class_name()]
            spec.additional_wrappers = tuple(kept)
            own = environment.render_mode
            self._anew = lambda render_mode: gymnasium.make(spec, render_mode=render_mode or own)

    def __call__(self, render_mode: str | None = None) -> gymnasium.Env:
        """Make a new environment; with a render mode, if it can have that."""
        failure: Exception = UsageError("it is in another process")
        if self._single is not None:
            try:
                made = _copied(self._single)
                if self._anew is None or _can_show(made, render_mode):
                    return made
                failure = UsageError(f"its render mode is {self._single.render_mode}, not {render_mode}")
            except Exception as error:  # whatever a user's objects raise
                failure = error
        return self._made_anew(render_mode, failure)

    def _made_anew(self, render_mode: str | None, failure: Exception) -> gymnasium.Env:
        try:
            if self._anew is None:
                raise failure
            made = self._anew(render_mode)
        except Exception as error:
            raise UsageError(
                f"{self.__name__} cannot be made anew for evaluation ({_sentence(error)}). "
                "Pass an id, or a factory that makes a new environment at each call."
            ) from error
        self.note = (
            f"{self.__name__} cannot be copied ({_sentence(failure)}), so for evaluations and videos it is made anew "
            f"from {self._source}: what was set on the object since it was made is not in these. Pass a function that "
            "makes it, and sets that, too."
        )
        return made


def wrappers_of(environment: Any) -> list[str]:
    """Return the class names of wrappers around a whole vector environment that may change what is learned from."""
    names: list[str] = []
    while isinstance(environment, VectorWrapper):
        if not isinstance(environment, _ONLY_WATCH):
            names.append(type(environment).__name__)
        environment = environment.env
    return names


def _sentence(failure: Exception) -> str:
    return str(failure) if isinstance(failure, UsageError) else f"{type(failure).__name__}: {failure}"


def _copied(environment: gymnasium.Env) -> gymnasium.Env:
    layers = [environment]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    _check_apart(layers)
    known: dict[int, Any] = {}  # what `deepcopy` takes for copied: it goes on with these
    by_attributes: list[tuple[gymnasium.Env, gymnasium.Env]] = []
    for layer in reversed(layers):
        if isinstance(layer, RecordVideo):
            known[id(layer)] = copy.deepcopy(layer.env, known)
        elif type(layer).__getstate__ is EzPickle.__getstate__:
            known[id(layer)] = object.__new__(type(layer))
            by_attributes.append((layer, known[id(layer)]))
    for layer, new in by_attributes:
        for name, value in vars(layer).items():
            vars(new)[name] = copy.deepcopy(value, known)
    copied = copy.deepcopy(environment, known)
    for function in _functions(environment, set()):
        outside = inspect.getclosurevars(function).globals.values()
        tables = [id(value) for value in outside if isinstance(value, dict | list | set)]  # which are read, as a rule
        own = (value for value in _outside(function) if id(value) not in tables)
        if any(known.get(id(value), value) is not value for value in own):
            raise UsageError(f"the function {function.__qualname__} in it refers to a part of the object itself")
    return copied


def _functions(value: Any, seen: set[int]) -> Iterator[types.FunctionType]:
    """Yield the functions in an object, its attributes and containers of any depth: `deepcopy` copies none."""
    if isinstance(value, types.FunctionType):
        yield value
        return
    if id(value) in seen or isinstance(value, type | types.ModuleType | np.ndarray | str | bytes | int | float):
        return
    seen.add(id(value))
    inside: list[Any] = list(getattr(value, "__dict__", {}).values())
    if isinstance(value, Mapping):
        inside += value.values()
    elif isinstance(value, list | tuple | set | frozenset | deque):
        inside += value
    elif isinstance(value, functools.partial):
        inside += [value.func, *value.args, *value.keywords.values()]
    for part in inside:
        yield from _functions(part, seen)


def _check_apart(layers: list[gymnasium.Env]) -> None:
    """Raise UsageError where a copy would act on the object itself."""
    for layer in layers:
        if _simulates_in_bullet(layer):
            raise UsageError("PyBullet's worlds cannot be copied")
        for name, value in vars(layer).items():
            if isinstance(value, types.FunctionType) and _leads_to(value, layers):
                raise UsageError(f"the function {name} that was set on it refers to the object itself")


def _leads_to(function: types.FunctionType, layers: list[gymnasium.Env]) -> bool:
    return any(value is layer for value in _outside(function) for layer in layers)


def _outside(function: types.FunctionType) -> list[Any]:
    """Return what a function reads by its closure, its module's globals or its defaults; a copy shares these."""
    outside = inspect.getclosurevars(function)
    found = [*outside.nonlocals.values(), *outside.globals.values(), *(function.__defaults__ or ())]
    return found + [value.__self__ for value in found if isinstance(value, types.MethodType)]


def _simulates_in_bullet(layer: gymnasium.Env) -> bool:
    """Whether the layer's package, or its script, uses PyBullet: a copy would have the number of the same world."""
    bullet = sys.modules.get("pybullet")
    package = type(layer).__module__.partition(".")[0]
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == package]
    return bullet is not None and any(value is bullet for module in modules for value in vars(module).values())


def _can_show(made: gymnasium.Env, render_mode: str | None) -> bool:
    """Whether the environment has this render mode, or could be given it, which is tried."""
    if render_mode is None or render_mode == made.render_mode:
        return True
    if render_mode != "rgb_array" or render_mode not in made.metadata.get("render_modes", ()):
        return False  # a window may be made by the constructor
    made.unwrapped.render_mode = render_mode
    made.reset(seed=0)
    return isinstance(made.render(), np.ndarray)
