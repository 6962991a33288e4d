"""The options that train, sweep and tune share: those of a run, of its algorithm and of its environment."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.errors import UsageError
from duetto.networks.specs import CustomNetwork
from duetto.presets import Preset, choose, presets_of_file
from duetto.storage import user_code
from duetto.storage.config import RunOptions
from duetto.storage.user_code import Origin, is_file, named
from duetto.tools.cli.options import EnvironmentOptions, Json, PresetName, Quiet, parse_options
from duetto.tools.cli.parser import Arg, OptionGroup, Parser, unknown

if TYPE_CHECKING:
    from duetto.runs.spec import RunSpec  # slow to import

_FIRST = ("steps", "seed", "num_envs", "device", "backend")  # the first options of a run in the help
_EVALUATION = ("evaluate_every", "evaluation_episodes", "checkpoint_every", "keep", "log_every")
_RARE = frozenset({"worker_timeout", "schedule_steps", "keep", "precision"})
_COMMON = {"preset": PresetName, "environment_options": EnvironmentOptions, "quiet": Quiet, "json": Json}
Options = dict[str, dict[str, Any]]  # title of a group -> name of an option -> annotation; "" has the positional ones


@dataclass(frozen=True)
class CommandOptions:
    """The help and the options of `train`, `sweep` or `tune`.

    Attributes:
        usage, about: Texts of the help that is shown if no algorithm is given.
        options: The options that the command has in addition to those of a run and its algorithm.
        defaults: Their default values, for the help.
        without: Options of a run that this command does not have.
    """

    usage: str
    about: str
    options: Options
    defaults: dict[str, Any]
    without: tuple[str, ...] = ()


class LearningCommand:
    """A command with an algorithm: its parser, and the run that its options describe."""

    def __init__(self, name: str, word: str, command: CommandOptions) -> None:
        """Find the algorithm.

        Args:
            name: The command, such as "train".
            word: The algorithm on the command line: a name, or FILE.py:CLASS.
            command: The command's usage and its own options.

        Raises:
            UsageError: There is no such algorithm.
        """
        self.word = word
        self.algorithm: type[Algorithm]
        self.origin: Origin | None = None  # the file of a custom algorithm
        if is_file(word):
            self.algorithm, self.origin = named(word)
        elif word in ALGORITHMS:
            self.algorithm = ALGORITHMS[word]
        else:
            raise unknown("algorithm", word, ALGORITHMS)
        self._name, self._prog, self._command = f"duetto {name}", f"duetto {name} {word}", command

    def parser(self, preset: Preset | None = None) -> Parser:
        """Return the parser. Its help shows the preset's values as defaults."""
        preset, command = preset or Preset(), self._command
        run = dataclasses.asdict(RunOptions()) | preset.run
        algorithm = self.algorithm().with_options(**preset.algorithm)
        known = described(RunOptions) | described(self.algorithm)
        of_run = [name for name in dict.fromkeys((*_FIRST, *run)) if name not in (*_EVALUATION, *command.without)]
        names = {"run": of_run, **self.algorithm.option_groups(), "evaluation and logging": _EVALUATION}
        values = command.defaults | run | {name: getattr(algorithm, name) for name in algorithm.options()}
        rare = _RARE | self.algorithm.rare_options()
        groups = [OptionGroup("", command.options[""])]
        for title in dict.fromkeys([*names, *command.options]):
            own = command.options.get(title, {}) | (_COMMON if title == "run" else {})
            options = {name: known[name] for name in names.get(title, ()) if name in known} | own
            shown = self.algorithm.name() if title == self.algorithm.__name__ else title
            if title:
                groups.append(OptionGroup(shown, options, dict.fromkeys(own) | values, rare))
        return Parser(self._prog, groups)

    def parse(self, arguments: list[str]) -> dict[str, Any] | None:
        """Return the options on the command line by name; None if --help was printed.

        Raises UsageError for an option that is unknown, missing or wrong. With --config, no option is required.
        """
        parser = self.parser()
        given = parser.parse(arguments)
        if not {"help", "help_all"} & given.keys():
            if "config" not in given:
                parser.check_complete(given)
            return given
        own = presets_of_file(Path(self.origin.file)) if self.origin else None
        name, preset = choose(self.algorithm.name(), given.get("environment", ""), given.get("preset"), own)
        defaults = f"Defaults are those of the preset {name!r}. Add an environment to see the preset that it selects."
        about = f"{inspect.getdoc(self.algorithm)}\n\n{defaults}"
        self.parser(preset).print_help(about, everything="help_all" in given)
        return None

    def spec(self, given: Mapping[str, Any], environment: str) -> RunSpec:
        """Return the run that the options describe; the command's own options are ignored. Raises UsageError."""
        from duetto.runs.spec import RunSpec

        return RunSpec.of(
            self.algorithm,
            user_code.absolute(environment),
            given.get("preset"),
            parse_options(given.get("environment_options", ())),
            self.learning_options(given),
            caller=self._name,
            arguments=list(_COMMON),
            origin=self.origin,
        )

    def learning_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given options that are fields of `RunOptions` or of the algorithm."""
        known = {*self.algorithm.options(), *(entry.name for entry in dataclasses.fields(RunOptions))}
        return {name: value for name, value in given.items() if name in known}


Call = tuple[LearningCommand, dict[str, Any]]  # a command, and its options on the command line


def calls_of(name: str, command: CommandOptions, arguments: list[str]) -> list[Call]:
    """Parse the arguments into one command per algorithm; [] if help was printed.

    Raises:
        UsageError: The algorithm does not come first or is unknown, or an option is unknown, missing or wrong.
    """
    if not arguments or arguments[0] in ("-h", "--help", "--help-all"):
        titles = {each: (inspect.getdoc(algorithm) or "").partition(" (")[0] for each, algorithm in ALGORITHMS.items()}
        rows = [f"  {each:12} {title}" for each, title in titles.items()]
        overview = [
            f"usage: {command.usage}",
            "",
            command.about,
            "",
            "ALGORITHM is FILE.py:CLASS, or one of:",
            "",
            *rows,
        ]
        print("\n".join(overview))
        return []
    if arguments[0].startswith("-"):
        call = f"duetto {name}"
        raise UsageError(f"{call} needs an algorithm first: {call} ALGORITHM {' '.join(arguments)}")
    words = arguments[0].split(",") if name == "sweep" else arguments[:1]
    commands = [LearningCommand(name, word, command) for word in words]
    parsed = [(each, each.parse(arguments[1:])) for each in commands]
    return [(each, given) for each, given in parsed if given is not None]


def described(kind: type[Any]) -> dict[str, Any]:
    """Return the annotation of each field, except custom networks, with the field's docstring as help."""
    hints, texts = get_type_hints(kind, include_extras=True), _docstrings(kind)
    names = [entry.name for entry in dataclasses.fields(kind)]
    return {
        name: Annotated[hints[name], Arg(texts.get(name, ""))] for name in names if hints[name] != CustomNetwork | None
    }


@cache
def _docstrings(kind: type[Any]) -> dict[str, str]:
    """Return the docstrings below the fields of a class and its bases."""
    texts: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(owner):
            continue
        [node] = ast.parse(dedent(inspect.getsource(owner))).body
        assert isinstance(node, ast.ClassDef)
        for field, text in pairwise(node.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                texts[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return texts
