"""`duetto completion bash|zsh`: a script that lets the shell complete commands, algorithms, options and runs."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional, arg

from duetto.algorithms import ALGORITHMS
from duetto.cli import COMMANDS, sweep, train, tune
from duetto.environments import FAMILIES
from duetto.storage.config import RunOptions

_BASH = """_duetto() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    elif [[ " train tune sweep " == *" ${{COMP_WORDS[1]}} "* ]]; then
        if [ "$COMP_CWORD" -eq 2 ]; then
            words="{algorithms}"
        elif [[ "$word" == -* ]]; then
            case "${{COMP_WORDS[2]%%,*}}" in
{options}
            esac
            case "${{COMP_WORDS[1]}}" in
                train) words="$words {train}" ;;
                tune) words="$words {tune}" ;;
                sweep) words="$words {sweep}" ;;
            esac
        elif [ "$COMP_CWORD" -eq 3 ]; then
            words="{environments}"
        fi
    elif [ "${{COMP_WORDS[1]}}" = list ]; then
        words="algorithms environments presets"
    fi
    if [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _duetto duetto
"""


def main(arguments: list[str]) -> None:
    """Parse, and print."""
    tyro.cli(completion, args=arguments, prog="duetto completion")


def completion(shell: Annotated[Positional[Literal["bash", "zsh"]], arg(help="Which shell.")]) -> None:
    """Print what completes duetto's commands: eval "$(duetto completion bash)" in ~/.bashrc, zsh in ~/.zshrc."""
    if shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    print(script(), end="")


def script() -> str:
    """For bash."""
    run = [entry.name for entry in dataclasses.fields(RunOptions) if entry.name != "seed"]  # a sweep has seeds alone
    options = [
        f'                {name}) words="{" ".join(_flag(option) for option in [*kind.options(), *run])}" ;;'
        for name, kind in ALGORITHMS.items()
    ]
    return _BASH.format(
        commands=" ".join(COMMANDS),
        algorithms=" ".join(ALGORITHMS),
        environments=" ".join(example for family in FAMILIES for example in family.examples),
        options="\n".join(options),
        train=" ".join(_flag(option) for option in ("seed", *train.OWN_OPTIONS)),
        tune=" ".join(_flag(option) for option in ("seed", *tune.OWN_OPTIONS)),
        sweep=" ".join(_flag(option) for option in sweep.OWN_OPTIONS),
    )


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
