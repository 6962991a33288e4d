"""Errors whose message is for the user: one sentence saying what is wrong, one saying what to do.

Every layer may raise them; the command line prints the message alone and exits with `exit_code`.
"""


class DuettoError(Exception):
    """Something failed that the user can act on."""

    exit_code = 1


class UsageError(DuettoError):
    """A mistake in the call: an unknown name, a value out of range, spaces that do not fit."""

    exit_code = 2


class NonFiniteError(DuettoError):
    """An observation, reward, action or loss is NaN or infinite."""


class EnvironmentFailedError(DuettoError):
    """The user's environment raised, or the process that it runs in died or hangs.

    Attributes:
        sentence: What is wrong and what to do.
        trace: The user's part of the traceback, shown below it; "" where nothing was raised.
    """

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence, trace)
        self.sentence, self.trace = sentence, trace

    def __str__(self) -> str:
        return f"{self.sentence}\n{self.trace}" if self.trace else self.sentence


class CheckpointError(DuettoError):
    """A checkpoint cannot be written, or is damaged, foreign or missing."""


class RunInUseError(DuettoError):
    """Another living process works on the same run folder."""
