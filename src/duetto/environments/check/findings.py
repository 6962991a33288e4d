"""Findings about an environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["broken", "costs", "fine"]


@dataclass(frozen=True)
class Finding:
    """A fact that the checker found about an environment.

    Attributes:
        level: "broken": training fails or learns the wrong thing; "costs": training is correct, but something is slower
            or missing; "fine".
        about: Its subject, such as "spaces", "observations", "rewards", "episodes", "determinism", "resume", "render".
        sentence: The fact and, unless the level is "fine", what to do.
    """

    level: Level
    about: str
    sentence: str


class Findings(list[Finding]):
    """The findings so far.

    Attributes:
        doing: The part of the check in progress, as the end of a sentence.
    """

    doing: str = "while it was made"

    def add(self, about: str, *, broken: str = "", costs: str = "", fine: str = "") -> None:
        """Add the first of these sentences that is not empty."""
        level: Level = "broken" if broken else "costs" if costs else "fine"
        if sentence := broken or costs or fine:
            self.append(Finding(level, about, sentence))
