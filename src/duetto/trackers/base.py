"""The interface of trackers, for Duetto's and for custom ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from duetto.errors import UsageError
from duetto.install_hint import install


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
    """A service that shows runs.

    An error of `start` ends the run, before the first step. Other errors do not: Duetto warns, and sends a point again.
    """

    name: ClassVar[str]
    """The name in `track`, and of the tracker's file in the run's folder."""

    @abstractmethod
    def start(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> tuple[str, str]:
        """Start a tracked run, or continue the one with the id `known`.

        Args:
            run: The name of the run.
            known: The id that an earlier `start` of this run returned; None for a new run.
            config: The run's configuration, as in `config.yaml`: nested dicts.
            folder: The run's folder.

        Returns:
            The tracked run's id, and the place where the user finds it; "" for none. An id other than `known` means
            that the known run no longer exists: the new one gets all points.
        """

    @abstractmethod
    def send(self, point: Point) -> None:
        """Send the numbers and videos of a step. After a kill, points since the last checkpoint come again."""

    @abstractmethod
    def best(self, folder: Path, step: int, mean_return: float) -> None:
        """Keep the folder with the best evaluation's parameters as an artifact."""

    @abstractmethod
    def finish(self, failed: bool) -> None:
        """End tracking in this process; the run may resume later. `failed`: an error ended the run."""


def flat(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Flatten nested dicts to one, with keys joined by dots."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        values |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return values


def needed(package: str) -> None:
    """Raise UsageError, with the command to install it, if a tracker's package is missing."""
    if find_spec(package) is None:
        raise UsageError(f"The tracker needs {package}, which is not installed. Install: {install(package)}")
