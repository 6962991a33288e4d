"""Make a `Stepper` of an id, an instance, a vector environment or a factory, with errors that say what to do."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal
from weakref import WeakValueDictionary

import gymnasium
from gymnasium.vector import VectorEnv

from duetto.environments import (
    atari,
    atari_reference,
    bullet,
    calls,
    cameras,
    copying,
    families,
    masking,
    minigrid,
    naming,
    own,
    quiet,
    subprocesses,
    workers,
)
from duetto.environments.atari import AtariOptions
from duetto.environments.atari_native import NativeAtari
from duetto.environments.engines import Engine, Loop, Vector, label_of
from duetto.environments.faults import raised
from duetto.environments.minigrid import MiniGridOptions
from duetto.environments.practice import Practice
from duetto.environments.stepping import Stepper
from duetto.errors import DuettoError, UsageError

Environment = str | gymnasium.Env | VectorEnv | Callable[..., gymnasium.Env]
Vectorization = Literal["sync", "subprocess"]
EngineName = Literal["auto", "native", "gymnasium", "envpool"]


def make(
    environment: Environment,
    *,
    num_envs: int = 1,
    vectorization: Vectorization = "sync",
    worker_timeout: float = workers.TIMEOUT,
    engine: EngineName = "auto",
    render_mode: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Stepper:
    """Make a Stepper for `num_envs` environments.

    Args:
        environment: An id ("HalfCheetah-v5", "module:Id-v0"), a class in a file ("FILE.py:CLASS"), an instance (then
            num_envs is 1), a Gymnasium vector environment in any autoreset mode (then num_envs is its own), or a
            factory: a callable that returns a new environment at each call, or the environment's class.
        num_envs: How many environments.
        vectorization: "sync", one after the other in this process, or "subprocess", a process for each environment.
            Processes are not forked (PyTorch and JAX have threads), so a script needs `if __name__ == "__main__":`.
        worker_timeout: Seconds after which such a process that does not answer is an error; 0 waits for ever.
        engine: "auto" takes "native" for Atari without rendering, and otherwise "gymnasium". "native" steps Atari games
            in ale-py's C++ threads, "envpool" in EnvPool's; that one only for ids that EnvPool has.
        render_mode: Gymnasium's, "rgb_array" for videos.
        kwargs: Arguments for the environment's own constructor, or for the factory; for Atari, `AtariOptions`; for
            MiniGrid and BabyAI, `MiniGridOptions` and the constructor's. `mask_velocity=True` leaves velocities out of
            what is observed of CartPole, Pendulum, MountainCar, MountainCarContinuous, Acrobot and LunarLander.

    Raises:
        UsageError: The environment is unknown, its package is missing, or the arguments do not fit.
    """
    options = dict(kwargs or {})
    return _make(environment, num_envs, vectorization, worker_timeout, engine, render_mode, options, to_learn=True)


def separate(
    environment: Environment,
    *,
    num_envs: int = 1,
    vectorization: Vectorization = "sync",
    worker_timeout: float = workers.TIMEOUT,
    engine: EngineName = "auto",
    render_mode: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Stepper:
    """Make a new Stepper that shares nothing with `environment`, for evaluation: see `make` for the arguments.

    Ids and factories are made anew. An instance is copied, with what was set on it, or else remade from its `spec`,
    which the stepper's `notices` say; of a vector environment, its first environment is copied `num_envs` times. Atari
    plays whole games: of `episodic_life` is left that an episode starts behind each life, for a memory that ends with
    one. `clip_rewards` and `log_rewards` have their effect, so that a recurrent policy sees what it has learned with;
    scores stay real.

    Raises:
        UsageError: An instance can be neither copied nor remade, or has wrappers around a whole vector environment;
            pass a factory instead.
    """
    another = copying.Another(environment) if isinstance(environment, VectorEnv | gymnasium.Env) else None
    options = {} if another else dict(kwargs or {})
    how = (num_envs, vectorization, worker_timeout, engine, render_mode, options)
    stepper = _make(another or environment, *how, to_learn=False)
    if another is not None and another.note:
        stepper.notices.append(another.note)
    return stepper


def is_instance(environment: Any) -> bool:
    """Whether it is an environment or vector environment made by the user, not an id, a class or another factory."""
    return hasattr(environment, "step") and not isinstance(environment, type)


def _make(
    environment: Environment,
    num_envs: int,
    vectorization: Vectorization,
    worker_timeout: float,
    engine: EngineName,
    render_mode: str | None,
    options: dict[str, Any],
    to_learn: bool,
) -> Stepper:
    if num_envs < 1:
        raise UsageError(f"num_envs is {num_envs}. Give a number of at least 1.")
    environment = own.resolved(environment)
    for value, known, option in ((vectorization, Vectorization, "vectorization"), (engine, EngineName, "engine")):
        naming.check_choice(option, value, known)
    if engine == "envpool":
        return _make_envpool(environment, num_envs, vectorization, render_mode, options)
    game = atari.find(environment) if isinstance(environment, str) else None
    several = partial(_several, num_envs=num_envs, vectorization=vectorization, worker_timeout=worker_timeout)
    if game:
        chosen = AtariOptions.of(options)
        played = _make_atari(game, chosen, num_envs, several, vectorization, engine, render_mode, to_learn)
        return Stepper(played, game.id)
    if engine == "native":
        raise UsageError(
            f'engine="native" is for Atari ids, such as ALE/Breakout-v5. Use engine="auto" for {environment}.'
        )
    if isinstance(environment, VectorEnv | gymnasium.Env):
        return _wrap_instance(environment, num_envs, vectorization, render_mode, options)
    if isinstance(environment, str):
        naming.check_known(environment)
        name, single = environment, partial(_make_registered, environment, render_mode, options)
    elif callable(environment):
        name, single = _name(environment), partial(_make_by_factory, environment, render_mode, options)
    elif hasattr(environment, "step"):
        raise UsageError(_of_another_kind(environment))
    elif isinstance(environment, list | tuple) and environment and all(map(callable, environment)):
        raise UsageError(
            f"A {type(environment).__name__} of {len(environment)} factories is no environment. Where they make the "
            f"same, give one and num_envs={len(environment)}; else gymnasium.vector.SyncVectorEnv of them."
        )
    else:
        raise UsageError(f"{environment!r} is no environment. Give an id, an environment, or a factory.")
    return Stepper(several(single, name))


def _of_another_kind(environment: Any) -> str:
    """Return the error's text for an object that has `step` but is no gymnasium.Env."""
    kind = type(environment)
    return (
        f"{kind.__module__}.{kind.__qualname__} is no gymnasium.Env. Derive its class from gymnasium.Env; where it "
        "says `import gym`, write `import gymnasium as gym`."
    )


def _several(
    single: Callable[[], gymnasium.Env], name: str, num_envs: int, vectorization: str, worker_timeout: float
) -> Engine:
    if vectorization == "sync":
        envs: list[gymnasium.Env] = []
        with ExitStack() as opened:  # what is made already is closed if another cannot be, or is of another kind
            for _ in range(num_envs):
                envs.append(single())
                opened.callback(calls.close, envs[-1])
            loop = Loop(envs)
            opened.pop_all()
        return loop
    return subprocesses.start([single] * num_envs, name, worker_timeout)


def _make_atari(
    game: atari.Game,
    options: AtariOptions,
    num_envs: int,
    several: Callable[..., Engine],
    vectorization: str,
    engine: str,
    render_mode: str | None,
    to_learn: bool,
) -> Engine:
    native = engine == "native" or (engine == "auto" and not render_mode)
    if native and (render_mode or vectorization != "sync"):
        raise UsageError(
            f'engine="native" has threads of its own and shows no full frames. Make {game.id} without vectorization '
            'and render_mode, or with engine="gymnasium".'
        )
    try:
        if native:
            played: Engine = NativeAtari(game, options, num_envs)
        else:
            single = partial(atari_reference.make, game, options, render_mode)
            played = several(single, game.id)
            played.stacked = options.stack
        fires = atari.fires_at_lives(game, options)
    except DuettoError:
        raise
    except OSError as error:
        raise UsageError(
            f"The ROM of {game.id} cannot be loaded: {error}. ROMs come with ale-py: unset ALE_ROMS_DIR, or install "
            "ale-py again."
        ) from error
    except Exception as error:
        raise naming.explain(game.id, {}, error) from error
    if not (options.episodic_life or options.clip_rewards or options.log_rewards or fires):
        return played
    return Practice(
        played,
        episodic_life=options.episodic_life and to_learn,
        life_starts=options.episodic_life,
        clip_rewards=options.clip_rewards,
        log_rewards=options.log_rewards,
        fires=fires,
    )


def _make_registered(environment: str, render_mode: str | None, kwargs: dict[str, Any]) -> gymnasium.Env:
    """Make one environment by id. Runs in a subprocess too, where the id has to be registered again."""
    families.register(environment)
    own.look_here(environment)
    own_model = naming.family_of(environment) is families.MUJOCO
    wrap, options, kwargs = _take_options(environment, kwargs)
    if render_mode is not None:  # an environment that renders nothing need not know the word
        kwargs = kwargs | {"render_mode": render_mode}
    try:
        # The checker only warns about the environment's author's mistakes; what matters here, the Stepper checks.
        with quiet.repeated_warnings(), quiet.mujoco_compiler() if own_model else contextlib.nullcontext():
            env = gymnasium.make(environment, disable_env_checker=True, **kwargs)
    except Exception as error:
        raise naming.explain(environment, kwargs, error, options) from error
    cameras.follow(env)
    return wrap(bullet.QuietStart(env) if bullet.is_bullet(env.unwrapped) else env)


def _take_options(
    environment: str, kwargs: dict[str, Any]
) -> tuple[Callable[[gymnasium.Env], gymnasium.Env], list[str], dict[str, Any]]:
    """Return the wrapper for an id's own options, the names of all these, and the arguments for the constructor."""
    kept, kwargs = masking.take(environment, kwargs)
    if naming.family_of(environment) is families.MINIGRID:
        seen, kwargs = MiniGridOptions.take(kwargs)
        return partial(minigrid.wrap, options=seen), minigrid.OPTIONS, kwargs
    names = [masking.OPTION] if masking.can(environment) else []
    return partial(masking.without_velocity, kept=kept), names, kwargs


def _make_by_factory(factory: Callable[..., Any], render_mode: str | None, kwargs: dict[str, Any]) -> gymnasium.Env:
    if render_mode is not None and _accepts(factory, "render_mode"):
        kwargs = kwargs | {"render_mode": render_mode}
    name = _name(factory)
    try:
        with quiet.repeated_warnings():
            env = factory(**kwargs)
    except UsageError:
        raise
    except Exception as error:
        given = f" with {kwargs}" if kwargs else ""
        inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None  # not the call alone
        where = f"\n{raised(name, error, None).trace}" if inside else ""
        raise UsageError(f"The factory {name} failed{given}: {type(error).__name__}: {error}{where}") from error
    if not isinstance(env, gymnasium.Env | VectorEnv) and hasattr(env, "step"):
        raise UsageError(_of_another_kind(env))
    if not isinstance(env, gymnasium.Env) or isinstance(env, VectorEnv):
        raise UsageError(f"The factory {name} returned {type(env).__name__}. Return one gymnasium.Env.")
    _check_new(name, env.unwrapped)
    return env


# Environments that factories returned, by their id, as long as they are there.
_RETURNED: WeakValueDictionary[int, gymnasium.Env] = WeakValueDictionary()


def _check_new(name: str, env: gymnasium.Env) -> None:
    """Raise UsageError where a factory returned it before: several rows would step it, and evaluations reset it."""
    if _RETURNED.get(id(env)) is env:
        raise UsageError(
            f"The factory {name} returned an environment that it had returned before. Training and evaluations have "
            "environments of their own: make a new one at each call, or hand over the environment itself."
        )
    with contextlib.suppress(TypeError):  # of a class with slots
        _RETURNED[id(env)] = env


def _name(factory: Callable[..., Any]) -> str:
    return getattr(factory, "__name__", type(factory).__name__)


def _accepts(factory: Callable[..., Any], parameter: str) -> bool:
    parameters = inspect.signature(factory).parameters
    return parameter in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _wrap_instance(
    environment: gymnasium.Env | VectorEnv,
    num_envs: int,
    vectorization: str,
    render_mode: str | None,
    kwargs: dict[str, Any],
) -> Stepper:
    name = label_of(environment)
    if kwargs or (render_mode is not None and render_mode != environment.render_mode):
        raise UsageError(f"{name} is made already; kwargs and render_mode come too late. Pass an id or a factory.")
    if isinstance(environment, VectorEnv):
        if num_envs not in (1, environment.num_envs):
            raise UsageError(f"{name} has {environment.num_envs} environments, num_envs says {num_envs}.")
        if vectorization != "sync":
            raise UsageError(
                f"{name} is a vector environment, which is made already and steps its environments itself: "
                f'vectorization="{vectorization}" comes too late. Leave it out, or pass an id or a factory.'
            )
        return Stepper(Vector(environment, name))
    if num_envs != 1 or vectorization != "sync":
        raise UsageError(
            f'{name} is one environment; num_envs={num_envs} with vectorization="{vectorization}" needs several. '
            "Pass its id, or a factory that makes a new one at each call."
        )
    return Stepper(Loop([environment]))


def _make_envpool(
    environment: Environment, num_envs: int, vectorization: str, render_mode: str | None, kwargs: dict[str, Any]
) -> Stepper:
    if not isinstance(environment, str):
        raise UsageError('engine="envpool" makes environments by id. Give an id, or use engine="gymnasium".')
    if render_mode or vectorization != "sync":
        raise UsageError(
            f'engine="envpool" has threads of its own and shows no frames. Make {environment} without vectorization '
            'and render_mode, or with engine="gymnasium".'
        )
    envpool: Any = families.import_family(families.ENVPOOL, "envpool", environment)
    known = envpool.list_all_envs()
    if environment not in known:
        raise UsageError(f"EnvPool has no {environment}.{naming.nearest(environment, known)}")

    def remake(seed: int) -> VectorEnv:
        # EnvPool takes seeds only here; its environment i gets seed + i, as Gymnasium's do.
        with quiet.repeated_warnings(), quiet.envpool_spaces():
            vector = envpool.make(environment, env_type="gymnasium", num_envs=num_envs, seed=seed, **kwargs)
            _ = vector.single_observation_space, vector.single_action_space  # made when first asked for, then kept
        return vector

    try:
        return Stepper(Vector(remake(0), environment, remake))
    except DuettoError:
        raise
    except Exception as error:  # some of its families need more of the system: Procgen Qt, for example
        raise naming.explain(environment, kwargs, error) from error
