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


class CheckpointError(DuettoError):
    """A checkpoint cannot be written, or is damaged, foreign or missing."""


class FolderLostError(DuettoError):
    """A run's folder was moved, deleted or replaced while the run worked in it."""


class RunInUseError(DuettoError):
    """Another living process works on the same run folder."""
