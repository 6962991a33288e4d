"""Trackers: W&B, MLflow and Trackio. `duetto.train(..., track=["wandb"])`, `duetto train ... --track wandb mlflow`.

base                      the interface of trackers, also of custom trackers
wandb, mlflow             W&B and Trackio; MLflow
tracking                  the callback that sends a run's numbers and videos; at the end, the best parameters
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from duetto.errors import UsageError
from duetto.trackers.base import Point, Tracker
from duetto.trackers.mlflow import MLflow
from duetto.trackers.tracking import Tracking, tracked
from duetto.trackers.wandb import Trackio, Wandb

__all__ = ["MLflow", "Point", "Tracker", "Trackio", "Wandb", "callbacks", "note_of_others"]

TRACKERS: dict[str, type[Tracker]] = {kind.name: kind for kind in (Wandb, MLflow, Trackio)}


def callbacks(track: Sequence[str | Tracker]) -> list[Tracking]:
    """Return the callbacks for trackers, given by name or as objects.

    Raises:
        UsageError: A name is unknown, the tracker's package is not installed, or a tracker is given twice.
    """
    if isinstance(track, str) or not isinstance(track, Sequence):
        raise UsageError(f"track is {track!r}; it must be a list, such as ['wandb'].")
    trackers = [_tracker(entry) for entry in track]
    if len({tracker.name for tracker in trackers}) < len(trackers):
        raise UsageError(f"track is {track!r}, with the same tracker twice. Remove one of the two.")
    return [Tracking(tracker) for tracker in trackers]


def note_of_others(folder: Path, given: Sequence[object]) -> list[str]:
    """Return a notice, in a list, if the callbacks `given` lack a tracker that the run has used; else []."""
    names = {callback.tracker.name for callback in given if isinstance(callback, Tracking)}
    others = [name for name in tracked(folder) if name not in names]
    if not others:
        return []
    return [
        f"This run was tracked by {' and '.join(others)}, and continues without tracking. To track it, give `track` "
        "again."
    ]


def _tracker(entry: object) -> Tracker:
    if isinstance(entry, str) and entry in TRACKERS:
        return TRACKERS[entry]()
    if not isinstance(entry, Tracker):
        raise UsageError(
            f"There is no tracker {entry!r}. There are: {', '.join(TRACKERS)}; or give a duetto.trackers.Tracker."
        )
    name = str(getattr(entry, "name", "") or "")
    if not re.fullmatch(r"\w[\w.-]*", name):  # the file `tracking/<name>.txt` has this name
        raise UsageError(f"A tracker has the name {name!r}. Use letters, digits, '-', '.' and '_'.")
    return entry
