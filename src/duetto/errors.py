"""Errors with a message for the user: one sentence names the problem, the next one names the remedy.

Every package may raise these errors. The command line prints only the message, and exits with `exit_code`.
"""

import shlex
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, format (such as right-to-left), surrogate, line separators


def escaped(text: str) -> str:
    """Escape characters that control a terminal or hide text, for example as `\\x1b`.

    Line feeds and tabs stay. Escaping the result again does not change it.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def few(names: Sequence[object], most: int, separator: str = ", ") -> str:
    """Return text with the first `most` names and the number of further names, such as "a, b and 3 more"."""
    return separator.join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def to_resume(folder: Path) -> str:
    """Return the shell command that resumes the run in `folder`."""
    return f"duetto resume {shlex.quote(str(near(folder)))}"


def near(path: Path) -> Path:
    """Return the path relative to the working directory if it is inside, else unchanged."""
    with suppress(OSError, ValueError):
        return path.relative_to(Path.cwd())
    return path


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _UNSEEN:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


class DuettoError(Exception):
    """A failure that the user can act on. The command exits with `exit_code`."""

    exit_code = 1

    def __str__(self) -> str:
        return escaped(super().__str__())


class UsageError(DuettoError):
    """A mistake in the call: an unknown name, a value out of range, spaces that do not fit the algorithm."""

    exit_code = 2


class NonFiniteError(DuettoError):
    """An observation, reward, action or loss is NaN or infinite."""


class EnvironmentFailedError(DuettoError):
    """The user's environment raised an exception, or its process died or hangs.

    Attributes:
        sentence: The problem, and how to fix it.
        trace: The user's part of the traceback, shown below the sentence; "" without an exception.
    """

    sentence: str
    trace: str

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence, trace)
        self.sentence, self.trace = sentence, trace

    def __str__(self) -> str:
        return escaped(f"{self.sentence}\n{self.trace}" if self.trace else self.sentence)


class CheckpointError(DuettoError):
    """A checkpoint cannot be written, is missing or damaged, or does not fit the run."""


class RunInUseError(DuettoError):
    """Another running process uses the same run folder."""


class ShardLostError(DuettoError):
    """A process that holds a shard of the replay buffer died.

    The caller closes the trainer and resumes the run from its last checkpoint.

    Attributes:
        step: The run's step at which the shard was lost.
    """

    step: int = 0
