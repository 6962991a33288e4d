"""Checksums of the user's own modules that a run may compute with: a resumed run says which were edited since.

Of the modules that environments and algorithm come from, all that is imported of their packages is watched; of a module
in no package, what lies beside it in its folder. `FILE.py:CLASS` is not among them: `own_files` watches that, and
closer, for it is known to count. The running script, `__main__`, is not either: it changes between the call that begins
a run and the one that goes on.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from duetto.own_files import PREFIX

_INSTALLED = {"site-packages", "dist-packages"}


def checksums(
    modules: Iterable[str], besides: Iterable[str] = (), known: Mapping[str, str] | None = None
) -> dict[str, str]:
    """SHA-256 of every file that the run may depend on, by its module's name.

    Args:
        modules: Names of the modules that environments and algorithm come from.
        besides: Packages that are watched by other means.
        known: Checksums found before, which stay: a file that was edited since is not what this process has imported.
    """
    others = {"__main__", "__mp_main__", *sys.stdlib_module_names, *besides}
    tops = {_top(name) for name in modules} - others
    found = dict(known or {})
    if not tops:
        return found
    folders = {home for top in tops if not _is_package(top) and (home := _home(top)) and not installed(home)}
    beside = {name for name in map(_top, tuple(sys.modules)) if _home(name) in folders} - others if folders else set()
    names = sorted(name for name in tuple(sys.modules) if _top(name) in tops | beside and not name.startswith(PREFIX))
    return found | {name: checksum for name in names if name not in found and (checksum := checksum_now(name))}


def edited(kept: Mapping[str, str]) -> list[str]:
    """Names of modules whose file was edited; one that cannot be found is no longer imported, and not among them."""
    return [name for name, before in kept.items() if checksum_now(name) not in ("", before)]


def checksum_now(name: str) -> str:
    """SHA-256 of a module's file, which need not be imported, and is not; "" where it has none."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest() if (file := _file(name)) else ""
    except OSError:
        return ""


def _file(name: str) -> Path | None:
    module: ModuleType | None = sys.modules.get(name)
    if module is not None:
        return Path(file) if (file := getattr(module, "__file__", None)) else None
    place, origin = None, None  # as `import` would find it, but no package on the way is imported
    for end in range(1, name.count(".") + 2):
        spec = PathFinder.find_spec(".".join(name.split(".")[:end]), place)
        if spec is None:
            return None
        place, origin = list(spec.submodule_search_locations or ()), spec.origin
    return Path(origin) if origin else None


def _top(name: str) -> str:
    return name.partition(".")[0]


def _is_package(top: str) -> bool:
    return hasattr(sys.modules.get(top), "__path__")


def _home(top: str) -> Path | None:
    """The folder that a module or package lies in."""
    module = sys.modules.get(top)
    place = next(iter(getattr(module, "__path__", ())), None) or getattr(module, "__file__", None)
    return Path(place).parent if place else None


def installed(folder: Path) -> bool:
    """Whether a folder, or what lies in it, belongs to an installed package."""
    return not _INSTALLED.isdisjoint(folder.parts)
