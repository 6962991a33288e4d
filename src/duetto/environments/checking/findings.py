"""Findings about an environment: a level, what it is about, and a sentence that says what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["broken", "costs", "fine"]


@dataclass(frozen=True)
class Finding:
    """A fact that was found out about an environment.

    Attributes:
        level: "broken": training fails, or learns something else than is meant; "costs": training is right, but
            something is slower, or lost; "fine".
        about: Its subject: "making", "spaces", "observations", "rewards", "ends", "seeds", "saving", "video" ...
        sentence: What is so and, unless it is fine, what to do.
    """

    level: Level
    about: str
    sentence: str


def broken(about: str, sentence: str) -> Finding:
    """See `Finding`."""
    return Finding("broken", about, sentence)


def costs(about: str, sentence: str) -> Finding:
    """See `Finding`."""
    return Finding("costs", about, sentence)


def fine(about: str, sentence: str) -> Finding:
    """See `Finding`."""
    return Finding("fine", about, sentence)
