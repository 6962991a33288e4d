"""`duetto list`."""

from __future__ import annotations

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from duetto.algorithms import ALGORITHMS
from duetto.environments import FAMILIES
from duetto.presets import presets


def main(arguments: list[str]) -> None:
    """Parse, and list."""
    tyro.cli(overview, args=arguments, prog="duetto list")


def overview() -> None:
    """List algorithms with their spaces, presets, and environment families with the extra each needs."""
    console = Console()
    algorithms = Table("algorithm", "observations", "actions", "paper", title="Algorithms", title_justify="left")
    named = Table("algorithm", "preset", "what it is", title="Presets", title_justify="left")
    for name, algorithm in ALGORITHMS.items():
        about = (algorithm.__doc__ or "").split("\n\n")[0].strip()
        algorithms.add_row(*map(escape, (name, algorithm.observations, algorithm.actions, about)))
        for preset, entry in presets(name).items():
            named.add_row(*map(escape, (name, preset, entry.about)))
    families = Table("environments", "for example", "install", title="Environments", title_justify="left")
    for family in FAMILIES:
        families.add_row(*map(escape, (family.name, ", ".join(family.examples), family.install)))
    console.print(algorithms, named, families)
    console.print("A preset named after an environment is taken for it unless --preset says otherwise.")
    console.print("Any other registered Gymnasium id works too.")
