"""Copy environments that were handed over as objects, with what was set on them, for evaluations and videos.

`gymnasium.make` with an object's `spec` would know nothing of `env.unwrapped.gravity = 0.0`.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import gymnasium
from gymnasium.utils import EzPickle
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.wrappers import RecordVideo
from typing_extensions import override

from duetto.environments.engines import label_of
from duetto.environments.errors import summary
from duetto.environments.rng_state import layers
from duetto.errors import UsageError


def copies_of(environment: gymnasium.Env | VectorEnv) -> Callable[..., gymnasium.Env]:
    """Return a factory of copies of an environment, or of a `SyncVectorEnv`'s first one.

    Raises:
        UsageError: It is another vector environment.
    """
    label = label_of(environment)
    single: Any = environment.envs[0] if isinstance(environment, SyncVectorEnv) else environment
    if isinstance(single, VectorEnv):
        raise UsageError(
            f"{label} is a {type(single).__name__}, which cannot make a single environment for evaluations and "
            "videos. Pass an id, or a function that makes a single environment, with its wrappers around it."
        )

    def another(render_mode: str | None = None) -> gymnasium.Env:
        buffer = io.BytesIO()
        try:
            if _is_bullet(single):
                raise UsageError("PyBullet's worlds cannot be copied")  # which are numbers to Python
            _Copier(buffer).dump(single)
            made = pickle.loads(buffer.getvalue())
            if render_mode not in (None, made.render_mode):
                made.unwrapped.render_mode = render_mode
        except Exception as error:  # a user's objects may raise anything
            raise UsageError(
                f"{label} cannot be copied for evaluations and videos ({summary(error)}). Pass an id, or a function "
                "that makes a new environment at each call."
            ) from error
        return made

    another.__name__ = label
    return another


def _is_bullet(env: gymnasium.Env) -> bool:
    modules = {kind.__module__ for layer in layers(env) for kind in type(layer).__mro__}
    bullet = sys.modules.get("pybullet")
    return bullet is not None and any(value is bullet for name in modules for value in vars(sys.modules[name]).values())


class _Copier(cloudpickle.Pickler):
    """Copies functions with the objects they refer to, so that they act on the copy."""

    @override
    def reducer_override(self, obj: Any) -> Any:
        """Omit RecordVideo, which would overwrite files, and copy EzPickle's classes by attributes."""
        if isinstance(obj, RecordVideo):
            return _itself, (obj.env,)
        if isinstance(obj, EzPickle) and type(obj).__getstate__ is EzPickle.__getstate__:
            return object.__new__, (type(obj),), vars(obj), None, None, _set_attributes
        return super().reducer_override(obj)


def _itself(env: gymnasium.Env) -> gymnasium.Env:
    return env


def _set_attributes(obj: Any, attributes: dict[str, Any]) -> None:
    vars(obj).update(attributes)
