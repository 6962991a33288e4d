"""Findings about an environment, and how the checker's child process reports them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import IO, Literal

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


class Findings:
    """Writer of findings, a line of JSON each, with lines in between that name the call in progress."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def add(self, about: str, *, broken: str = "", costs: str = "", fine: str = "") -> None:
        """Report the first of these sentences that is not empty."""
        level: Level = "broken" if broken else "costs" if costs else "fine"
        if sentence := broken or costs or fine:
            print(json.dumps(vars(Finding(level, about, sentence))), file=self._stream)

    def doing(self, call: str) -> None:
        """Name the call that begins now, as the end of a sentence; "" ends the check."""
        print(json.dumps({"doing": call}), file=self._stream)
