"""Make single environments like an object that a user handed over, with what was set on it, to evaluate or film.

They are copies by pickling: `gymnasium.make` with an object's `spec` knows nothing of `env.unwrapped.gravity = 0.0`.
Where no copy can be made, it is made anew, and `note` says what that leaves out.
"""

from __future__ import annotations

import copy
import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.utils import EzPickle
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.wrappers import RecordVideo
from gymnasium.wrappers import vector as around

from duetto.environments.engines import label_of
from duetto.environments.rng_state import layers
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


class _Copier(cloudpickle.Pickler):
    """Copies functions with what they refer to, by which they act on the copy and not on the object itself."""

    def reducer_override(self, obj: Any) -> Any:
        """Leave out RecordVideo, which would write over the object's files; copy EzPickle's classes by attributes."""
        if isinstance(obj, RecordVideo):
            return _itself, (obj.env,)
        if isinstance(obj, EzPickle) and type(obj).__getstate__ is EzPickle.__getstate__:
            return object.__new__, (type(obj),), vars(obj), None, None, _set_attributes
        return super().reducer_override(obj)


def _itself(env: gymnasium.Env) -> gymnasium.Env:
    return env


def _set_attributes(obj: Any, attributes: dict[str, Any]) -> None:
    vars(obj).update(attributes)


def _copied(environment: gymnasium.Env) -> gymnasium.Env:
    bullet = sys.modules.get("pybullet")
    for layer in layers(environment) if bullet else ():
        package = type(layer).__module__.partition(".")[0]
        modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == package]
        if any(value is bullet for module in modules for value in vars(module).values()):
            raise UsageError("PyBullet's worlds cannot be copied")  # which are numbers to Python
    buffer = io.BytesIO()
    _Copier(buffer).dump(environment)
    return pickle.loads(buffer.getvalue())


def _can_show(made: gymnasium.Env, render_mode: str | None) -> bool:
    """Whether the environment has this render mode, or could be given it, which is tried."""
    if render_mode is None or render_mode == made.render_mode:
        return True
    if render_mode != "rgb_array" or render_mode not in made.metadata.get("render_modes", ()):
        return False  # a window may be made by the constructor
    made.unwrapped.render_mode = render_mode
    made.reset(seed=0)
    return isinstance(made.render(), np.ndarray)
