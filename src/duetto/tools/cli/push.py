"""`duetto push RUN USER/NAME [--checkpoint last|best|STEP] [--dry-run]`."""

from __future__ import annotations

from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from duetto.errors import escaped
from duetto.runs.run import Run
from duetto.tools.cli.options import Checkpoint, Json, RunFolder, Trust
from duetto.tools.cli.output import print_json, print_notices
from duetto.tools.cli.parser import Flag
from duetto.tools.hub import push as push_run
from duetto.training.progress_lines import working


def push(
    run: RunFolder,
    repository: Annotated[Positional[str], arg(help="The repository; a new one is created.", metavar="USER/NAME")],
    checkpoint: Checkpoint = "last",
    episodes: Annotated[int, arg(help="Whole episodes of the evaluation on the card.")] = 10,
    seed: Annotated[int | None, arg(help="Seed of their initial states; by default the run's own.")] = None,
    video: Annotated[bool, arg(help="Record an episode.")] = True,
    metrics: Annotated[bool, arg(help="Send metrics.jsonl.")] = True,
    memory: Annotated[Flag, arg(help="Send the replay memory, with which the run resumes exactly.")] = False,
    private: Annotated[Flag, arg(help="Make a new repository private; else everybody can read it.")] = False,
    message: Annotated[str | None, arg(help="The commit's message.", metavar="TEXT")] = None,
    dry_run: Annotated[Flag, arg(help="Write all files into a folder, list them, and send nothing.")] = False,
    output: Annotated[str | None, arg(help="That folder; by default hub/NAME.", metavar="FOLDER")] = None,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Evaluate a run's agent, record a video, and send the run to the Hugging Face Hub with a model card.

    Log in first: `hf auth login`. Signatures, callbacks' states and paths on this machine are not sent.
    """
    trained = Run(run, trust=trust)
    with working(Console(stderr=True), f"pushing {run}") as tell:
        pushed = push_run(
            trained,
            repository,
            checkpoint=checkpoint,
            episodes=episodes,
            seed=seed,
            video=video,
            metrics=metrics,
            memory=memory,
            private=private,
            message=message,
            dry_run=dry_run,
            output=output,
            tell=tell,
        )
    if json:
        print_json({"run": run, **pushed._asdict(), "evaluation": pushed.evaluation.to_dict(), "sent": not dry_run})
        return
    print_notices(pushed.notices)
    for name, size in pushed.files.items():
        print(f"{size:12,}  {escaped(name)}")
    for name in pushed.deleted:
        print(f"     removed  {escaped(name)}")
    print(f"mean return {pushed.evaluation}")
    print(f"{pushed.where}: {'nothing was sent' if dry_run else f'sent to {repository}'}.")
