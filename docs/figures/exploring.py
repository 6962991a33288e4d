"""The pictures of the page on exploration: ε, two kinds of noise, entropy. All computed here."""

from __future__ import annotations

from functools import cache

import mountain
import numpy as np
from ddpg import processes
from drawing import Drawing, Plot

from duetto.functional.distributions import Categorical
from duetto.functional.schedules import epsilon_schedule, exploration_ladder

# ---------------------------------------------------------------------------------------------------- ε
STEPS = 50_000


def schedules() -> str:
    """ε over the steps of a run, and of eight environments side by side."""
    d = Drawing(700, 250, "Schedules of ε: linear, exponential and ladder")
    left = Plot(d, 44, 40, 300, 150, (0, 150_000), (0.0, 1.0))
    left.axes((0, 50_000, 100_000, 150_000), (0, 0.5, 1), "steps", "ε of all environments")
    for kind, ink, at in (("linear", "ink-noise", 26_000), ("exponential", "ink-critic", 76_000)):
        curve = [(step, epsilon_schedule(kind, step, STEPS, 1.0, 0.05)) for step in range(0, 150_001, 2_500)]
        left.curve(curve, ink)
        x, y = left.at(at, epsilon_schedule(kind, at, STEPS, 1.0, 0.05))
        d.text(
            x + 8,
            y - 8 if kind == "exponential" else y + 22,
            kind,
            f"{ink} strong",
            size=12,
            anchor="start" if kind == "exponential" else "end",
        )
    right = Plot(d, 420, 40, 250, 150, (-0.6, 7.6), (0.0, 0.45))
    right.axes(range(8), (0, 0.2, 0.4), "environment", "ladder")
    for i, epsilon in enumerate(ladder()):
        x, y = right.at(i, epsilon)
        d.add("rect", "box ink-noise", x=x - 10, y=y, width=20, height=max(right.bottom - y, 0.5))
        if i < 5:
            d.text(x, y - 5, f"{epsilon:.2g}", "ink-noise", size=10)
    return d.svg()


def ladder() -> list[float]:
    """ε of eight environments: 0.4 to the powers 1 to 8."""
    return exploration_ladder(8, 0.4, 7.0).tolist()


def expected_episodes(length: int, epsilon: float, actions: int = 2) -> float:
    """Until a corridor's end is reached for the first time, if the greedy action leads back at each of its steps."""
    return (actions / epsilon) ** length


def corridor() -> str:
    """How long it takes to get far against one's own habit."""
    d = Drawing(640, 280, "Episodes until ε-greedy reaches the end of a corridor")
    plot = Plot(d, 66, 34, 430, 190, (1, 10), (0.0, 9.0))
    plot.axes((1, 2, 4, 6, 8, 10), (), "length of the corridor", "episodes until the end is reached")
    for power in (0, 3, 6, 9):
        x, y = plot.at(1, power)
        d.line([(x - 4, y), (x, y)], "axis")
        d.text(x - 7, y + 4, f"10^{power}", "faint", "end", size=11)
    for epsilon, words, ink in (
        (0.1, "ε = 0.1", "ink-target"),
        (0.3, "ε = 0.3", "ink-noise"),
        (1.0, "ε = 1", "ink-critic"),
    ):
        points = [(n, float(np.log10(expected_episodes(n, epsilon)))) for n in range(1, 11)]
        inside = [(n, y) for n, y in points if y <= 9]
        plot.curve(inside, ink)
        for point in inside:
            d.dot(*plot.at(*point), ink, 3)
        x, y = plot.at(*inside[-1])
        d.text(x + 10, y + 4, words, f"{ink} strong", "start", size=12)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- noise
def noises() -> str:
    """The same random numbers, as independent noise and as a process."""
    d = Drawing(
        700,
        200,
        "Gaussian noise and Ornstein-Uhlenbeck noise over 200 steps",
    )
    for i, (values, words, ink) in enumerate(
        zip(processes(), ("gaussian", "ou"), ("ink-noise", "ink-actor"), strict=True)
    ):
        plot = Plot(d, 44 + 345 * i, 34, 290, 110, (0, 200), (-1.0, 1.0))
        plot.axes((0, 100, 200), (-1, 0, 1), "steps", "")
        plot.curve([(0, 0), (200, 0)], "quiet thin")
        plot.curve([(t, float(value)) for t, value in enumerate(values)], f"{ink} thin")
        d.text(plot.left + 6, plot.top - 8, words, f"{ink} strong", "start", size=12.5)
    return d.svg()


@cache
def furthest(noise: str) -> np.ndarray:
    """How far right noise alone brings the car, (episodes,)."""
    return mountain.highest(*mountain.NOISES[noise])


def hill() -> str:
    """The valley, and how far each noise gets the car in it."""
    d = Drawing(700, 300, "Furthest position of the car with each kind of noise")
    plot = Plot(d, 150, 20, 500, 100, (-1.2, 0.6), (-1.1, 1.1))
    curve = [(float(x), float(np.sin(3 * x))) for x in np.linspace(-1.2, 0.6, 90)]
    plot.curve(curve, "ink-state")
    bottom = -np.pi / 6
    d.dot(*plot.at(bottom, np.sin(3 * bottom)), "ink-actor", 7)
    x, y = plot.at(mountain.TOP, np.sin(3 * mountain.TOP))
    d.line([(x, y), (x, y - 26)], "ink-reward")
    d.add("polygon", "solid ink-reward", points=f"{x},{y - 26} {x + 16},{y - 20} {x},{y - 14}")
    d.line([(x, y + 4), (x, 276)], "ink-reward dashed thin")
    for row, name in enumerate(mountain.NOISES):
        ink = "ink-actor" if name.startswith("ou") else "ink-noise"
        low, middle, high = (float(q) for q in np.quantile(furthest(name), [0.05, 0.5, 0.95]))
        y = 156 + 34 * row
        d.text(plot.left - 12, y + 4, name, "", "end", size=12.5)
        d.line([(plot.at(low, 0)[0], y), (plot.at(high, 0)[0], y)], f"{ink} thick")
        d.dot(plot.at(middle, 0)[0], y, ink, 5)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- entropy
ARMS = (0.3, 0.5, 0.8)  # what three slot machines pay on average, as on the page of twelve pictures
ALPHAS = (0.05, 0.2, 1.0)


def soft(alpha: float) -> np.ndarray:
    """The policy that maximises E[r] + α H: exp(r / α), normalized."""
    return np.exp(np.asarray(Categorical(np.array(ARMS) / alpha).log_probs))


def worth(alpha: float) -> tuple[float, float]:
    """Its mean reward, and its entropy in nats."""
    policy = Categorical(np.array(ARMS) / alpha)
    return float((np.exp(np.asarray(policy.log_probs)) * ARMS).sum()), float(policy.entropy())


def temperatures() -> str:
    """The best policy for three prices of entropy."""
    d = Drawing(700, 220, "Best policies for three entropy coefficients")
    for i, alpha in enumerate(ALPHAS):
        plot = Plot(d, 44 + 225 * i, 46, 180, 110, (-0.6, 2.6), (0.0, 1.2))
        plot.axes((), (0, 0.5, 1) if i == 0 else (), "", "")
        reward, entropy = worth(alpha)
        d.text(plot.left + 90, 20, f"α = {alpha:g}", "strong", size=13)
        d.text(plot.left + 90, 36, f"reward {reward:.2f}, entropy {entropy:.2f}", "faint", size=11.5)
        for arm, probability in enumerate(soft(alpha)):
            x, y = plot.at(arm, float(probability))
            d.add("rect", "box ink-actor", x=x - 17, y=y, width=34, height=plot.bottom - y)
            d.text(x, y - 5, f"{probability:.2f}", "ink-actor", size=11.5)
            d.text(x, plot.bottom + 17, f"pays {ARMS[arm]:g}", "faint", size=11)
    return d.svg()


@cache
def climbed(bonus: float, players: int = 500, updates: int = 600, rate: float = 3.0) -> np.ndarray:
    """The best machine's probability in each player's policy, (updates, players), while it climbs what it earns.

    A policy gradient on one pull at a time, with the mean of all pulls so far subtracted, plus `bonus` times the
    slope of the entropy.
    """
    random = np.random.default_rng(0)
    logits, paid, found = np.zeros((players, 3)), np.zeros(players), np.zeros((updates, players))
    rows = np.arange(players)
    for update in range(updates):
        log_p = np.asarray(Categorical(logits).log_probs)
        p = np.exp(log_p)
        arm = (p.cumsum(axis=1) > random.random((players, 1))).argmax(axis=1)
        reward = (random.random(players) < np.array(ARMS)[arm]).astype(float)
        advantage = reward - (paid / update if update else 0.5)
        paid += reward
        slope = -p * advantage[:, None]
        slope[rows, arm] += advantage
        entropy = -(p * log_p).sum(axis=1, keepdims=True)
        logits += rate * (slope - bonus * p * (log_p + entropy))
        found[update] = p[:, 2]
    return found


BONUSES = ((0.0, "no bonus", "ink-target"), (0.1, "bonus 0.1", "ink-actor"), (0.5, "bonus 0.5", "ink-noise"))


def collapse() -> str:
    """What becomes of 500 policies, with a bonus for entropy and without."""
    d = Drawing(700, 230, "Policies after 600 pulls with three entropy bonuses")
    for i, (bonus, words, ink) in enumerate(BONUSES):
        plot = Plot(d, 44 + 225 * i, 40, 180, 120, (0.0, 1.0), (0.0, 1.0))
        plot.axes((0, 0.5, 1), (0, 0.5, 1) if i == 0 else (), "probability of the best machine", "")
        d.text(plot.left + 90, 22, words, f"{ink} strong", size=12.5)
        counts, edges = np.histogram(climbed(bonus)[-1], bins=10, range=(0.0, 1.0))
        for count, edge in zip(counts / counts.sum(), edges[:-1], strict=True):
            x, y = plot.at(float(edge), float(count))
            if count:
                d.add("rect", f"box {ink}", x=x + 1, y=y, width=16, height=plot.bottom - y)
                if edge in edges[[0, -2]] and count >= 0.01:
                    d.text(x + 9, y - 4, f"{100 * count:.0f} %", ink, size=10)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- defaults
