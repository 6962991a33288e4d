"""`duetto completion bash|zsh`: print tyro's completion script for the whole command line."""

from __future__ import annotations

import re
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from typing import Annotated, Any, Literal, Union

import tyro
from tyro.conf import (
    AvoidSubcommands,
    OmitArgPrefixes,
    OmitSubcommandPrefixes,
    Positional,
    SuppressFixed,
    arg,
    subcommand,
)

from duetto.tools.cli.options import Json
from duetto.tools.cli.output import print_json

OF_ALGORITHMS = ("train", "tune", "sweep")  # commands whose options depend on the algorithm
# tyro completes the names of commands, options and their choices. Where it has none, a file may follow.
_FILES = """
_duetto() {{
    {function} "$@"
    [ -n "${{COMPREPLY[*]}}" ] || COMPREPLY=($(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o filenames -F _duetto duetto
"""


def completion(
    shell: Annotated[Positional[Literal["bash", "zsh"]], arg(help="The shell.")], json: Json = False
) -> None:
    """Print a script that completes duetto's commands, options and their choices: eval "$(duetto completion bash)"."""
    text = ("autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else "") + script()
    print_json({"shell": shell, "script": text}) if json else print(text, end="")


def script() -> str:
    """Return the completion script for bash."""
    with redirect_stdout(StringIO()) as out, suppress(SystemExit):
        tyro.extras.subcommand_cli_from_dict(
            _commands(),
            prog="duetto",
            args=["--tyro-print-completion", "bash"],
            config=(AvoidSubcommands, OmitArgPrefixes, OmitSubcommandPrefixes, SuppressFixed),
        )
    function = re.findall(r"(?m)^complete .*-F (\w+)", out.getvalue())[0]
    return out.getvalue() + _FILES.format(function=function)


def _commands() -> dict[str, Any]:
    """Return every command as tyro parses it, by name."""
    from duetto.algorithms import ALGORITHMS
    from duetto.storage.config import RunOptions
    from duetto.tools.cli import COMMANDS, demos, function_of

    commands = {"demos": _with_parts(demos.FUNCTIONS)}
    for name in OF_ALGORITHMS:
        command = import_module(f"duetto.tools.cli.{name}")._command
        commands[name] = _with_parts({of: command(kind, kind(), RunOptions()) for of, kind in ALGORITHMS.items()})
    return {name: commands[name] if name in commands else function_of(name) for name in COMMANDS}


def _with_parts(parts: dict[str, Any]) -> Any:
    """Return a command with subcommands."""
    each = [Annotated[Any, subcommand(name, constructor=part)] for name, part in parts.items()]

    def command(part: Any) -> None: ...

    command.__annotations__["part"] = Union[tuple(each)]  # noqa: UP007, of a tuple
    return command
