"""The pictures of the page on replay and priorities."""

from __future__ import annotations

import csv
from functools import cache
from statistics import median

import cliffwalk
import numpy as np
from drawing import Drawing, Plot

from duetto.algorithms.base import Prioritization
from duetto.buffers.sampling import MassItems, ReplaySampler
from duetto.functional.priorities import importance_weights, mass

# ---------------------------------------------------------------------------------------------------- why a memory
BUMPS, WIDTH_OF_BUMP, SWEEPS, PACE = 15, 0.12, 3, 400  # a curve is learned while one walks along it


def wanted(x: np.ndarray) -> np.ndarray:
    """The curve."""
    return np.sin(2 * np.pi * x)


def features(x: np.ndarray) -> np.ndarray:
    """Broad bumps (N, BUMPS): correcting one place moves its neighbours too, as in a network."""
    return np.exp(-0.5 * ((x[:, None] - np.linspace(0, 1, BUMPS)) / WIDTH_OF_BUMP) ** 2)


@cache
def swept(memory: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the estimates along the way after three passes from 0 to 1, and the mean error after each step.

    A step down the squared error at each place, at the place itself or at one drawn from all places visited so far.
    """
    random = np.random.default_rng(0)
    places = np.tile(np.linspace(0, 1, PACE), SWEEPS)
    along, weights, errors = np.linspace(0, 1, 101), np.zeros(BUMPS), []
    for t in range(len(places)):
        at = places[[random.integers(t + 1)]] if memory else places[[t]]
        seen = features(at)
        weights += 0.5 * float(wanted(at)[0] - (seen @ weights)[0]) * seen[0] / (seen @ seen.T)[0, 0]
        errors.append(float(np.abs(features(along) @ weights - wanted(along)).mean()))
    return tuple((features(along) @ weights).tolist()), tuple(errors)


def forgetting() -> str:
    """What is left of the curve at the end, and how the errors went."""
    d = Drawing(700, 250, "Learning from the newest step forgets; a replay buffer does not")
    left = Plot(d, 44, 40, 280, 150, (0.0, 1.0), (-1.6, 1.6))
    left.axes((0, 0.5, 1), (-1, 0, 1), "position", "")
    d.text(left.left, 22, "estimate after three passes", "strong", "start", size=12.5)
    right = Plot(d, 400, 40, 280, 150, (0, SWEEPS * PACE), (0.0, 0.9))
    right.axes((0, 400, 800, 1_200), (0, 0.4, 0.8), "steps", "")
    d.text(right.left, 22, "mean error", "strong", "start", size=12.5)
    along = np.linspace(0, 1, 101)
    left.curve(list(zip(along.tolist(), wanted(along).tolist(), strict=True)), "quiet dashed")
    for memory, ink in ((False, "ink-target"), (True, "ink-critic")):
        believed, errors = swept(memory)
        left.curve([(x, min(max(y, -1.6), 1.6)) for x, y in zip(along.tolist(), believed, strict=True)], ink)
        right.curve([(t, min(e, 0.9)) for t, e in enumerate(errors)][::6], ink)
    d.text(*right.at(700, 0.62), "newest step", "ink-target strong", "start", size=12)
    d.text(*right.at(1_195, 0.08), "replay buffer", "ink-critic strong", "end", size=12)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- the law
PRIORITIES = (4.0, 2.0, 1.0, 0.5, 0.5)  # |δ| of five transitions


def probabilities(alpha: float) -> np.ndarray:
    """p^α over their sum."""
    masses = mass(np.array(PRIORITIES), alpha)
    return masses / masses.sum()


def weights(alpha: float, beta: float) -> np.ndarray:
    """Importance weights of the five."""
    masses = mass(np.array(PRIORITIES), alpha)
    return importance_weights(masses, float(masses.min()), beta)


def law() -> str:
    """Probabilities and weights of five transitions, for three α."""
    d = Drawing(720, 250, "Sampling probabilities and weights for three values of α")
    for i, alpha in enumerate((0.0, 0.6, 1.0)):
        plot = Plot(d, 44 + 232 * i, 46, 196, 110, (-0.6, 4.6), (0.0, 0.6))
        plot.axes((), (0, 0.25, 0.5) if i == 0 else (), "", "")
        d.text(plot.left + 98, 22, f"α = {alpha:g}", "strong", size=13)
        for k, (chance, weight) in enumerate(zip(probabilities(alpha), weights(alpha, 0.4), strict=True)):
            x, y = plot.at(k, float(chance))
            d.add("rect", "box ink-critic", x=x - 14, y=y, width=28, height=plot.bottom - y)
            d.text(x, y - 5, f"{chance:.2f}", "ink-critic", size=11)
            d.text(x, plot.bottom + 17, f"{PRIORITIES[k]:g}", "faint", size=11.5)
            d.text(x, plot.bottom + 48, f"{weight:.2f}", "ink-noise", size=11.5)
        if i == 0:
            d.text(20, plot.bottom + 17, "|δ|", "faint", size=11.5)
            d.text(20, plot.bottom + 48, "w", "ink-noise strong", size=12)
    d.text(360, 236, "weights w with β = 0.4", "ink-noise", size=12)
    return d.svg()


def strata() -> str:
    """A line as long as all masses together, cut into equal parts, one draw from each."""
    d = Drawing(700, 150, "Stratified sampling: one draw from each of four equal parts")
    masses = mass(np.array(PRIORITIES), 0.6)
    left, scale = 30.0, 640.0 / masses.sum()
    x = left
    for k, one in enumerate(masses):
        width = float(one) * scale
        d.add("rect", "box ink-critic", x=x, y=50, width=width, height=36, rx=2)
        d.text(x + width / 2, 73, f"{PRIORITIES[k]:g}", "ink-critic", size=12)
        x += width
    points = (np.arange(4) + np.random.default_rng(4).random(4)) * 160.0 + left
    for k, point in enumerate(points):
        d.arrow([(float(point), 18), (float(point), 48)], "ink-noise")
        d.line([(left + 160 * k, 94), (left + 160 * k, 104)], "quiet")
        d.text(left + 160 * k + 80, 118, f"draw {k + 1}", "faint", size=11.5)
    d.line([(left, 99), (left + 640, 99)], "quiet thin")
    d.line([(left + 640, 94), (left + 640, 104)], "quiet")
    return d.svg()


def counted(draws: int = 20_000, alpha: float = 0.6) -> np.ndarray:
    """How often each of the five comes out of the memory's own draws, in batches of four."""
    sampler, items = ReplaySampler(Prioritization(alpha, 0.4, 0, 0.0)), MassItems(len(PRIORITIES))
    items.add(np.arange(len(PRIORITIES)), sampler.mass(np.array(PRIORITIES)))
    random = np.random.default_rng(0)
    found = np.concatenate([items.find(sampler.draw(items.line, 4, random)) for _ in range(draws // 4)])
    return np.bincount(found, minlength=len(PRIORITIES)) / draws


# ---------------------------------------------------------------------------------------------------- what they change
@cache
def walks() -> dict[tuple[int, str], list[int]]:
    """Updates of each seed, by length and way of drawing."""
    found: dict[tuple[int, str], list[int]] = {}
    with cliffwalk.DATA.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault((int(row["length"]), row["draws"]), []).append(int(row["updates"]))
    return found


def cliff() -> str:
    """Updates over the length of the chain."""
    d = Drawing(640, 280, "Updates until all values are right: uniform and prioritized sampling")
    plot = Plot(d, 66, 34, 440, 190, (2, 10), (1.5, 5.0))
    plot.axes(range(2, 11), (), "right actions before the reward", "updates until the values are right")
    for power in (2, 3, 4, 5):
        x, y = plot.at(2, power)
        d.line([(x - 4, y), (x, y)], "axis")
        d.text(x - 7, y + 4, f"10^{power}", "faint", "end", size=11)
    for kind, ink in (("uniform", "ink-target"), ("priorities", "ink-critic")):
        of = {n: walks()[n, kind] for n in cliffwalk.LENGTHS}
        logs = {n: np.log10(made) for n, made in of.items()}
        plot.band(list(of), [float(v.min()) for v in logs.values()], [float(v.max()) for v in logs.values()], ink)
        plot.curve([(n, float(np.log10(median(made)))) for n, made in of.items()], ink)
        x, y = plot.at(10, float(np.log10(median(of[10]))))
        d.text(x + 10, y + 4, kind, f"{ink} strong", "start", size=12)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- the weights
LUCK = 0.1  # a step that pays 1 one time in ten, else nothing


def believed(alpha: float, beta: float) -> float:
    """Where the value of that step comes to rest: as much mass pulls up as down.

    Of ten transitions one was paid. Drawn by mass |δ|^α and weighed by mass^-β, their pulls cancel where
    LUCK (1 - v)^(1 + α (1 - β)) = (1 - LUCK) v^(1 + α (1 - β)).
    """
    power = 1 / (1 + alpha * (1 - beta))
    odds = (LUCK / (1 - LUCK)) ** power
    return odds / (1 + odds)


@cache
def lucky(alpha: float, beta: float, updates: int = 12_000, rate: float = 0.003) -> tuple[float, ...]:
    """The same, learned from the memory's own draws: the value after each update."""
    sampler, items = ReplaySampler(Prioritization(alpha, beta, 0, 0.0)), MassItems(10)
    items.add(np.arange(10), np.ones(10))
    reward, value, random, found = np.arange(10) == 0, 0.5, np.random.default_rng(0), []
    for _ in range(updates):
        items.set(np.arange(10), sampler.mass(np.abs(reward - value)))  # of all: the law itself, no stale priorities
        index = items.find(sampler.draw(items.line, 8, random))
        weight = sampler.weights(items.mass(index), items.line.least)
        value += rate * float((weight * (reward[index] - value)).mean()) / float(weight.mean())
        found.append(value)
    return tuple(found)


LUCKS = ((0.0, 0.0, "uniform", "ink-reward"), (0.6, 0.0, "α = 0.6, no weights", "ink-target"),
         (0.6, 0.4, "α = 0.6, β = 0.4", "ink-noise"), (0.6, 1.0, "α = 0.6, β = 1", "ink-critic"))  # fmt: skip


def biased() -> str:
    """Where the value comes to rest, by α and β."""
    d = Drawing(660, 230, "Without importance weights a rare reward is overestimated")
    plot = Plot(d, 190, 20, 420, 160, (0.0, 0.25), (-0.6, 3.6))
    d.line([(plot.left, plot.bottom), (plot.right, plot.bottom)], "axis")
    for tick in (0, 0.1, 0.2):
        x, y = plot.at(tick, -0.6)
        d.line([(x, y), (x, y + 4)], "axis")
        d.text(x, y + 18, f"{tick:g}", "faint", size=11.5)
    d.line([plot.at(LUCK, -0.6), plot.at(LUCK, 3.6)], "quiet dashed")
    d.text(plot.at(LUCK, 0)[0], 222, "true value", "faint", size=11.5)
    for row, (alpha, beta, words, ink) in enumerate(LUCKS):
        value = believed(alpha, beta)
        x, y = plot.at(value, 3 - row)
        d.text(plot.left - 12, y + 4, words, "", "end", size=12.5)
        d.line([(plot.left, y), (x, y)], f"{ink} thick")
        d.dot(x, y, ink, 5)
        d.text(x + 12, y + 4, f"{value:.3f}", f"{ink} strong", "start", size=12)
    return d.svg()
