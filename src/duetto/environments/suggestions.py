"""Errors for wrong names or arguments of environments, with the nearest known names."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import gymnasium
from gymnasium.envs.registration import EnvSpec, parse_env_id, registry

from duetto.environments import env_registry
from duetto.errors import UsageError

_DISPLAYS = ("opengl", "egl", "glfw", "osmesa")
_WINDOWS = (*_DISPLAYS, "display", "video device", "video driver", "x11", "wayland")


def nearest(name: str, known: Iterable[str]) -> str:
    """ " Did you mean ...?" with up to three known names, or ""."""
    names = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    return f" Did you mean {', '.join(names[one] for one in close)}?" if close else ""


def check_choice(option: str, value: Any, literal: Any) -> None:
    """Raise UsageError unless `value` is one of the strings of a Literal."""
    known = get_args(literal)
    if value not in known:
        near = nearest(str(value), known)
        raise UsageError(f"{option}={value!r} is not known.{near} It is one of {', '.join(known)}.")


def check_known(environment: str) -> None:
    """Raise UsageError unless Gymnasium has this id; for "module:Id-v0" Gymnasium imports the module later."""
    if ":" in environment or environment in registry:
        return
    try:
        namespace, name, version = parse_env_id(environment)
    except gymnasium.error.Error:
        name, version, namespace = environment, None, None
    specs = [spec for spec in registry.values() if spec.name == name and spec.namespace == namespace]
    if not specs:
        known = {*registry, *env_registry.examples()}
        raise UsageError(
            f"There is no environment {environment}.{nearest(environment, known)} "
            'If a package of yours registers it, write "package:id".'
        )
    versions = ", ".join(sorted(spec.id for spec in specs))
    if version is not None:
        raise UsageError(f"There is no version {version} of {name}. Known are: {versions}.")
    newest = max(specs, key=lambda spec: spec.version or 0).id  # Gymnasium would select it, and a newer one later
    raise UsageError(f"{environment} names no version. Write {newest}; known are: {versions}.")


def explain(environment: str, kwargs: dict[str, Any], error: Exception, options: Iterable[str] = ()) -> UsageError:
    """Return the UsageError for an error of `environment`'s constructor; `options` are Duetto's options for it."""
    family = family_of(environment)
    if isinstance(error, gymnasium.error.DependencyNotInstalled) and family:
        return env_registry.missing(family, environment, error)
    if isinstance(error, ModuleNotFoundError) and family and "gymnasium-robotics" not in str(error):
        return env_registry.missing(family, environment, error)
    if isinstance(error, ImportError) and "gymnasium-robotics" in str(error):
        return UsageError(f"{environment} is no longer part of Gymnasium.{_newest(environment)}")
    module = environment.rpartition(":")[0]
    if isinstance(error, ModuleNotFoundError) and module and (absent := f"No module named '{module}'") in str(error):
        return UsageError(
            f"{environment} cannot be made: {absent}, neither on Python's path (PYTHONPATH, installed packages) nor in "
            f"the current folder, {Path.cwd()}. For a class in a file, write ./{module}.py:CLASS."
        )
    if isinstance(error, gymnasium.error.Error | ImportError):
        file, name = Path(f"{module.replace('.', '/')}.py"), environment.rpartition(":")[2]
        name = "CLASS" if re.search(r"-v\d+$", name) else name
        unknown = isinstance(error, gymnasium.error.UnregisteredEnv) and file.is_file()
        hint = f" {file} registers no such id. For a class in it, write ./{file}:{name}." if unknown else ""
        return UsageError(f"{environment} cannot be made: {error}{hint}")
    given = f" with {kwargs}" if kwargs else ""
    names = list(options)
    near = next((hint for name in kwargs if (hint := nearest(name, names))), "")
    more = f".{near} Besides its constructor's arguments it has: {', '.join(names)}." if names else ""
    return UsageError(f"{environment} cannot be made{given}: {type(error).__name__}: {error}{more}")


def not_shown(environment: str, error: Exception) -> UsageError:
    """Return the UsageError for an environment that fails to render: what to install, or what to set."""
    family = family_of(environment)
    if isinstance(error, gymnasium.error.DependencyNotInstalled | ImportError) and family:
        return UsageError(f"{environment} cannot be shown ({env_registry.said(error)}). Install: {family.install}")
    sentence = f"{environment} cannot be shown ({error})."
    if family is env_registry.MUJOCO or any(word in str(error).lower() for word in _DISPLAYS):
        sentence += " Without a display, MuJoCo needs: export MUJOCO_GL=egl"
    return UsageError(sentence)


def is_of_windows(environment: str, error: BaseException | None) -> bool:
    """Whether an error that was raised while a window opened is about the window, not the environment."""
    missing = isinstance(error, gymnasium.error.DependencyNotInstalled | ImportError)
    return missing or family_of(environment) is not None or any(word in str(error).lower() for word in _WINDOWS)


def lacks_display(environment: str) -> bool:
    """Whether a known family's window needs a display and there is none, which not all of them report.

    Without a display MuJoCo ends the process silently, Bullet waits forever, and SDL draws into memory.
    """
    family = family_of(environment)
    if sys.platform != "linux" or family is None or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        return False
    return family.name in ("MuJoCo", "PyBullet") or not {"SDL_VIDEODRIVER", "SDL_VIDEO_DRIVER"} & set(os.environ)


def no_window(environment: str, error: BaseException | str | None) -> UsageError:
    """Return the UsageError for an environment that cannot show itself in a window."""
    if isinstance(error, gymnasium.error.DependencyNotInstalled | ImportError):
        return not_shown(environment, error)
    return UsageError(
        f"{environment} cannot be shown in a window ({error}). Without a display, record it: duetto video."
    )


def family_of(environment: str) -> env_registry.Family | None:
    """Return the family of a registered id; None if Duetto does not know it."""
    spec = spec_of(environment)
    return env_registry.of_entry_point(spec.entry_point) if spec else None


def spec_of(environment: str) -> EnvSpec | None:
    """Return the spec of an id, with or without a module, from Gymnasium's registry; None if it has none."""
    return registry.get(environment.rpartition(":")[2])


def _newest(environment: str) -> str:
    spec = registry.get(environment)
    versions = [s for s in registry.values() if spec and s.name == spec.name and s.version is not None]
    return f" Use {max(versions, key=lambda s: s.version or 0).id}." if versions else ""
