"""The differences of two nested records, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SHOWN = 5  # that are spelt out


def flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Flatten nested dicts to dotted keys: `{"run": {"seed": 1}}` becomes `{"run.seed": 1}`."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{above}{key}.") if isinstance(value, dict) and value else {f"{above}{key}": value}
    return found


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The differences of two flat records, `run.steps was 100 and is 200; ...`; "" if they are the same."""
    changed = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
    return listed([f"{key} was {before.get(key)!r} and is {now.get(key)!r}" for key in changed])


def listed(entries: Sequence[object]) -> str:
    """The entries as a list: of many only the first, and how many there are besides."""
    more = f"; and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
    return "; ".join(map(str, entries[:SHOWN])) + more
