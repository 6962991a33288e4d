"""The differences of two configurations, as a dict and in one sentence."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from duetto.errors import few

SHOWN = 5  # entries of a sentence
Diff = dict[str, tuple[str, str]]


def flat(values: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Flatten nested dicts to dotted keys with JSON texts: `{"run": {"seed": 1}}` becomes `{"run.seed": "1"}`."""
    texts: dict[str, str] = {}
    for key, value in values.items():
        texts |= flat(value, f"{above}{key}.") if isinstance(value, dict) and value else {f"{above}{key}": text(value)}
    return texts


def text(value: Any) -> str:
    """Return a value as JSON, the same for equal values."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def dict_diff(before: Mapping[str, str], now: Mapping[str, str], ignore: Collection[str] = ()) -> Diff:
    """Return the old and the new text of every key that differs; a missing key's text is "null"."""
    keys = [key for key in dict.fromkeys([*before, *now]) if key not in ignore]
    pairs = {key: (str(before.get(key, "null")), str(now.get(key, "null"))) for key in keys}
    return {key: (old, new) for key, (old, new) in pairs.items() if old != new}


def sentence(diff: Diff) -> str:
    """Return the differences as text: `run.steps was 100, is now 200; ...`."""
    return few([f"{key} was {old}, is now {new}" for key, (old, new) in diff.items()], SHOWN, "; ")
