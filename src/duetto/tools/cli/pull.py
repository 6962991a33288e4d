"""`duetto pull USER/NAME [--output FOLDER] [--revision REVISION]`."""

from __future__ import annotations

from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from duetto.tools.cli.options import Json
from duetto.tools.cli.output import print_json, print_notices
from duetto.tools.hub import fetch
from duetto.tools.hub.download import AT_MOST
from duetto.training.progress_lines import say, working


def pull(
    repository: Annotated[Positional[str], arg(help="The run's repository.", metavar="USER/NAME")],
    output: Annotated[str | None, arg(help="The folder to make; by default runs/NAME.", metavar="FOLDER")] = None,
    revision: Annotated[str | None, arg(help="A branch, a tag or a commit.", metavar="REVISION")] = None,
    at_most: Annotated[float, arg(help="Refuse a larger run, in GB.", metavar="GB")] = AT_MOST,
    json: Json = False,
) -> None:
    """Fetch a run from the Hugging Face Hub, to evaluate, record or resume it.

    No code that it contains or names is run. Files that belong to no run are left out.
    """
    with working(Console(stderr=True), f"pulling {repository}") as tell:
        pulled = fetch(repository, output, revision=revision, at_most=at_most, tell=tell)
    if json:
        print_json({"repository": repository, **pulled._asdict(), "path": str(pulled.path)})
        return
    print_notices(pulled.notices)
    size = sum(pulled.files.values()) / 1e6
    say(Console(), f"{pulled.path}: {len(pulled.files)} files, {size:.1f} MB, of commit {pulled.commit}.")
    say(Console(), f"See it: duetto video {pulled.path}")
