"""The pictures of the page on DQN, and what the maximum of uncertain values does, computed."""

from __future__ import annotations

from functools import cache

import numpy as np
from drawing import Drawing, Plot
from td3 import number

from duetto.functional.priorities import importance_weights, mass
from duetto.functional.q_values import dueling, huber
from duetto.functional.returns import n_step_return
from duetto.functional.schedules import epsilon_schedule, exploration_ladder

WIDTH, HEIGHT = 340, 200

# The example: rewards of three steps, what both networks say of the next state, and what Q(s, a) is.
REWARDS, GAMMA, ONLINE, TARGETS, VALUE = (1.0, 2.0, 3.0), 0.9, (1.0, 5.0, 3.0), (10.0, 2.0, 7.0), 4.0
_flags = np.zeros((1, 3), bool)
_sum, _discount, _ = n_step_return(np.array([REWARDS]), _flags, _flags, np.array([3]), GAMMA)
RETURN, DISCOUNT = float(_sum[0]), float(_discount[0])
CHOICE = int(np.argmax(ONLINE))
TARGET = RETURN + DISCOUNT * TARGETS[CHOICE]
ERROR = VALUE - TARGET
LOSS = float(huber(np.array(ERROR), 1.0))
PRIORITIES = np.array([1.0, 2.0, 3.0, 4.0])


def idea() -> str:
    """One number for each action."""
    d = Drawing(760, 220, "The network returns a value per action; the best one is chosen, or a random one")
    d.box(80, 110, 110, 50, "observation", "ink-state", more="s")
    d.box(260, 110, 120, 60, "network", "ink-critic", more="Q(s, ·)")
    d.arrow([(136, 110), (196, 110)])
    for i, (name, value) in enumerate((("left", 1.0), ("stay", 5.0), ("right", 3.0))):
        y = 50 + 60 * i
        d.arrow([(322, 110), (372, y)], "ink-critic")
        best = value == 5.0
        d.box(430, y, 110, 34, f"{name}: {number(value)}", "ink-critic" if best else "quiet")
        if best:
            d.arrow([(488, y), (560, y)], "ink-actor")
            d.text(570, y - 4, "the largest,", "ink-actor", "start", size=13)
            d.text(570, y + 14, "or random with probability ε", "ink-actor", "start", size=12)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- the maximum
@cache
def promises(actions: int, draws: int = 20_000) -> tuple[float, float]:
    """Return the maximum over estimates with errors of std 1 of actions worth 0: plain, and double.

    Double: one set of estimates chooses, an independent one values.
    """
    random = np.random.default_rng(actions)
    choosing, judging = random.normal(size=(2, draws, actions))
    chosen = choosing.argmax(axis=1)
    return float(choosing.max(axis=1).mean()), float(judging[np.arange(draws), chosen].mean())


def maximum() -> str:
    """Both over the number of actions."""
    d = Drawing(
        620,
        270,
        "The maximum of noisy values grows with the number of actions; double Q-learning stays at 0",
    )
    plot = Plot(d, 66, 34, 400, 180, (1, 18), (-0.2, 2.0))
    plot.axes((2, 6, 10, 14, 18), (0, 0.5, 1, 1.5, 2), "number of actions", "overestimation, in std of the errors")
    counts = [1, 2, 3, 4, 6, 8, 10, 14, 18]
    for which, words, ink in ((0, "plain", "ink-target"), (1, "double", "ink-reward")):
        points = [(n, promises(n)[which]) for n in counts]
        plot.curve(points, ink)
        for point in points:
            d.dot(*plot.at(*point), ink, 3)
        x, y = plot.at(*points[-1])
        d.text(x + 10, y + 4, words, f"{ink} strong", "start", size=12.5)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- steps
def exploring() -> str:
    """Step 1: ε over the run, and each environment's own."""
    d = Drawing(WIDTH, 210, "Epsilon: linear, exponential, or one per environment")
    plot = Plot(d, 44, 24, 200, 130, (0, 100), (0.0, 1.05))
    plot.axes((0, 50, 100), (0, 0.5, 1), "thousand steps", "ε")
    for kind, words, ink, at in (
        ("linear", "linear", "ink-critic", (14, 0.86)),
        ("exponential", "exponential", "ink-noise", (38, 0.5)),
    ):
        plot.curve([(t, epsilon_schedule(kind, t, 50, 1.0, 0.05)) for t in range(0, 101, 2)], ink)
        x, y = plot.at(*at)
        d.text(x + 4, y, words, ink, "start", size=12)
    d.text(298, 24, "ladder", "ink-actor strong", size=12)
    for i, epsilon in enumerate(exploration_ladder(8, 0.4, 7.0)):
        d.text(298, 44 + 16 * i, f"{epsilon:.2g}", "ink-actor", size=11)
    return d.svg()


def n_steps() -> str:
    """Step 2."""
    d = Drawing(
        WIDTH,
        180,
        f"Three discounted rewards sum to {number(RETURN)}",
    )
    for i, reward in enumerate(REWARDS):
        x = 40 + 74 * i
        d.dot(x, 60, "ink-state", 8)
        d.arrow([(x + 11, 60), (x + 62, 60)])
        d.text(x + 37, 46, f"{number(reward)}", "ink-reward strong", size=13)
        d.text(x + 37, 84, f"· {number(GAMMA**i, 4)}" if i else "· 1", "faint", size=11.5)
    d.dot(262, 60, "ink-critic", 8)
    d.text(282, 65, f"· {number(DISCOUNT)}", "ink-critic", "start", size=12)
    d.text(WIDTH / 2, 124, f"R = 1 + 1.8 + 2.43 = {number(RETURN)}", "ink-reward strong", size=13)
    d.text(WIDTH / 2, 150, "stops at the end of the episode", "faint", size=11.5)
    return d.svg()


def double() -> str:
    """Step 3."""
    d = Drawing(
        WIDTH,
        HEIGHT,
        f"The online network selects the second action, the target network evaluates it: {number(TARGETS[CHOICE])}",
    )
    for row, (name, values, ink) in enumerate(
        (("online", ONLINE, "ink-critic"), ("target", TARGETS, "ink-critic dashed"))
    ):
        y = 60 + 70 * row
        d.text(64, y + 5, name, "ink-critic", "end", size=12.5)
        for i, value in enumerate(values):
            d.box(112 + 74 * i, y, 58, 34, number(value), ink if i == CHOICE else "quiet")
    d.arrow([(112 + 74 * CHOICE, 78), (112 + 74 * CHOICE, 110)], "ink-critic")
    d.text(112 + 74 * CHOICE, 32, "the largest is selected", "ink-critic strong", size=12)
    d.text(112 + 74 * CHOICE, 172, f"its value: {number(TARGETS[CHOICE])}", "ink-critic strong", size=12)
    d.text(WIDTH / 2, 192, "the plain maximum would be 10", "faint", size=11.5)
    return d.svg()


def target() -> str:
    """Step 4."""
    d = Drawing(WIDTH, 150, f"The target is {number(RETURN)} plus 0.729 times 2, {number(TARGET)}")
    scale, left = 40.0, 30
    d.box(left + RETURN * scale / 2, 60, RETURN * scale, 36, f"R = {number(RETURN)}", "ink-reward")
    rest = DISCOUNT * TARGETS[CHOICE] * scale
    d.box(left + RETURN * scale + rest / 2, 60, rest, 36, "1.458", "ink-critic dashed")
    d.text(left + RETURN * scale + rest, 106, f"y = {number(TARGET)}", "ink-target strong", "end")
    return d.svg()


def loss() -> str:
    """Step 5: Huber's loss and the square."""
    d = Drawing(
        WIDTH,
        HEIGHT,
        f"The Huber loss of an error of {number(ERROR)} is {number(LOSS)}",
    )
    plot = Plot(d, 44, 24, 260, 124, (-4.0, 4.0), (0.0, 5.0))
    plot.axes((-2, 0, 2), (0, 2, 4), "error Q − y", "loss")
    xs = np.linspace(-4, 4, 81)
    plot.curve([(float(x), 0.5 * float(x) ** 2) for x in xs if 0.5 * x**2 <= 5], "quiet dashed")
    plot.curve([(float(x), float(huber(np.array(x), 1.0))) for x in xs], "ink-target")
    x, y = plot.at(ERROR, LOSS)
    d.dot(x, y, "ink-critic", 5)
    d.text(x + 10, y - 4, f"{number(LOSS)}", "ink-critic strong", "start", size=12.5)
    return d.svg()


def copies() -> str:
    """Step 6: an online weight that rises, and a copy of it."""
    d = Drawing(WIDTH, HEIGHT, "The target network is constant between copies")
    plot = Plot(d, 44, 24, 260, 124, (0, 4000), (0.0, 1.0))
    plot.axes((0, 1000, 2000, 3000, 4000), (), "updates", "a weight")
    online = [(t, 0.1 + 0.8 * (1 - np.exp(-t / 1800))) for t in range(0, 4001, 50)]
    plot.curve([(t, float(w)) for t, w in online], "ink-critic")
    held = [0.1]
    for t, w in online[1:]:
        held.append(float(w) if t % 1000 == 0 else held[-1])
    points = []
    for i, (t, _) in enumerate(online):
        if i and held[i] != held[i - 1]:
            points.append((t, held[i - 1]))
        points.append((t, held[i]))
    plot.curve(points, "ink-critic dashed")
    d.text(plot.at(900, 0.62)[0], plot.at(0, 0.66)[1], "online", "ink-critic strong", "end", size=12)
    d.text(plot.at(2100, 0)[0], plot.at(0, 0.42)[1], "target", "ink-critic strong", "start", size=12)
    return d.svg()


def two_streams() -> str:
    """Step 7."""
    values = dueling(np.array([1.0]), np.array([1.0, 2.0, 3.0]))
    d = Drawing(
        WIDTH,
        HEIGHT,
        "The value and the advantages add up to Q",
    )
    d.box(70, 46, 90, 36, "V = 1", "ink-critic")
    d.box(70, 116, 110, 36, "A = 1, 2, 3", "ink-target")
    d.text(70, 152, "mean 2", "faint", size=11.5)
    d.arrow([(118, 50), (190, 78)], "ink-critic")
    d.arrow([(128, 112), (190, 86)], "ink-target")
    d.box(258, 82, 130, 40, "Q = " + ", ".join(number(float(value)) for value in values), "ink-critic")
    d.text(258, 126, "V + A − mean A", "faint", size=12)
    return d.svg()


def priorities() -> str:
    """Step 8: four errors, how often each is drawn, and what it then weighs."""
    share = mass(PRIORITIES, 0.6) / mass(PRIORITIES, 0.6).sum()
    weight = importance_weights(share, share.min(), 0.4)
    d = Drawing(WIDTH, HEIGHT, "Large errors are sampled more often, with lower weights")
    for i in range(4):
        x = 92 + 66 * i
        d.text(x, 34, f"{PRIORITIES[i]:g}", "ink-target strong", size=13)
        d.add("rect", "box ink-critic", x=x - 16, y=110 - 180 * share[i], width=32, height=180 * share[i])
        d.text(x, 128, f"{share[i]:.0%}", "ink-critic", size=12)
        d.text(x, 160, f"{weight[i]:.2f}", "ink-reward strong", size=12.5)
    for y, words in ((34, "|δ|"), (128, "drawn"), (160, "weight")):
        d.text(64, y, words, "faint", "end", size=12)
    d.text(WIDTH / 2, 188, "α = 0.6, β = 0.4", "faint", size=11.5)
    return d.svg()
