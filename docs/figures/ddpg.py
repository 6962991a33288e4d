"""The pictures of the page on DDPG. One example runs through them, in which everything is a straight line."""

from __future__ import annotations

import numpy as np
from drawing import Drawing, Plot
from overestimation import swing
from td3 import number

from duetto.algorithms import DDPG
from duetto.functional.array_ops import ornstein_uhlenbeck
from duetto.functional.returns import bootstrap

WIDTH, HEIGHT = 340, 200
OPTIONS = DDPG()

# Q(s, a) = w · [s, a], μ(s) = θ s; one transition from s by a to s', and gradient descent with this rate.
WEIGHT, SLOPE, STATE, ACTION, REWARD, NEXT, RATE = 1.0, 0.5, 1.0, 1.0, 1.0, 2.0, 0.1
NEXT_ACTION = SLOPE * NEXT
NEXT_VALUE = WEIGHT * NEXT + WEIGHT * NEXT_ACTION
TARGET = float(bootstrap(np.array([REWARD]), np.array([OPTIONS.discount]), np.array([NEXT_VALUE]))[0])
VALUE = WEIGHT * STATE + WEIGHT * ACTION
LOSS = (VALUE - TARGET) ** 2
CRITIC_GRADIENT = 2 * (VALUE - TARGET) * STATE  # the same for both weights, since s = a = 1
NEW_WEIGHT = WEIGHT - RATE * CRITIC_GRADIENT
NEW_SLOPE = SLOPE + RATE * NEW_WEIGHT * STATE  # dQ/da · da/dθ
TARGET_WEIGHT = OPTIONS.tau * NEW_WEIGHT + (1 - OPTIONS.tau) * WEIGHT
TARGET_SLOPE = OPTIONS.tau * NEW_SLOPE + (1 - OPTIONS.tau) * SLOPE


def idea() -> str:
    """Who asks whom."""
    d = Drawing(700, 250, "The actor selects an action, the critic evaluates it, and its gradient improves the actor")
    d.box(90, 120, 110, 46, "observation", "ink-state", more="s")
    d.box(290, 60, 130, 50, "actor", "ink-actor", more="a = μ(s)")
    d.box(500, 120, 130, 50, "critic", "ink-critic", more="Q(s, a)")
    d.arrow([(146, 110), (222, 66)])
    d.arrow([(356, 64), (434, 104)], "ink-actor")
    d.arrow([(146, 130), (434, 130)])
    d.arrow([(500, 94), (500, 34), (292, 34)], "ink-critic dashed")
    d.text(396, 24, "which way is better?  ∂Q/∂a", "ink-critic strong", size=12.5)
    d.arrow([(566, 120), (620, 120)], "ink-critic")
    d.text(648, 125, "value", "ink-critic")
    d.box(500, 215, 210, 44, "target", "ink-target", more="y = r + γ Q′(s′, μ′(s′))")
    d.arrow([(500, 192), (500, 147)], "ink-target")
    d.text(510, 175, "learns from", "ink-target", "start", size=12)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- noise
def processes(steps: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian noise of std 0.2 and an Ornstein-Uhlenbeck process of θ 0.15 and σ 0.2, of the same draws."""
    normal = np.random.default_rng(2).standard_normal(steps)
    x, found = 0.0, []
    for draw in normal:
        x = ornstein_uhlenbeck(x, draw, theta=0.15, sigma=0.2)
        found.append(float(x))
    return 0.2 * normal, np.array(found)


def noise() -> str:
    """Both over time."""
    d = Drawing(WIDTH, 262, "Gaussian noise jumps at each step; Ornstein-Uhlenbeck noise drifts")
    for i, (values, words, ink) in enumerate(
        zip(processes(), ("gaussian", "ou"), ("ink-noise", "ink-actor"), strict=True)
    ):
        plot = Plot(d, 44, 22 + 104 * i, 270, 72, (0, 200), (-1.0, 1.0))
        plot.axes((0, 100, 200) if i else (), (-1, 0, 1), "steps" if i else "", "")
        plot.curve([(t, float(value)) for t, value in enumerate(values)], f"{ink} thin")
        d.text(plot.right, plot.top + 4, words, f"{ink} strong", "end", size=12)
    return d.svg()


NOISES = ((0.0, "none"), (0.1, "gaussian, 0.1"), (0.3, "gaussian, 0.3"), (1.0, "gaussian, 1"), (0.2, "ou, 0.2"))


def heights(std: float, correlated: bool, episodes: int = 500, steps: int = 200) -> np.ndarray:
    """How high a hanging pendulum gets by noise alone in each episode: -1 is the bottom, 1 the top."""
    random = np.random.default_rng(0)
    state, highest = np.tile([np.pi, 0.0], (episodes, 1)), np.full(episodes, -1.0)
    process = np.zeros(episodes)
    for _ in range(steps):
        normal = random.standard_normal(episodes)
        process = ornstein_uhlenbeck(process, normal, 0.15, std) if correlated else std * normal
        state, _ = swing(state, np.clip(process, -1.0, 1.0))
        highest = np.maximum(highest, np.cos(state[:, 0]))
    return highest


def exploring() -> str:
    """How high each noise brings the pendulum."""
    d = Drawing(620, 250, "Height that a pendulum reaches by noise alone")
    plot = Plot(d, 130, 30, 420, 170, (-1.0, 1.0), (-0.5, 4.5))
    d.line([(plot.left, plot.bottom), (plot.right, plot.bottom)], "axis")
    for tick, words in ((-1, "bottom"), (0, "level"), (1, "top")):
        x, y = plot.at(tick, -0.5)
        d.line([(x, y), (x, y + 4)], "axis")
        d.text(x, y + 18, words, "faint", size=11.5)
    for row, (std, words) in enumerate(NOISES):
        found = np.quantile(heights(std, words.startswith("ou")), [0.05, 0.5, 0.95])
        y = 4 - row
        d.text(plot.left - 10, plot.at(0, y)[1] + 4, words, "", "end", size=12)
        ink = "ink-actor" if words.startswith("ou") else "ink-noise"
        d.line([plot.at(float(found[0]), y), plot.at(float(found[2]), y)], f"{ink} thick")
        d.dot(*plot.at(float(found[1]), y), ink, 5)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- steps
def acting() -> str:
    """Step 1."""
    d = Drawing(WIDTH, 150, "An action of 0.85 plus noise of 0.25 is clipped to 1")
    plot = Plot(d, 40, 80, WIDTH - 80, 10, (-1.0, 1.0), (0.0, 1.0))
    d.line([(plot.left, 90), (plot.right, 90)], "axis")
    for tick in (-1.0, 0.0, 1.0):
        d.text(plot.at(tick, 0)[0], 110, number(tick), "faint", size=11)
    start, end = plot.at(0.85, 0)[0], plot.at(1.0, 0)[0]
    d.dot(start, 90, "ink-actor", 5)
    d.dot(end, 90, "ink-target", 5)
    d.arrow([(start, 64), (end + 26, 64)], "ink-noise")
    d.text(start - 8, 78, "μ(s)", "ink-actor strong", "end", size=12.5)
    d.text(start + 20, 54, "noise", "ink-noise", size=12)
    d.text(end, 132, "a", "ink-target strong", size=13)
    return d.svg()


def _line(d: Drawing, x: float, y: float, words: str, more: str, ink: str, dashed: bool = False) -> None:
    d.box(x, y, 100, 46, words, f"{ink} dashed" if dashed else ink, more=more)


def target() -> str:
    """Step 3."""
    d = Drawing(
        WIDTH,
        HEIGHT,
        f"The next action is {number(NEXT_ACTION)}, its value {number(NEXT_VALUE)}, so y is {number(TARGET)}",
    )
    _line(d, 62, 50, f"s′ = {number(NEXT)}", "next state", "ink-state")
    _line(d, 188, 50, f"μ′ = {number(NEXT_ACTION)}", "θ′ s′ = 0.5 · 2", "ink-actor", dashed=True)
    _line(d, 188, 140, f"Q′ = {number(NEXT_VALUE)}", "w′ · [2, 1]", "ink-critic", dashed=True)
    d.arrow([(114, 50), (136, 50)])
    d.arrow([(188, 75), (188, 115)])
    d.arrow([(240, 140), (262, 140)])
    d.text(268, 145, "y", "ink-target strong", "start", size=13)
    d.text(332, 186, f"y = 1 + 0.99 · 3 = {number(TARGET)}", "ink-target strong", "end", size=13)
    return d.svg()


def critic_step() -> str:
    """Step 4."""
    d = Drawing(
        WIDTH,
        HEIGHT,
        f"The critic's weights move from 1 to {number(NEW_WEIGHT)}",
    )
    plot = Plot(d, 50, 20, 250, 128, (0.8, 2.2), (0.0, 4.6))
    plot.axes((1, 1.5, 2), (0, 2, 4), "weight w (both alike)", "loss")
    plot.curve([(float(w), (2 * w - TARGET) ** 2) for w in np.linspace(0.92, 2.2, 50)], "ink-target")
    before, after = plot.at(WEIGHT, LOSS), plot.at(NEW_WEIGHT, (2 * NEW_WEIGHT - TARGET) ** 2)
    d.dot(*before, "ink-critic", 5)
    d.arrow([before, after], "ink-critic")
    d.dot(*after, "ink-critic", 5)
    d.text(before[0] + 10, before[1] + 2, f"{number(LOSS, 4)}", "ink-critic", "start", size=12)
    d.text(after[0] + 10, after[1] - 4, f"w = {number(NEW_WEIGHT)}", "ink-critic strong", "start", size=12)
    return d.svg()


def actor_step() -> str:
    """Step 5."""
    d = Drawing(WIDTH, HEIGHT, f"The actor follows the critic's gradient: θ moves from 0.5 to {number(NEW_SLOPE, 4)}")
    plot = Plot(d, 50, 20, 240, 124, (0.0, 1.0), (1.2, 2.9))
    plot.axes((0, 0.5, 1), (1.5, 2, 2.5), "action in s = 1", "Q")
    plot.curve([(a, NEW_WEIGHT * (STATE + a)) for a in (0.0, 1.0)], "ink-critic")
    before, after = (plot.at(slope, NEW_WEIGHT * (STATE + slope)) for slope in (SLOPE, NEW_SLOPE))
    d.dot(*before, "ink-actor", 5)
    d.dot(*after, "ink-actor", 5)
    d.arrow([(before[0], before[1] - 12), (after[0], after[1] - 12)], "ink-actor")
    d.text(
        before[0] + 4, before[1] + 20, f"{number(SLOPE)} → {number(NEW_SLOPE, 4)}", "ink-actor strong", "start", size=12
    )
    d.text(plot.left + 14, plot.top + 12, f"slope {number(NEW_WEIGHT)}", "ink-critic", "start", size=12)
    return d.svg()


def targets_move() -> str:
    """Step 6."""
    d = Drawing(WIDTH, HEIGHT, "Targets move 0.5 % of the way to their online networks")
    for y, name, old, online, new, ink in (
        (60, "w′", WEIGHT, NEW_WEIGHT, TARGET_WEIGHT, "ink-critic"),
        (140, "θ′", SLOPE, NEW_SLOPE, TARGET_SLOPE, "ink-actor"),
    ):
        d.line([(60, y), (290, y)], "axis")
        d.dot(70, y, f"{ink}", 5)
        d.dot(280, y, f"{ink}", 5)
        d.arrow([(70, y - 14), (92, y - 14)], ink)
        d.text(46, y + 5, name, f"{ink} strong", "end")
        d.text(70, y + 22, f"{number(old)} → {number(new, 6)}", ink, "start", size=12)
        d.text(280, y + 22, number(online, 4), ink, "end", size=12)
    d.text(170, 188, "τ = 0.005", "faint", size=12)
    return d.svg()
