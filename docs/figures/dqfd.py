"""The pictures of the page on DQfD: its example, and what values learned from demonstrations say without a margin."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np
from drawing import Drawing, Plot
from learned import banded, evaluations
from td3 import number

from duetto.algorithms import DQfD
from duetto.algorithms.base import PRIORITY, Batch, OneStep
from duetto.functional.q_values import large_margin

WIDTH, HEIGHT = 340, 200

# The example: Q-values of the state, of the next state, and of the state after three steps; γ = .9, margin .8.
VALUES, EXPERT, MARGIN, GAMMA = (1.0, 2.0, 1.5), 0, 0.8, 0.9
ONLINE = {"s": [VALUES], "s'": [(2.0, 4.0, 3.0)], "s'''": [(0.0, 1.0, 6.0)]}
TARGETS = {"s'": [(1.5, 3.0, 5.0)], "s'''": [(7.0, 8.0, 9.0)]}
NETS = SimpleNamespace(q=lambda obs: np.array(ONLINE[obs]), target_q=lambda obs: np.array(TARGETS[obs]))
ONE = np.ones(1)
BATCH = Batch(
    "s", np.array([EXPERT]), 5.23 * ONE, GAMMA**3 * ONE, "s'''", ONE, ONE, OneStep(1.0 * ONE, GAMMA * ONE, "s'")
)
_loss, _info = DQfD(huber_delta=0.0).loss(NETS, BATCH)
LOSS, N_STEP, PRIORITY_OF = float(_loss), float(_info["target"][0]), float(_info[PRIORITY][0])
ONE_STEP = 1.0 + GAMMA * 3.0
MARGIN_LOSS = float(large_margin(np.array([VALUES]), np.array([EXPERT]), MARGIN)[0])


def idea() -> str:
    """Where a batch comes from, and what is learned from its two parts."""
    d = Drawing(760, 250, "All steps train values; demonstrations also train the margin")
    d.box(120, 66, 170, 52, "demonstrations", "ink-reward", more="never overwritten")
    d.box(120, 178, 170, 52, "own steps", "ink-state", more="replay buffer")
    d.box(340, 122, 110, 48, "a batch", "ink-critic")
    d.arrow([(206, 74), (284, 110)], "ink-reward")
    d.arrow([(206, 170), (284, 134)], "ink-state")
    d.box(590, 66, 250, 52, "margin loss", "ink-reward", more="demonstrations only")
    d.box(590, 178, 250, 52, "1-step and n-step TD errors", "ink-target", more="all steps")
    d.arrow([(396, 110), (462, 76)], "ink-reward")
    d.arrow([(396, 134), (462, 168)], "ink-target")
    return d.svg()


# ---------------------------------------------------------------------------------------------------- no margin
STATES, ACTIONS, SHOWN = 10, 4, 0  # a corridor: action 0 leads on, and is all that demonstrations show


@cache
def cloned(margin: float, draws: int = 200, updates: int = 2_000, rate: float = 0.1) -> tuple[float, float]:
    """After learning from demonstrations alone: how often the greedy action is the expert's, and Q(s₀, a_E) - truth.

    A table of values that starts with normal numbers; reward 1 at the corridor's end, γ = .9. The same update as
    DQfD's with n = 1: a step down (Q - y)² / 2, and one down J_E.
    """
    q = np.random.default_rng(0).normal(size=(draws, STATES, ACTIONS))
    every = np.arange(draws)
    for update in range(updates):
        s = update % STATES
        ahead = q[:, s + 1].max(axis=1) if s + 1 < STATES else np.zeros(draws)
        target = (s + 1 == STATES) + 0.9 * ahead
        q[:, s, SHOWN] -= rate * (q[:, s, SHOWN] - target)
        if margin:
            raised = q[:, s] + margin * (np.arange(ACTIONS) != SHOWN)
            best = raised.argmax(axis=1)
            wrong = best != SHOWN
            q[every[wrong], s, best[wrong]] -= rate
            q[every[wrong], s, SHOWN] += rate
    truth = 0.9 ** (STATES - 1)
    return float((q.argmax(axis=2) == SHOWN).mean()), float((q[:, 0, SHOWN] - truth).mean())


def without() -> str:
    """How often the greedy action is the expert's, and how far its value is off, with a margin and without."""
    d = Drawing(640, 230, "Without the margin, wrong values of undemonstrated actions stay")
    for i, (title, which, top, form) in enumerate(
        (
            ("greedy action is the expert's", 0, 1.0, lambda value: f"{value:.0%}"),
            ("overestimation", 1, 1.5, lambda value: f"{value:+.2f}".replace("-", "−")),
        )
    ):
        left = 40 + 310 * i
        d.text(left + 120, 24, title, "strong", size=12.5)
        for k, (words, margin, ink) in enumerate(
            (("without", 0.0, "ink-target"), ("margin 0.8", MARGIN, "ink-reward"))
        ):
            value = cloned(margin)[which]
            high = 130 * max(value, 0.01) / top
            x = left + 70 + 100 * k
            d.add("rect", f"box {ink}", x=x - 30, y=186 - high, width=60, height=high)
            d.text(x, 178 - high, form(value), f"{ink} strong", size=12.5)
            d.text(x, 206, words, "faint", size=12)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- steps
def n_steps() -> str:
    """Step 1: both targets."""
    d = Drawing(WIDTH, 180, f"The targets are {number(ONE_STEP)} after one step and {number(N_STEP)} after three")
    for row, (words, total, parts) in enumerate(
        (
            ("y_1", ONE_STEP, ((1.0, "1", "ink-reward"), (2.7, "0.9 · 3", "ink-critic dashed"))),
            ("y_n", N_STEP, ((5.23, "R = 5.23", "ink-reward"), (6.561, "0.729 · 9", "ink-critic dashed"))),
        )
    ):
        y, x, scale = 46 + 72 * row, 40.0, 20.0
        d.text(30, y + 5, words, "ink-target strong", "end", size=13)
        for size, text, ink in parts:
            d.box(x + size * scale / 2, y, size * scale, 34, text, ink)
            x += size * scale
        d.text(x + 8, y + 5, f"{number(total)}", "ink-target strong", "start", size=12.5)
    d.text(WIDTH / 2, 168, "Q(s, a_E) = 1 in both errors", "faint", size=11.5)
    return d.svg()


def margin() -> str:
    """Step 2: three values, and the margin on two of them."""
    d = Drawing(WIDTH, 220, f"With the margin, the best other action leads by {number(MARGIN_LOSS)}")
    plot = Plot(d, 40, 24, 190, 150, (0.0, 4.0), (0.0, 3.2))
    plot.axes((), (0, 1, 2, 3), "actions", "Q")
    for i, value in enumerate(VALUES):
        x, y = plot.at(i + 1, value)
        ink = "ink-reward" if i == EXPERT else "ink-critic"
        d.add("rect", f"box {ink}", x=x - 15, y=y, width=30, height=plot.bottom - y)
        if i != EXPERT:
            top = plot.at(i + 1, value + MARGIN)[1]
            d.add("rect", "box ink-noise dashed", x=x - 15, y=top, width=30, height=y - top)
    high, low = plot.at(2, 2.8)[1], plot.at(1, 1.0)[1]
    d.line([plot.at(0.6, 1.0), plot.at(4.3, 1.0)], "quiet dashed")
    d.arrow([(plot.at(4.2, 0)[0], low), (plot.at(4.2, 0)[0], high)], "ink-target")
    d.text(
        plot.at(4.3, 0)[0] + 6,
        (high + low) / 2 + 4,
        f"J_E = {number(MARGIN_LOSS)}",
        "ink-target strong",
        "start",
        size=12,
    )
    d.text(plot.at(1, 0)[0], low - 8, "a_E", "ink-reward strong", size=12)
    d.text(plot.at(2, 0)[0], high - 8, "+ 0.8", "ink-noise", size=11.5)
    return d.svg()


def margin_curve() -> str:
    """J_E over Q(s, a_E), the others' values as in the example."""
    d = Drawing(
        620,
        270,
        "The margin loss falls with the value of the expert's action",
    )
    plot = Plot(d, 60, 34, 400, 180, (0.0, 4.0), (0.0, 3.0))
    plot.axes((0, 1, 2, 3, 4), (0, 1, 2, 3), "Q(s, expert's action)", "J_E")
    xs = np.linspace(0, 4, 81)
    points = [(float(x), float(large_margin(np.array([[x, 2.0, 1.5]]), np.array([0]), MARGIN)[0])) for x in xs]
    plot.curve(points, "ink-target")
    for x, words in ((2.0, "the best other"), (2.8, "and 0.8 above it")):
        d.line([plot.at(x, 0.0), plot.at(x, 2.9 if x < 2.5 else 2.5)], "quiet dashed")
        d.text(plot.at(x, 0)[0] + 5, plot.at(0, 2.7 if x < 2.5 else 2.3)[1], words, "faint", "start", size=11.5)
    x, y = plot.at(1.0, MARGIN_LOSS)
    d.dot(x, y, "ink-reward", 5)
    d.text(x - 8, y + 16, f"example: {number(MARGIN_LOSS)}", "ink-reward strong", "end", size=12)
    return d.svg()


def loss() -> str:
    """Step 3: three parts."""
    d = Drawing(WIDTH, 170, f"Squared errors and the margin loss sum to {LOSS:.4f}")
    rows = (
        ("δ_n^2 = 10.791^2", (1.0 - N_STEP) ** 2, "ink-target"),
        ("δ_1^2 = 2.7^2", (1.0 - ONE_STEP) ** 2, "ink-target"),
        ("J_E", MARGIN_LOSS, "ink-reward"),
    )
    for i, (words, value, ink) in enumerate(rows):
        d.text(40, 36 + 34 * i, words, ink, "start", size=13)
        d.text(300, 36 + 34 * i, f"{value:.4f}", f"{ink} strong", "end", size=13)
    d.line([(200, 118), (306, 118)], "quiet")
    d.text(40, 144, "sum", "strong", "start", size=13)
    d.text(300, 144, f"{LOSS:.4f}", "strong", "end", size=13)
    return d.svg()


def priorities() -> str:
    """Step 4: sums of absolute errors, with a bonus of each kind."""
    d = Drawing(WIDTH, 180, "Errors of +2 and −1.5 give a priority of 3.5, not 0.5")
    d.box(90, 44, 120, 36, "δ_1 = +2", "ink-target")
    d.box(250, 44, 120, 36, "δ_n = −1.5", "ink-target")
    d.arrow([(90, 64), (140, 94)], "ink-target")
    d.arrow([(250, 64), (200, 94)], "ink-target")
    d.text(170, 114, "|δ_1| + |δ_n| = 3.5", "ink-critic strong", size=13.5)
    d.text(170, 138, "not |δ_1 + δ_n| = 0.5", "faint", size=12)
    d.text(170, 166, "then + ε, larger for demonstrations", "ink-reward", size=12)
    return d.svg()


def before() -> str:
    """Step 5: updates and steps of the run."""
    d = Drawing(WIDTH, 150, "Pre-training from demonstrations, then training from both")
    d.box(95, 56, 130, 38, "demonstrations", "ink-reward")
    d.box(235, 56, 150, 38, "both", "ink-critic")
    d.line([(160, 22), (160, 96)], "quiet dashed")
    d.text(95, 100, "pre-training", "faint", size=11.5)
    d.text(236, 100, "steps 1, 2, 3, …", "faint", size=11.5)
    d.arrow([(24, 122), (316, 122)], "quiet")
    d.text(170, 142, "step 0", "faint", size=11.5)
    return d.svg()


def decay() -> str:
    """Step 6: weights shrink."""
    d = Drawing(WIDTH, 180, "A weight without gradient shrinks exponentially")
    plot = Plot(d, 44, 24, 250, 110, (0, 100), (0.0, 1.0))
    plot.axes((0, 50, 100), (0, 1), "million updates, learning rate 0.001", "weight")
    plot.curve([(t, float((1 - 1e-3 * 1e-5) ** (t * 1e6))) for t in range(0, 101, 2)], "ink-critic")
    return d.svg()


def lander() -> str:
    """DQfD and the DQN that its demonstrations come from."""
    d = Drawing(680, 300, "DQfD starts above 200 on LunarLander; DQN reaches it after 120,000 steps")
    plot = Plot(d, 66, 34, 520, 210, (0, 200_000), (-400.0, 320.0))
    plot.axes((0, 50_000, 100_000, 150_000, 200_000), (-400, -200, 0, 200), "steps", "mean return of ten episodes")
    plot.curve([(0, 200), (200_000, 200)], "quiet dashed")
    curve = [(x, max(y, -400)) for x, y in evaluations("dqn-lander-s0")]
    plot.curve(curve, "ink-target")
    d.text(plot.at(*curve[-1])[0] + 8, plot.at(*curve[-1])[1] + 10, "DQN", "ink-target strong", "start", size=12)
    banded(d, plot, "dqfd-lander", "DQfD", "ink-critic", shift=-2)
    return d.svg()
