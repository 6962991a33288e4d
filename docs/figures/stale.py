"""Figure of the page on R2D2: stale hidden states and burn-in, from committed measurements."""

from __future__ import annotations

import csv
from functools import cache
from statistics import fmean

from drawing import Drawing, Plot
from staleness import AGES, BURN_INS, DATA

Key = tuple[int, str, int]  # age, start, burn-in
STARTS = (("zeros", "zeros", "ink-target"), ("stored", "stored state", "ink-critic"))


@cache
def measurements() -> dict[Key, list[dict[str, float]]]:
    """A row of each seed."""
    found: dict[Key, list[dict[str, float]]] = {}
    with DATA.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            numbers = {name: float(row[name]) for name in ("state", "value")}
            found.setdefault((int(row["age"]), row["start"], int(row["burn_in"])), []).append(numbers)
    return found


def off(age: int, start: str, burn_in: int, what: str = "value") -> list[float]:
    """How far from the truth, of each seed."""
    return [row[what] for row in measurements()[age, start, burn_in]]


def stale() -> str:
    """Over the age, and over the burn-in."""
    d = Drawing(780, 290, "Stored states become stale; a burn-in updates them")
    left = Plot(d, 50, 50, 270, 180, (0, AGES[-1]), (0.0, 0.7))
    right = Plot(d, 400, 50, 220, 180, (0, BURN_INS[-1]), (0.0, 0.7))
    left.axes((0, 400, 800, 1_200, 1_600), (0, 0.2, 0.4, 0.6), "updates since the state was stored", "")
    right.axes((0, 5, 10, 15, 20), (0, 0.2, 0.4, 0.6), "steps of burn-in", "")
    d.text(left.left, 22, "relative error, without burn-in", "strong", "start", size=12.5)
    d.text(right.left, 22, f"error after {AGES[-1]:,} updates", "strong", "start", size=12.5)
    for start, words, ink in STARTS:
        _draw(left, [(age, off(age, start, 0)) for age in AGES], ink)
        points = [(k, off(AGES[-1], start, k)) for k in BURN_INS]
        _draw(right, points, ink)
        x, y = right.at(3, fmean(points[3][1]))
        d.text(x + 8, y - 22 if start == "zeros" else y + 24, words, f"{ink} strong", "start", size=12)
    _draw(left, [(age, off(age, "stored", 0, "state")) for age in AGES], "ink-critic dashed")
    for at, words, ink in (
        ((430, 0.575), "Q-values, zeros", "ink-target"),
        ((760, 0.04), "Q-values, stored state", "ink-critic"),
        ((640, 0.265), "hidden state", "ink-critic"),
    ):
        d.text(*left.at(*at), words, f"{ink} strong", "start", size=11.5)
    return d.svg()


def _draw(plot: Plot, points: list[tuple[int, list[float]]], ink: str) -> None:
    x = [at for at, _ in points]
    plot.band(x, [min(values) for _, values in points], [max(values) for _, values in points], ink.split()[0])
    plot.curve([(at, fmean(values)) for at, values in points], ink)
