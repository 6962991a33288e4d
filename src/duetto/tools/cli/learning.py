"""The options that train, sweep and tune share: a run's, an algorithm's, and those of the environment."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
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
from duetto.tools.cli import unknown
from duetto.tools.cli.options import EnvironmentOptions, Json, PresetName, Quiet, parse_options
from duetto.tools.cli.parser import Arg, OptionGroup, Parser

if TYPE_CHECKING:
    from duetto.runs.spec import RunSpec  # slow to import

_FIRST = ("steps", "seed", "num_envs", "device", "backend")  # the first options of a run in the help
_EVALUATION = ("evaluate_every", "evaluation_episodes", "checkpoint_every", "keep", "log_every")
_RARE = frozenset({"worker_timeout", "schedule_steps", "keep", "precision"})
_COMMON = {"preset": PresetName, "environment_options": EnvironmentOptions, "quiet": Quiet, "json": Json}


class LearningCommand:
    """A command that trains an algorithm: its parser, and the run that its options describe."""

    def __init__(
        self,
        name: str,
        word: str,
        own: dict[str, dict[str, Any]],
        without: Sequence[str] = (),
        defaults: dict[str, Any] | None = None,
    ) -> None:
        """Find the algorithm.

        Args:
            name: The command, such as "train".
            word: The algorithm as it is on the command line: a name, or FILE.py:CLASS.
            own: The command's own options, by the title of their group; "" for positional ones.
            without: Options of a run that the command lacks.
            defaults: Default values of the algorithm's options, for the help.

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
        self._name, self._prog = f"duetto {name}", f"duetto {name} {word}"
        self._own, self._without, self._defaults = own, without, defaults or {}

    def parser(self, preset: Preset | None = None) -> Parser:
        """Return the parser, whose help shows the values of a preset as defaults."""
        preset = preset or Preset()
        run = dataclasses.asdict(RunOptions()) | preset.run
        names = [*_FIRST, *(name for name in run if name not in (*_FIRST, *_EVALUATION))]
        groups = [
            OptionGroup("", self._own.get("", {})),
            self._run_group("run", names, run),
            *self._algorithm_groups(preset),
            self._run_group("evaluation and logging", _EVALUATION, run),
        ]
        titles = [group.title for group in groups]
        others = [(title, options) for title, options in self._own.items() if title not in titles]
        return Parser(
            self._prog, [*groups, *(OptionGroup(title, kinds, dict.fromkeys(kinds)) for title, kinds in others)]
        )

    def parse(self, arguments: list[str]) -> dict[str, Any] | None:
        """Return the options on the command line by name; None after --help has printed them.

        Raises UsageError for an option that is unknown, missing or wrong; --config needs no environment.
        """
        parser = self.parser()
        given = parser.parse(arguments)
        if not {"help", "help_all"} & given.keys():
            if "config" not in given:
                parser.check_complete(given)
            return given
        name, preset = self.preset(given)
        defaults = f"Defaults are those of the preset {name!r}; name the environment to see its own."
        about = f"{inspect.getdoc(self.algorithm)}\n\n{defaults}"
        self.parser(preset).print_help(about, everything="help_all" in given)
        return None

    def preset(self, given: Mapping[str, Any]) -> tuple[str, Preset]:
        """Return the name of the preset and the preset that the options choose."""
        own = presets_of_file(Path(self.origin.file)) if self.origin else None
        return choose(self.algorithm.name(), given.get("environment", ""), given.get("preset"), own)

    def spec(self, given: Mapping[str, Any], environment: str) -> RunSpec:
        """Return the run that the options describe, without what is the command's own. Raises UsageError."""
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
        """Return the given options of the run and the algorithm."""
        known = {*self.algorithm.options(), *(entry.name for entry in dataclasses.fields(RunOptions))}
        return {name: value for name, value in given.items() if name in known}

    def _run_group(self, title: str, names: Sequence[str], values: dict[str, Any]) -> OptionGroup:
        own = self._own.get(title, {}) | (_COMMON if title == "run" else {})
        kinds = described(RunOptions)
        options = {name: kinds[name] for name in names if name not in self._without} | own
        return OptionGroup(title, options, dict.fromkeys(own) | self._defaults | values, _RARE)

    def _algorithm_groups(self, preset: Preset) -> list[OptionGroup]:
        kind, options = self.algorithm, described(self.algorithm)
        algorithm = kind().with_options(**preset.algorithm)
        values = {name: getattr(algorithm, name) for name in options}
        return [
            OptionGroup(
                kind.name() if title == kind.__name__ else title,
                {name: options[name] for name in names if name in options},
                values,
                kind.rare_options(),
            )
            for title, names in kind.option_groups().items()
        ]


def is_overview(arguments: list[str], usage: str, about: str) -> bool:
    """Print a command's overview unless an algorithm is named. UsageError if options come before it."""
    if not arguments or arguments[0] in ("-h", "--help", "--help-all"):
        titles = {name: (inspect.getdoc(kind) or "").partition(" (")[0] for name, kind in ALGORITHMS.items()}
        rows = [f"  {name:12} {title}" for name, title in titles.items()]
        print("\n".join([f"usage: {usage}", "", about, "", "ALGORITHM is FILE.py:CLASS, or one of:", "", *rows]))
        return True
    if arguments[0].startswith("-"):
        command = " ".join(usage.split()[:2])
        raise UsageError(f"{command} needs an algorithm first: {command} ALGORITHM {' '.join(arguments)}")
    return False


def described(kind: type[Any]) -> dict[str, Any]:
    """Return the annotation of each field of a dataclass with its docstring as help; a custom network has none."""
    hints, texts = get_type_hints(kind, include_extras=True), _docstrings(kind)
    names = [entry.name for entry in dataclasses.fields(kind)]
    return {
        name: Annotated[hints[name], Arg(texts.get(name, ""))] for name in names if hints[name] != CustomNetwork | None
    }


@cache
def _docstrings(kind: type[Any]) -> dict[str, str]:
    """Return the texts below the fields of a class and its bases."""
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
