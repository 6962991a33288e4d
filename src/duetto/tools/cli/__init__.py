"""The command line. A call imports only the code of its command.

commands            commands that are one function each, whose parameters are the options
train               the commands train, sweep and tune
learning            the options that train, sweep and tune share
demos               `duetto demos record` (which episodes it keeps), `export`, `import` and `inspect`
options             options of several commands, and the functions that parse their values
parser              argparse, with option groups, a short and a full help, and one-line errors
output              JSON, file names, notices and errors
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from duetto.errors import DuettoError, escaped
from duetto.tools.cli import output
from duetto.training.notices import shown_elsewhere
from duetto.training.signals import listen

COMMANDS = {
    "train": "train an agent",
    "sweep": "train algorithms x environments x seeds",
    "tune": "search hyperparameters",
    "resume": "continue a run from its last checkpoint",
    "evaluate": "run whole episodes and print their returns",
    "video": "record an episode",
    "watch": "watch the agent live in a window",
    "export": "write the agent as one graph, for ONNX Runtime and others",
    "push": "send a run to the Hugging Face Hub, with a card",
    "pull": "fetch a run from the Hugging Face Hub",
    "plot": "draw learning curves with bands over seeds",
    "report": "write one page about runs: curves, losses, videos, how to repeat them",
    "table": "write results as a tidy CSV",
    "check": "check an environment before training",
    "demos": "record demonstrations, or convert them",
    "list": "list algorithms, presets and environments",
}


OF_ALGORITHMS = ("train", "sweep", "tune")  # commands whose options depend on the algorithm


def main(arguments: list[str] | None = None) -> None:
    """Run a command, then exit: 0 success, 1 failure, 2 usage error, 128 + N after signal N."""
    came = listen()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack ±; stderr does the same
    try:
        with _ending_in_order(), shown_elsewhere():
            run_command(*(sys.argv[1:] if arguments is None else arguments))
            sys.stdout.flush()
    except DuettoError as error:
        output.print_error(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt as interrupt:  # before a run starts, or the second Ctrl-C
        output.print_error("interrupted.")
        exec("")  # clear CPython's flag of an interrupted exec() or import; else `python -m` ends by SIGINT
        sys.exit(128 + (interrupt.args or [signal.SIGINT])[0])
    except BrokenPipeError:  # the reader, `head` for example, has closed the pipe
        with suppress(OSError, ValueError):  # discard the rest, which Python would fail to write at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        from duetto.storage.user_code import where  # slow to import

        if not (line := where(error)):
            raise
        traceback.print_exception(error)
        first = next(iter(str(error).strip().splitlines()), "")
        output.print_error(escaped(f"{line}: {type(error).__name__}: {first}"))
        sys.exit(1)
    finally:
        output.show_cursor()
    sys.exit(128 + next(iter(came)) if came else 0)


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGINT, SIGTERM and SIGHUP.

    So `finally` blocks remove half-written files. While a run trains, `training.signals` handles these signals instead.
    An ignored signal (nohup) stays ignored.
    """
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt(number)

    names = ("SIGINT", "SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    earlier = {number: signal.getsignal(number) for name in names if (number := getattr(signal, name, None))}
    earlier = {n: handler for n, handler in earlier.items() if handler in (signal.SIG_DFL, signal.default_int_handler)}
    for number in earlier:
        signal.signal(number, interrupt)
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if came:  # a C library may raise another error instead, or drop the signal's number
            raise KeyboardInterrupt(came[0]) from error
        raise
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def run_command(command: str = "--help", *arguments: str) -> None:
    """Run a command. Raise UsageError if its name is unknown."""
    if command in ("-h", "--help"):
        print(_overview())
    elif command == "--version":
        import duetto

        print(f"duetto {duetto.__version__}")
    elif command not in COMMANDS:
        from duetto.tools.cli.parser import unknown

        raise unknown("command", command, COMMANDS)
    elif command in OF_ALGORITHMS:
        from duetto.tools.cli import train

        train.main(command, list(arguments))
    elif command == "demos":
        from duetto.tools.cli import demos

        demos.main(list(arguments))
    else:
        from duetto.tools.cli import commands, parser

        parser.run_function(commands.FUNCTIONS[command], f"duetto {command}", arguments)


def _overview() -> str:
    commands = "\n".join(f"  {name:10} {about}" for name, about in COMMANDS.items())
    return f"""usage: duetto COMMAND ...

Deep reinforcement learning: the mathematics written once,
trained on PyTorch and on JAX.

{commands}

For example:

  duetto train td3 HalfCheetah-v5
  duetto evaluate runs/td3-HalfCheetah-v5-s0 --episodes 20
  duetto check ./my_env.py:MyEnv

duetto COMMAND --help lists a command's options.
duetto train td3 --help lists the hyperparameters of TD3."""
