"""What befell a run after it had begun, so that its options alone do not make its numbers again: part of `config.yaml`.

changed       options, files or schedules that are others from a step on
inexact       where it did not go on as a run that was never interrupted
attributes    what callbacks have set in its environments
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from duetto.errors import DuettoError, UsageError
from duetto.storage import disk
from duetto.storage.yaml_files import read_yaml, to_yaml

KEY = "history"


class Event(NamedTuple):
    """What happened when the run went on from a step."""

    step: int
    what: str

    def __str__(self) -> str:
        return f"step {self.step:,}: {self.what}"


class History(NamedTuple):
    """The events of one run, and the names of the attributes; see above."""

    changed: tuple[Event, ...] = ()
    inexact: tuple[Event, ...] = ()
    attributes: tuple[str, ...] = ()

    def going_on(self, step: int, changed: Iterable[str], inexact: Iterable[str]) -> Self:
        """The history of a run that goes on from `step` in this way. What came after that step is no part of it."""
        return self._replace(changed=_longer(self.changed, step, changed), inexact=_longer(self.inexact, step, inexact))

    def to_dict(self) -> dict[str, Any]:
        """The history as YAML values; empty lists are left out."""
        events = {name: [event._asdict() for event in getattr(self, name)] for name in ("changed", "inexact")}
        return {name: value for name, value in (events | {"attributes": list(self.attributes)}).items() if value}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The history in the contents of a `config.yaml`. Raises UsageError for one that is none."""
        found = values.get(KEY) or {}
        try:
            if unknown := found.keys() - set(cls._fields):
                raise UsageError(f"{KEY} has {sorted(map(str, unknown))[0]!r}; there are {', '.join(cls._fields)}.")
            events = {name: tuple(map(_event, found.get(name, ()))) for name in ("changed", "inexact")}
            return cls(**events, attributes=tuple(map(_text, found.get("attributes", ()))))
        except (AttributeError, KeyError, TypeError) as error:
            raise UsageError(
                f"{KEY} is {str(found)[:60]!r}; it must be events (step and what) of a run. Take it out."
            ) from error


def note(path: Path, attribute: str = "", inexact: Event | None = None) -> None:
    """Note in the `config.yaml` at `path` what happens while the run goes on; nothing if there is no such file.

    Args:
        path: The file.
        attribute: One that a callback sets; noted once.
        inexact: What makes its numbers others than those of a run that nothing happened to.

    Raises DuettoError if the disk refuses.
    """
    if not path.is_file():
        return
    values = read_yaml(path)
    before = History.of(values)
    after = before._replace(
        attributes=tuple(dict.fromkeys([*before.attributes, *([attribute] if attribute else [])])),
        inexact=tuple(dict.fromkeys([*before.inexact, *([inexact] if inexact else [])])),
    )
    if after == before:
        return
    try:
        disk.publish_file(path, to_yaml(values | {KEY: after.to_dict()}).encode())
    except OSError as error:
        raise DuettoError(f"{path} cannot be written: {error.strerror}. Put that right and try again.") from error


def _longer(events: tuple[Event, ...], step: int, what: Iterable[str]) -> tuple[Event, ...]:
    return tuple(dict.fromkeys([event for event in events if event.step <= step] + [Event(step, one) for one in what]))


def _event(given: Any) -> Event:
    if type(given["step"]) is not int:
        raise TypeError("a step is a whole number")
    return Event(given["step"], _text(given["what"]))


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError("what happened is text")
    return given
