"""Options of the commands that train for what looks on: when to stop, videos, trackers."""

from __future__ import annotations

from typing import Annotated, Any

from tyro.conf import arg

StopAtReturn = Annotated[float | None, arg(help="Stop where an evaluation's mean return is at least this.")]
TimeLimit = Annotated[
    float | None,
    arg(help="Stop after so many seconds of work, earlier processes included.", metavar="SECONDS"),
]
VideoEvery = Annotated[int | None, arg(help="Record an episode every so many steps.", metavar="STEPS")]
Track = Annotated[tuple[str, ...], arg(help="Send what is logged to wandb, mlflow or trackio.", metavar="TRACKER ...")]

OPTIONS = ("stop_at_return", "time_limit", "video_every", "track")


def callbacks(
    stop_at_return: float | None, time_limit: float | None, video_every: int | None, track: tuple[str, ...]
) -> list[Any]:
    """What the options ask for; nothing is imported for those that are not given."""
    asked: list[Any] = []
    if (stop_at_return, time_limit, video_every) != (None, None, None):
        from duetto.callbacks import RecordVideo, StopAtReturn, TimeLimit

        asked += [] if video_every is None else [RecordVideo(video_every)]
        asked += [] if stop_at_return is None else [StopAtReturn(stop_at_return)]
        asked += [] if time_limit is None else [TimeLimit(time_limit)]
    if track:
        from duetto import trackers

        asked += trackers.callbacks(track)
    return asked
