"""Figures of the page on TD3: critic values compared with returns, and ablations, from committed runs."""

from __future__ import annotations

import csv
from functools import cache
from statistics import fmean

from drawing import Drawing, Plot
from overestimation import DATA, STEPS, VARIANTS

Series = dict[int, list[dict[str, float]]]  # a variant's measurements of each seed, in the order of their steps


@cache
def measurements() -> dict[str, Series]:
    """By variant and seed."""
    found: dict[str, Series] = {}
    with DATA.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            numbers = {name: float(row[name]) for name in ("step", "critic", "return", "episode_return")}
            found.setdefault(row["variant"], {}).setdefault(int(row["seed"]), []).append(numbers)
    return found


def _series(variant: str, name: str, since: int) -> tuple[list[float], list[float], list[float], list[float]]:
    """Steps, and over the seeds mean, least and greatest."""
    seeds = [[row for row in rows if row["step"] >= since] for rows in measurements()[variant].values()]
    columns = list(zip(*([row[name] for row in rows] for rows in seeds), strict=True))
    steps = [row["step"] for row in seeds[0]]
    return steps, [fmean(c) for c in columns], [min(c) for c in columns], [max(c) for c in columns]


def _draw(plot: Plot, variant: str, name: str, ink: str, since: int, least: float, band: bool = True) -> None:
    steps, mean, low, high = _series(variant, name, since)
    inside = [max(value, least) for value in low], [max(value, least) for value in high]
    if band:
        plot.band(steps, *inside, ink.split()[0])
    plot.curve([(x, max(y, least)) for x, y in zip(steps, mean, strict=True)], ink)


def overestimation() -> str:
    """Critic and truth for DDPG, for TD3 whose targets follow at every update, and for TD3."""
    d = Drawing(
        760,
        268,
        "Estimated and measured returns of DDPG and TD3",
    )
    least, since = -80.0, 3000
    for i, variant in enumerate(("DDPG", "targets at every step", "TD3")):
        plot = Plot(d, 52 + 242 * i, 44, 205, 170, (since, STEPS), (least, 0.0))
        plot.axes((4000, 6000, 8000), (-80, -40, 0), "steps", "")
        d.text(plot.left + 102, 26, "TD3, targets at every step" if i == 1 else variant, "strong")
        _draw(plot, variant, "return", "ink-reward", since, least)
        _draw(plot, variant, "critic", "ink-critic", since, least)
    d.text(250, 120, "critic", "ink-critic strong", "end", size=12)
    d.text(250, 138, "measured", "ink-reward strong", "end", size=12)
    return d.svg()


def ablations() -> str:
    """Draw the returns of the ablations, with TD3 in gray."""
    d = Drawing(860, 470, "Ablations of TD3 on Pendulum-v1")
    others = [variant for variant in VARIANTS if variant != "TD3"]
    for i, variant in enumerate(others):
        plot = Plot(d, 54 + 206 * (i % 4), 40 + 232 * (i // 4), 172, 145, (0, STEPS), (-1900.0, 0.0))
        plot.axes((0, 4000, 8000), (-1500, -1000, -500, 0) if i % 4 == 0 else (), "steps" if i > 2 else "", "")
        d.text(plot.left + 86, plot.top - 14, variant, "strong", size=11.5)
        _draw(plot, "TD3", "episode_return", "quiet", 500, -1900.0, band=False)
        _draw(plot, variant, "episode_return", "ink-critic", 500, -1900.0)
    return d.svg()


def bias(variant: str) -> list[float]:
    """Critic less return in each seed's last measurement."""
    return [rows[-1]["critic"] - rows[-1]["return"] for rows in measurements()[variant].values()]


def solved(variant: str, level: float = -250.0) -> list[int | None]:
    """The step of each seed's first measurement from which on all later ones are above a level."""
    found: list[int | None] = []
    for rows in measurements()[variant].values():
        below = [i for i, row in enumerate(rows) if row["episode_return"] < level]
        first = below[-1] + 1 if below else 0
        found.append(int(rows[first]["step"]) if first < len(rows) else None)
    return found
