"""`duetto train ALGORITHM ENVIRONMENT [options]`; ALGORITHM is a name, or `FILE.py:CLASS`."""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import tyro
from rich.console import Console
from tyro.conf import AvoidSubcommands, SuppressFixed, arg

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.suggestions import FOREIGN_NAMES, nearest, units
from duetto.errors import CheckpointError, UsageError
from duetto.presets import Preset, beside, choose
from duetto.storage import repeat_command, signing, user_code
from duetto.storage.config import Config, RunOptions
from duetto.storage.user_code import Origin, named, names_file
from duetto.tools.cli import options as shared
from duetto.tools.cli import unknown
from duetto.tools.cli.options import Flag, cluster, learning_fields, parse_options, with_address
from duetto.tools.cli.output import expendable, print_json
from duetto.training.progress_lines import say

if TYPE_CHECKING:
    from duetto.runs.finetune import WarmStart  # slow to import
    from duetto.runs.spec import RunSpec

USAGE = "duetto train ALGORITHM ENVIRONMENT [options]"

Maker = Callable[[type[Algorithm], Algorithm, RunOptions], Any]  # of a command, with its defaults


def main(arguments: list[str]) -> None:
    """Parse the options on top of the preset's, and train."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: {USAGE}\n\nAlgorithms: {', '.join(ALGORITHMS)}. duetto train td3 --help lists td3's options.")
        print("With another run's options: duetto train [ALGORITHM] [ENVIRONMENT] --config RUN/config.yaml [options].")
        print("Your own algorithm: duetto train ./my_algorithm.py:MyAlgorithm ENVIRONMENT.")
        return
    names = [argument.partition("=")[0] for argument in arguments]
    if "--seed" in names and "--seeds" in names:
        raise UsageError("--seed is one seed, --seeds are several. Give one of the two.")
    if "--config" in names:
        _train_like(*_split_config(arguments), named_first=not arguments[0].startswith("-"))
        return
    algorithm, origin = algorithm_named(arguments[0])
    options = with_address(arguments[1:])
    name, preset = chosen_preset(algorithm, origin, environment_of(algorithm, options), options)
    train(parsed(algorithm, options, name, preset), name, preset, origin)


def chosen_preset(
    algorithm: type[Algorithm], origin: Origin | None, environment: str, options: list[str]
) -> tuple[str, Preset]:
    """Return the preset that --preset names, or else the one for the environment, and its name."""
    return choose(algorithm.name(), environment, preset_of(options), beside(Path(origin.file)) if origin else None)


def _split_config(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the value of --config, and the other arguments."""
    place = next(i for i, argument in enumerate(arguments) if argument.partition("=")[0] == "--config")
    _, separator, file = arguments[place].partition("=")
    if separator:
        return file, arguments[:place] + arguments[place + 1 :]
    return "".join(arguments[place + 1 : place + 2]), arguments[:place] + arguments[place + 2 :]


def _train_like(file: str, rest: list[str], named_first: bool) -> None:
    """Start a new run; options that are not on the command line come from the `config.yaml` of another.

    The algorithm may be named and has to be the file's; `named_first`: it comes before --config.
    """
    path = Path(file) / "config.yaml" if Path(file).is_dir() else Path(file)
    if not path.is_file():
        raise UsageError(f"--config is {file!r}; it must be the config.yaml of a run.")
    config, origin, recorded = _read(path, file, rest[0] if rest and named_first else "")
    if rest and (named_first or rest[0] in ALGORITHMS):
        _check_agrees(rest[0], config.algorithm.name(), origin, file)
        rest = rest[1:]
    values = config.to_dict()
    for sentence in repeat_command.of_its_history(values):
        say(Console(stderr=True), f"--config {file}: {sentence}", "yellow")
    names = [argument.partition("=")[0] for argument in rest]
    if "--seeds" in names:
        values["run"]["seed"] = 0  # --seeds replaces it
    hyperparameters = {name: values["algorithm"][name] for name in config.algorithm.options()}
    preset = Preset(f"As {file}.", hyperparameters, values["run"], config.environment_options)
    command = partial(_command, environment="", recorded=recorded)
    call = parsed(type(config.algorithm), with_address(rest), config.preset, preset, command)
    if call.run.backend != config.run.backend and "--threads" not in names:
        call = dataclasses.replace(call, run=dataclasses.replace(call.run, threads=0))  # chosen for the other framework
    if call.preset is not None:
        raise UsageError("--config says every option already: leave --preset out.")
    call = _with_cluster_of(config.cluster, call, file)
    _check_environment(config, call.environment, file)
    if recorded is not None and call.from_run is None:
        _check_warm_start(recorded, config, file)
    call = dataclasses.replace(call, environment=call.environment or config.environment)
    train(call, config.preset, preset, origin, recorded)


def _with_cluster_of(recorded: dict[str, Any], call: Any, file: str) -> Any:
    """Return the call with the recorded run's cluster options. UsageError if it lacks --cluster."""
    if not recorded:
        return call
    if call.cluster is None:
        raise UsageError(f"{file} is of a run on a cluster, which decides its numbers. Give --cluster to repeat it.")
    if call.mode not in (None, recorded.get("mode")):
        return call
    return dataclasses.replace(call, **{name: value for name, value in recorded.items() if getattr(call, name) is None})


def _read(path: Path, file: str, algorithm: str) -> tuple[Config, Origin | None, WarmStart | None]:
    """Return the configuration, its algorithm's origin and the run that it starts from.

    A class that the configuration only names comes from the file of `algorithm`, the call's name for it.
    """
    try:
        try:
            config = Config.load(path)
        except UsageError:
            if not names_file(algorithm):
                raise
            kind, origin = named(algorithm)
            config = Config.load(path, algorithm=kind)
        else:
            origin = config.origin
        if config.began_from is None:
            return config, origin, None
        from duetto.runs.finetune import WarmStart

        return config, origin, WarmStart.from_dict(config.began_from)
    except CheckpointError as error:
        raise UsageError(f"--config {file} is no config.yaml of a run: {error}") from error


def _check_agrees(name: str, recorded: str, origin: Origin | None, file: str) -> None:
    """Raise UsageError if the call names another algorithm than the file."""
    if names_file(name):
        same = origin is not None and user_code.parts(name) == (Path(origin.file), origin.kind)
    else:
        same = algorithm_named(name)[0].name() == recorded
    if not same:
        raise UsageError(
            f"The call says {name}, and {file} is of {recorded}. Leave one of them out, or take {recorded}."
        )


def _check_environment(config: Config, environment: str, file: str) -> None:
    """Raise UsageError if the file alone names an environment that a stranger chose, or that cannot be made again."""
    recorded = "" if environment or not config.remakeable else config.environment
    named = signing.needs_trust(recorded, config.environment_options)
    if named and not signing.is_ours(config.references, config.signature):
        is_file, options = user_code.is_file(config.environment), config.environment_options
        kind, act = ("file", "runs it") if is_file else ("package", "imports what it names")
        raise UsageError(
            f"{file} is of {config.environment!r} with {options!r}, and to make that Python {act}. "
            f"It is of no run that you started on this machine. If you know the {kind}, name it yourself: duetto train "
            "ALGORITHM ENVIRONMENT [--environment-options KEY=VALUE]."
        )
    if not environment and not config.remakeable:
        raise UsageError(f"{file} is of {config.environment}, which is no id. Name an environment after the file.")


def _check_warm_start(recorded: WarmStart, config: Config, file: str) -> None:
    """Raise UsageError if only the file names the run whose networks to start with, and the file is a stranger's."""
    if not signing.is_ours(config.references, config.signature):
        raise UsageError(
            f"{file} is of a run that started with the networks of another, {recorded}, and it is of no run that you "
            "started on this machine. Name that other run yourself: --from RUN --from-checkpoint "
            f"{recorded.step}."
        )


# The preset gives the defaults that the parser shows, and depends on --preset and on the environment. So these two are
# read first.
def preset_of(options: list[str]) -> str | None:
    """Return the value of --preset without parsing other options."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", nargs="?")  # without a value: tyro's to refuse
    return parser.parse_known_args(options)[0].preset


def environment_of(algorithm: type[Algorithm], options: list[str], command: Maker | None = None) -> str:
    """Return the environment in the call, or "". After other options, only parsing tells it from their values."""
    if not options or not options[0].startswith("-"):
        return user_code.absolute(options[0]) if options else ""
    if "-h" in options or "--help" in options:
        return ""
    return parsed(algorithm, options, "default", Preset(), command).environment


def parsed(
    algorithm: type[Algorithm], options: list[str], name: str, preset: Preset, command: Maker | None = None
) -> Any:
    """Parse the call as `command` describes it. tyro exits if options are wrong, and after --help."""
    hyperparameters, run = algorithm().with_options(**preset.algorithm), RunOptions(**preset.run)
    _check_known(options, algorithm)
    kind = (command or _command)(algorithm, hyperparameters, run)
    call = tyro.cli(
        kind,
        args=options,
        prog=f"duetto {kind.__name__.lower()} {_called(algorithm)}",
        config=(AvoidSubcommands, SuppressFixed),
        description=f"{algorithm.__doc__}\n\nDefaults shown are those of the preset {name!r}.",
    )
    return dataclasses.replace(call, environment=user_code.absolute(call.environment))


def _called(algorithm: type[Algorithm]) -> str:
    """Return the name of an algorithm on the command line."""
    if algorithm.__module__.startswith(user_code.PREFIX):
        return f"{sys.modules[algorithm.__module__].__file__}:{algorithm.__name__}"
    return algorithm.name()


def _is_value(text: str) -> bool:
    return not text.startswith("--")


def _check_known(options: list[str], algorithm: type[Algorithm]) -> None:
    """Raise UsageError for other libraries' names of options, and for lists with commas."""
    known = [*algorithm.options(), *(entry.name for entry in dataclasses.fields(RunOptions))]
    lists = {name for name, hint in get_type_hints(algorithm).items() if hint == tuple[int, ...]}
    for place, option in enumerate(options):
        name = option.removeprefix("--").partition("=")[0].replace("-", "_")
        if option.startswith("--") and name in lists:
            value = " ".join([*option.partition("=")[2:], *takewhile(_is_value, options[place + 1 :])]).strip()
            if re.search(r"[\[(,]", value):
                spaced = " ".join(re.findall(r"\d+", value))
                raise UsageError(f"{option.partition('=')[0]} is {value}. Write {option.partition('=')[0]} {spaced}")
        if option.startswith("--") and name in FOREIGN_NAMES and name not in known:
            similar = " or ".join(f"--{each.replace('_', '-')}" for each in nearest(name, known))
            hint = f"Did you mean {similar}{units(name)}?" if similar else "It has nothing of the kind."
            raise UsageError(f"{algorithm.name()} has no option {option.partition('=')[0]}. {hint}")


def train(
    call: Any, name: str, preset: Preset, origin: Origin | None = None, recorded: WarmStart | None = None
) -> None:
    """Start the run or, with --seeds, the runs that the command line describes, and print where they are.

    `recorded` is the start of the run of --config; --from and its options change it.
    """
    from duetto.training.progress import shown

    seeds = None if call.seeds is None else _seeds(call)
    environment = preset.environment | parse_options(call.environment_options)
    if call.dry_run:
        _print_configs(call, seeds, name, environment, origin, recorded)
        return
    placed = cluster(call.cluster, **{field: getattr(call, field) for field in shared.CLUSTER})

    def callbacks() -> list[Any]:
        return [display, *shared.callbacks(call.stop_at_return, call.time_limit, call.video_every, call.track)]

    with expendable() as stream:
        console = Console(stderr=True) if call.json else Console(file=stream)
        doing = f"{call.hyperparameters.name()} on {call.environment}: making environments and networks"
        with shown(console, doing, call.quiet or call.json) as display:
            from duetto.runs.parallel_seeds import start_many  # slow to import: the display shows something already
            from duetto.runs.run import start

            spec = dataclasses.replace(_spec(call, name, environment, origin, recorded), cluster=placed)
            if seeds is not None:
                runs = start_many(spec, seeds, callbacks, display.announce_all)
            else:
                runs = [start(spec, callbacks(), display.announce)]
        paths = [each.path for each in runs]
        display.finish(*paths)
    if call.json:
        summaries = display.summaries(paths)
        print_json(summaries[0] if seeds is None else {"runs": summaries})


def _spec(
    call: Any, name: str, environment: dict[str, Any], origin: Origin | None, recorded: WarmStart | None
) -> RunSpec:
    """Return the run that the call describes, in this process; `name` is the preset's."""
    from duetto.runs.spec import RunSpec

    return RunSpec(
        algorithm=call.hyperparameters,
        environment=call.environment,
        options=call.run,
        preset=name,
        environment_options=environment,
        origin=origin,
        warm_start=_beginning(call, recorded),
        runs_dir=call.runs_dir,
        name=call.name,
    )


def _seeds(call: Any) -> tuple[int, ...]:
    """Return the seeds of --seeds. UsageError for options that a single run has."""
    from duetto.runs.seeds import parse_seeds

    seeds = parse_seeds(call.seeds)
    if call.track is not None:
        raise UsageError("--track follows one run in a process. Leave it out, or train the seeds one by one.")
    for name in ("cluster", *shared.CLUSTER):
        if getattr(call, name) is not None:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is of a cluster; --seeds trains in this process. Give one of the two.")
    return seeds


def _print_configs(
    call: Any,
    seeds: tuple[int, ...] | None,
    name: str,
    environment: dict[str, Any],
    origin: Origin | None,
    recorded: WarmStart | None,
) -> None:
    """Print the configuration of each run that the call would start."""
    from duetto.runs.parallel_seeds import planned_together

    spec = _spec(call, name, environment, origin, recorded)
    configs = [spec.config()] if seeds is None else planned_together(spec, seeds)
    if call.json:
        dicts = [config.to_dict() for config in configs]
        print_json(dicts[0] if seeds is None else {"runs": dicts})
    else:
        separator = "" if seeds is None else "---\n"
        print("".join(f"{separator}{config.to_yaml()}" for config in configs), end="")


def _beginning(call: Any, recorded: WarmStart | None) -> WarmStart | None:
    """Return the run to start from: the call's, or else the recorded one at its step or at the call's checkpoint."""
    from duetto.runs.finetune import WarmStart

    run = recorded.run if recorded is not None and call.from_run is None else call.from_run
    beginning = WarmStart.asked_for(run, call.from_checkpoint, call.from_optimizers, call.from_memory)
    if recorded is None or call.from_run is not None or beginning is None:
        return beginning
    same = beginning.checkpoint == recorded.checkpoint
    return dataclasses.replace(beginning, step=recorded.step) if same else beginning


def _command(
    algorithm: type[Algorithm],
    hyperparameters: Algorithm,
    run: RunOptions,
    environment: str | None = None,
    recorded: WarmStart | None = None,
) -> Any:
    """Return a dataclass for tyro: the command's options, the run's and the algorithm's."""
    checkpoint = recorded.checkpoint if recorded else "last"
    optimizers, memory = (recorded.optimizers, recorded.memory) if recorded else (False, False)
    source = Annotated[str | None, arg(name="from", help="Start with this run's networks.", metavar="RUN")]
    which = Annotated[str, arg(help="With --from: the checkpoint of that run.", metavar="last|best|STEP")]
    fields: list[Any] = [
        ("environment", shared.EnvironmentId, dataclasses.field() if environment is None else environment),
        *learning_fields(algorithm, hyperparameters, run),
        ("from_run", source, None),
        ("from_checkpoint", which, checkpoint),
        ("from_optimizers", Annotated[bool, arg(help="With --from: take over its optimizers.")], optimizers),
        ("from_memory", Annotated[bool, arg(help="With --from: take over its replay memory.")], memory),
        ("seeds", shared.Seeds, None),
        ("cluster", shared.Address, None),
        ("actors", shared.Actors, None),
        ("mode", shared.AnyMode, None),
        ("block", shared.Blocks, None),
        ("ahead", shared.Ahead, None),
        ("replay_shards", shared.ReplayShards, None),
        ("stop_at_return", shared.StopAtReturn, None),
        ("time_limit", shared.TimeLimit, None),
        ("video_every", shared.VideoEvery, None),
        ("track", shared.Track, None),
        ("preset", Annotated[str | None, arg(help="Named hyper-parameters; see `duetto list`.")], None),
        ("dry_run", Annotated[Flag, arg(help="Print the configuration, and nothing else.")], False),
        ("runs_dir", Annotated[str, arg(help="The folder in which the run's folder is made.")], "runs"),
        ("name", Annotated[str | None, arg(help="The folder's name.")], None),
    ]
    return dataclasses.make_dataclass("Train", fields)


def algorithm_named(name: str) -> tuple[type[Algorithm], Origin | None]:
    """Return the algorithm's class of this name, and its origin if it is custom. UsageError if there is none."""
    if names_file(name):
        return named(name)
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name], None
