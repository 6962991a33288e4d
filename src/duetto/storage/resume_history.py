"""The history of a run in `config.yaml`: events after its start, without which its options do not repeat its numbers.

changed       options, files or schedules that changed at a step
inexact       steps at which it was not resumed exactly
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from duetto.errors import UsageError
from duetto.functional import state_schema
from duetto.functional.state_schema import ListOf
from duetto.storage.safe_yaml import read_yaml, to_yaml, write_yaml

KEY = "history"
_EVENTS = ListOf({"step": int, "what": str})


class Event(NamedTuple):
    """An event at a step of the run."""

    step: int
    what: str

    def __str__(self) -> str:
        return f"step {self.step:,}: {self.what}"


class History(NamedTuple):
    """The events of one run."""

    changed: tuple[Event, ...] = ()
    inexact: tuple[Event, ...] = ()

    def going_on(self, step: int, changed: Iterable[str], inexact: Iterable[str]) -> History:
        """Return the history of a run that is resumed at `step` with these events; later events are dropped."""
        kept = ([event for event in events if event.step <= step] for events in self)
        new = ([Event(step, what) for what in sentences] for sentences in (changed, inexact))
        return History(*(tuple(dict.fromkeys(old + events)) for old, events in zip(kept, new, strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """Return the history as YAML values, without empty lists."""
        return {name: [event._asdict() for event in events] for name, events in self._asdict().items() if events}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> History:
        """Read the history from the contents of a `config.yaml`. Raises UsageError if it is malformed."""
        content = values.get(KEY) or {}
        lists = {"changed": [], "inexact": []} | content if isinstance(content, dict) else content
        if fault := state_schema.problem(lists, dict.fromkeys(cls._fields, _EVENTS)):
            raise UsageError(f"{KEY}{fault}; it must be events (step and what) of a run. Take it out.")
        return cls(*(tuple(Event(event["step"], event["what"]) for event in lists[name]) for name in cls._fields))


def note_inexact(path: Path, event: Event) -> None:
    """Add an event after which the numbers are inexact to the history in `config.yaml`, if that file exists.

    Raises DuettoError if the disk refuses.
    """
    if path.is_file():
        values = read_yaml(path)
        before = History.of(values)
        after = before._replace(inexact=tuple(dict.fromkeys([*before.inexact, event])))
        write_yaml(path, to_yaml(values | {KEY: after.to_dict()}))
