"""Sentences for the user, kept in order, and logged for users of the Python interface."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from duetto.errors import escaped

LOGGER = logging.getLogger("duetto")


class Notices(list[str]):
    """A list of different sentences; each is also a warning of the standard library's logger "duetto"."""

    def __init__(self, notices: Iterable[str] = ()) -> None:
        super().__init__()
        self._heard: set[str] = set()
        self.extend(notices)

    def append(self, notice: str) -> None:
        """Add a new sentence, and log it as a warning."""
        if notice in self:
            return
        LOGGER.warning("%s", escaped(notice))
        super().append(notice)

    def extend(self, notices: Iterable[str]) -> None:
        """Add sentences as `append` does."""
        for notice in notices:
            self.append(notice)

    def __iadd__(self, notices: Iterable[str]) -> Self:  # type: ignore[override]
        self.extend(notices)
        return self

    def hear(self, run: str, sentences: Iterable[str], folder: Path) -> None:
        """Add the sentences of one of many runs after its name: of all that only differ in their numbers or the run's
        folder, the first.
        """
        for sentence in sentences:
            alike = re.sub(r"[\d.,]+", "", sentence.replace(str(folder), ""))
            if alike not in self._heard:
                self._heard.add(alike)
                self.append(f"{run}: {sentence}")


@contextmanager
def shown_elsewhere() -> Iterator[None]:
    """Silence logging's last resort, stderr, as notices are shown by other means; a user's handlers still get them."""
    handler = logging.NullHandler()
    LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
