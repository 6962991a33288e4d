"""`duetto list [algorithms|environments|presets]`: all on one screen, or one of them in full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from tyro.conf import Positional, arg

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.environments import FAMILIES, Family
from duetto.install_hint import install, is_installed, names
from duetto.learners.backends import EXTRA, installed
from duetto.presets import presets
from duetto.tools.cli.options import Json
from duetto.tools.cli.output import print_json


def overview(
    what: Annotated[
        Positional[Literal["all", "algorithms", "environments", "presets"]], arg(help="One of them, with its details.")
    ] = "all",
    json: Json = False,
) -> None:
    """List algorithms with their spaces, presets, and environment families with the extra each needs."""
    if json:
        everything = _to_dict()
        print_json(everything if what == "all" else {what: everything[what]})
        return
    console = Console()
    match what:
        case "algorithms":
            rows = ((name, kind.observations, kind.actions, _about(kind)) for name, kind in ALGORITHMS.items())
            console.print(_table("Algorithms", ("algorithm", "observations", "actions", "paper"), rows))
        case "environments":
            rows = (
                (family.name, ", ".join(family.examples), "yes" if _is_there(family) else "no", family.extra)
                for family in FAMILIES
            )
            console.print(_table("Environments", ("environments", "for example", "there", "extra"), rows))
            console.print("Any other registered Gymnasium id works too.")
            _print_install(console, _missing_families())
        case "presets":
            rows = ((name, key, preset.about) for name in ALGORITHMS for key, preset in presets(name).items())
            console.print(_table("Presets", ("algorithm", "preset", "what it is"), rows))
            console.print("The preset named after an environment is its default; --preset selects another.")
        case _:
            _print_all(console)


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


def _print_all(console: Console) -> None:
    """Print an overview that fits on one screen."""
    algorithms = [(name, kind.actions, ", ".join(presets(name))) for name, kind in ALGORITHMS.items()]
    families = [
        (family.name, family.examples[0], "installed" if _is_there(family) else f"extra {family.extra}")
        for family in FAMILIES
    ]
    for title, rows in (("Algorithms", algorithms), ("Environments", families)):
        console.print(title, style="bold")
        grid = Table.grid(padding=(0, 2, 0, 0))
        for row in rows:
            grid.add_row(*map(escape, row))
        console.print(Padding(grid, (0, 0, 1, 2)))
    for title, state in (("Backends", _backends()), ("Extras", _extras())):
        listed = [f"{name} ({'installed' if there else 'not installed'})" for name, there in state.items()]
        console.print(f"{title}: {', '.join(listed)}", highlight=False)
    console.print("More: duetto list algorithms, duetto list environments, duetto list presets", highlight=False)
    _print_install(console, [*_missing_families(), *(name for name, there in _extras().items() if not there)])


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(*head, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _backends() -> dict[str, bool]:
    return {name: installed(name) for name in EXTRA}  # type: ignore[arg-type]


def _extras() -> dict[str, bool]:
    """Return whether each extra is installed, without backends, environments and collections of other extras."""
    others = {*EXTRA, *(family.extra for family in FAMILIES), "all", "dev", "docs"}
    return {name: is_installed(name) for name in names() if name not in others}


def _about(algorithm: type[Algorithm]) -> str:
    return (algorithm.__doc__ or "").split("\n\n")[0].strip()


def _print_install(console: Console, extras: Sequence[str]) -> None:
    """Print the command for each missing extra, on one line that the terminal breaks, so that it can be copied."""
    for extra in dict.fromkeys(extras):
        console.print(f"Install {extra}: {install(extra)}", highlight=False, markup=False, soft_wrap=True)


def _missing_families() -> list[str]:
    return [family.extra for family in FAMILIES if not _is_there(family)]


def _is_there(family: Family) -> bool:
    return all(find_spec(package) is not None for package in family.packages)
