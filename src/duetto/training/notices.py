"""Notices: messages for the user, which the display shows and Python's `logging` gets."""

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
    """A list of messages without duplicates. Each message is also logged as a warning of the logger "duetto"."""

    def __init__(self, notices: Iterable[str] = ()) -> None:
        super().__init__()
        self._seen: set[str] = set()
        self.extend(notices)

    def append(self, notice: str) -> None:
        """Add a message and log it as a warning, unless the list already contains it."""
        if notice in self:
            return
        LOGGER.warning("%s", escaped(notice))
        super().append(notice)

    def extend(self, notices: Iterable[str]) -> None:
        """Add each message as `append` does."""
        for notice in notices:
            self.append(notice)

    def __iadd__(self, notices: Iterable[str]) -> Self:  # type: ignore[override]
        self.extend(notices)
        return self

    def add_new(self, run: str, sentences: Iterable[str], folder: Path) -> None:
        """Add the messages of one run of a sweep, each with the name `run` in front.

        A message is skipped if it differs from an earlier message only in numbers or in the run's folder.
        """
        for sentence in sentences:
            alike = re.sub(r"[\d.,]+", "", sentence.replace(str(folder), ""))
            if alike not in self._seen:
                self._seen.add(alike)
                self.append(f"{run}: {sentence}")


@contextmanager
def shown_elsewhere() -> Iterator[None]:
    """Stop `logging` from printing notices to stderr, because a display shows them. Users' handlers still get them."""
    handler = logging.NullHandler()
    LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
