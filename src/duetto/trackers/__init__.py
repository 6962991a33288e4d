"""Services that show runs: `duetto.train(..., track=["wandb"])`, `duetto train ... --track wandb mlflow`.

A tracker is a small class: `base.py` has the interface, and each service a file. `tracking.py` is the callback that
feeds any of them from what the run logs, each point once, however often the run is killed and resumed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from duetto.errors import UsageError
from duetto.trackers.base import Point, Tracker
from duetto.trackers.mlflow import MLflow
from duetto.trackers.tracking import Tracking, tracked
from duetto.trackers.trackio import Trackio
from duetto.trackers.wandb import Wandb

__all__ = ["MLflow", "Point", "Tracker", "Trackio", "Wandb", "callbacks", "note_of_others"]

TRACKERS: dict[str, type[Tracker]] = {kind.name: kind for kind in (Wandb, MLflow, Trackio)}


def callbacks(track: Sequence[str | Tracker]) -> list[Tracking]:
    """The callbacks for trackers, each of which is given by its name or as an object.

    Raises:
        UsageError: There is no tracker of a name, its package is not installed, or one is given twice.
    """
    if isinstance(track, str) or not isinstance(track, Sequence):
        raise UsageError(f"track is {track!r}; it must be a list, such as ['wandb'].")
    trackers = [_made(one) for one in track]
    names = [tracker.name for tracker in trackers]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"The tracker {name} is given twice. Leave one out.")
    return [Tracking(tracker) for tracker in trackers]


def note_of_others(folder: Path, given: Sequence[object]) -> list[str]:
    """A sentence if a run was tracked by others than the given callbacks, and goes on without them."""
    here = {callback.tracker.name for callback in given if isinstance(callback, Tracking)}
    others = [name for name in tracked(folder) if name not in here]
    if not others:
        return []
    return [
        f"This run was tracked by {' and '.join(others)}, and goes on without. What it logs is sent when it is resumed "
        f"with {how_to_go_on(others)}."
    ]


def how_to_go_on(names: Sequence[str]) -> str:
    """The option that brings trackers of these names back, in the terminal and in Python."""
    if all(name in TRACKERS for name in names):
        return f"--track {' '.join(names)} (in Python track={list(names)!r})"
    objects = ", ".join(repr(name) if name in TRACKERS else f"<the tracker {name}>" for name in names)
    return f"track=[{objects}] in Python"


def _made(one: object) -> Tracker:
    if isinstance(one, type):
        raise UsageError(f"{one.__name__} is a class. Hand over an object of it: {one.__name__}(...).")
    if isinstance(one, Tracker):
        kind = type(one).__name__
        if not isinstance(getattr(one, "name", None), str):
            raise UsageError(f'The tracker {kind} has no name: write name = "{kind.lower()}" into the class.')
        if not re.fullmatch(r"\w[\w.-]*", one.name):  # a file in the run's folder is called by it
            raise UsageError(f"The tracker {kind} is called {one.name!r}. Take letters, digits, '-', '.' and '_'.")
        return one
    if not isinstance(one, str):
        raise UsageError(f"{one!r} is no tracker: give its name, or a duetto.trackers.Tracker.")
    if one not in TRACKERS:
        raise UsageError(f"There is no tracker {one!r}. There are: {', '.join(TRACKERS)}.")
    return TRACKERS[one]()
