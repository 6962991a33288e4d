"""The pictures of the page on the memory of the episode."""

from __future__ import annotations

from math import log

import numpy as np
from drawing import Drawing, Plot
from learned import banded, evaluations
from overestimation import swing

ANGLE, SPEED, AHEAD = 0.6, 3.0, 10


def futures() -> tuple[list[float], list[float]]:
    """Angles of a pendulum that is let go at the same place with opposite speeds, no torque; degrees."""
    found = []
    for speed in (SPEED, -SPEED):
        state, angles = np.array([[ANGLE, speed]]), [ANGLE]
        for _ in range(AHEAD):
            state, _ = swing(state, np.zeros(1))
            angles.append(float(state[0, 0]))
        found.append(np.degrees(angles).tolist())
    return found[0], found[1]


def same_picture() -> str:
    """One picture, two futures; two pictures tell them apart."""
    d = Drawing(700, 250, "One angle of a pendulum and two possible futures")
    for i in range(2):
        left = 30 + 130 * i
        x, y = left + 50, 150
        for back, ink in ((1, "quiet"), (0, "ink-actor")):
            if back and i == 0:
                continue
            angle = ANGLE - 0.45 * back
            tip = (x + 80 * float(np.sin(angle)), y - 80 * float(np.cos(angle)))
            d.line([(x, y), tip], f"{ink} thick")
            d.dot(*tip, ink, 8)
        d.dot(x, y, "ink-state", 4)
        d.text(left + 60, 188, ("one image", "and the previous")[i], "faint", size=12)
    plot = Plot(d, 350, 40, 300, 150, (0, AHEAD), (-240.0, 240.0))
    plot.axes((0, 5, 10), (-180, 0, 180), "steps", "angle, degrees; 0 is up")
    falls, rises = futures()
    for angles, words, ink, at in (
        (falls, "it was falling", "ink-target", (4.0, 190.0)),
        (rises, "it was rising", "ink-critic", (4.0, -85.0)),
    ):
        plot.curve(list(enumerate(angles)), ink)
        d.text(*plot.at(*at), words, f"{ink} strong", "start", size=12)
    return d.svg()


def masked() -> str:
    """Two tasks without velocities, with an LSTM and without."""
    d = Drawing(740, 290, "Returns without velocities, with and without an LSTM")
    left = Plot(d, 60, 44, 230, 180, (0, 20_000), (-1_600.0, 0.0))
    left.axes((0, 10_000, 20_000), (-1_500, -1_000, -500, 0), "steps", "")
    d.text(left.left, 24, "TD3, Pendulum-v1", "strong", "start", size=12.5)
    banded(d, left, "td3-masked-pendulum-jax", "LSTM", "ink-critic")
    banded(d, left, "td3-masked-pendulum-feedforward", "none", "ink-target")
    right = Plot(d, 410, 44, 230, 180, (0, 150_000), (0.0, 520.0))
    right.axes((0, 50_000, 100_000, 150_000), (0, 250, 500), "steps", "")
    d.text(right.left, 24, "PPO, CartPole-v1", "strong", "start", size=12.5)
    banded(d, right, "ppo-masked-cartpole-torch", "LSTM", "ink-critic")
    banded(d, right, "ppo-masked-cartpole-feedforward", "none", "ink-target")
    return d.svg()


def last(run: str, seeds: int) -> list[float]:
    """Each seed's last evaluation."""
    return [evaluations(f"{run}-s{seed}")[-1][1] for seed in range(seeds)]


def carried() -> str:
    """Draw two episodes; the hidden state restarts with the second."""
    d = Drawing(760, 210, "The hidden state is reset to zeros at the end of an episode")
    for i in range(8):
        x, second = 70 + 88 * i, i >= 5
        d.box(x, 46, 54, 32, f"o_{i - 5 if second else i}", "ink-state")
        d.arrow([(x, 63), (x, 85)], "ink-state")
        d.box(x, 106, 54, 38, "net", "ink-critic")
        d.arrow([(x, 126), (x, 148)], "ink-actor")
        d.text(x, 166, f"a_{i - 5 if second else i}", "ink-actor strong", size=13)
        if i in (0, 5):
            d.text(x - 44 if i else x - 48, 111, "0", "ink-critic strong", size=14)
            d.arrow([(x - 38, 106), (x - 29, 106)], "ink-critic")
        if i not in (4, 7):
            d.arrow([(x + 28, 106), (x + 59, 106)], "ink-critic")
            d.text(x + 44, 98, f"h_{i - 4 if second else i + 1}", "ink-critic", size=11.5)
    d.line([(70 + 88 * 4 + 34, 22), (70 + 88 * 4 + 34, 178)], "ink-target dashed")
    d.text(70 + 88 * 4 + 34, 198, "the episode ends", "ink-target strong", size=12)
    return d.svg()


KEEPS = ((0.5, "ink-target"), (0.9, "ink-noise"), (0.98, "ink-critic"))


def half_life(keep: float) -> float:
    """Return the steps after which half of a value is left."""
    return log(0.5) / log(keep)


def forgetting() -> str:
    """What is left of a number after k steps, by how much each step keeps."""
    d = Drawing(
        640,
        250,
        "Exponential forgetting for three rates per step",
    )
    plot = Plot(d, 60, 30, 420, 160, (0, 50), (0.0, 1.0))
    plot.axes((0, 10, 20, 30, 40, 50), (0, 0.5, 1), "steps", "remaining share")
    for (keep, ink), at in zip(KEEPS, (6, 9, 28), strict=True):
        plot.curve([(k, keep**k) for k in range(51)], ink)
        x, y = plot.at(at, keep**at)
        d.text(x + 8, y - 8, f"keeps {keep:g}", f"{ink} strong", "start", size=12)
    return d.svg()


def reach() -> str:
    """A cue, a question, and the stretches that are learned from."""
    d = Drawing(740, 230, "Only steps inside the sequence get a gradient")
    for t in range(16):
        ink = "ink-reward" if t == 2 else "ink-target" if t == 13 else "ink-state"
        d.box(64 + 41 * t, 44, 32, 30, {2: "cue", 13: "?"}.get(t, ""), ink)
    d.text(64 + 41 * 7.5, 18, "an episode: the cue is needed eleven steps later", "faint", size=12)
    for row, (first, length, words, ink) in enumerate(
        (
            (6, 8, "8 steps: the gradient ends before the cue", "ink-noise"),
            (2, 12, "12 steps: the gradient reaches the cue", "ink-critic"),
        )
    ):
        y = 92 + 64 * row
        left, right = 64 + 41 * first - 16, 64 + 41 * (first + length - 1) + 16
        d.add("rect", f"box {ink}", x=left, y=y, width=right - left, height=22, rx=3)
        d.arrow([(64 + 41 * 13, y + 11), (left + 12, y + 11)], ink)
        d.dot(left - 12, y + 11, ink, 5)
        d.text(right, y + 40, words, f"{ink} strong", "end", size=12)
    d.text(64 + 41 * 6 - 44, 107, "stored h", "ink-noise", "end", size=11.5)
    return d.svg()
