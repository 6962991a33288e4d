"""`duetto demos import SOURCE --environment ID --output FOLDER`."""

from __future__ import annotations

from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from duetto import demonstrations, environments, own_files
from duetto.cli import options
from duetto.cli.demos_showing import progress, say_what_is_there, versions
from duetto.demonstrations import Description, as_learned, open_source

_SOURCE = (
    "A Minari dataset (its folder, or its id in Minari's own folder), a folder of npz files, one for each episode, or "
    "one such file. An npz file has the arrays observations (T + 1, ...), for Dict spaces observations/PART, "
    "actions (T, ...), rewards, terminations and truncations (T,)."
)


def main(arguments: list[str]) -> None:
    """Parse, and import."""
    tyro.cli(take_over, args=arguments, prog="duetto demos import")


def take_over(
    source: Annotated[Positional[str], arg(help=_SOURCE)],
    environment: Annotated[str, arg(help="The environment that they were recorded in.", metavar="ID|FILE.py:CLASS")],
    output: Annotated[str, arg(help="The folder to make.")],
    expert: Annotated[str | None, arg(help="Who acted; by default as the source says.")] = None,
    environment_options: options.PlainEnvironmentOptions = (),
    overwrite: Annotated[bool, arg(help="Replace the dataset that is there.")] = False,
    json: options.Json = False,
) -> None:
    """Take over episodes that were recorded elsewhere. Actions of Box spaces are mapped to [-1, 1], as agents act;
    rewards are clipped, or taken by their logarithm, where the options of an Atari game say that agents learn so.
    """
    environment, kwargs = own_files.absolute(environment), options.environment_options(environment_options)
    stepper = environments.separate(environment, kwargs=kwargs)
    spaces = stepper.observation_space, stepper.action_space
    stepper.close()
    found = as_learned(open_source(source, *spaces), environment, kwargs)
    description = Description(environment, kwargs, expert or found.expert, *spaces, versions())
    console = Console(stderr=json)
    with (
        demonstrations.writer(output, description, overwrite) as writer,
        progress(console, found.total) as advance,
    ):
        for episode, seed in found.episodes:
            writer.add(episode, seed)
            advance()
    say_what_is_there(console, output, json)
