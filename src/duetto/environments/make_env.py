"""Make a `VecEnv` from an id, an instance, a vector environment or a factory."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import pickle
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, get_args
from weakref import WeakValueDictionary

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.wrappers import RecordVideo
from typing_extensions import override

from duetto.algorithms.suggestions import did_you_mean
from duetto.environments import atari, env_registry, envpool_vector, minigrid, silence, subproc
from duetto.environments.atari import AtariOptions
from duetto.environments.atari_native import NativeAtari
from duetto.environments.engines import Engine, GymVectorEngine, SyncEngine, label_of
from duetto.environments.errors import raised, summary
from duetto.environments.learner_view import LearnerView
from duetto.environments.rng_state import layers, preserve
from duetto.environments.vec_env import VecEnv
from duetto.environments.wrappers import OPTION, fix_resets, hide_velocity
from duetto.errors import DuettoError, UsageError

Environment = str | gymnasium.Env | VectorEnv | Callable[..., gymnasium.Env]
_CAMERAS = ("camera_id", "camera_name", "default_camera_config")
Vectorization = Literal["sync", "subprocess"]


def make(
    environment: Environment,
    *,
    num_envs: int = 1,
    vectorization: Vectorization = "sync",
    worker_timeout: float = subproc.TIMEOUT,
    render_mode: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    to_learn: bool = True,
) -> VecEnv:
    """Make a VecEnv for `num_envs` environments.

    Args:
        environment: An id ("HalfCheetah-v5", "module:Id-v0", "envpool:Id"), a class or function in a file
            ("FILE.py:NAME"), an instance (then num_envs is 1), a Gymnasium vector environment in any autoreset mode
            (with its own num_envs), or a factory: the environment's class, or a callable that returns a new
            environment at each call.
        num_envs: Number of environments.
        vectorization: "sync": in this process, one after the other; "subprocess": one process per environment.
            Each process is a new Python that does not import the script.
        worker_timeout: Seconds after which a process that does not answer is treated as failed; 0: no limit.
        render_mode: Gymnasium's render mode, such as "rgb_array" for videos. Without it, Atari games are stepped in
            ale-py's C++ threads.
        kwargs: Arguments of the environment's constructor or of the factory; for Atari, `AtariOptions`.
            `mask_velocity=True` hides the velocities of CartPole, Pendulum, MountainCar, MountainCarContinuous, Acrobot
            and LunarLander.
        to_learn: Whether `episodic_life` terminates an Atari episode at a lost life, as only training needs.

    Raises:
        UsageError: The environment is unknown, its package is missing, or its arguments are wrong.
    """
    return _make(environment, _How(num_envs, vectorization, worker_timeout, render_mode, dict(kwargs or {})), to_learn)


def _make(environment: Environment, how: _How, to_learn: bool) -> VecEnv:
    if how.num_envs < 1:
        raise UsageError(f"num_envs is {how.num_envs}. Give a number of at least 1.")
    if how.vectorization not in (known := get_args(Vectorization)):
        raise UsageError(f"vectorization is {how.vectorization!r}.{did_you_mean(how.vectorization, known)}")
    if env_registry.is_device(environment):
        _check_no_processes(label_of(environment), how)
        from duetto.environments import device_adapters, device_env  # they import JAX

        env = device_adapters.make_device_env(environment, how.kwargs)
        return VecEnv(device_env.DeviceEngine(env, how.num_envs, label_of(environment)))
    if isinstance(environment, str) and environment.startswith(envpool_vector.PREFIX):
        _check_no_processes(environment, how)
        return VecEnv(envpool_vector.EnvPoolEngine(environment, how.num_envs, how.kwargs))
    environment = env_registry.resolved(environment)
    game = atari.find(environment) if isinstance(environment, str) else None
    if game:
        return VecEnv(_make_atari(game, how, to_learn), game.id)
    if isinstance(environment, VectorEnv | gymnasium.Env):
        return _wrap_instance(environment, how)
    if isinstance(environment, str):
        env_registry.check_known(environment)
        spec = env_registry.registration(environment)
        single = partial(_make_registered, environment, how.render_mode, how.kwargs, spec)
        return VecEnv(_several(single, environment, how))
    if callable(environment):
        single = partial(_make_by_factory, environment, how.render_mode, how.kwargs)
        return VecEnv(_several(single, label_of(environment), how))
    if hasattr(environment, "step"):
        raise UsageError(f"{_kind(environment)} is no gymnasium.Env. {DERIVE}")
    raise UsageError(f"{environment!r} is no environment. Give an id, an environment, or a factory (with num_envs).")


@preserve()
def make_eval(environment: Environment, **options: Any) -> VecEnv:
    """Make a new VecEnv that shares nothing with `environment`, for evaluation. The options are those of `make`.

    An id or a factory makes new environments. An instance is copied with its attributes; a `SyncVectorEnv`'s first
    environment is copied `num_envs` times. Atari games are played to their end. With `episodic_life`, the hidden state
    of recurrent policies is still reset after each life. `clip_rewards` and `log_rewards` apply, so that a recurrent
    policy gets the same rewards as in training; scores sum the game's own rewards.

    Raises:
        UsageError: An instance cannot be copied, or is a vector environment other than `SyncVectorEnv`. Pass a factory.
    """
    if isinstance(environment, VectorEnv | gymnasium.Env):
        environment, options["kwargs"] = copies_of(environment), {}
    return make(environment, to_learn=False, **options)


def is_instance(environment: Any) -> bool:
    """Return whether `environment` is an instance (an environment or vector environment), not an id or a factory."""
    return hasattr(environment, "step") and not isinstance(environment, type)


def complete_options(environment: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an id; missing options of an Atari game get the defaults of `AtariOptions`.

    Raises:
        UsageError: A value is invalid, or the environment's package is missing.
    """
    game = atari.find(environment)
    if game:
        chosen = AtariOptions.of(options)
        return dataclasses.asdict(chosen) | {"sticky_actions": atari.sticky_actions(game, chosen)}
    return dict(options)


class _How(NamedTuple):
    """The arguments of `make` besides the environment."""

    num_envs: int
    vectorization: str
    worker_timeout: float
    render_mode: str | None
    kwargs: dict[str, Any]


def _check_no_processes(label: str, how: _How, renders: bool = False) -> None:
    """Raise UsageError for options that environments in JAX or C++ threads do not support."""
    if how.render_mode and not renders:
        raise UsageError(f"{label} renders no frames.")
    if how.vectorization != "sync":
        raise UsageError(f"{label} steps all its environments at once. Leave vectorization out.")


DERIVE = "Derive its class from gymnasium.Env; replace `import gym` by `import gymnasium as gym`."


def _kind(environment: Any) -> str:
    return f"{type(environment).__module__}.{type(environment).__qualname__}".removeprefix("builtins.")


def _several(single: Callable[[], gymnasium.Env], name: str, how: _How) -> Engine:
    if how.vectorization == "subprocess":
        return subproc.SubprocEngine(single, how.num_envs, name, how.worker_timeout)
    return SyncEngine([single() for _ in range(how.num_envs)])


def _make_atari(game: EnvSpec, how: _How, to_learn: bool) -> Engine:
    options = AtariOptions.of(how.kwargs)
    _check_no_processes(game.id, how, renders=True)
    try:
        if how.render_mode:
            played = _several(partial(atari.make, game, options, how.render_mode), game.id, how)
            played.stacked = options.stack
            has_fire = "FIRE" in played.envs[0].get_wrapper_attr("get_action_meanings")()
        else:
            played = NativeAtari(game, options, how.num_envs)
            has_fire = played.has_fire
        fires = options.fire_reset == "lives" and has_fire
    except DuettoError:
        raise
    except Exception as error:
        raise env_registry.explain(game.id, {}, error) from error
    if not (options.episodic_life or options.clip_rewards or options.log_rewards or fires):
        return played
    return LearnerView(played, options, to_learn, fires)


def _make_registered(
    environment: str, render_mode: str | None, kwargs: dict[str, Any], spec: EnvSpec | None
) -> gymnasium.Env:
    """Make one environment by id, also in a subprocess, where the id must be registered again."""
    env_registry.register(environment)
    env_registry.register_spec(spec)
    family = env_registry.family_of(environment)
    kwargs = dict(kwargs)
    hides = kwargs.pop(OPTION, False)
    if render_mode is not None:  # an environment without rendering need not accept it
        kwargs = kwargs | {"render_mode": render_mode}
        if family is env_registry.MUJOCO and kwargs.keys().isdisjoint(_CAMERAS):  # else a cheetah leaves the view
            kwargs["camera_name"] = "track"
    try:
        # Gymnasium's passive checker only warns; VecEnv checks what matters.
        with silence.mujoco_compiler() if family is env_registry.MUJOCO else contextlib.nullcontext():
            env = gymnasium.make(environment, disable_env_checker=True, **kwargs)
    except Exception as error:
        raise env_registry.explain(environment, kwargs, error) from error
    env = fix_resets(env)
    env = hide_velocity(env) if hides else env
    return minigrid.VectorView(env) if family is env_registry.MINIGRID else env


def _make_by_factory(factory: Callable[..., Any], render_mode: str | None, kwargs: dict[str, Any]) -> gymnasium.Env:
    if render_mode is not None:
        parameters = inspect.signature(factory).parameters
        if "render_mode" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            kwargs = kwargs | {"render_mode": render_mode}
    name = label_of(factory)
    try:
        env = factory(**kwargs)
    except UsageError:
        raise
    except Exception as error:
        given = f" with {kwargs}" if kwargs else ""
        inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None  # not by the call itself
        where = f"\n{raised(name, error, None).trace}" if inside else ""
        raise UsageError(f"The factory {name} failed{given}: {type(error).__name__}: {error}{where}") from error
    if not isinstance(env, gymnasium.Env):
        raise UsageError(f"The factory {name} returned {_kind(env)}. Return one gymnasium.Env. {DERIVE}")
    inner = env.unwrapped
    if _RETURNED.get(id(inner)) is inner:  # rows of a batch would share it, and evaluations would reset it
        raise UsageError(
            f"The factory {name} returned the same environment twice. Make a new one at each call, or pass the "
            "environment itself: training and evaluations need separate ones."
        )
    _RETURNED[id(inner)] = inner
    return env


# Environments that factories returned, by id(), while they exist.
_RETURNED: WeakValueDictionary[int, gymnasium.Env] = WeakValueDictionary()


def _wrap_instance(environment: gymnasium.Env | VectorEnv, how: _How) -> VecEnv:
    name = label_of(environment)
    has = environment.num_envs if isinstance(environment, VectorEnv) else 1
    late = how.kwargs or how.vectorization != "sync" or how.render_mode not in (None, environment.render_mode)
    if late or how.num_envs not in (1, has):
        raise UsageError(
            f"{name} already exists, with {has} environment(s): num_envs, vectorization, kwargs and render_mode come "
            "too late. Pass an id, or a factory that makes a new environment at each call."
        )
    if not isinstance(environment, VectorEnv):
        return VecEnv(SyncEngine([environment]))
    if type(environment) is SyncVectorEnv:  # one by one, so that they can be resumed exactly
        return VecEnv(SyncEngine(list(environment.envs), name))
    return VecEnv(GymVectorEngine(environment, name))


# ------------------------------------------------------------------------------------------- copies
def copies_of(environment: gymnasium.Env | VectorEnv) -> Callable[..., gymnasium.Env]:
    """Return a factory of copies of an environment, or of a `SyncVectorEnv`'s first environment.

    Copies keep attributes, such as `env.unwrapped.gravity = 0.0`; `gymnasium.make` with the `spec` would not.

    Raises:
        UsageError: The environment is a vector environment other than `SyncVectorEnv`.
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
                raise UsageError("PyBullet's worlds cannot be copied")  # Python objects have only the worlds' ids
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
    """A pickler that copies functions with the objects they refer to, so that they act on the copy."""

    @override
    def reducer_override(self, obj: Any) -> Any:
        """Omit RecordVideo, which would overwrite files. Copy the attributes of EzPickle objects.

        EzPickle itself would call the constructor again, and lose attributes that were changed later.
        """
        if isinstance(obj, RecordVideo):
            return (lambda env: env), (obj.env,)
        if isinstance(obj, EzPickle) and type(obj).__getstate__ is EzPickle.__getstate__:
            return object.__new__, (type(obj),), vars(obj), None, None, lambda copied, own: vars(copied).update(own)
        return super().reducer_override(obj)
