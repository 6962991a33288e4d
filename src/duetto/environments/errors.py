"""Messages for mistakes of a user's environment.

A mistake raises an `EnvironmentFault` in the environment's process. The `VecEnv`, which knows the environment's name
and the step, turns it into an error for the user.
"""

from __future__ import annotations

import os
import re
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from duetto.environments.obs_tree import array
from duetto.errors import DuettoError, EnvironmentFailedError, UsageError

LONGEST = 200  # maximum characters of an exception's message or of a text
FRAMES = 8  # maximum number of frames in the traceback that a user sees
FIVE = "Return observation, reward, terminated, truncated, info"
_OURS = tuple(f"{Path(file).parent}{os.sep}" for file in (str(gymnasium.__file__), __file__))


@dataclass(eq=False)
class EnvironmentFault(Exception):  # noqa: N818 - it never leaves this package
    """An error in one environment.

    Attributes:
        what: The mistake and the remedy. `located` puts the environment's name and the step before this text.
        env: The environment's number; None if unknown.
        trace: The user's part of the traceback, if something was raised.
        failed: Whether the environment raised an error, rather than returned an invalid value.
    """

    what: str
    env: int | None = None
    trace: str = ""
    failed: bool = False

    def located(self, name: str, step: int, first: int = 0) -> DuettoError:
        """Return the error for the user, with environments counted from `first`."""
        number = "" if self.env is None else f"environment {self.env + first}, "
        sentence = f"{name}, {number}vector step {step}: {self.what}"
        return EnvironmentFailedError(sentence, self.trace) if self.failed else UsageError(sentence)


def raised(call: str, error: BaseException, env: int | None) -> EnvironmentFault:
    """Make an EnvironmentFault from an exception of `call`; its traceback omits frames of Gymnasium and Duetto."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    unpacked = re.match(r"(?:not enough|too many) values to unpack \(expected 5(?:, got (\d+))?", str(error))
    if isinstance(error, ValueError) and unpacked and not own:  # one of Gymnasium's wrappers raised it
        return EnvironmentFault(wrong_number(unpacked[1]), env)
    listed = traceback.StackSummary.from_list((own or frames[-2:])[-FRAMES:])
    trace = "".join([*listed.format(), *traceback.format_exception_only(error)]).rstrip()
    correct = "Correct the environment."
    if isinstance(error, TypeError) and re.search(r"\breset\(\) got an unexpected keyword argument", str(error)):
        correct = "Write def reset(self, *, seed=None, options=None)."
    return EnvironmentFault(f"{call} raised {summary(error)}. {correct}", env, trace, failed=True)


def summary(error: BaseException) -> str:
    """Return the exception's class and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {_short(lines[0]).rstrip('.')}" if lines else type(error).__name__


def wrong_number(count: str | None) -> str:
    """Return the error message for a step that returned `count` values; None: more than five."""
    if count == "4":
        return f"step gave 4 values, as in the old Gym. {FIVE}: terminated and truncated replace done."
    return f"step gave {count or 'more than 5'} values. {FIVE}."


def shown(value: Any) -> str:
    """Describe a value for an error message: numbers and texts as they are, other values by type and size."""
    if value is None or isinstance(value, int | float | np.number):
        return str(value)
    if isinstance(value, str):
        return f"the text {_short(repr(value))}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, tuple | list | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def kind(value: Any) -> str:
    """Return NumPy's letter for the kind of a number or boolean; "-" for other values."""
    try:
        found = array(value)
    except (TypeError, ValueError, RuntimeError):  # ragged, for example
        return "-"
    return found.dtype.kind if found.ndim == 0 else "-"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
