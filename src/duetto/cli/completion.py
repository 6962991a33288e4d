"""`duetto completion bash|zsh`: a script that lets the shell complete commands, options and their values, and runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional, arg

from duetto.cli.options import Json
from duetto.cli.output import print_json

# `context` is what the words before say: a command, "demos record", "train td3". Where nothing fits, it is a file.
_BASH = """_duetto() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" words="" place=2
    local context="${{COMP_WORDS[1]}}"
    if [ "$word" = "=" ]; then word=""
    elif [ "$previous" = "=" ]; then previous="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
    case "$context" in
        train|tune|sweep) place=3; [ "$COMP_CWORD" -gt 2 ] && context="$context ${{COMP_WORDS[2]%%,*}}" ;;
        demos) place=3; [ "$COMP_CWORD" -gt 2 ] && context="$context ${{COMP_WORDS[2]}}" ;;
    esac
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    elif [[ "$word" == -* ]]; then
        case "$context" in
{options}
        esac
    else
        case "$context $previous" in
{values}
        esac
        if [ -z "$words" ] && [ "$COMP_CWORD" -eq 2 ]; then
            case "$context" in
                train|tune|sweep) words="{algorithms}" ;;
                demos) words="{demos}" ;;
            esac
        fi
        if [ -z "$words" ] && [ "$COMP_CWORD" -eq "$place" ]; then
            case "$context" in
{places}
            esac
        fi
    fi
    COMPREPLY=()
    [ -n "$words" ] && COMPREPLY=($(compgen -W "$words" -- "$word"))
    if [ "${{#COMPREPLY[@]}}" -eq 0 ] && [[ "$word" != -* ]]; then
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _duetto duetto
"""


def main(arguments: list[str]) -> None:
    """Parse, and print."""
    tyro.cli(completion, args=arguments, prog="duetto completion")


def completion(
    shell: Annotated[Positional[Literal["bash", "zsh"]], arg(help="Which shell.")], json: Json = False
) -> None:
    """Print what completes duetto's commands: eval "$(duetto completion bash)" in ~/.bashrc, zsh in ~/.zshrc."""
    text = ("autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else "") + script()
    print_json({"shell": shell, "script": text}) if json else print(text, end="")


def script() -> str:
    """The completion script for bash."""
    from duetto.algorithms import ALGORITHMS
    from duetto.cli import COMMANDS, completing, demos  # with every command's module

    contexts, shared = dict(completing.algorithm_free()), {}
    for command in completing.OF_ALGORITHMS:
        each = {name: completing.of_algorithm(command, name) for name in ALGORITHMS}
        contexts |= {f"{command} {name}": found for name, found in each.items()}
        common = [one for one in next(iter(each.values())) if all(one in found for found in each.values())]
        contexts[command] = contexts[f"{command} *"] = common  # an algorithm from a file has more
        shared |= {f"{command} {name}": common for name in ALGORITHMS}
    options, values, places = [], [], []
    for context, arguments in sorted(contexts.items(), key=lambda pair: "*" in pair[0]):
        pattern = _pattern(context)
        options.append(_case(pattern, (flag for one in arguments for flag in one.flags)))
        for one in arguments:
            if one in shared.get(context, ()):
                continue  # of all algorithms, at the end
            if one.words and one.flags:
                values.append(_case(_pattern(f"{context} {one.flags[0]}"), one.words))
            elif one.words:
                places.append(_case(pattern, one.words))
    return _BASH.format(
        commands=" ".join(COMMANDS),
        algorithms=" ".join(ALGORITHMS),
        demos=" ".join(demos.COMMANDS),
        options="\n".join(options),
        values="\n".join(values),
        places="\n".join(places),
    )


def _pattern(context: str) -> str:
    return context.replace(" ", "\\ ")


def _case(pattern: str, words: Iterable[str]) -> str:
    return f'            {pattern}) words="{" ".join(words)}" ;;'
