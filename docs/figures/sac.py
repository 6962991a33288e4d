"""The pictures of the page on SAC: an example with straight lines for critics, and what entropy saves a policy from."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np
from drawing import Drawing, Plot
from td3 import number

from duetto.algorithms import SAC
from duetto.algorithms.base import Batch
from duetto.functional.distributions import SquashedGaussian

WIDTH, HEIGHT = 340, 200

# π(s) = tanh N(θ s, 1), Q(s, a) = w · [s, a] for both critics; one transition s = 1, a = .5, r = 1, s' = 2; α = γ = ½.
SLOPE, GAMMA, ALPHA, NOW, NEXT, RATE = 0.25, 0.5, 0.5, 0.75, 0.5, 0.1
ONE = np.ones((1, 1))


def policy(obs: np.ndarray, slope: float = SLOPE) -> SquashedGaussian:
    """Of the example."""
    return SquashedGaussian(slope * obs, np.zeros_like(obs))


def critics(obs: np.ndarray, action: np.ndarray, state: float = 1.0, act: float = 1.0) -> np.ndarray:
    """Both alike, (2, B)."""
    return np.stack([state * obs[:, 0] + act * action[:, 0]] * 2)


BATCH = Batch(ONE, 0.5 * ONE, ONE[0], GAMMA * ONE[0], 2 * ONE, ONE[0])
NETS = SimpleNamespace(actor=policy, critic=critics, target_critic=critics, log_alpha=np.log(ALPHA))
_action, _log_prob = policy(2 * ONE).sample_and_log_prob(NEXT * ONE)
NEXT_ACTION, NEXT_LOG_PROB = float(_action[0, 0]), float(_log_prob[0])
NEXT_VALUE = 2.0 + NEXT_ACTION
_loss, _info = SAC().critic_loss(NETS, BATCH, NEXT * ONE)
CRITIC_LOSS, TARGET = float(_loss), float(_info["target"][0])
STATE_WEIGHT, ACTION_WEIGHT = (1.0 + RATE * 2 * (TARGET - 1.5) * x for x in (1.0, 0.5))
_later = SimpleNamespace(
    actor=policy, critic=lambda obs, a: critics(obs, a, STATE_WEIGHT, ACTION_WEIGHT), log_alpha=np.log(ALPHA)
)
_loss, _info = SAC().actor_loss(_later, BATCH, NOW * ONE)
ACTOR_LOSS, LOG_PROB = float(_loss), float(_info["log_prob"][0])
NEW_LOG_ALPHA = float(np.log(ALPHA) + RATE * (LOG_PROB - 1.0))


def idea() -> str:
    """What is added to DDPG's picture."""
    d = Drawing(700, 230, "The actor maximizes Q plus entropy")
    d.box(80, 110, 100, 44, "observation", "ink-state", more="s")
    d.box(260, 110, 130, 50, "policy", "ink-actor", more="tanh of a Gaussian")
    d.arrow([(131, 110), (192, 110)])
    d.box(450, 60, 130, 46, "two critics", "ink-critic", more="the lower counts")
    d.box(450, 165, 130, 46, "entropy", "ink-noise", more="−log π(a|s)")
    d.arrow([(326, 100), (383, 66)], "ink-actor")
    d.arrow([(326, 122), (383, 158)], "ink-actor")
    d.box(625, 110, 110, 50, "maximize", "ink-target", more="Q − α log π")
    d.arrow([(516, 66), (568, 98)], "ink-critic")
    d.arrow([(516, 158), (568, 124)], "ink-noise")
    d.text(540, 164, "· α", "ink-noise strong", "start", size=13)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- two humps
def humps(action: np.ndarray) -> np.ndarray:
    """A value with a low hump at -0.5 and a high one at 0.5."""
    return 0.5 * np.exp(-(((action + 0.5) / 0.2) ** 2)) + np.exp(-(((action - 0.5) / 0.3) ** 2))


@cache
def climbed(alpha: float, steps: int = 600, rate: float = 0.05) -> tuple[float, float]:
    """Mean and log std, before tanh, of a policy that climbed E[Q] + α H from the foot of the low hump."""
    points = np.linspace(-4, 4, 161)[:, None]
    weight = np.exp(-0.5 * points[:, 0] ** 2)
    weight /= weight.sum()

    def objective(mean: float, log_std: float) -> float:
        dist = SquashedGaussian(np.full_like(points, mean), np.full_like(points, log_std))
        action, log_prob = dist.sample_and_log_prob(points)
        return float(np.sum(weight * (humps(action[:, 0]) - alpha * log_prob)))

    mean, log_std, tiny = -0.75, -1.5, 1e-4
    for _ in range(steps):
        by_mean = (objective(mean + tiny, log_std) - objective(mean - tiny, log_std)) / (2 * tiny)
        by_std = (objective(mean, log_std + tiny) - objective(mean, log_std - tiny)) / (2 * tiny)
        mean, log_std = mean + rate * by_mean, max(log_std + rate * by_std, -3.0)
    return mean, log_std


def _density(alpha: float, actions: np.ndarray) -> np.ndarray:
    mean, log_std = climbed(alpha)
    dist = SquashedGaussian(np.full((len(actions), 1), mean), np.full((len(actions), 1), log_std))
    return np.exp(dist.log_prob(actions[:, None]))


TEMPERATURES = (0.0, 0.2)


def without() -> str:
    """Where the policy ends, without entropy and with it."""
    d = Drawing(700, 260, "Without entropy the policy settles at the low peak; with it, at the high one")
    actions = np.linspace(-0.995, 0.995, 120)
    for i, (alpha, words) in enumerate(zip(TEMPERATURES, ("α = 0: no entropy", "α = 0.2"), strict=True)):
        plot = Plot(d, 50 + 345 * i, 40, 280, 160, (-1.0, 1.0), (0.0, 1.15))
        plot.axes((-1, 0, 1), (), "action", "")
        d.text(plot.left + 140, 22, words, "strong", size=13)
        plot.curve([(float(a), float(humps(np.array(a)))) for a in actions], "ink-critic")
        density = _density(alpha, actions)
        density = density / density.max()
        plot.band(list(map(float, actions)), [0.0] * len(actions), list(map(float, density)), "ink-actor")
        plot.curve(list(zip(map(float, actions), map(float, density), strict=True)), "ink-actor")
    d.text(300, 250, "value", "ink-critic strong", size=12)
    d.text(380, 250, "policy", "ink-actor strong", size=12)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- steps
def sample() -> str:
    """Step 1."""
    d = Drawing(WIDTH, 220, f"tanh turns a normal sample of 1 into an action of {number(NEXT_ACTION, 4)}")
    plot = Plot(d, 44, 20, 250, 150, (-3.0, 3.0), (-1.1, 1.1))
    plot.axes((-2, 0, 2), (-1, 0, 1), "mean + std · noise", "action")
    plot.curve([(float(x), float(np.tanh(x))) for x in np.linspace(-3, 3, 60)], "ink-actor")
    x, y = plot.at(1.0, NEXT_ACTION)
    d.line([(x, plot.bottom), (x, y), (plot.left, y)], "thin quiet dashed")
    d.dot(x, y, "ink-actor", 5)
    d.text(x + 10, y + 18, f"tanh 1 = {number(NEXT_ACTION, 4)}", "ink-actor strong", "start", size=12)
    return d.svg()


def density() -> str:
    """Step 2."""
    d = Drawing(WIDTH, HEIGHT, "The density of the squashed Gaussian")
    plot = Plot(d, 44, 20, 250, 130, (-1.0, 1.0), (0.0, 1.8))
    plot.axes((-1, 0, 1), (0, 1), "action", "density")
    actions = np.linspace(-0.999, 0.999, 160)
    dist = policy(np.full((160, 1), 2.0))
    values = np.exp(dist.log_prob(actions[:, None]))
    plot.band(list(map(float, actions)), [0.0] * 160, list(map(float, np.minimum(values, 1.8))), "ink-actor")
    plot.curve([(float(a), float(min(v, 1.8))) for a, v in zip(actions, values, strict=True)], "ink-actor")
    x, y = plot.at(NEXT_ACTION, float(np.exp(NEXT_LOG_PROB)))
    d.dot(x, y, "ink-noise", 5)
    d.text(x - 10, y - 8, f"log π = {number(NEXT_LOG_PROB, 4)}", "ink-noise strong", "end", size=12)
    return d.svg()


def target() -> str:
    """Step 3."""
    d = Drawing(WIDTH, 170, f"Reward, value and entropy add up to a target of {number(TARGET, 4)}")
    left, scale = 24, 118.0
    bonus = -GAMMA * ALPHA * NEXT_LOG_PROB
    parts = (
        (1.0, "r = 1", "ink-reward"),
        (GAMMA * NEXT_VALUE, f"½ · {number(NEXT_VALUE, 4)}", "ink-critic dashed"),
        (bonus, "", "ink-noise"),
    )
    x = left
    for size, words, ink in parts:
        d.box(x + size * scale / 2, 60, size * scale, 36, words, ink)
        x += size * scale
    d.text(x, 32, "½ · α · (−log π)", "ink-noise", "end", size=11.5)
    d.text(x, 104, f"y = {number(TARGET, 4)}", "ink-target strong", "end")
    d.text(WIDTH / 2, 146, "γ = α = ½ in the example", "faint", size=11.5)
    return d.svg()


def critic_step() -> str:
    """Step 4."""
    d = Drawing(WIDTH, HEIGHT, f"Two critics at 1.5, target {number(TARGET, 4)}: loss {number(CRITIC_LOSS, 4)}")
    plot = Plot(d, 50, 20, 250, 128, (1.2, 3.2), (0.0, 1.5))
    plot.axes((1.5, 2, 2.5, 3), (0, 1), "value of Q_1 and Q_2", "(Q − y)²")
    plot.curve(
        [(float(q), (q - TARGET) ** 2) for q in np.linspace(1.25, 3.2, 50) if (q - TARGET) ** 2 < 1.5], "ink-target"
    )
    x, y = plot.at(1.5, (1.5 - TARGET) ** 2)
    d.dot(x, y, "ink-critic", 5)
    d.text(x + 12, y, f"twice {number((1.5 - TARGET) ** 2, 4)}", "ink-critic strong", "start", size=12)
    d.text(plot.at(TARGET, 0)[0], plot.bottom - 8, "y", "ink-target strong", size=13)
    return d.svg()


def actor_step() -> str:
    """Step 5: the two sides of the actor's loss over θ."""
    d = Drawing(WIDTH, HEIGHT, "The actor's loss, and one step down")

    def loss(slope: float) -> float:
        nets = SimpleNamespace(actor=lambda obs: policy(obs, slope), critic=_later.critic, log_alpha=np.log(ALPHA))
        return float(SAC().actor_loss(nets, BATCH, NOW * ONE)[0])

    plot = Plot(d, 56, 20, 240, 128, (-1.5, 0.8), (-2.4, -1.8))
    plot.axes((-1, 0), (-2.2, -2), "θ, the mean's slope", "α log π − min Q")
    plot.curve([(float(s), loss(float(s))) for s in np.linspace(-1.5, 0.8, 60) if loss(float(s)) < -1.8], "ink-target")
    new = SLOPE - RATE * (loss(SLOPE + 1e-5) - loss(SLOPE - 1e-5)) / 2e-5
    x, y = plot.at(SLOPE, loss(SLOPE))
    d.dot(x, y, "ink-actor", 5)
    d.arrow([(x, y - 12), (x - 26, y - 4)], "ink-actor")
    d.text(x + 8, y + 14, f"0.25 → {number(new, 4)}", "ink-actor strong", "start", size=12)
    return d.svg()


def temperature() -> str:
    """Step 6."""
    d = Drawing(WIDTH, 190, "The entropy exceeds its target, so the temperature falls")
    plot = Plot(d, 40, 60, 260, 10, (-1.5, 1.5), (0.0, 1.0))
    d.line([(plot.left, 70), (plot.right, 70)], "axis")
    for tick in (-1, 0, 1):
        d.text(plot.at(tick, 0)[0], 90, number(tick), "faint", size=11)
    for at, words, ink in (
        (-1.0, "target H̄", "ink-target"),
        (-LOG_PROB, f"−log π = {number(-LOG_PROB, 4)}", "ink-noise"),
    ):
        x, _ = plot.at(at, 0)
        d.dot(x, 70, ink, 5)
        d.text(x, 48, words, f"{ink} strong", size=12)
    d.text(WIDTH / 2, 130, f"log α: {number(float(np.log(ALPHA)), 4)} → {number(NEW_LOG_ALPHA, 4)}", "", size=13)
    d.text(WIDTH / 2, 156, f"α: 0.5 → {number(float(np.exp(NEW_LOG_ALPHA)), 4)}", "ink-noise strong", size=13)
    return d.svg()


def targets() -> str:
    """Step 7."""
    d = Drawing(WIDTH, HEIGHT, "Only the critics have target networks")
    for x, name, ink in (
        (56, "π", "ink-actor"),
        (140, "Q_1", "ink-critic"),
        (220, "Q_2", "ink-critic"),
        (296, "log α", "ink-noise"),
    ):
        d.box(x, 58, 66, 44, name, ink)
        if name.startswith("Q"):
            d.box(x, 146, 66, 44, f"{name}′", f"{ink} dashed")
            d.arrow([(x, 82), (x, 122)], ink)
    d.text(180, 188, "by tau, after every update", "faint", size=11.5)
    return d.svg()
