"""The interface of trackers, for those here and one of your own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from duetto.errors import UsageError
from duetto.extras import install


@dataclass(frozen=True)
class Point:
    """The new numbers and videos of one step.

    `numbers` are by name, as in `metrics.jsonl` ("learn/critic_loss"), and those of an evaluation
    ("evaluation/mean_return"); `videos` are files.
    """

    step: int
    numbers: dict[str, float] = field(default_factory=dict)
    videos: list[Path] = field(default_factory=list)


class Tracker(ABC):
    """A service that shows runs. Its errors do not end the run: a notice is given, and what was not sent is sent later.

    Only an error of `begin` ends it, before the first step.
    """

    name: ClassVar[str]
    """What it is called by in `track`, and its file in the run's folder."""

    @abstractmethod
    def begin(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> tuple[str, str]:
        """Begin a tracked run, or go on with the one whose id is `known`.

        Args:
            run: The name of the run.
            known: The id that an earlier `begin` of this run returned; None for a new one.
            config: All that the run is made from, as in `config.yaml`: nested dicts.
            folder: The run's folder.

        Returns:
            The tracked run's id, and a few words for the user on where it is to be seen; "" for none. Another id than
            `known` means that a new tracked run was begun, since the known one is gone: it gets all points.
        """

    @abstractmethod
    def send(self, point: Point) -> None:
        """Send the numbers and videos of a step. Steps only grow."""

    @abstractmethod
    def best(self, folder: Path, step: int, mean_return: float) -> None:
        """Keep the folder of the best evaluation's parameters as an artefact."""

    @abstractmethod
    def finish(self, failed: bool) -> None:
        """End tracking in this process; the run may be resumed later. `failed`: an error ended it."""


def flat(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Flatten nested dicts to one, with keys joined by dots."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return found


def needed(package: str, what: str) -> None:
    """Raise UsageError, with the way to install it, if a tracker's package is not there."""
    if find_spec(package) is None:
        raise UsageError(f"Tracking with {what} needs {package}, which is not installed. Install: {install(package)}")


def imported(package: str) -> Any:
    """Import a package when it is used, as some take seconds."""
    return import_module(package)
