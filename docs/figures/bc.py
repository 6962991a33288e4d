"""Figures of the page on behavior cloning: its loss, and compounding errors."""

from __future__ import annotations

from functools import cache

import numpy as np
from drawing import Drawing, Plot
from learned import banded

from duetto.functional.distributions import Categorical

WIDTH, HEIGHT = 340, 200

# The example: logits of three actions; the expert took the first.
PREFERENCES, EXPERT = np.array([1.0, 2.0, 1.5]), 0
CHANCES = np.exp(PREFERENCES) / np.exp(PREFERENCES).sum()
LOSS = float(-Categorical(PREFERENCES[None]).log_prob(np.array([EXPERT]))[0])
GRADIENT = CHANCES - np.eye(3)[EXPERT]

# A lane: places -10 .. 10, the expert keeps to 0.
PLACES, SLIPS, STEPS = 10, 0.02, 200


def idea() -> str:
    """Seen, asked, corrected."""
    d = Drawing(760, 200, "BC raises the probability of the expert's action")
    d.box(110, 100, 150, 54, "expert saw", "ink-state", more="o_0, o_1, …, o_t")
    d.arrow([(187, 100), (243, 100)])
    d.box(320, 100, 150, 54, "network", "ink-critic", more="one logit per action")
    for i, (words, chance) in enumerate((("left", CHANCES[0]), ("stay", CHANCES[1]), ("right", CHANCES[2]))):
        y = 46 + 54 * i
        d.arrow([(397, 100), (446, y)], "ink-critic")
        d.box(505, y, 112, 36, f"{words}: {chance:.0%}", "ink-reward" if i == EXPERT else "quiet")
    d.arrow([(566, 46), (602, 46)], "ink-reward")
    d.text(610, 42, "the expert's action:", "ink-reward", "start", size=12.5)
    d.text(610, 60, "raise it", "ink-reward strong", "start", size=12.5)
    return d.svg()


@cache
def off_the_lane(lost: bool) -> tuple[float, ...]:
    """Return the probability of being off the lane after each step; off the lane: random if `lost`, else back to it.

    At every place it slips to either side in 2 of 100 steps.
    """
    places = np.arange(-PLACES, PLACES + 1)
    moves = np.zeros((len(places), 3))  # by -1, 0, 1
    for i, place in enumerate(places):
        if lost and place:
            moves[i] = 1 / 3
        else:
            moves[i] = SLIPS / 2, 0.0, SLIPS / 2
            moves[i, 1 - np.sign(place)] += 1 - SLIPS
    chance, found = (places == 0).astype(float), []
    for _ in range(STEPS + 1):
        found.append(float(1 - chance[PLACES]))
        following = np.zeros_like(chance)
        for move in (-1, 0, 1):
            reached = np.clip(places + move, -PLACES, PLACES) + PLACES
            np.add.at(following, reached, chance * moves[:, move + 1])
        chance = following
    return tuple(found)


def compounding() -> str:
    """Both pupils over the steps."""
    d = Drawing(
        660,
        290,
        "A policy without recovery is off the lane in a third of the last steps; with recovery it almost never is",
    )
    plot = Plot(d, 60, 34, 380, 200, (0, STEPS), (0.0, 0.4))
    plot.axes((0, 50, 100, 150, 200), (0, 0.1, 0.2, 0.3, 0.4), "steps", "probability outside the lane")
    for lost, words, ink in ((True, "saw only the lane", "ink-target"), (False, "saw the way back", "ink-reward")):
        points = list(enumerate(off_the_lane(lost)))
        plot.curve(points, ink)
        x, y = plot.at(*points[-1])
        d.text(x + 8, y + 4, words, f"{ink} strong", "start", size=12)
    return d.svg()


def keycorridor() -> str:
    """Draw the returns of BC and R2D3."""
    d = Drawing(690, 300, "BC stays near a return of 0.57 on KeyCorridor, R2D3 passes 0.8")
    plot = Plot(d, 60, 34, 480, 210, (0, 100_000), (0.0, 1.0))
    plot.axes((0, 25_000, 50_000, 75_000, 100_000), (0, 0.25, 0.5, 0.75, 1), "steps", "mean return of 50 episodes")
    banded(d, plot, "keycorridor-bc", "BC", "ink-reward")
    banded(d, plot, "keycorridor-r2d3", "R2D3", "ink-critic")
    return d.svg()


# ---------------------------------------------------------------------------------------------------- steps
def chances() -> str:
    """Step 1: preferences and probabilities."""
    d = Drawing(WIDTH, 180, "Logits 1, 2 and 1.5 give probabilities of 19, 51 and 31 %")
    for i, (preference, chance) in enumerate(zip(PREFERENCES, CHANCES, strict=True)):
        x = 70 + 100 * i
        d.text(x, 30, f"{preference:g}", "ink-critic strong", size=13.5)
        d.arrow([(x, 40), (x, 64)], "quiet")
        d.add("rect", "box ink-critic", x=x - 20, y=150 - 150 * chance, width=40, height=150 * chance)
        d.text(x, 170, f"{chance:.1%}", "ink-critic", size=12)
    return d.svg()


def loss() -> str:
    """Step 2: the loss over the expert's action's probability."""
    d = Drawing(WIDTH, 210, f"The loss falls with the probability of the expert's action: here {LOSS:.2f}")
    plot = Plot(d, 40, 24, 230, 140, (0.0, 1.0), (0.0, 4.0))
    plot.axes((0, 0.5, 1), (0, 2, 4), "probability of the expert's action", "loss")
    plot.curve([(float(p), float(-np.log(p))) for p in np.geomspace(np.exp(-4), 1, 80)], "ink-target")
    x, y = plot.at(float(CHANCES[EXPERT]), LOSS)
    d.dot(x, y, "ink-reward", 5)
    d.text(x + 10, y - 4, f"{CHANCES[EXPERT]:.0%}: {LOSS:.4f}", "ink-reward strong", "start", size=12)
    return d.svg()


def gradient() -> str:
    """Step 3: which way each preference goes."""
    d = Drawing(WIDTH, 190, "The logit of the expert's action rises, the others fall")
    for i, slope in enumerate(GRADIENT):
        x = 70 + 100 * i
        ink = "ink-reward" if slope < 0 else "ink-target"
        d.arrow([(x, 95), (x, 95 + 80 * float(slope))], f"{ink} thick")
        d.text(
            x + 14, 95 + 40 * float(slope) + 4, f"{-slope:+.3f}".replace("-", "−"), f"{ink} strong", "start", size=12
        )
        d.text(x, 180, f"action {i + 1}", "faint", size=11.5)
    d.line([(40, 95), (310, 95)], "quiet")
    return d.svg()


def greedy() -> str:
    """Step 4."""
    d = Drawing(WIDTH, 150, "The most likely action is chosen")
    for i, chance in enumerate(CHANCES):
        d.box(70 + 100 * i, 50, 84, 36, f"{chance:.0%}", "ink-actor" if chance == CHANCES.max() else "quiet")
    d.arrow([(170, 70), (170, 104)], "ink-actor")
    d.text(170, 124, "chosen", "ink-actor strong", size=13)
    return d.svg()
