"""`duetto list [algorithms|environments|presets]`: all in one screen, or one of them in full."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from tyro.conf import Positional, arg

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.cli.options import Json
from duetto.cli.output import print_json
from duetto.environments import FAMILIES, Family
from duetto.extras import install, is_there, names
from duetto.learners.choice import EXTRA, installed
from duetto.presets import presets


def main(arguments: list[str]) -> None:
    """Parse, and list."""
    tyro.cli(overview, args=arguments, prog="duetto list")


def overview(
    what: Annotated[
        Positional[Literal["all", "algorithms", "environments", "presets"]], arg(help="One of them, with its details.")
    ] = "all",
    json: Json = False,
) -> None:
    """List algorithms with their spaces, presets, and environment families with the extra each needs."""
    if json:
        everything = _described()
        print_json(everything if what == "all" else {what: everything[what]})
        return
    console = Console()
    match what:
        case "algorithms":
            console.print(_algorithms())
        case "environments":
            console.print(_environments())
            console.print("Any other registered Gymnasium id works too.")
            _print_install(console)
        case "presets":
            console.print(_presets())
            console.print("A preset named after an environment is taken for it unless --preset says otherwise.")
        case _:
            _all(console)


def _described() -> dict[str, Any]:
    """Everything that can be listed, as JSON values for programs."""
    return {
        "algorithms": {
            name: {"observations": kind.observations, "actions": kind.actions, "about": _about(kind)}
            for name, kind in ALGORITHMS.items()
        },
        "environments": [
            {"name": one.name, "examples": one.examples, "extra": one.extra, "installed": _there(one)}
            for one in FAMILIES
        ],
        "presets": {name: {preset: entry.about for preset, entry in presets(name).items()} for name in ALGORITHMS},
        "backends": {name: installed(name) for name in EXTRA},  # type: ignore[arg-type]
        "extras": _extras(),
    }


def _all(console: Console) -> None:
    """Print an overview that fits on one screen."""
    console.print("Algorithms", style="bold")
    rows = Table.grid(padding=(0, 2, 0, 0))
    for name, algorithm in ALGORITHMS.items():
        rows.add_row(name, escape(algorithm.actions), escape(", ".join(presets(name))))
    console.print(Padding(rows, (0, 0, 1, 2)))
    console.print("Environments", style="bold")
    families = Table.grid(padding=(0, 2, 0, 0))
    for family in FAMILIES:
        state = "installed" if _there(family) else f"extra {family.extra}"
        families.add_row(family.name, escape(family.examples[0]), state)
    console.print(Padding(families, (0, 0, 1, 2)))
    backends = [f"{name} ({'installed' if installed(name) else 'not installed'})" for name in EXTRA]  # type: ignore[arg-type]
    console.print(f"Backends: {', '.join(backends)}", highlight=False)
    extras = [f"{name} ({'installed' if there else 'not installed'})" for name, there in _extras().items()]
    console.print(f"Extras: {', '.join(extras)}", highlight=False)
    console.print("More: duetto list algorithms, duetto list environments, duetto list presets", highlight=False)
    if not all(map(_there, FAMILIES)) or not all(_extras().values()):
        _print_install(console)


def _algorithms() -> Table:
    table = Table("algorithm", "observations", "actions", "paper", title="Algorithms", title_justify="left")
    for name, algorithm in ALGORITHMS.items():
        table.add_row(*map(escape, (name, algorithm.observations, algorithm.actions, _about(algorithm))))
    return table


def _extras() -> dict[str, bool]:
    """The extras that are no backend, no environments, and no collection of others; and whether they are installed."""
    known = {*EXTRA, *(family.extra for family in FAMILIES), "all", "dev", "docs"}
    return {name: is_there(name) for name in names() if name not in known}


def _about(algorithm: type[Algorithm]) -> str:
    return (algorithm.__doc__ or "").split("\n\n")[0].strip()


def _presets() -> Table:
    table = Table("algorithm", "preset", "what it is", title="Presets", title_justify="left")
    for name in ALGORITHMS:
        for preset, entry in presets(name).items():
            table.add_row(*map(escape, (name, preset, entry.about)))
    return table


def _environments() -> Table:
    table = Table("environments", "for example", "there", "extra", title="Environments", title_justify="left")
    for family in FAMILIES:
        there = "yes" if _there(family) else "no"
        table.add_row(*map(escape, (family.name, ", ".join(family.examples), there, family.extra)))
    return table


def _print_install(console: Console) -> None:
    """Print how to install an extra, on one line that the terminal breaks, so that it can be copied."""
    console.print(f"To install an extra: {install('EXTRA')}", highlight=False, markup=False, soft_wrap=True)


def _there(family: Family) -> bool:
    return all(find_spec(package) is not None for package in family.packages)
