"""Making safe HTML: text stays text, whatever it holds, and only `tag` makes markup."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from typing import Any

from duetto.errors import escaped

_CODE = re.compile(r"`([^`]+)`")
_EMPTY = ("meta", "input")


class Html(str):
    """A string of markup; every other string is text."""

    __slots__ = ()


def text(value: object) -> Html:
    """Escape a text, so that nothing in it is taken for markup, nor shown as something else. Html stays."""
    return value if isinstance(value, Html) else Html(html.escape(escaped(str(value)), quote=True))


def tag(name: str, /, *inside: object, **attributes: str | bool) -> Html:
    """Make an element; `class_` is its class, and `data_x` its data-x."""
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not False
    )
    return Html(f"<{name}{given}>" + ("" if name in _EMPTY else f"{joined(*inside)}</{name}>"))


def joined(*parts: object) -> Html:
    """Join parts one after the other, with text escaped."""
    return Html("".join(map(text, parts)))


def with_code(words: str) -> Html:
    """Turn words with `code` in backticks into markup."""
    parts = _CODE.split(words)
    return joined(*(tag("code", part) if number % 2 else part for number, part in enumerate(parts)))


def table(head: Sequence[object], rows: Sequence[Sequence[object]], numbers: int = 0) -> Html:
    """Make a table, whose last `numbers` columns are right-aligned."""
    first = len(head) - numbers

    def row(cells: Sequence[object], kind: str) -> Html:
        return tag("tr", *(tag(kind, cell, class_="number" if i >= first else "words") for i, cell in enumerate(cells)))

    body = tag("tbody", *(row(cells, "td") for cells in rows))
    return tag("div", tag("table", tag("thead", row(head, "th")), body), class_="wide")


def data(value: Any) -> Html:
    """A value as JSON for a script element: without `<`, so that it cannot end that element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
