"""`duetto tune ALGORITHM ENVIRONMENT [options]`; the options are those of `duetto train`, and the search's own."""

from __future__ import annotations

from typing import Annotated, Any

from rich.console import Console

from duetto.tools.cli.learning import LearningCommand, is_overview
from duetto.tools.cli.options import EnvironmentId, Seeds
from duetto.tools.cli.output import print_json
from duetto.tools.cli.parser import Arg, Flag

USAGE = "duetto tune ALGORITHM ENVIRONMENT [options]"
ABOUT = """Hyper-parameters that are on the command line keep their values; the others are
searched around the preset's values. The same command continues a study.

duetto tune td3 --help lists the options with td3's."""
OPTIONS: dict[str, dict[str, Any]] = {
    "": {"environment": EnvironmentId},
    "run": {
        "trials": Annotated[int, Arg("Trials in all, those of earlier calls included.")],
        "seeds": Annotated[Seeds, Arg("Seeds of each trial's runs: 5, 0-4 or 0,3,9.")],
        "search": Annotated[
            str, Arg("How options are searched: tau: {low: 0.001, high: 0.05, log: true}", metavar="FILE.yaml")
        ],
        "search_only": Annotated[Flag, Arg("Search the options of --search alone.")],
        "jobs": Annotated[int, Arg("Processes that train at a time.")],
        "no_prune": Annotated[Flag, Arg("Let every trial run to its end.")],
        "output": Annotated[str, Arg("The study's folder.", metavar="FOLDER")],
    },
}
DEFAULTS: dict[str, Any] = {"trials": 50, "seeds": "3", "jobs": 1}


def main(arguments: list[str]) -> None:
    """Parse the options, and search."""
    if is_overview(arguments, USAGE, ABOUT):
        return
    command = _command(arguments[0])
    if (given := command.parse(arguments[1:])) is not None:
        tune(command, given)


def _command(word: str) -> LearningCommand:
    return LearningCommand("tune", word, OPTIONS, defaults=DEFAULTS)


def tune(command: LearningCommand, given: dict[str, Any]) -> None:
    """Search what the command line describes, and print the best trial and how to continue."""
    from duetto.tools.sweep.display import SweepDisplay

    values, as_json = DEFAULTS | given, "json" in given
    with SweepDisplay(Console(stderr=as_json), as_json or "quiet" in given) as display:
        display.doing(f"{command.algorithm.name()} on {given['environment']}: making environments")
        from duetto.tools.tune import api  # slow to import: the display shows something already

        fixed = frozenset(given) & frozenset(command.algorithm.options())
        spec, prune = command.spec(given, given["environment"]), "no_prune" not in given
        plan = api.planned_study(spec, values["seeds"], given.get("search"), "search_only" in given, fixed, prune)
        found = api.conduct(plan, given.get("output"), values["trials"], values["jobs"], display)
    display.finish(found)
    if as_json:
        print_json(found.to_dict())
