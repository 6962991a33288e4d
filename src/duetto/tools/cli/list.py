"""`duetto list [algorithms|environments|presets]`: all on one screen, or one of them in full."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.environments import FAMILIES, Family
from duetto.install_hint import install, is_installed, names
from duetto.learners.backends import EXTRA, installed
from duetto.presets import presets
from duetto.tools.cli.options import Json
from duetto.tools.cli.output import print_json, wrapped


def list(
    what: Annotated[
        Positional[Literal["all", "algorithms", "environments", "presets"]],
        arg(help="One of them, with its details.", metavar="algorithms|environments|presets"),
    ] = "all",
    json: Json = False,
) -> None:
    """List algorithms with their spaces, presets, and environment families with the extra each needs."""
    if json:
        everything = _to_dict()
        print_json(everything if what == "all" else {what: everything[what]})
        return
    match what:
        case "algorithms":
            for name, kind in ALGORITHMS.items():
                _print_entry(name, _about(kind), f"observations: {kind.observations}", f"actions: {kind.actions}")
        case "environments":
            for family in FAMILIES:
                state = "installed" if _is_there(family) else "not installed"
                _print_entry(f"{family.name} ({state})", ", ".join(family.examples), f"extra: {family.extra}")
            print("Any other registered Gymnasium id works too.")
            _print_install(_missing_families())
        case "presets":
            for name in ALGORITHMS:
                for key, preset in presets(name).items():
                    _print_entry(f"{name} {key}", preset.about)
            print("The preset named after an environment is its default; --preset selects another.")
        case _:
            _print_all()


def _print_entry(name: str, *texts: str) -> None:
    """Print a name, and texts below it."""
    print("\n".join([name, *(wrapped(text, indent="  ") for text in texts)]))


def _to_dict() -> dict[str, Any]:
    """Return everything that can be listed as JSON values, for programs."""
    return {
        "algorithms": {
            name: {"observations": kind.observations, "actions": kind.actions, "about": _about(kind)}
            for name, kind in ALGORITHMS.items()
        },
        "environments": [
            {"name": family.name, "examples": family.examples, "extra": family.extra, "installed": _is_there(family)}
            for family in FAMILIES
        ],
        "presets": {name: {preset: entry.about for preset, entry in presets(name).items()} for name in ALGORITHMS},
        "backends": _backends(),
        "extras": _extras(),
    }


def _print_all() -> None:
    """Print an overview that fits on one screen."""
    print("Algorithms")
    for name, kind in ALGORITHMS.items():
        print(wrapped(f"{name:12} {kind.actions}: {', '.join(presets(name))}", "  ", 15))
    print("\nEnvironments")
    for family in FAMILIES:
        state = "installed" if _is_there(family) else f"extra {family.extra}"
        print(f"  {family.name:16} {family.examples[0]:22} {state}")
    for title, state in (("Backends", _backends()), ("Extras", _extras())):
        listed = [f"{name} ({'installed' if there else 'not installed'})" for name, there in state.items()]
        print("\n" + wrapped(f"{title}: {', '.join(listed)}"))
    print("\nMore: duetto list algorithms, duetto list environments, duetto list presets")
    _print_install([*_missing_families(), *(name for name, there in _extras().items() if not there)])


def _backends() -> dict[str, bool]:
    return {name: installed(name) for name in EXTRA}  # type: ignore[arg-type]


def _extras() -> dict[str, bool]:
    """Return whether each extra is installed, without backends, environments and collections of other extras."""
    others = {*EXTRA, *(family.extra for family in FAMILIES), "all", "dev", "docs"}
    return {name: is_installed(name) for name in names() if name not in others}


def _about(algorithm: type[Algorithm]) -> str:
    return (algorithm.__doc__ or "").split("\n\n")[0].strip()


def _print_install(extras: Sequence[str]) -> None:
    """Print the command for each missing extra, on one line that the terminal breaks, so that it can be copied."""
    for extra in dict.fromkeys(extras):
        print(f"Install {extra}: {install(extra)}")


def _missing_families() -> Sequence[str]:
    return [family.extra for family in FAMILIES if not _is_there(family)]


def _is_there(family: Family) -> bool:
    return all(find_spec(package) is not None for package in family.packages)
