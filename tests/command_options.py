"""The options of every command."""

from __future__ import annotations

from functools import cache

from duetto.algorithms import ALGORITHMS
from duetto.tools.cli import COMMANDS, OF_ALGORITHMS, commands, demos, train
from duetto.tools.cli.learning import LearningCommand
from duetto.tools.cli.parser import Parser, function_parser


def parser(*words: str) -> Parser:
    """Return the parser of `duetto WORDS`, for example `parser("train", "td3")`."""
    if words[0] in OF_ALGORITHMS:
        return LearningCommand(*words, train.COMMANDS[words[0]]).parser()
    functions = demos.FUNCTIONS if words[0] == "demos" else commands.FUNCTIONS
    return function_parser(functions[words[-1]], f"duetto {' '.join(words)}")


@cache
def flags(*words: str) -> set[str]:
    """Return the options of `duetto WORDS`, for example `flags("train", "td3")`."""
    return {*parser(*words).program()._option_string_actions} - {"-h", "--help", "--help-all"}


def every_flag() -> set[str]:
    """Return the options of all commands."""
    calls = [(command, name) for command in OF_ALGORITHMS for name in ALGORITHMS]
    calls += [("demos", name) for name in demos.FUNCTIONS]
    calls += [(command,) for command in COMMANDS if command not in (*OF_ALGORITHMS, "demos")]
    return set[str]().union(*(flags(*call) for call in calls))
