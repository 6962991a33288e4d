"""Find environments by name (known families, registered ids, classes in files), and explain failures."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, registry

from duetto.algorithms.suggestions import did_you_mean, nearest
from duetto.environments import silence
from duetto.environments.errors import summary
from duetto.errors import UsageError
from duetto.install_hint import install
from duetto.storage import user_code


@dataclass(frozen=True)
class Family:
    """A family of environments that come with one package."""

    name: str
    examples: tuple[str, ...]
    extra: str  # Duetto's extra that installs the package
    entry_point: str  # module of its environments' entry points in Gymnasium's registry
    pattern: str = r"(?!)"  # regular expression of the ids that Gymnasium has only after an import of `entry_point`
    imports: tuple[str, ...] = ()  # modules to import before it


MUJOCO = Family(
    "MuJoCo",
    ("HalfCheetah-v5", "Ant-v5", "Hopper-v5", "Walker2d-v5", "Humanoid-v5", "InvertedPendulum-v5", "Reacher-v5"),
    "mujoco",
    "gymnasium.envs.mujoco",
)

ATARI = Family(
    "Atari",
    ("ALE/Breakout-v5", "ALE/Pong-v5", "BreakoutNoFrameskip-v4"),
    "atari",
    "ale_py",
    r"ALE/.*|\w+(-ram)?(NoFrameskip|Deterministic)-v\d+|\w+-ram-v\d+",
)

MINIGRID = Family(
    "MiniGrid",
    ("MiniGrid-Empty-5x5-v0", "MiniGrid-DoorKey-8x8-v0", "BabyAI-KeyCorridorS3R3-v0"),
    "minigrid",
    "minigrid",
    r"(MiniGrid|BabyAI)-.*",
)

FAMILIES = (
    MUJOCO,
    Family(
        "classic control",  # only rendering needs the extra (pygame)
        ("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"),
        "classic",
        "gymnasium.envs.classic_control",
    ),
    Family(
        "Box2D",
        ("LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3", "CarRacing-v3"),
        "box2d",
        "gymnasium.envs.box2d",
    ),
    Family(
        "PyBullet",
        ("AntBulletEnv-v0", "HalfCheetahBulletEnv-v0", "HopperBulletEnv-v0", "Walker2DBulletEnv-v0"),
        "pybullet",
        "pybullet_envs_gymnasium",
        r".*BulletEnv-v\d+",
        ("pybullet",),
    ),
    ATARI,
    MINIGRID,
)


def register(environment: str) -> None:
    """Import the package that registers this id, if the id is of a known family; the id may start with "package:".

    Raises:
        UsageError: The package is not installed.
    """
    for family in FAMILIES:
        if re.fullmatch(family.pattern, environment.rpartition(":")[2]):
            with silence.output():  # PyBullet's C code prints its build date
                for package in (*family.imports, family.entry_point):
                    import_family(family, package, environment)
            return


def resolved(environment: Any) -> Any:
    """Return the class or function that "FILE.py:NAME" names; other values are returned unchanged.

    This runs the file. Callers must first verify a name that comes from a run's folder (`storage.signing`).

    Raises:
        UsageError: The file cannot be read, does not run, or has no such class.
    """
    if not isinstance(environment, str) or not user_code.is_file(environment):
        return environment
    return user_code.load(environment, "environment", gymnasium.Env)[0]


def registration(environment: Any) -> EnvSpec | None:
    """Return an id's entry in Gymnasium's registry; None for unregistered ids and values that are no id."""
    return registry.get(environment) if isinstance(environment, str) else None


def register_spec(spec: EnvSpec | None) -> None:
    """Register an id in this process, with the entry that `registration` returned in another process."""
    if spec is not None:
        registry.setdefault(spec.id, spec)


def import_family(family: Family, module: str, environment: str) -> ModuleType:
    """Import `module`; if it is missing, raise a UsageError with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(family, environment, error) from error


def missing(family: Family, environment: str, error: Exception) -> UsageError:
    """Return the UsageError for a user who lacks the family's package."""
    return UsageError(f"{environment} needs the {family.name} environments ({error}). Install: {install(family.extra)}")


def family_of(environment: str) -> Family | None:
    """Return the family of a registered id, which may start with "module:"; None if it belongs to no known family."""
    spec = registry.get(environment.rpartition(":")[2])
    module = re.split("[.:]", str(spec and spec.entry_point))
    return next((f for f in FAMILIES if module[: f.entry_point.count(".") + 1] == f.entry_point.split(".")), None)


# ------------------------------------------------------------------------------------------- errors
def check_known(environment: str) -> None:
    """Raise UsageError unless Gymnasium has this id. Ids "module:Id-v0" pass: their module is imported later."""
    if ":" not in environment and environment not in registry:
        hint = "".join(f" Did you mean {near}?" for near in nearest(environment, registry))
        raise UsageError(
            f'There is no environment {environment}.{hint} If your package registers it, write "package:{environment}".'
        )


def check_listed(environment: str, known: list[str]) -> None:
    """Raise UsageError with the nearest known id, unless this id is in `known`, a package's list of ids."""
    if environment not in known:
        raise UsageError(f"There is no environment {environment}.{did_you_mean(environment, known)}")


def explain(environment: str, kwargs: dict[str, Any], error: Exception) -> UsageError:
    """Return the UsageError for an error of `environment`'s constructor."""
    family = family_of(environment)
    if isinstance(error, gymnasium.error.DependencyNotInstalled | ModuleNotFoundError) and family:
        return missing(family, environment, error)
    hint = (
        " For a module, install it or set PYTHONPATH; for a file, write ./FILE.py:NAME."
        if ":" in environment and isinstance(error, ModuleNotFoundError)
        else ""
    )
    given = f" with {kwargs}" if kwargs else ""
    return UsageError(f"{environment} cannot be made{given}: {summary(error)}.{hint}")


def not_shown(environment: str, error: BaseException) -> UsageError:
    """Return the UsageError for an environment that fails to render; it names a missing package or variable."""
    family, sentence = family_of(environment), f"{environment} cannot be shown ({error})."
    if isinstance(error, gymnasium.error.DependencyNotInstalled | ImportError) and family:
        sentence += f" Install: {install(family.extra)}"
    elif family is MUJOCO or re.search("opengl|egl|glfw|osmesa", str(error), re.IGNORECASE):
        sentence += " Without a display, MuJoCo needs: export MUJOCO_GL=egl"
    return UsageError(sentence)


# ------------------------------------------------------------------------------------------- environments in JAX
# Families by the prefix of their ids, such as gymnax:CartPole-v1. `device_adapters` makes their environments.
DEVICE_FAMILIES = {
    "gymnax": Family("gymnax", ("gymnax:CartPole-v1", "gymnax:Pendulum-v1"), "gymnax", "gymnax"),
    "playground": Family("MuJoCo Playground", ("playground:CheetahRun",), "playground", "mujoco_playground"),
    "navix": Family("Navix", ("navix:Navix-Empty-8x8-v0",), "navix", "navix"),
}


def is_device(environment: Any) -> bool:
    """Return whether an id, FILE.py:NAME, class or instance is of a `DeviceEnv`. Does not import JAX.

    Runs the file of FILE.py:NAME.
    """
    if isinstance(environment, str) and not user_code.is_file(environment):
        return environment.partition(":")[0] in DEVICE_FAMILIES
    return getattr(resolved(environment), "on_device", False) is True
