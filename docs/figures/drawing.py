"""SVG as text. Colors are classes that `_static/site.css` gives to light and dark pages; words have the page's font.

Coordinates are the drawing's own units, about one pixel each, y downwards.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

STATIC = Path(__file__).parents[1] / "_static"
Point = tuple[float, float]


class Drawing:
    """A picture of `width` by `height`, and in words what it shows."""

    def __init__(self, width: float, height: float, words: str) -> None:
        self.width, self.height, self.words = width, height, words
        self._parts: list[str] = []

    def add(self, element: str, ink: str = "", **attributes: object) -> None:
        """An element; names of attributes have _ for -."""
        listed = "".join(f' {name.replace("_", "-")}="{escape(_plain(value))}"' for name, value in attributes.items())
        self._parts.append(f'<{element} class="{ink}"{listed}/>')

    def text(self, x: float, y: float, words: str, ink: str = "", anchor: str = "middle", size: float = 13) -> None:
        """Words; `_` before a character or {...} lowers it, `^` raises it."""
        style = f'class="{ink}" x="{_plain(x)}" y="{_plain(y)}" text-anchor="{anchor}" font-size="{_plain(size)}"'
        self._parts.append(f"<text {style}>{_raised(words)}</text>")

    def line(self, points: Sequence[Point], ink: str = "line") -> None:
        """Straight from point to point."""
        self.add("polyline", f"line {ink}", points=" ".join(f"{_plain(x)},{_plain(y)}" for x, y in points))

    def arrow(self, points: Sequence[Point], ink: str = "") -> None:
        """A line with a head at its end."""
        (x0, y0), (x, y) = points[-2], points[-1]
        turn = math.atan2(y - y0, x - x0)
        back = [(x - 8 * math.cos(turn + side), y - 8 * math.sin(turn + side)) for side in (0.42, -0.42)]
        shaft = (x - 5 * math.cos(turn), y - 5 * math.sin(turn))
        self.line([*points[:-1], shaft], ink)
        self.add("polygon", f"solid {ink}", points=" ".join(f"{_plain(a)},{_plain(b)}" for a, b in [(x, y), *back]))

    def box(
        self, x: float, y: float, width: float, height: float, words: str = "", ink: str = "", *, more: str = ""
    ) -> None:
        """A rounded box around its middle (x, y), words in it, smaller words below them."""
        corner = {"x": x - width / 2, "y": y - height / 2, "width": width, "height": height, "rx": 7}
        self.add("rect", f"box {ink}", **corner)
        if words:
            self.text(x, y + (0 if more else 5), words, ink)
        if more:
            self.text(x, y + 15, more, f"{ink} faint", size=10.5)

    def dot(self, x: float, y: float, ink: str = "", radius: float = 4) -> None:
        """A filled circle."""
        self.add("circle", f"solid {ink}", cx=x, cy=y, r=radius)

    def open_group(self, ink: str, style: str, rules: str) -> None:
        """Open a group with a style and CSS rules. `close_group` closes it."""
        self._parts.append(f'<style>{rules}</style><g class="{ink}" style="{style}">')

    def close_group(self) -> None:
        """Close the group of `open_group`."""
        self._parts.append("</g>")

    def svg(self) -> str:
        """Return the SVG."""
        head = f'viewBox="0 0 {_plain(self.width)} {_plain(self.height)}" style="max-width: {_plain(self.width)}px"'
        kind = "drawing wide" if self.width > 500 else "drawing"
        return f'<svg class="{kind}" role="img" {head}><title>{escape(self.words)}</title>{"".join(self._parts)}</svg>'


class Plot:
    """Axes in a part of a drawing: data to points, ticks, curves, bands."""

    def __init__(
        self, drawing: Drawing, left: float, top: float, width: float, height: float, x: Point, y: Point
    ) -> None:
        self._drawing, self._x, self._y = drawing, x, y
        self.left, self.top, self.right, self.bottom = left, top, left + width, top + height

    def at(self, x: float, y: float) -> Point:
        """Return the position of a value in the drawing."""
        across = (x - self._x[0]) / (self._x[1] - self._x[0])
        up = (y - self._y[0]) / (self._y[1] - self._y[0])
        return self.left + across * (self.right - self.left), self.bottom - up * (self.bottom - self.top)

    def axes(self, x_ticks: Iterable[float], y_ticks: Iterable[float], x_name: str = "", y_name: str = "") -> None:
        """Both axes, with their numbers."""
        self._drawing.line([(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)], "axis")
        for tick in x_ticks:
            x, y = self.at(tick, self._y[0])
            self._drawing.line([(x, y), (x, y + 4)], "axis")
            self._drawing.text(x, y + 17, _number(tick), "faint", size=11)
        for tick in y_ticks:
            x, y = self.at(self._x[0], tick)
            self._drawing.line([(x - 4, y), (x, y)], "axis")
            self._drawing.text(x - 7, y + 4, _number(tick), "faint", "end", size=11)
        self._drawing.text((self.left + self.right) / 2, self.bottom + 33, x_name, "faint", size=11.5)
        self._drawing.text(self.left, self.top - 9, y_name, "faint", "start", size=11.5)

    def curve(self, points: Iterable[Point], ink: str) -> None:
        """A line through values."""
        self._drawing.line([self.at(*point) for point in points], ink)

    def band(self, x: Sequence[float], low: Sequence[float], high: Sequence[float], ink: str) -> None:
        """Fill the area between two lines."""
        outline = [*zip(x, high, strict=True), *reversed(list(zip(x, low, strict=True)))]
        points = " ".join(f"{_plain(a)},{_plain(b)}" for a, b in (self.at(*point) for point in outline))
        self._drawing.add("polygon", f"band {ink}", points=points)


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    return f"{value:,.10g}".replace("-", "−")


def _raised(words: str) -> str:
    """Sub- and superscripts of `Drawing.text`, as spans that move and come back."""
    out, i = [], 0
    while i < len(words):
        if words[i] in "_^" and i + 1 < len(words):
            down = 4 if words[i] == "_" else -5
            if words[i + 1] == "{":
                end = words.index("}", i)
                script, i = words[i + 2 : end], end + 1
            else:
                script, i = words[i + 1], i + 2
            out.append(f'<tspan dy="{down}" font-size="75%">{escape(script)}</tspan><tspan dy="{-down}">\u200b</tspan>')
        else:
            out.append(escape(words[i]))
            i += 1
    return "".join(out)


def alone(svg: str) -> str:
    """Return a drawing as a standalone file, with the site's palettes and rules for drawings."""
    style = (STATIC / "site.css").read_text("utf-8")
    rules = "".join(re.findall(r"^svg\.drawing .*\n", style, re.MULTILINE))
    inks = "".join(re.findall(r"^\.ink-\w+ \{.*\n", style, re.MULTILINE))
    light, dark = (
        re.findall(r"--ink-\w+: #\w+;", part) for part in style.split("@media (prefers-color-scheme: dark)")[:2]
    )
    pages = (
        "--color-foreground-primary:#1f2328;--color-foreground-secondary:#59636e;--color-foreground-muted:#8c959f;",
        "--color-foreground-primary:#f0f6fc;--color-foreground-secondary:#9198a1;--color-foreground-muted:#6e7681;",
    )
    first, second = ("".join(sorted(set(inks))) + page for inks, page in zip((light, dark), pages, strict=True))
    sheet = (
        f"svg{{{first}font-family:system-ui,sans-serif;color:var(--color-foreground-primary)}}\n"
        f"@media(prefers-color-scheme:dark){{svg{{{second}}}}}\n{inks}{rules}"
    )
    size = re.search(r'viewBox="0 0 (\S+) (\S+)"', svg)
    assert size is not None
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[1]}" height="{size[2]}" '
    return svg.replace("<svg ", head, 1).replace("<title>", f"<style>{sheet}</style><title>", 1) + "\n"
