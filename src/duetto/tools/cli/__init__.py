"""The command line. One module for each command; only the called one is imported."""

from __future__ import annotations

import difflib
import re
import signal
import sys
import traceback
from collections.abc import Collection
from importlib import import_module
from typing import Any

from duetto.errors import DuettoError, UsageError, escaped
from duetto.tools.cli import output
from duetto.tools.cli.signals import ending_in_order
from duetto.training.notices import shown_elsewhere
from duetto.training.signals import noted

COMMANDS = {
    "train": "train an agent:  duetto train td3 HalfCheetah-v5",
    "sweep": "train algorithms x environments x seeds:  duetto sweep td3,sac Pendulum-v1 --seeds 0-4 --jobs 2",
    "tune": "search hyper-parameters:  duetto tune td3 Pendulum-v1 --trials 50 --seeds 3",
    "resume": "continue a run from its last checkpoint:  duetto resume runs/td3-HalfCheetah-v5-s0",
    "evaluate": "run whole episodes and print their returns:  duetto evaluate runs/td3-HalfCheetah-v5-s0 --episodes 20",
    "video": "record an episode:  duetto video runs/td3-HalfCheetah-v5-s0",
    "watch": "watch the agent live in a window:  duetto watch runs/td3-HalfCheetah-v5-s0",
    "export": "write the agent as one graph, for ONNX Runtime and others:  duetto export runs/td3-HalfCheetah-v5-s0",
    "push": "send a run to the Hugging Face Hub, with a card:  duetto push runs/td3-HalfCheetah-v5-s0 me/cheetah",
    "pull": "fetch a run from the Hugging Face Hub:  duetto pull user/cheetah",
    "plot": "draw learning curves with bands over seeds:  duetto plot runs/td3-*",
    "report": "write one page about runs, with curves, losses, videos and how to repeat it:  duetto report runs/td3-*",
    "table": "write results as a tidy CSV:  duetto table runs/td3-* --output results.csv",
    "check": "check an environment before training:  duetto check ./my_env.py:MyEnv",
    "demos": "record demonstrations:  duetto demos record Pendulum-v1 --expert runs/td3-s0 --output demos/td3",
    "list": "list algorithms, presets and environments:  duetto list presets",
    "completion": 'complete commands in the shell:  eval "$(duetto completion bash)"',
}


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit: 0 success, 1 a failure, 2 a mistake in the call, 128 + N if signal N ended the work."""
    came: list[int] = []
    unfinished = noted()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with output.watched(), ending_in_order(came), shown_elsewhere():
            _run(arguments)
    except DuettoError as error:
        print(f"duetto: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:  # before a run starts, or the second Ctrl-C
        print("duetto: interrupted.", file=sys.stderr)
        exec("")  # after an interrupt within an exec (imports use some), `python -m` would end by SIGINT
        sys.exit(128 + (came or [signal.SIGINT])[0])
    except BrokenPipeError:  # the reader, `head` for example, has closed the pipe
        sys.exit(1)
    except Exception as error:
        from duetto.storage.user_code import where  # slow to import, and seldom needed

        if not (line := where(error)):
            raise
        traceback.print_exception(error)
        first = next(iter(str(error).strip().splitlines()), "")
        print(f"duetto: {escaped(f'{line}: {type(error).__name__}: {first}')}", file=sys.stderr)
        sys.exit(1)
    sys.exit(128 + unfinished[0] if unfinished else 0)


def _run(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
    elif arguments[0] == "--version":
        import duetto

        print(f"duetto {duetto.__version__}")
    else:
        run_command(arguments[0], arguments[1:])


def run_command(command: str, arguments: list[str]) -> None:
    """Parse the command's arguments and run it. A command without a `main` is a function that tyro parses."""
    if command not in COMMANDS:
        raise unknown("command", command, COMMANDS)
    _check_once(arguments)
    module = import_module(f"duetto.tools.cli.{command}")
    arguments = _with_whole_numbers(arguments)
    if hasattr(module, "main"):
        module.main(arguments)
    else:
        import tyro

        tyro.cli(function_of(command), args=arguments, prog=f"duetto {command}")


def unknown(kind: str, name: str, known: Collection[str], prefix: str = "") -> UsageError:
    """Return an error that lists the known names, and suggests the most similar one."""
    similar = difflib.get_close_matches(name.lower(), [*known], n=1)  # list is a module here
    hint = f"Did you mean {similar[0]!r}? " if similar else ""
    return UsageError(f"There is no {kind} {prefix + name!r}. {hint}There are: {', '.join(known)}.")


def function_of(command: str) -> Any:
    """Return the function that tyro parses for a command: the one of its name in the command's module."""
    module = import_module(f"duetto.tools.cli.{command}")
    return getattr(module, "overview" if command == "list" else command)


def _check_once(arguments: list[str]) -> None:
    """Raise UsageError if an option that takes several values is given twice: the first values would be dropped."""
    names = [argument.partition("=")[0].replace("_", "-") for argument in arguments]
    for option in ("--environment-options", "--track", "--metric"):
        if names.count(option) > 1:
            instead = "Give one" if option == "--metric" else f"Give all values after one: {option} A B"
            raise UsageError(f"{option} is given twice, and only the last would count. {instead}.")


_COUNTED = re.compile(r"--[\w-]*(?:steps|every|starts|capacity|samples)")


def _with_whole_numbers(arguments: list[str]) -> list[str]:
    """Rewrite `--steps 1e6` as `--steps 1000000`; leave values alone that are no whole numbers."""
    plain, previous = [], ""
    for argument in arguments:
        name, equals, value = argument.rpartition("=")
        option = name if equals else previous
        counted = _COUNTED.fullmatch(option) and re.fullmatch(r"\d+(?:\.\d+)?e\+?\d{1,2}", value, re.IGNORECASE)
        whole = bool(counted) and float(value).is_integer()
        plain.append(f"{name}{equals}{float(value):.0f}" if whole else argument)
        previous = argument
    return plain


def _overview() -> str:
    lines = [f"  {name:10} {about}" for name, about in COMMANDS.items()]
    return "\n".join(
        [
            "usage: duetto COMMAND ...",
            "",
            "Deep reinforcement learning: the mathematics written once, trained on PyTorch and on JAX.",
            "",
            *lines,
            "",
            "duetto COMMAND --help lists its options; duetto train td3 --help lists every hyper-parameter.",
        ]
    )
