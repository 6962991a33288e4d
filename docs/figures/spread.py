"""The pictures of the page on seeds: how far runs that differ in nothing but chance lie apart, from committed runs."""

from __future__ import annotations

import csv
from functools import cache
from math import sqrt
from statistics import fmean, stdev

import numpy as np
import twenty
from drawing import Drawing, Plot
from learned import BENCHMARKS, evaluations

LEARNING = BENCHMARKS / "results" / "learning"
AT = 8_000  # steps of CartPole after which settings are compared
LESS, MORE = twenty.LAMBDAS
INKS = {LESS: "ink-critic", MORE: "ink-actor"}
SIZES = (1, 2, 3, 5, 10)


# ---------------------------------------------------------------------------------------------------- three seeds
def cheetah() -> str:
    """PPO's three seeds on HalfCheetah."""
    d = Drawing(700, 300, "Three seeds on HalfCheetah end at 5,934, 6,332 and 7,677")
    plot = Plot(d, 66, 34, 500, 210, (0, 1_000_000), (-200.0, 8_200.0))
    plot.axes(
        (0, 250_000, 500_000, 750_000, 1_000_000),
        (0, 2_000, 4_000, 6_000, 8_000),
        "steps",
        "mean return of ten episodes",
    )
    for seed, ink, shift in ((0, "ink-critic", 0), (1, "ink-actor", 4), (2, "ink-noise", 12)):
        curve = evaluations(f"ppo-halfcheetah-s{seed}")
        plot.curve(curve, ink)
        x, y = plot.at(*curve[-1])
        d.text(x + 8, y + shift, f"seed {seed}: {curve[-1][1]:,.0f}", f"{ink} strong", "start", size=12)
    return d.svg()


def last_rows(seeds: int = 3) -> list[dict[str, float]]:
    """The last evaluation of each of the first seeds: mean, and spread over its ten episodes."""
    found = []
    for seed in range(seeds):
        with (LEARNING / f"ppo-halfcheetah-s{seed}" / "evaluations.csv").open(encoding="utf-8") as file:
            row = list(csv.DictReader(file))[-1]
        found.append({name: float(row[name]) for name in ("mean_return", "std_return", "min_return", "max_return")})
    return found


def two_spreads() -> tuple[float, float]:
    """The standard deviation over an evaluation's episodes, the mean of ten; and that over the seeds' means."""
    rows = last_rows(10)
    return fmean(row["std_return"] for row in rows), stdev(row["mean_return"] for row in rows)


def episodes_and_seeds() -> str:
    """Ten episodes of each seed: for seven of ten a short line; the seeds: far apart."""
    title = "Returns of ten episodes of each of ten agents, and the mean of each agent"
    d = Drawing(660, 310, title)
    plot = Plot(d, 80, 16, 540, 236, (-400.0, 9_000.0), (-0.6, 9.6))
    d.line([(plot.left, plot.bottom), (plot.right, plot.bottom)], "axis")
    for tick in (0, 2_000, 4_000, 6_000, 8_000):
        x, y = plot.at(tick, -0.6)
        d.line([(x, y), (x, y + 4)], "axis")
        d.text(x, y + 18, f"{tick:,}", "faint", size=11.5)
    for seed, row in enumerate(last_rows(10)):
        x, y = plot.at(row["mean_return"], 9 - seed)
        d.text(plot.left - 10, y + 4, f"seed {seed}", "ink-critic strong", "end", size=12)
        d.line([plot.at(row["min_return"], 9 - seed), plot.at(row["max_return"], 9 - seed)], "ink-critic thick")
        d.dot(x, y, "ink-critic", 5)
    d.text(350, 296, "lines: min to max of ten episodes; dots: mean", "faint", size=11.5)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- twenty seeds
@cache
def returns(gae_lambda: float, step: int = AT) -> np.ndarray:
    """Of each seed's evaluation at a step, (20,)."""
    found: dict[int, float] = {}
    with twenty.DATA.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (float(row["gae_lambda"]), int(row["step"])) == (gae_lambda, step):
                found[int(row["seed"])] = float(row["mean_return"])
    return np.array([found[seed] for seed in sorted(found)])


def strips() -> str:
    """Every seed a dot, for both settings."""
    d = Drawing(700, 210, "Returns of twenty seeds with each of two settings")
    plot = Plot(d, 100, 20, 540, 126, (80.0, 520.0), (-0.6, 1.6))
    d.line([(plot.left, plot.bottom), (plot.right, plot.bottom)], "axis")
    for tick in (100, 200, 300, 400, 500):
        x, y = plot.at(tick, -0.6)
        d.line([(x, y), (x, y + 4)], "axis")
        d.text(x, y + 18, str(tick), "faint", size=11.5)
    for row, (setting, ink) in enumerate(INKS.items()):
        values, y = sorted(returns(setting).tolist()), plot.at(0, 1 - row)[1]
        d.text(plot.left - 12, y + 4, f"λ = {setting:g}", f"{ink} strong", "end", size=12.5)
        taken: list[tuple[float, int]] = []
        for value in values:
            x = plot.at(value, 0)[0]
            level = next(k for k in range(20) if all(abs(x - other) > 8 or at != k for other, at in taken))
            taken.append((x, level))
            d.dot(x, y + 14 - 8.5 * level, ink, 4)
        x = plot.at(fmean(values), 0)[0]
        d.line([(x, y - 24), (x, y + 24)], f"{ink} thick")
    d.text(370, 196, "return after 8,000 steps; vertical lines: means", "faint", size=11.5)
    return d.svg()


@cache
def right(size: int, tries: int = 20_000) -> float:
    """Return how often means over `size` seeds agree with the means over all twenty.

    With one seed each: of all 400 pairs, a tie counted as half. Otherwise of that many random choices.
    """
    less, more = returns(LESS), returns(MORE)
    if size == 1:
        return float((np.sign(more[:, None] - less[None]) / 2 + 0.5).mean())
    random = np.random.default_rng(0)
    chosen = (_choices(random, len(values), size, tries) for values in (less, more))
    ours, theirs = (values[index].mean(axis=1) for values, index in zip((less, more), chosen, strict=True))
    return float((theirs > ours).mean())


def _choices(random: np.random.Generator, count: int, size: int, tries: int) -> np.ndarray:
    """Rows of `size` different numbers below `count`."""
    return random.random((tries, count)).argsort(axis=1)[:, :size]


def decide() -> str:
    """The share of right answers over the number of seeds."""
    d = Drawing(
        620,
        250,
        "How often a comparison finds the better setting, by number of seeds",
    )
    plot = Plot(d, 60, 30, 420, 160, (0, 10.5), (0.4, 1.0))
    plot.axes(SIZES, (0.5, 0.75, 1), "seeds of each setting", "correct comparisons")
    plot.curve([(0, 0.5), (10.5, 0.5)], "quiet dashed")
    d.text(*plot.at(10.6, 0.49), "chance", "faint", "start", size=11.5)
    points = [(size, right(size)) for size in SIZES]
    plot.curve(points, "ink-critic")
    for size, share in points:
        x, y = plot.at(size, share)
        d.dot(x, y, "ink-critic", 4)
        d.text(x, y - 10, f"{100 * share:.0f} %", "ink-critic strong", size=12)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- middles and bands
EXAMPLE = (113.0, 470.0, 480.0, 484.0, 500.0, 492.0, 488.0, 20.0)


def interquartile(values: np.ndarray) -> np.ndarray:
    """The mean of the middle half over the first axis; a quarter of the values, rounded down, goes at either end."""
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def iqm() -> str:
    """Draw the interquartile mean of eight values."""
    d = Drawing(660, 170, "The IQM of eight values is the mean of the middle four")
    plot = Plot(d, 60, 20, 560, 80, (0.0, 520.0), (0.0, 1.0))
    d.line([(plot.left, 60), (plot.right, 60)], "axis")
    values = sorted(EXAMPLE)
    for i, value in enumerate(values):
        inside = 2 <= i < 6
        d.dot(plot.at(value, 0)[0], 60 - 13 * (i % 2), "ink-critic" if inside else "quiet", 5)
    for value, words, ink, shift in (
        (fmean(values), f"mean {fmean(values):.0f}", "ink-target", -4),
        (float(interquartile(np.array(values))), f"IQM {interquartile(np.array(values)):.1f}", "ink-critic", 0),
    ):
        x = plot.at(value, 0)[0]
        d.line([(x, 66), (x, 104)], f"{ink} thick")
        d.text(x + shift, 122, words, f"{ink} strong", size=12.5)
    for tick in (0, 100, 200, 300, 400, 500):
        d.text(plot.at(tick, 0)[0], 152, str(tick), "faint", size=11.5)
    return d.svg()


@cache
def interval(seeds: int, setting: float = LESS, repetitions: int = 4_000) -> tuple[float, float]:
    """95 % of the IQMs of as many seeds drawn again and again, with replacement, from the first `seeds`."""
    values, random = returns(setting)[:seeds], np.random.default_rng(0)
    again = interquartile(values[random.integers(seeds, size=(seeds, repetitions))])
    low, high = np.quantile(again, [0.025, 0.975])
    return float(low), float(high)


def bands() -> str:
    """The interval, by the number of seeds."""
    d = Drawing(620, 240, "Intervals of the IQM for 3, 5, 10 and 20 seeds")
    plot = Plot(d, 60, 30, 420, 150, (0, 5), (100.0, 520.0))
    plot.axes((), (100, 300, 500), "seeds", "IQM of returns after 8,000 steps, λ = 0.8")
    for i, seeds in enumerate((3, 5, 10, 20)):
        low, high = interval(seeds)
        x = plot.at(i + 0.7, 0)[0]
        d.text(x, plot.bottom + 17, str(seeds), "faint", size=12)
        d.line([(x, plot.at(0, low)[1]), (x, plot.at(0, high)[1])], "ink-critic thick")
        d.dot(x, plot.at(0, float(interquartile(returns(LESS)[:seeds])))[1], "ink-critic", 5)
        ends = ((high, f"{high:.0f}"), (low, f"{low:.0f}")) if high - low > 50 else ((low, f"{low:.0f} to {high:.0f}"),)
        for end, words in ends:
            d.text(x + 10, plot.at(0, end)[1] + 4, words, "ink-critic", "start", size=11)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- two algorithms
def pendulum(run: str) -> list[float]:
    """Each seed's mean return of its 100 last episodes."""
    found = []
    for seed in range(5):
        with (LEARNING / f"{run}-s{seed}" / "final.csv").open(encoding="utf-8") as file:
            found.append(fmean(float(row["return"]) for row in csv.DictReader(file)))
    return found


def wins() -> int:
    """In how many of 25 pairs of seeds TD3's return on Pendulum-v1 is above DDPG's."""
    return sum(one > other for one in pendulum("td3-pendulum") for other in pendulum("ddpg-pendulum"))


def error(spread: float, count: int) -> float:
    """The standard error of a mean of `count` values with this standard deviation."""
    return spread / sqrt(count)
