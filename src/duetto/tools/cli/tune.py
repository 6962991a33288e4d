"""`duetto tune ALGORITHM ENVIRONMENT [options]`; the options are those of `duetto train`, and the search's own."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import arg

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.presets import Preset
from duetto.storage.config import RunOptions
from duetto.storage.user_code import Origin
from duetto.tools.cli.options import EnvironmentId, Flag, learning_fields, parse_options
from duetto.tools.cli.output import expendable, print_json
from duetto.tools.cli.train import algorithm_named, chosen_preset, environment_of, parsed

USAGE = "duetto tune ALGORITHM ENVIRONMENT [options]"
ABOUT = """Every option of `duetto train` that is given keeps its value; the others are searched around the preset's
values, as their types say. The same command again goes on with a study that was ended.

ALGORITHM is a name, or FILE.py:CLASS. Algorithms: {algorithms}.

  --trials N           trials in all, those of earlier calls included (50)
  --seeds SEEDS        of each trial's runs: how many, 5, or which: 0-4, or 0,3,9 (3)
  --search FILE.yaml   how options are searched:  tau: {{low: 0.001, high: 0.05, log: true}}
  --search-only        search these alone
  --jobs N             processes that train at a time (1)
  --no-prune           let every trial run to its end
  --output FOLDER      the study's folder (studies/ALGORITHM-ENVIRONMENT)

duetto tune td3 --help lists td3's options, too."""


def main(arguments: list[str]) -> None:
    """Parse the options on top of the preset's, and search."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: {USAGE}\n\n{ABOUT.format(algorithms=', '.join(ALGORITHMS))}")
        return
    algorithm, origin = algorithm_named(arguments[0])
    options = arguments[1:]
    name, preset = chosen_preset(algorithm, origin, environment_of(algorithm, options, _command), options)
    call = parsed(algorithm, options, name, preset, _command)
    tune(call, name, preset, origin, given(options, algorithm))


def given(options: list[str], algorithm: type[Algorithm]) -> frozenset[str]:
    """The names of the hyper-parameters that the call gives a value."""
    named = [option[2:].partition("=")[0].replace("-", "_") for option in options if option.startswith("--")]
    known = algorithm.options()
    return frozenset(name if name in known else name.removeprefix("no_") for name in named) & frozenset(known)


def tune(call: Any, name: str, preset: Preset, origin: Origin | None, fixed: frozenset[str]) -> None:
    """Search what the command line describes, and say what was found and how to go on."""
    from duetto.tools.tune.display import StudyDisplay

    kwargs = preset.environment | parse_options(call.environment_options)
    with expendable() as stream:
        console = Console(stderr=True) if call.json else Console(file=stream)
        with StudyDisplay(console, call.quiet or call.json) as display:
            display.doing(f"{call.hyperparameters.name()} on {call.environment}: making environments")
            from duetto.runs.spec import RunSpec
            from duetto.tools.tune import api  # with all that it imports, while something is shown already

            spec = RunSpec(call.hyperparameters, call.environment, call.run, name, kwargs, origin)
            search = api.read_search(call.search) if call.search else None
            plan = api.planned_study(spec, call.seeds, search, call.search_only, fixed, not call.no_prune)
            found = api.conduct(plan, call.output, call.trials, call.jobs, display)
        display.finish(found)
    if call.json:
        print_json(found.to_dict())


def _command(algorithm: type[Algorithm], hyperparameters: Algorithm, run: RunOptions) -> Any:
    """The command as a dataclass that tyro reads: its own options, the run's and the algorithm's, side by side."""
    file = Annotated[str | None, arg(help="How options are searched, in YAML.", metavar="FILE.yaml")]
    fields: list[Any] = [
        ("environment", EnvironmentId, dataclasses.field()),
        ("trials", Annotated[int, arg(help="Trials in all, those of earlier calls included.")], 50),
        (
            "seeds",
            Annotated[str, arg(help="Of each trial: how many, or which: 0-4, or 0,3,9.", metavar="SEEDS")],
            "3",
        ),
        ("search", file, None),
        ("search_only", Annotated[Flag, arg(help="Search the options of --search alone.")], False),
        ("jobs", Annotated[int, arg(help="Processes that train at a time.")], 1),
        ("no_prune", Annotated[Flag, arg(help="Let every trial run to its end.")], False),
        ("output", Annotated[str | None, arg(help="The study's folder.", metavar="FOLDER")], None),
        *learning_fields(algorithm, hyperparameters, run),
        ("preset", Annotated[str | None, arg(help="The center: a name, or FILE.yaml.")], None),
    ]
    return dataclasses.make_dataclass("Tune", fields)
