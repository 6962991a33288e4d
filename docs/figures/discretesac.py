"""The picture of the page on discrete SAC: an expectation over all actions, by the numbers of the tests' example."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from drawing import Drawing, Plot
from td3 import number

from duetto.algorithms import DiscreteSAC
from duetto.algorithms.base import Batch
from duetto.functional.distributions import Categorical

# π(·|s') = [1/4, 3/4]; both target critics value [10, 14] and [12, 8]; α = ½.
LOGITS, ALPHA = np.log(np.array([[0.25, 0.75]])), 0.5
TWINS = np.array([[[10.0, 14.0]], [[12.0, 8.0]]])
ZERO, ONE = np.zeros((1, 1)), np.ones(1)

BATCH = Batch(ZERO, np.zeros(1), reward=ONE, discount=0.9 * ONE, next_obs=ZERO, weight=ONE)
NETS = SimpleNamespace(
    actor=lambda obs: Categorical(LOGITS),
    critic=lambda obs: TWINS,
    target_critic=lambda obs: TWINS,
    log_alpha=np.log(ALPHA),
)
TARGET = float(DiscreteSAC().critic_loss(NETS, BATCH)[1]["target"][0])
VALUE = -float(DiscreteSAC().actor_loss(NETS, BATCH)[0])
PROBABILITY = np.exp(LOGITS[0])
LOWER = TWINS.min(axis=0)[0]
BONUS = -ALPHA * LOGITS[0]
SAMPLED = 1.0 + 0.9 * (LOWER + BONUS)  # the target if one next action were drawn, for each of the two
SPREAD = float(np.sqrt((PROBABILITY * (SAMPLED - TARGET) ** 2).sum()))


def expectation() -> str:
    """The value of the next state."""
    d = Drawing(700, 250, f"Lower values 10 and 8 plus entropy bonuses, weighted by probability: {number(VALUE, 4)}")
    plot = Plot(d, 60, 30, 420, 170, (0.0, 4.0), (0.0, 12.0))
    plot.axes((), (0, 4, 8, 12), "", "value")
    for i, (lower, bonus, probability) in enumerate(zip(LOWER, BONUS, PROBABILITY, strict=True)):
        left, right = 2.0 * i + 0.5, 2.0 * i + 0.5 + 1.6 * float(probability)
        plot.band([left, right], [0.0, 0.0], [float(lower)] * 2, "ink-critic")
        plot.band([left, right], [float(lower)] * 2, [float(lower + bonus)] * 2, "ink-noise")
        x, _ = plot.at((left + right) / 2, 0.0)
        d.text(x, plot.bottom - 12, number(float(lower + bonus), 4), "strong", size=12)
        d.text(x, plot.bottom + 18, f"action {i}: π = {number(float(probability), 2)}", "ink-actor", size=12)
    (x0, y), (x1, _) = plot.at(0.0, VALUE), plot.at(4.0, VALUE)
    d.line([(x0, y), (x1, y)], "ink-target dashed")
    d.text(x1 + 8, y + 4, f"V = {number(VALUE, 4)}", "ink-target strong", "start", size=13)
    d.text(x1 + 8, 60, "−α log π", "ink-noise strong", "start", size=13)
    d.text(x1 + 8, 180, "the lower critic", "ink-critic strong", "start", size=13)
    return d.svg()


def sampled() -> str:
    """What the target would be of one sampled next action."""
    d = Drawing(
        620,
        180,
        f"Sampled: {number(SAMPLED[0].item(), 2)} or {number(SAMPLED[1].item(), 2)}; expected: {number(TARGET, 2)}",
    )
    plot = Plot(d, 40, 30, 420, 90, (8.0, 11.0), (0.0, 0.8))
    plot.axes((8, 9, 10, 11), (), "target", "")
    for value, probability in zip(SAMPLED, PROBABILITY, strict=True):
        x, y = plot.at(float(value), float(probability))
        d.line([(x, plot.bottom), (x, y)], "ink-noise thick")
        d.text(
            x,
            y - 8,
            f"{number(float(value), 4)}, {probability:.0%} of the time".replace("%", " %"),
            "ink-noise",
            size=12,
        )
    x, _ = plot.at(TARGET, 0)
    d.line([(x, plot.top + 26), (x, plot.bottom)], "ink-target dashed")
    d.text(x + 8, plot.bottom - 10, f"the sum: {number(TARGET, 4)}, always", "ink-target strong", "start", size=12)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- steps
WIDTH = 330


def target() -> str:
    """Step 1."""
    d = Drawing(WIDTH, 190, f"Reward and discounted terms of both actions add up to {number(TARGET, 4)}")
    plot = Plot(d, 20, 40, 290, 60, (0.0, 9.6), (0.0, 1.0))
    plot.axes((0, 3, 6, 9), (), "target", "")
    parts = [("r", 1.0, "ink-reward")]
    parts += [(f"a_{i}", float(0.9 * PROBABILITY[i] * (LOWER + BONUS)[i]), "ink-critic") for i in range(2)]
    left = 0.0
    for i, (words, share, ink) in enumerate(parts):
        right = left + share
        plot.band([left, right], [0.0, 0.0], [1.0, 1.0], ink)
        x, y = plot.at((left + right) / 2, 0.5)
        d.text(x, y, words, f"{ink} strong", size=13)
        d.text(x, y + 16, number(share, 4 if i else 0), ink, size=10.5)
        x, _ = plot.at(right, 0.0)
        d.line([(x, plot.top), (x, plot.bottom)], ink)
        left = right
    x, _ = plot.at(TARGET, 0.0)
    d.text(x, plot.top - 10, f"y = {number(TARGET, 4)}", "ink-target strong", "end", size=12.5)
    d.text(WIDTH / 2, 164, "of each action γ π(a) (min Q − α log π(a))", "faint", size=11)
    return d.svg()


def actor_step() -> str:
    """Step 2."""
    best = 1.0 / (1.0 + float(np.exp(-(LOWER[0] - LOWER[1]) / ALPHA)))
    d = Drawing(
        WIDTH, 230, f"The actor's loss over the first action's probability has its minimum at {number(best, 3)}"
    )
    p = np.linspace(0.001, 0.999, 120)
    loss = p * (ALPHA * np.log(p) - LOWER[0]) + (1 - p) * (ALPHA * np.log(1 - p) - LOWER[1])
    plot = Plot(d, 52, 24, 250, 150, (0.0, 1.0), (-10.8, -7.8))
    plot.axes((0, 0.5, 1), (-10, -9, -8), "probability of the first action", "loss")
    plot.curve(list(zip(map(float, p), map(float, loss), strict=True)), "ink-actor")
    x, y = plot.at(float(PROBABILITY[0]), -VALUE)
    d.arrow([(x + 8, y + 10), (x + 46, y + 34)], "ink-actor")
    d.dot(x, y, "ink-actor", 5)
    d.text(x + 10, y - 8, f"now: {number(-VALUE, 4)}", "ink-actor strong", "start", size=12)
    x, y = plot.at(best, float(loss.min()))
    d.dot(x, y, "ink-target", 4)
    d.text(x, y + 18, f"minimum at {number(best, 3)}", "ink-target", "end", size=11.5)
    return d.svg()


def temperature() -> str:
    """Step 3."""
    wanted = 0.98 * float(np.log(2))
    entropy = float(-(PROBABILITY * LOGITS[0]).sum())
    d = Drawing(WIDTH, 230, f"The policy's entropy is {number(entropy, 4)}, less than the target: α rises")
    p = np.linspace(0.001, 0.999, 120)
    curve = -p * np.log(p) - (1 - p) * np.log(1 - p)
    plot = Plot(d, 52, 24, 250, 150, (0.0, 1.0), (0.0, 0.8))
    plot.axes((0, 0.5, 1), (0, 0.4, 0.8), "probability of the first action", "entropy")
    plot.curve(list(zip(map(float, p), map(float, curve), strict=True)), "ink-actor")
    (left, y), (right, _) = plot.at(0.0, wanted), plot.at(1.0, wanted)
    d.line([(left, y), (right, y)], "ink-target dashed")
    d.text(right, y - 7, f"0.98 log 2 = {number(wanted, 4)}", "ink-target", "end", size=11.5)
    x, now = plot.at(float(PROBABILITY[0]), entropy)
    d.line([(x, now), (x, y)], "ink-noise thick")
    d.dot(x, now, "ink-actor", 5)
    d.text(x + 12, now + 22, f"{number(entropy, 4)}: too low, α rises", "ink-noise strong", "start", size=11.5)
    return d.svg()
