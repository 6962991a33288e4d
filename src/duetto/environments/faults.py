"""Words for the mistakes of a user's environment.

A mistake is found where it is made, in this process or in a worker, as a `Fault`. The `Stepper`, which knows the
environment's name and the step, turns it into an error for the user.
"""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from duetto.errors import DuettoError, EnvironmentFailedError, UsageError

LONGEST = 200  # characters of an exception's own message, or of a text
FRAMES = 8  # of its traceback
FIVE = "Return observation, reward, terminated, truncated, info"
_OURS = tuple(f"{Path(file).parent}{os.sep}" for file in (str(gymnasium.__file__), __file__))


class Fault(Exception):  # noqa: N818 - it never leaves this package
    """A mistake of one environment.

    Attributes:
        what: The rest of a sentence that begins with the environment and the step, and what to do.
        env: Its number; None where nobody knows.
        trace: The user's part of the traceback, where something was raised.
        failed: Whether it failed as it ran, rather than gave what no environment may.
    """

    what: str
    env: int | None
    trace: str
    failed: bool

    def __init__(self, what: str, env: int | None = None, trace: str = "", failed: bool = False) -> None:
        super().__init__(what, env, trace, failed)  # so that a worker can send it
        self.what, self.env, self.trace, self.failed = what, env, trace, failed

    def __str__(self) -> str:
        return self.what if self.env is None else f"environment {self.env}: {self.what}"

    def told(self, name: str, step: int, first: int = 0) -> DuettoError:
        """Return the error for the user, where environments are counted from `first`."""
        number = "" if self.env is None else f"environment {self.env + first}, "
        sentence = f"{name}, {number}vector step {step}: {self.what}"
        return EnvironmentFailedError(sentence, self.trace) if self.failed else UsageError(sentence)


def raised(call: str, error: BaseException, env: int | None) -> Fault:
    """Make a Fault of what `call` of an environment raised, with a traceback without Gymnasium's frames and ours."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    unpacked = re.match(r"(?:not enough|too many) values to unpack \(expected 5(?:, got (\d+))?", str(error))
    if isinstance(error, ValueError) and unpacked and not own:  # a wrapper of Gymnasium's unpacked what step gave
        return Fault(wrong_number(unpacked[1]), env)
    listed = traceback.StackSummary.from_list((own or frames[-2:])[-FRAMES:])
    trace = "".join([*listed.format(), *traceback.format_exception_only(error)]).rstrip()
    correct = "Correct the environment."
    if isinstance(error, TypeError) and re.search(r"\breset\(\) got an unexpected keyword argument", str(error)):
        correct = "Write def reset(self, *, seed=None, options=None)."
    return Fault(f"{call} raised {summary(error)}. {correct}", env, trace, failed=True)


def summary(error: BaseException) -> str:
    """Return the exception's class and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {_short(lines[0]).rstrip('.')}" if lines else type(error).__name__


def wrong_number(count: str | None) -> str:
    """Return the sentence for a step that gave `count` values; None for more than five."""
    if count == "4":
        return f"step gave 4 values, as in the old Gym. {FIVE}: `done` is two of these now."
    return f"step gave {count or 'more than 5'} values. {FIVE}."


def shown(value: Any) -> str:
    """Describe a value in a sentence: itself where that is short, otherwise its type and size."""
    if value is None or isinstance(value, bool | int | float | np.number):
        return str(value)
    if isinstance(value, str):
        return f"the text {_short(repr(value))}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, tuple | list | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def kind(value: Any) -> str:
    """Return NumPy's letter for the kind of one number or truth value; "-" for whatever is neither."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # parts of several lengths, for example
        return "-"
    return array.dtype.kind if array.ndim == 0 else "-"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
