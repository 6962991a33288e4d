"""The command line. One small module per command; only the one that is called is imported."""

from __future__ import annotations

import difflib
import re
import sys
import traceback
from importlib import import_module

from duetto.cli import output
from duetto.cli.ending import ending_in_order
from duetto.errors import DuettoError, UsageError, escaped
from duetto.training.notices import shown_elsewhere

COMMANDS = {
    "train": "train an agent:  duetto train td3 HalfCheetah-v5",
    "sweep": "train algorithms x environments x seeds:  duetto sweep td3,sac Pendulum-v1 --seeds 0-4 --jobs 2",
    "tune": "search hyper-parameters:  duetto tune td3 Pendulum-v1 --trials 50 --seeds 3",
    "resume": "go on with a run where its last checkpoint was made:  duetto resume runs/td3-HalfCheetah-v5-s0",
    "evaluate": "run whole episodes, as evaluations do:  duetto evaluate runs/td3-HalfCheetah-v5-s0 --episodes 20",
    "video": "record an episode:  duetto video runs/td3-HalfCheetah-v5-s0",
    "watch": "see the agent in a window, live:  duetto watch runs/td3-HalfCheetah-v5-s0",
    "export": "write the agent as one graph, for ONNX Runtime and others:  duetto export runs/td3-HalfCheetah-v5-s0",
    "push": "send a run to the Hugging Face Hub, with a card:  duetto push runs/td3-HalfCheetah-v5-s0 me/cheetah",
    "pull": "fetch somebody's run from there:  duetto pull user/cheetah",
    "plot": "draw learning curves with bands over seeds:  duetto plot runs/td3-*",
    "report": "write one page about runs, with curves, losses, videos and how to repeat it:  duetto report runs/td3-*",
    "table": "write results as a tidy CSV, to compare with others':  duetto table runs/td3-* --output results.csv",
    "check": "try whether an environment can be trained on:  duetto check ./my_env.py:MyEnv",
    "demos": "record demonstrations:  duetto demos record BabyAI-GoToLocal-v0 --expert bot --output demos/local",
    "list": "list algorithms, presets and environments:  duetto list presets",
    "completion": 'complete commands in the shell:  eval "$(duetto completion bash)"',
}


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit: 0 success, 1 a failure, 2 a mistake in the call."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with output.watched(), ending_in_order(), shown_elsewhere():
            _run(arguments)
    except DuettoError as error:
        print(f"duetto: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:  # before a run began, or the second Ctrl-C
        print("duetto: interrupted.", file=sys.stderr)
        exec("")  # one that came through an exec (imports have some) has `python -m` end by SIGINT, until the next exec
        sys.exit(1)
    except BrokenPipeError:  # the reader, `head` for example, has seen enough
        sys.exit(1)
    except Exception as error:
        from duetto.own_files import where as place  # takes its time, and is seldom needed

        if not (where := place(error)):
            raise
        traceback.print_exception(error)  # all of it: the cause may lie anywhere; but whose line it was comes last
        first = next(iter(str(error).strip().splitlines()), "")
        print(f"duetto: {escaped(f'{where}: {type(error).__name__}: {first}')}", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


def _run(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
    elif arguments[0] == "--version":
        import duetto

        print(f"duetto {duetto.__version__}")
    else:
        _run_command(arguments[0], arguments[1:])


def _run_command(command: str, arguments: list[str]) -> None:
    if command not in COMMANDS:
        near = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"There is no command {command!r}. {hint}There are: {', '.join(COMMANDS)}.")
    _check_once(arguments)
    import_module(f"duetto.cli.{command}").main(_with_whole_numbers(arguments))


def _check_once(arguments: list[str]) -> None:
    """Raise UsageError if an option that takes several values is given twice: the first values would be dropped."""
    given = [argument.partition("=")[0].replace("_", "-") for argument in arguments]
    for option in ("--environment-options", "--track", "--metric"):
        if given.count(option) > 1:
            instead = "Give one" if option == "--metric" else f"Give all values after one: {option} A B"
            raise UsageError(f"{option} is given twice, and only the last would count. {instead}.")


_COUNTED = re.compile(r"--[\w-]*(?:steps|every|starts|capacity|samples)")


def _with_whole_numbers(arguments: list[str]) -> list[str]:
    """Rewrite `--steps 1e6` as `--steps 1000000`, as Python's functions take it; what is no whole number stays."""
    plain, option = [], ""
    for argument in arguments:
        name, equals, value = argument.rpartition("=")
        of = name if equals else option
        counted = _COUNTED.fullmatch(of) and re.fullmatch(r"\d+(?:\.\d+)?e\+?\d{1,2}", value, re.IGNORECASE)
        whole = bool(counted) and float(value).is_integer()
        plain.append(f"{name}{equals}{float(value):.0f}" if whole else argument)
        option = argument
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
            "duetto COMMAND --help says more; duetto train td3 --help lists every hyper-parameter.",
        ]
    )
