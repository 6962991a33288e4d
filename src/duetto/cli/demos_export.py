"""`duetto demos export RUN --output FOLDER [--episodes N]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from duetto import demonstrations
from duetto.cli.demos_record import checked, play, trained
from duetto.cli.demos_showing import progress, say_what_is_there
from duetto.cli.options import Json, Trust
from duetto.display.live import say
from duetto.errors import UsageError
from duetto.runs.remembered import Remembered, remembered
from duetto.runs.run import Run
from duetto.storage import trust as trusting

_EPISODES = (
    "Fresh episodes of the agent, without exploration, in the place of those that it remembers; as "
    "`duetto demos record ENVIRONMENT --expert RUN`, which has more options."
)


def main(arguments: list[str]) -> None:
    """Parse, and export."""
    tyro.cli(export, args=arguments, prog="duetto demos export")


def export(
    run: Annotated[Positional[str], arg(help="The run's folder.")],
    output: Annotated[str, arg(help="The folder to make.")],
    checkpoint: Annotated[str, arg(help="Whose memory, or whose agent.", metavar="last|best|STEP")] = "last",
    episodes: Annotated[int | None, arg(help=_EPISODES, metavar="N")] = None,
    seed: Annotated[
        int | None, arg(help="Of the first fresh episode, by default 0; the next one has the next.")
    ] = None,
    overwrite: Annotated[bool, arg(help="Replace the dataset that is there.")] = False,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Write the episodes in a run's replay memory as a Minari dataset, exploration included, as they were made.

    Whole episodes only: those of which the memory has lost the beginning, and those that still run, are left out, and
    it is said how much that is.
    """
    if episodes is None and seed is not None:
        raise UsageError("--seed is of fresh episodes, and those that a run remembers have none: give --episodes, too.")
    demonstrations.check_free(Path(output), overwrite)
    folder, console = Run(run, trust=trust), Console(stderr=json)
    if episodes is None:
        _write(console, remembered(folder, checkpoint, trust), output, overwrite, json)
        return
    seed = checked(episodes, seed or 0)
    config = folder.config
    if not config.remakeable:
        raise UsageError(f"{run} was trained on {config.environment}, an object: no fresh episodes can be made here.")
    trusting.check(config.environment, config.environment_options, config.signature, run, trust)
    source = trained(folder, config.environment, {}, checkpoint, episodes, trust)
    play(console, config.environment, source, output, episodes, seed, overwrite=overwrite, json=json)


def _write(console: Console, found: Remembered, output: str, overwrite: bool, json: bool) -> None:
    for problem in found.problems:
        say(Console(stderr=True), problem, "yellow")
    written = 0
    with demonstrations.writer(output, found.description, overwrite) as writer, progress(console) as advance:
        for episode in found.episodes:
            writer.add(episode)
            advance()
            written += 1
        if not written:
            raise UsageError(
                f"The memory at step {found.step:,} holds no whole episode ({_left(found)}). Train with a larger "
                "replay_capacity or for longer, or take fresh ones: --episodes."
            )
    left = _left(found) if found.left.rows else None
    say_what_is_there(console, output, json, left_out=left)
    if left and not json:
        say(Console(stderr=True), f"Left out: {left}.", "yellow")


def _left(found: Remembered) -> str:
    left = found.left
    parts = {
        "of episodes whose beginning is overwritten": left.without_beginning,
        "of episodes that still run": left.running,
        "of episodes whose ends are not known": left.unknown,
    }
    return ", ".join(f"{rows:,} rows {about}" for about, rows in parts.items() if rows) or "it is empty"
