"""Errors whose message is for the user: one sentence saying what is wrong, one saying what to do.

Every layer may raise them; the command line prints the message alone and exits with `exit_code`.
"""

import shlex
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control and format (bidirectional too), half pairs, ends of lines


def escaped(text: str) -> str:
    """Return the text with escapes, such as `\\x1b`, for characters that control a terminal or hide text.

    Line feeds and tabs stay. Escaping twice is escaping once.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def few(names: Sequence[object], most: int, separator: str = ", ") -> str:
    """Return the first `most` names for a sentence, and the number of the others."""
    return separator.join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def to_resume(folder: Path) -> str:
    """Return the shell command that resumes the run in `folder`."""
    return f"duetto resume {shlex.quote(str(near(folder)))}"


def near(path: Path) -> Path:
    """Return the path relative to the working directory, if that contains it."""
    with suppress(OSError, ValueError):
        return path.relative_to(Path.cwd())
    return path


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _UNSEEN:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


class DuettoError(Exception):
    """Something failed that the user can act on. `exit_code` is the command's: 1, and 2 for a UsageError."""

    exit_code = 1

    def __str__(self) -> str:
        return escaped(super().__str__())


class UsageError(DuettoError):
    """A mistake in the call: an unknown name, a value out of range, spaces that do not fit."""

    exit_code = 2


class NonFiniteError(DuettoError):
    """An observation, reward, action or loss is NaN or infinite."""


class EnvironmentFailedError(DuettoError):
    """The user's environment raised, or the process that it runs in died or hangs.

    Attributes:
        sentence: The problem, and how to fix it.
        trace: The user's part of the traceback, shown below the sentence; "" if nothing was raised.
    """

    sentence: str
    trace: str

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence, trace)
        self.sentence, self.trace = sentence, trace

    def __str__(self) -> str:
        return f"{self.sentence}\n{self.trace}" if self.trace else self.sentence


class CheckpointError(DuettoError):
    """A checkpoint cannot be written, or is damaged, foreign or missing."""


class RunInUseError(DuettoError):
    """Another living process works on the same run folder."""


class PartLostError(DuettoError):
    """A shard of a run's replay memory is gone.

    Its message is one sentence on the loss. The caller closes the trainer and resumes the run from its last checkpoint.

    Attributes:
        step: The run's step at which it was lost.
    """

    step: int = 0
