"""Options for callbacks of the commands that train: when to stop, videos, trackers."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated, Any

from tyro.conf import arg

from duetto.errors import UsageError

StopAtReturn = Annotated[float | None, arg(help="Stop where an evaluation's mean return is at least this.")]
TimeLimit = Annotated[
    float | None,
    arg(
        help="Stop after so many seconds of work, earlier processes included; the checkpoint, and after it an "
        "evaluation of the last policy, come on top.",
        metavar="SECONDS",
    ),
]
VideoEvery = Annotated[int | None, arg(help="Record an episode every so many steps.", metavar="STEPS")]
Track = Annotated[  # None: not given
    tuple[str, ...] | None, arg(help="Send what is logged to wandb, mlflow or trackio.", metavar="TRACKER ...")
]


def callbacks(
    stop_at_return: float | None, time_limit: float | None, video_every: int | None, track: Track
) -> list[Any]:
    """The callbacks that the options ask for; nothing is imported for those that are not given."""
    asked: list[Any] = []
    if (stop_at_return, time_limit, video_every) != (None, None, None):
        from duetto.callbacks import RecordVideo, StopAtReturn, TimeLimit

        for option, kind, value in (
            ("video-every", RecordVideo, video_every),
            ("stop-at-return", StopAtReturn, stop_at_return),
            ("time-limit", TimeLimit, time_limit),
        ):
            asked += [] if value is None else [_made(option, kind, value)]
    if names := names_of(track):
        from duetto import trackers

        asked += trackers.callbacks(names)
    return asked


def names_of(track: Track) -> tuple[str, ...]:
    """The names of the trackers in --track. Raises UsageError if it is given without one."""
    if track == ():
        from duetto.trackers import TRACKERS

        raise UsageError(f"--track names no tracker. There are: {', '.join(TRACKERS)}.")
    return track or ()


def _made(option: str, kind: type[Any], value: float) -> Any:
    """Make the callback; its errors name the command's option instead of the argument."""
    try:
        return kind(value)
    except UsageError as error:
        (field, *_) = dataclasses.fields(kind)
        raise UsageError(re.sub(rf"^{field.name} is ", f"--{option} is ", str(error))) from error
