"""`duetto push RUN USER/NAME [--checkpoint last|best|STEP] [--dry-run]`."""

from __future__ import annotations

from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import FlagCreatePairsOff, Positional, arg

from duetto.cli.options import Json, Trust
from duetto.cli.output import print_json
from duetto.display.live import say
from duetto.display.progress import working
from duetto.errors import escaped
from duetto.runs.run import Run
from duetto.sharing import Pushed
from duetto.sharing import push as send


def main(arguments: list[str]) -> None:
    """Parse, and push."""
    tyro.cli(push, args=arguments, prog="duetto push")


def push(
    run: Annotated[Positional[str], arg(help="The run's folder.")],
    repository: Annotated[Positional[str], arg(help="Where to; it is made if it is not there.", metavar="USER/NAME")],
    checkpoint: Annotated[str, arg(help="Which agent.", metavar="last|best|STEP")] = "last",
    episodes: Annotated[int, arg(help="Whole episodes that the card tells of.")] = 10,
    seed: Annotated[int | None, arg(help="Seed of their initial states; by default the run's own.")] = None,
    video: Annotated[bool, arg(help="Film an episode.")] = True,
    metrics: Annotated[bool, arg(help="Send metrics.jsonl.")] = True,
    memory: Annotated[
        FlagCreatePairsOff[bool], arg(help="Send the replay memory, with which the run goes on exactly.")
    ] = False,
    private: Annotated[
        FlagCreatePairsOff[bool], arg(help="Make a new repository private; else everybody can read it.")
    ] = False,
    revision: Annotated[str | None, arg(help="Another branch than main; it is made if it is not there.")] = None,
    message: Annotated[str | None, arg(help="Of the commit.")] = None,
    dry_run: Annotated[
        FlagCreatePairsOff[bool], arg(help="Write all into a folder, say what would be sent, and send nothing.")
    ] = False,
    output: Annotated[str | None, arg(help="That folder; by default hub/NAME.", metavar="FOLDER")] = None,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Evaluate a run's agent, film it, and send both to the Hugging Face Hub with a model card.

    Log in first: `hf auth login`. Signatures, callbacks' states and where things lie on this machine are not sent.
    """
    folder = Run(run, trust=trust)
    with working(Console(stderr=True), f"pushing {run}") as tell:
        pushed = send(
            folder,
            repository,
            checkpoint=checkpoint,
            episodes=episodes,
            seed=seed,
            video=video,
            metrics=metrics,
            memory=memory,
            private=private,
            revision=revision,
            message=message,
            dry_run=dry_run,
            output=output,
            tell=tell,
        )
    if json:
        print_json({"run": run, **pushed._asdict(), "evaluation": pushed.evaluation.to_dict(), "sent": not dry_run})
        return
    _show(pushed, repository, dry_run)


def _show(pushed: Pushed, repository: str, dry_run: bool) -> None:
    for notice in pushed.notices:
        say(Console(stderr=True), notice, "yellow")
    for name, size in pushed.files.items():
        print(f"{size:12,}  {escaped(name)}")
    for name in pushed.deleted:
        print(f"     removed  {escaped(name)}")
    print(f"mean return {pushed.evaluation}")
    print(f"{pushed.where}: sent to {repository}." if not dry_run else f"{pushed.where}: nothing was sent.")
