"""`duetto demos seal FOLDER`."""

from __future__ import annotations

from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from duetto import demonstrations
from duetto.cli.options import Json
from duetto.cli.output import print_json
from duetto.display.live import say


def main(arguments: list[str]) -> None:
    """Parse, and seal."""
    tyro.cli(seal, args=arguments, prog="duetto demos seal")


def seal(demos: Annotated[Positional[str], arg(help="The folder of the demonstrations.")], json: Json = False) -> None:
    """Check every episode and seal the folder as it is now: later changes of any byte are noticed.

    For folders of an earlier Duetto, which have no seal, and for those that you changed yourself.
    """
    found = demonstrations.seal(demos)
    if json:
        print_json({"file": demos, "episodes": len(found), "steps": found.steps})
        return
    say(Console(), f"{demos}: {len(found)} episodes, {found.steps:,} steps, sealed.")
