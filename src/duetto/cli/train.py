"""`duetto train ALGORITHM ENVIRONMENT [options]`."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import AvoidSubcommands, OmitArgPrefixes, Positional, SuppressFixed, arg

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.cli.options import EnvironmentOptions, environment_options
from duetto.cli.output import expendable
from duetto.errors import UsageError
from duetto.presets import Preset, choose
from duetto.storage.config import RunOptions

USAGE = "duetto train ALGORITHM ENVIRONMENT [options]"


def main(arguments: list[str]) -> None:
    """Parse the options on top of the preset's, and train."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: {USAGE}\n\nAlgorithms: {', '.join(ALGORITHMS)}. duetto train td3 --help lists td3's options.")
        return
    algorithm = _algorithm(arguments[0])
    options = arguments[1:]
    name, preset = choose(algorithm.name(), _environment(algorithm, options), _option(options, "--preset"))
    train(_parsed(algorithm, options, name, preset), name, preset)


def _environment(algorithm: type[Algorithm], options: list[str]) -> str:
    """The environment, which may have a preset of its own: that has to be known before the defaults are."""
    if not options or not options[0].startswith("-"):
        return options[0] if options else ""
    if "-h" in options or "--help" in options:
        return ""
    return _parsed(algorithm, options, "default", Preset()).environment


def _parsed(algorithm: type[Algorithm], options: list[str], name: str, preset: Preset) -> Any:
    """The call as `_command` describes it; tyro ends the process where options are wrong, or after --help."""
    lists_to_tuples = {name: tuple(v) if isinstance(v, list) else v for name, v in preset.algorithm.items()}
    return tyro.cli(
        _command(algorithm, algorithm().with_options(**lists_to_tuples), RunOptions(**preset.run)),
        args=options,
        prog=f"duetto train {algorithm.name()}",
        config=(AvoidSubcommands, SuppressFixed),
        description=f"{algorithm.__doc__}\n\nDefaults shown are those of the preset {name!r}.",
    )


def train(call: Any, name: str, preset: Preset) -> None:
    """Start the run that the command line describes, and say where it is and how to go on."""
    from duetto.cli.showing import finish, shown
    from duetto.runs.run import start

    with expendable() as stream:
        console = Console(file=stream)
        with shown(console) as display:
            run = start(
                call.hyperparameters,
                call.environment,
                call.run,
                runs_dir=call.runs_dir,
                name=call.name,
                preset=name,
                environment_options=preset.environment | environment_options(call.environment_options),
                callbacks=[display],
                on_start=display.announce,
            )
        finish(console, run, display)


def _command(algorithm: type[Algorithm], hyperparameters: Algorithm, run: RunOptions) -> Any:
    """The command as a dataclass that tyro reads: its own options, the run's and the algorithm's, side by side."""
    fields: list[Any] = [
        ("environment", Annotated[Positional[str], arg(metavar="ENVIRONMENT", help="An id.")], dataclasses.field()),
        ("run", OmitArgPrefixes[RunOptions], dataclasses.field(default=run)),
        (
            "hyperparameters",
            OmitArgPrefixes[Annotated[algorithm, arg(name="")]],
            dataclasses.field(default=hyperparameters),
        ),
        ("environment_options", EnvironmentOptions, ()),
        ("preset", Annotated[str | None, arg(help="Named hyper-parameters; see `duetto list`.")], None),
        ("runs_dir", Annotated[str, arg(help="Where the run's folder is made.")], "runs"),
        ("name", Annotated[str | None, arg(help="The folder's name.")], None),
    ]
    return dataclasses.make_dataclass("Train", fields)


def _algorithm(name: str) -> type[Algorithm]:
    if name not in ALGORITHMS:
        near = difflib.get_close_matches(name.lower(), ALGORITHMS, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"There is no algorithm {name!r}. {hint}There are: {', '.join(ALGORITHMS)}.")
    return ALGORITHMS[name]


def _option(arguments: list[str], name: str) -> str | None:
    """The value of an option that must be known before the others are parsed."""
    for i, argument in enumerate(arguments):
        if argument == name and i + 1 < len(arguments):
            return arguments[i + 1]
        if argument.startswith(f"{name}="):
            return argument.removeprefix(f"{name}=")
    return None
