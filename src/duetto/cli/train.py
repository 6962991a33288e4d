"""`duetto train ALGORITHM ENVIRONMENT [options]`; ALGORITHM is a name, or `FILE.py:CLASS`."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import re
import sys
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import tyro
from rich.console import Console
from tyro.conf import AvoidSubcommands, FlagCreatePairsOff, OmitArgPrefixes, SuppressFixed, arg

from duetto import own_files
from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.nearest import ELSEWHERE, nearest, units
from duetto.cli import watching
from duetto.cli.clusters import Actors, Address, Ahead, AnyPace, Blocks, ReplayShards, cluster, with_address
from duetto.cli.options import EnvironmentId, EnvironmentOptions, Json, Quiet, Seeds, environment_options
from duetto.cli.output import expendable, print_json
from duetto.display.live import say
from duetto.errors import CheckpointError, UsageError
from duetto.presets import Preset, beside, choose
from duetto.storage import remaking, trust
from duetto.storage.config import Config, RunOptions
from duetto.storage.origin import Origin, is_file, named

if TYPE_CHECKING:
    from duetto.runs.beginning import Beginning  # when it runs, only where it is needed: the import takes a while

USAGE = "duetto train ALGORITHM ENVIRONMENT [options]"

Maker = Callable[[type[Algorithm], Algorithm, RunOptions], Any]  # of a command, with its defaults


def main(arguments: list[str]) -> None:
    """Parse the options on top of the preset's, and train."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: {USAGE}\n\nAlgorithms: {', '.join(ALGORITHMS)}. duetto train td3 --help lists td3's options.")
        print("As another run was: duetto train [ALGORITHM] [ENVIRONMENT] --config RUN/config.yaml [options].")
        print("One of your own: duetto train ./my_algorithm.py:MyAlgorithm ENVIRONMENT.")
        return
    names = [argument.partition("=")[0] for argument in arguments]
    if "--seed" in names and "--seeds" in names:
        raise UsageError("--seed is one seed, --seeds are several. Give one of the two.")
    if found := _config_in(arguments):
        _again(*found, named_first=not arguments[0].startswith("-"))
        return
    algorithm, origin = algorithm_named(arguments[0])
    options = with_address(arguments[1:])
    known = beside(Path(origin.file)) if origin else None
    name, preset = choose(algorithm.name(), environment_of(algorithm, options), preset_of(options), known)
    train(parsed(algorithm, options, name, preset), name, preset, origin)


def _config_in(arguments: list[str]) -> tuple[str, list[str]] | None:
    """The file of --config, wherever it is, and the other arguments; None without --config."""
    for i, argument in enumerate(arguments):
        option, separator, file = argument.partition("=")
        if option != "--config":
            continue
        if separator:
            return file, arguments[:i] + arguments[i + 1 :]
        return (arguments[i + 1] if arguments[i + 1 :] else ""), arguments[:i] + arguments[i + 2 :]
    return None


def _again(given: str, rest: list[str], named_first: bool) -> None:
    """Start a new run with the configuration of another: what is not given comes from its `config.yaml`.

    The algorithm may be named too, and has to be the file's; `named_first`: it comes before --config.
    """
    path = Path(given) / "config.yaml" if Path(given).is_dir() else Path(given)
    if not path.is_file():
        raise UsageError(f"--config is {given!r}; it must be the config.yaml of a run.")
    config, recorded = _read(path, given, rest[0] if rest and named_first else "")
    if rest and (named_first or rest[0] in ALGORITHMS):
        _check_agrees(rest[0], config, given)
        rest = rest[1:]
    values = config.to_dict()
    for sentence in remaking.of_its_history(values):
        say(Console(stderr=True), f"--config {given}: {sentence}", "yellow")
    hyperparameters = {name: values["algorithm"][name] for name in config.algorithm.options()}
    if any(one.partition("=")[0] == "--seeds" for one in rest):
        values["run"]["seed"] = 0  # these, not its own
    preset = Preset(f"As {given}.", hyperparameters, values["run"], config.environment_options)
    command = partial(_command, environment="", recorded=recorded)
    call = parsed(type(config.algorithm), with_address(rest), config.preset, preset, command)
    if call.run.backend != config.run.backend and not any(one.partition("=")[0] == "--threads" for one in rest):
        call = dataclasses.replace(call, run=dataclasses.replace(call.run, threads=0))  # the other framework's
    if call.preset is not None:
        raise UsageError("--config says every option already: leave --preset out.")
    call = _placed(call, config.cluster, given)
    _check_may_be_made(config, call.environment, given)
    if recorded is not None and call.from_run is None:
        _check_may_begin(recorded, config, given)
    train(
        dataclasses.replace(call, environment=call.environment or config.environment),
        config.preset,
        preset,
        config.origin,
        recorded,
    )


def _placed(call: Any, recorded: dict[str, Any], given: str) -> Any:
    """The call with the pace of the recorded run, if that decides its numbers; UsageError without --cluster then."""
    pace = recorded.get("pace")
    if pace is None:
        return call
    if call.cluster is None:
        raise UsageError(
            f"{given} is of a run on a cluster at the pace {pace}, which decides its numbers. Give --cluster, and it "
            "is the same again; or --cluster --pace exact for the numbers of a run in one process."
        )
    if call.pace not in (None, pace):
        return call
    kept = {name: value for name, value in recorded.items() if getattr(call, name) is None}
    return dataclasses.replace(call, **kept)


def _read(path: Path, given: str, algorithm: str) -> tuple[Config, Beginning | None]:
    """The configuration, and the run that its run began from; `algorithm` is the name in the call, or "".

    A class that the file only names, a stranger's or one that was handed over in Python, is taken from the call's file.
    """
    try:
        try:
            config = Config.load(path)
        except UsageError:
            if not is_file(algorithm):
                raise
            kind, origin = named(algorithm)
            config = dataclasses.replace(Config.load(path, algorithm=kind), origin=origin)
        if config.began_from is None:
            return config, None
        from duetto.runs.beginning import Beginning

        return config, Beginning.from_dict(config.began_from)
    except CheckpointError as error:
        raise UsageError(f"--config {given} is no config.yaml of a run: {error}") from error


def _check_agrees(name: str, config: Config, given: str) -> None:
    """Raise UsageError if the call names another algorithm than the file."""
    ours = config.algorithm.name()
    if is_file(name):
        same = config.origin is not None and own_files.parts(name) == (Path(config.origin.file), config.origin.kind)
    else:
        same = algorithm_named(name)[0].name() == ours
    if not same:
        raise UsageError(f"The call says {name}, and {given} is of {ours}. Leave one of them out, or take {ours}.")


def _check_may_be_made(config: Config, environment: str, given: str) -> None:
    """Raise UsageError if only the file names the environment, and that is a stranger's, or cannot be made again."""
    harmless = environment and not trust.needs_trust("", config.environment_options)
    if not harmless and not trust.is_ours(config.environment, config.environment_options, config.signature):
        is_own, options = own_files.is_file(config.environment), config.environment_options
        what, does = ("file", "runs it") if is_own else ("package", "imports what it names")
        raise UsageError(
            f"{given} is of {config.environment!r} with {options!r}, and to make that Python {does}. "
            f"It is of no run that you began on this machine. If you know the {what}, say it yourself: duetto train "
            "ALGORITHM ENVIRONMENT [--environment-options KEY=VALUE]."
        )
    if not environment and not config.remakeable:
        raise UsageError(f"{given} is of {config.environment}, which is no id. Name an environment after the file.")


def _check_may_begin(recorded: Beginning, config: Config, given: str) -> None:
    """Raise UsageError if only the file names the run to begin from, and the file is a stranger's."""
    try:
        trust.check_folder(recorded.run, (config.began_from or {}).get("signature"), given)
    except UsageError as error:
        raise UsageError(
            f"{given} is of a run that began with the networks of another, {recorded}, and it is of no run that you "
            "began on this machine. Say yourself where that other run is: --from RUN --from-checkpoint "
            f"{recorded.step}."
        ) from error


# What is not given comes from the preset, --help shows it, and the preset is the one that is asked for or that is made
# for the environment. So these two are read before the defaults of the parser are known.
def preset_of(options: list[str]) -> str | None:
    """The value of --preset; no other option has to be parsed for it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", nargs="?")  # without a value: tyro's to refuse
    return parser.parse_known_args(options)[0].preset


def environment_of(algorithm: type[Algorithm], options: list[str], command: Maker | None = None) -> str:
    """The environment in the call, or "". If it is not the first argument, only a whole parse, then thrown away, tells
    it from an option's value.
    """
    if not options or not options[0].startswith("-"):
        return own_files.absolute(options[0]) if options else ""
    if "-h" in options or "--help" in options:
        return ""
    return parsed(algorithm, options, "default", Preset(), command).environment


def parsed(
    algorithm: type[Algorithm], options: list[str], name: str, preset: Preset, command: Maker | None = None
) -> Any:
    """Parse the call as `command` describes it; tyro ends the process if options are wrong, or after --help."""
    hyperparameters, run = algorithm().with_options(**preset.algorithm), RunOptions(**preset.run)
    _check_known(options, algorithm)
    described = (command or _command)(algorithm, hyperparameters, run)
    call = tyro.cli(
        described,
        args=options,
        prog=f"duetto {described.__name__.lower()} {_called(algorithm)}",
        config=(AvoidSubcommands, SuppressFixed),
        description=f"{algorithm.__doc__}\n\nDefaults shown are those of the preset {name!r}.",
    )
    return dataclasses.replace(call, environment=own_files.absolute(call.environment))


def _called(algorithm: type[Algorithm]) -> str:
    """The name of an algorithm on the command line."""
    if algorithm.__module__.startswith(own_files.PREFIX):
        return f"{sys.modules[algorithm.__module__].__file__}:{algorithm.__name__}"
    return algorithm.name()


def _is_value(text: str) -> bool:
    return not text.startswith("--")


def _check_known(options: list[str], algorithm: type[Algorithm]) -> None:
    """Raise UsageError for other libraries' names of options, and for lists with commas; tyro handles misspelt ones."""
    known = [*algorithm.options(), *(entry.name for entry in dataclasses.fields(RunOptions))]
    lists = {name for name, hint in get_type_hints(algorithm).items() if hint == tuple[int, ...]}
    for place, option in enumerate(options):
        name = option.removeprefix("--").partition("=")[0].replace("-", "_")
        if option.startswith("--") and name in lists:
            given = " ".join([*option.partition("=")[2:], *takewhile(_is_value, options[place + 1 :])]).strip()
            if re.search(r"[\[(,]", given):
                spaced = " ".join(re.findall(r"\d+", given))
                raise UsageError(f"{option.partition('=')[0]} is {given}. Write {option.partition('=')[0]} {spaced}")
        if option.startswith("--") and name in ELSEWHERE and name not in known:
            here = " or ".join(f"--{one.replace('_', '-')}" for one in nearest(name, known))
            meant = f"Did you mean {here}{units(name)}?" if here else "It has nothing of the kind."
            raise UsageError(f"{algorithm.name()} has no option {option.partition('=')[0]}. {meant}")


def train(
    call: Any, name: str, preset: Preset, origin: Origin | None = None, recorded: Beginning | None = None
) -> None:
    """Start the run that the command line describes, and say where it is and how to go on.

    `recorded` is what the run of --config began with; what the call says of a beginning comes on top of it.
    """
    from duetto.display.showing import shown

    given = preset.environment | environment_options(call.environment_options)
    if call.seeds is not None:
        from duetto.cli.many import train_many

        train_many(call, name, given, origin, _beginning(call, recorded))
        return
    if call.dry_run:
        from duetto.runs.planning import planned

        config = planned(call.hyperparameters, call.environment, call.run, name, given, origin)
        if begins := _beginning(call, recorded):
            config = begins.planned(config)
        print_json(config.to_dict()) if call.json else print(config.to_yaml(), end="")
        return
    how = {name: getattr(call, name) for name in ("actors", "pace", "block", "ahead", "replay_shards")}
    placed = cluster(call.cluster, **how)
    with expendable() as stream:
        console = Console(stderr=True) if call.json else Console(file=stream)
        beginning = f"{call.hyperparameters.name()} on {call.environment}: making environments and networks"
        with shown(console, beginning, call.quiet or call.json) as display:
            from duetto.runs.run import start  # with all that it imports, while something is shown already

            looking_on = watching.callbacks(call.stop_at_return, call.time_limit, call.video_every, call.track)
            run = start(
                call.hyperparameters,
                call.environment,
                call.run,
                runs_dir=call.runs_dir,
                name=call.name,
                preset=name,
                environment_options=given,
                callbacks=[display, *looking_on],
                on_start=display.announce,
                origin=origin,
                beginning=_beginning(call, recorded),
                cluster=placed,
            )
        display.finish(run.path)
    if call.json:
        print_json(display.summary(run.path))


def _beginning(call: Any, recorded: Beginning | None) -> Beginning | None:
    """The run to begin from, as the call asks; at the recorded step, unless the call names a run or a checkpoint."""
    from duetto.runs.beginning import Beginning

    run = recorded.run if recorded is not None and call.from_run is None else call.from_run
    asked = Beginning.asked_for(run, call.from_checkpoint, call.from_optimizers, call.from_memory)
    if asked is None or recorded is None or call.from_run is not None or asked.checkpoint != recorded.checkpoint:
        return asked
    return dataclasses.replace(asked, step=recorded.step)


def _command(
    algorithm: type[Algorithm],
    hyperparameters: Algorithm,
    run: RunOptions,
    environment: str | None = None,
    recorded: Beginning | None = None,
) -> Any:
    """The command as a dataclass that tyro reads: its own options, the run's and the algorithm's, side by side."""
    checkpoint = recorded.checkpoint if recorded else "last"
    optimizers, memory = (recorded.optimizers, recorded.memory) if recorded else (False, False)
    fields: list[Any] = [
        ("environment", EnvironmentId, dataclasses.field() if environment is None else environment),
        ("run", OmitArgPrefixes[RunOptions], dataclasses.field(default=run)),
        (
            "hyperparameters",
            OmitArgPrefixes[Annotated[algorithm, arg(name="")]],
            dataclasses.field(default=hyperparameters),
        ),
        ("environment_options", EnvironmentOptions, ()),
        (
            "from_run",
            Annotated[str | None, arg(name="from", help="Begin with this run's networks.", metavar="RUN")],
            None,
        ),
        (
            "from_checkpoint",
            Annotated[str, arg(help="With --from: which checkpoint of that run.", metavar="last|best|STEP")],
            checkpoint,
        ),
        ("from_optimizers", Annotated[bool, arg(help="With --from: take its optimisers over, too.")], optimizers),
        ("from_memory", Annotated[bool, arg(help="With --from: take its replay memory over, too.")], memory),
        ("seeds", Seeds, None),
        ("cluster", Address, None),
        ("actors", Actors, None),
        ("pace", AnyPace, None),
        ("block", Blocks, None),
        ("ahead", Ahead, None),
        ("replay_shards", ReplayShards, None),
        ("stop_at_return", watching.StopAtReturn, None),
        ("time_limit", watching.TimeLimit, None),
        ("video_every", watching.VideoEvery, None),
        ("track", watching.Track, None),
        ("preset", Annotated[str | None, arg(help="Named hyper-parameters; see `duetto list`.")], None),
        ("dry_run", Annotated[FlagCreatePairsOff[bool], arg(help="Print the configuration, and nothing else.")], False),
        ("quiet", Quiet, False),
        ("json", Json, False),
        ("runs_dir", Annotated[str, arg(help="Where the run's folder is made.")], "runs"),
        ("name", Annotated[str | None, arg(help="The folder's name.")], None),
    ]
    return dataclasses.make_dataclass("Train", fields)


def algorithm_named(name: str) -> tuple[type[Algorithm], Origin | None]:
    """The algorithm's class of this name, and its origin if it is not Duetto's own. UsageError if there is none."""
    if is_file(name):
        return named(name)
    if name not in ALGORITHMS:
        near = difflib.get_close_matches(name.lower(), ALGORITHMS, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"There is no algorithm {name!r}. {hint}There are: {', '.join(ALGORITHMS)}.")
    return ALGORITHMS[name], None
