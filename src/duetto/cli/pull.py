"""`duetto pull USER/NAME [--output FOLDER] [--revision REVISION]`."""

from __future__ import annotations

from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from duetto.cli.options import Json
from duetto.cli.output import print_json
from duetto.display.live import say
from duetto.display.progress import working
from duetto.sharing import fetch
from duetto.sharing.pulling import AT_MOST


def main(arguments: list[str]) -> None:
    """Parse, and pull."""
    tyro.cli(pull, args=arguments, prog="duetto pull")


def pull(
    repository: Annotated[Positional[str], arg(help="Whose run.", metavar="USER/NAME")],
    output: Annotated[str | None, arg(help="The folder to make; by default runs/NAME.", metavar="FOLDER")] = None,
    revision: Annotated[str | None, arg(help="A branch, a tag or a commit.")] = None,
    at_most: Annotated[float, arg(help="Refuse what is larger, in GB.", metavar="GB")] = AT_MOST,
    json: Json = False,
) -> None:
    """Fetch a run from the Hugging Face Hub, to evaluate, film or go on with it.

    It is a stranger's: no code that it brings or names is run. Files that belong to no run are left out.
    """
    with working(Console(stderr=True), f"pulling {repository}") as tell:
        pulled = fetch(repository, output, revision=revision, at_most=at_most, tell=tell)
    if json:
        print_json({"repository": repository, **pulled._asdict(), "path": str(pulled.path)})
        return
    for notice in pulled.notices:
        say(Console(stderr=True), notice, "yellow")
    size = sum(pulled.files.values()) / 1e6
    say(Console(), f"{pulled.path}: {len(pulled.files)} files, {size:.1f} MB, of commit {pulled.commit}.")
    say(Console(), f"See it: duetto video {pulled.path}")
