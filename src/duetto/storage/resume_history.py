"""The history of a run in `config.yaml`: events after its start, without which its options do not repeat its numbers.

changed       options, files or schedules that changed at a step
inexact       steps at which it was not resumed exactly
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from duetto.errors import CheckpointError, DuettoError, UsageError
from duetto.functional import state_schema
from duetto.functional.state_schema import ListOf
from duetto.storage import atomic_io
from duetto.storage.safe_yaml import read_yaml, to_yaml

KEY = "history"
_EVENTS = ListOf({"step": int, "what": str})
_FORM = {"changed": _EVENTS, "inexact": _EVENTS}


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

    def going_on(self, step: int, changed: Iterable[str], inexact: Iterable[str]) -> Self:
        """Return the history of a run that is resumed at `step` with these events; later events are dropped."""
        return self._replace(changed=_longer(self.changed, step, changed), inexact=_longer(self.inexact, step, inexact))

    def to_dict(self) -> dict[str, Any]:
        """Return the history as YAML values, without empty lists."""
        events = {name: [event._asdict() for event in getattr(self, name)] for name in ("changed", "inexact")}
        return {name: value for name, value in events.items() if value}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Read the history from the contents of a `config.yaml`. Raises UsageError if it is malformed."""
        content = values.get(KEY) or {}
        try:
            if unknown := content.keys() - _FORM.keys():
                raise UsageError(f"{KEY} has {sorted(map(str, unknown))[0]!r}; there are {', '.join(_FORM)}.")
            complete = {key: [] for key in _FORM} | content
            state_schema.check(complete, _FORM, KEY)
        except (AttributeError, CheckpointError) as error:
            raise UsageError(
                f"{KEY} is {str(content)[:60]!r}; it must be events (step and what) of a run. Take it out."
            ) from error
        changed, inexact = (
            tuple(Event(event["step"], event["what"]) for event in complete[name]) for name in ("changed", "inexact")
        )
        return cls(changed, inexact)


def note_inexact(path: Path, event: Event) -> None:
    """Add an event after which the numbers are inexact to the history in `config.yaml`, if that file exists.

    Raises DuettoError if the disk refuses.
    """
    if not path.is_file():
        return
    values = read_yaml(path)
    before = History.of(values)
    after = before._replace(inexact=tuple(dict.fromkeys([*before.inexact, event])))
    try:
        atomic_io.publish_file(path, to_yaml(values | {KEY: after.to_dict()}).encode())
    except OSError as error:
        raise DuettoError(f"{path} cannot be written: {error.strerror}. Fix that and try again.") from error


def _longer(events: tuple[Event, ...], step: int, what: Iterable[str]) -> tuple[Event, ...]:
    return tuple(
        dict.fromkeys([event for event in events if event.step <= step] + [Event(step, sentence) for sentence in what])
    )
