"""The interface of trackers, including custom trackers."""

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

    `numbers` has the numbers of `metrics.jsonl` and of evaluations by name, such as "learn/critic_loss" and
    "evaluation/mean_return". `videos` are paths of files.
    """

    step: int
    numbers: dict[str, float] = field(default_factory=dict)
    videos: list[Path] = field(default_factory=list)


class Tracker(ABC):
    """The interface to a service that records and shows runs.

    If `start` raises an error, the run ends before its first step. If another method raises an error, Duetto warns and
    the run continues. If `send` raised the error, Duetto sends the point again later.
    """

    name: ClassVar[str]
    """The tracker's name in `track`, and in the name of its file in the run's folder."""

    @abstractmethod
    def start(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> tuple[str, str]:
        """Start a tracked run, or continue the tracked run with the id `known`.

        Args:
            run: The name of the run.
            known: The id that an earlier `start` of this run returned; None for a new run.
            config: The run's configuration, as in `config.yaml`: nested dicts.
            folder: The run's folder.

        Returns:
            The tracked run's id, and a URL or command with which users see the run, or "". An id other than `known`
            means that the known run no longer exists; Duetto then sends all points again.
        """

    @abstractmethod
    def send(self, point: Point) -> None:
        """Send the numbers and videos of a step.

        After a kill, the resumed run sends the points since its last checkpoint again.
        """

    @abstractmethod
    def best(self, folder: Path, step: int, mean_return: float) -> None:
        """Store `folder`, which contains the parameters of the best evaluation, as an artifact."""

    @abstractmethod
    def finish(self, failed: bool) -> None:
        """End tracking in this process; the run may resume later. `failed` is True if an error ended the run."""


def flat(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Flatten nested dicts to one dict, with keys joined by dots."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        values |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return values


def needed(package: str) -> None:
    """Raise UsageError with an install command if a tracker's package is missing."""
    if find_spec(package) is None:
        raise UsageError(f"The tracker needs {package}, which is not installed. Install: {install(package)}")
