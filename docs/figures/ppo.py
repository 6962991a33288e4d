"""The pictures of the page on PPO: the clipped objective, what λ trades, and what happens without the clip."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from drawing import Drawing, Plot

from duetto.functional.policy_gradient import clipped_surrogate
from duetto.functional.returns import generalized_advantages

WIDTH, HEIGHT = 340, 200
CLIP = 0.2


def surrogate(ratio: float, advantage: float, clip: float = CLIP) -> float:
    """min(ρ A, clip(ρ, 1-ε, 1+ε) A)."""
    return float(clipped_surrogate(np.array([ratio]), np.array([advantage]), clip)[0])


def slope(ratio: float, advantage: float, clip: float = CLIP) -> float:
    """Its derivative with respect to ρ."""
    step = 1e-6
    return (surrogate(ratio + step, advantage, clip) - surrogate(ratio - step, advantage, clip)) / (2 * step)


# ---------------------------------------------------------------------------------------------------- the clip
def _objective(plot: Plot, advantage: float) -> None:
    ratios = np.linspace(0.4, 1.6, 121)
    plot.curve([(float(r), float(r) * advantage) for r in (0.4, 1.6)], "quiet dashed")
    plot.curve([(float(r), surrogate(float(r), advantage)) for r in ratios], "ink-target")


def clip() -> str:
    """The objective over the ratio, for an action that was better than expected and one that was worse."""
    d = Drawing(700, 250, "The clipped objective as a function of the ratio")
    for i, (advantage, words) in enumerate(
        ((1.0, "better than expected, A = 1"), (-1.0, "worse than expected, A = −1"))
    ):
        low, high = (0.3, 1.7) if advantage > 0 else (-1.7, -0.3)
        plot = Plot(d, 60 + 345 * i, 40, 270, 150, (0.4, 1.6), (low, high))
        plot.axes((0.4, 0.8, 1.0, 1.2, 1.6), (0.5, 1, 1.5) if advantage > 0 else (-1.5, -1, -0.5), "ratio ρ", "")
        d.text(plot.left + 135, 20, words, "strong", size=13)
        for end in (1 - CLIP, 1 + CLIP):
            d.line([plot.at(end, low), plot.at(end, high)], "thin quiet dashed")
        _objective(plot, advantage)
        d.dot(*plot.at(1.0, advantage), "ink-actor", 5)
    return d.svg()


CASES = [(ratio, advantage) for advantage in (1.0, -1.0) for ratio in (0.6, 1.1, 1.4)]


def six_cases() -> str:
    """Each case of advantage and ratio: which term counts, and whether it still pushes."""
    d = Drawing(760, 440, "Six cases of the objective; two have no gradient")
    for i, (ratio, advantage) in enumerate(CASES):
        left, top = 40 + 245 * (i % 3), 52 + 220 * (i // 3)
        low, high = (0.3, 1.7) if advantage > 0 else (-1.7, -0.3)
        plot = Plot(d, left, top, 200, 104, (0.4, 1.6), (low, high))
        plot.axes((0.8, 1.2), (), "", "")
        where = "below" if ratio < 1 - CLIP else "above" if ratio > 1 + CLIP else "inside"
        d.text(
            left + 100,
            top - 26,
            f"{i + 1}. A {'>' if advantage > 0 else '<'} 0, ρ = {ratio:g}, {where}",
            "strong",
            size=12.5,
        )
        _objective(plot, advantage)
        push = slope(ratio, advantage)
        x, y = plot.at(ratio, surrogate(ratio, advantage))
        if push:
            ahead = 26 if push > 0 else -26
            d.arrow([(x, y), (x + ahead, y - abs(ahead) * 104 / 1.4 * 1.2 / 200)], "ink-actor")
            words = "the action becomes more likely" if push > 0 else "the action becomes less likely"
        else:
            words = "no gradient: far enough"
        d.dot(x, y, "ink-actor" if push else "quiet", 5)
        d.text(left + 100, plot.bottom + 38, words, "ink-actor" if push else "faint", size=12)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- without the clip
def rounds(clip: float, steps: int = 400, rate: float = 1.0) -> list[float]:
    """KL divergence from the policy that collected, after each of many steps uphill on one small rollout.

    A choice of four, 32 samples, rewards with noise; the same samples are used again and again. Without a clip (0) the
    objective is the plain mean of ρ A.
    """
    random = np.random.default_rng(0)
    old = np.full(4, 0.25)
    action = random.integers(4, size=32)
    reward = np.array([0.0, 0.1, 0.2, 0.3])[action] + random.normal(0, 1, 32)
    advantage = (reward - reward.mean()) / reward.std()
    logits, found = np.zeros(4), []
    for _ in range(steps):
        policy = np.exp(logits) / np.exp(logits).sum()
        ratio = (policy / old)[action]
        counts = np.ones(32)
        if clip:
            outside = np.where(advantage > 0, ratio > 1 + clip, ratio < 1 - clip)
            counts = (~outside).astype(float)
        chosen = np.eye(4)[action]
        logits = logits + rate * np.mean((counts * advantage * ratio)[:, None] * (chosen - policy), axis=0)
        found.append(float(np.sum(old * np.log(old / (np.exp(logits) / np.exp(logits).sum())))))
    return found


def without() -> str:
    """How far the policy goes from the one that collected, with the clip and without."""
    d = Drawing(
        620,
        270,
        "Divergence of the policy with and without the clip",
    )
    plot = Plot(d, 66, 34, 400, 180, (0, 400), (0.0, 4.0))
    plot.axes(
        (0, 100, 200, 300, 400),
        (0, 1, 2, 3, 4),
        "steps uphill on the same 32 samples",
        "KL divergence from the policy that collected",
    )
    for clip, words, ink in (
        (0.0, "no clip", "ink-target"),
        (0.2, "ε = 0.2", "ink-critic"),
        (0.1, "ε = 0.1", "ink-reward"),
    ):
        found = rounds(clip)
        plot.curve([(i + 1, min(found[i], 4.0)) for i in range(0, 400, 4)], ink)
        x, y = plot.at(400, min(found[-1], 4.0))
        d.text(x + 8, y + (8 if clip == 0.1 else -3 if clip else 4), words, f"{ink} strong", "start", size=12.5)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- what λ trades
GAMMA, STATES, CENTER = 0.99, 7, 3
LAMBDAS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0)


def walk_values() -> np.ndarray:
    """True values of a random walk over seven states in a row; 1 is paid behind its right end, 0 behind the left."""
    following, paid = np.zeros((STATES, STATES)), np.zeros(STATES)
    for state in range(STATES):
        for reached in (state - 1, state + 1):
            if 0 <= reached < STATES:
                following[state, reached] += 0.5
            elif reached == STATES:
                paid[state] += 0.5
    return np.linalg.solve(np.eye(STATES) - GAMMA * following, paid)


@cache
def trade(episodes: int = 4000, longest: int = 300) -> dict[float, tuple[float, float]]:
    """For each λ bias and standard deviation of A + V as an estimate of Q(center, right).

    The value function that the estimates lean on is wrong: it says 0.5 everywhere.
    """
    random, truth = np.random.default_rng(0), walk_values()
    state = np.full(episodes, CENTER)
    over = np.zeros(episodes, bool)
    reward = np.zeros((longest, episodes))
    terminated = np.zeros((longest, episodes), bool)
    for t in range(longest):
        move = np.where(random.random(episodes) < 0.5, -1, 1) if t else np.ones(episodes, int)
        state = np.where(over, state, state + move)
        ends = ~over & ((state < 0) | (state >= STATES))
        reward[t] = ends & (state == STATES)
        terminated[t] = ends | over
        over |= ends
    value = np.full((longest, episodes), 0.5)
    quality = GAMMA * truth[CENTER + 1]
    found = {}
    for trace in LAMBDAS:
        advantage = generalized_advantages(reward, value, value, terminated, np.zeros_like(terminated), GAMMA, trace)
        estimate = advantage[0] + 0.5
        found[trace] = float(estimate.mean() - quality), float(estimate.std())
    return found


def bias_and_variance() -> str:
    """Bias, spread, and both together over λ."""
    d = Drawing(620, 290, "Bias and spread of the advantage over λ")
    plot = Plot(d, 66, 34, 400, 200, (0.0, 1.0), (0.0, 0.12))
    plot.axes((0, 0.2, 0.4, 0.6, 0.8, 1), (0, 0.04, 0.08, 0.12), "λ", "error of the estimate")
    measured = trade()
    spread = {trace: std for trace, (_, std) in measured.items()}
    bias = {trace: abs(off) for trace, (off, _) in measured.items()}
    both = {trace: (bias[trace] ** 2 + spread[trace] ** 2 / SAMPLES) ** 0.5 for trace in LAMBDAS}
    spread = {trace: std / SAMPLES**0.5 for trace, std in spread.items()}
    for values, words, ink, shift in (
        (bias, "bias", "ink-target", 4),
        (spread, f"spread, {SAMPLES} samples", "ink-critic", 10),
        (both, "both", "ink-actor", -6),
    ):
        plot.curve(list(values.items()), ink)
        for point in values.items():
            d.dot(*plot.at(*point), ink, 3)
        x, y = plot.at(1.0, values[1.0])
        d.text(x + 9, y + shift, words, f"{ink} strong", "start", size=12)
    return d.svg()


SAMPLES = 16  # of a state in a rollout: their mean is what a step of learning goes by


# ---------------------------------------------------------------------------------------------------- steps
def rollout() -> str:
    """Four environments, eight steps; where episodes end."""
    d = Drawing(
        WIDTH,
        HEIGHT,
        "A rollout of four environments and eight steps",
    )
    ends = {(0, 4): "terminated", (2, 2): "truncated", (3, 6): "terminated"}
    for env in range(4):
        for t in range(8):
            x, y = 66 + 33 * t, 40 + 32 * env
            d.box(
                x,
                y,
                29,
                24,
                "",
                {"terminated": "ink-target", "truncated": "ink-critic"}.get(ends.get((env, t), ""), "quiet"),
            )
        d.text(40, 45 + 32 * env, f"{env}", "faint", "end", size=11.5)
    d.text(28, 18, "environment", "faint", "start", size=11.5)
    d.arrow([(66, 168), (300, 168)], "quiet")
    d.text(184, 186, "T steps", "faint", size=11.5)
    return d.svg()


def deltas() -> str:
    """An advantage is a sum of TD errors that fade by γλ."""
    d = Drawing(WIDTH, HEIGHT, "An advantage is a decaying sum of TD errors")
    decay = 0.9 * 0.8
    for k in range(8):
        x, weight = 50 + 35 * k, decay**k
        d.add("rect", "box ink-target", x=x - 12, y=140 - 90 * weight, width=24, height=90 * weight)
        d.text(x, 158, f"δ_{{t+{k}}}" if k else "δ_t", "", size=12)
    d.text(WIDTH / 2, 26, "weights 1, 0.72, 0.72², 0.72³ …", "ink-target", size=13)
    d.text(WIDTH / 2, 186, "γλ = 0.9 · 0.8; none beyond the end of the episode", "faint", size=11.5)
    return d.svg()


def probabilities() -> str:
    """The example's first row."""
    d = Drawing(WIDTH, HEIGHT, "Probabilities 0.25 and 0.3: a ratio of 1.2")
    for x, words, shares in ((90, "π_{old}", (0.25, 0.35, 0.4)), (250, "π", (0.3, 0.33, 0.37))):
        for j, share in enumerate(shares):
            left, height = x - 54 + 38 * j, 240 * share
            ink = "ink-actor" if j == 0 else "quiet"
            d.add("rect", f"box {ink}", x=left, y=140 - height, width=32, height=height)
            if j == 0:
                d.text(left + 16, 132 - height, f"{share:g}", "ink-actor strong", size=12.5)
        d.text(x, 160, words, "", size=14)
    d.arrow([(150, 100), (184, 100)])
    d.text(WIDTH / 2, 188, "ρ = 0.3 / 0.25 = 1.2", "ink-target strong")
    return d.svg()


def minibatches() -> str:
    """Shuffled, and cut into four."""
    d = Drawing(WIDTH, HEIGHT, "Each epoch shuffles all steps into minibatches")
    random, inks = np.random.default_rng(1), ("ink-actor", "ink-critic", "ink-reward", "ink-noise")
    for epoch in range(3):
        y = 36 + 52 * epoch
        order = random.permutation(16)
        d.text(52, y + 5, f"epoch {epoch + 1}", "faint", "end", size=11.5)
        for place, row in enumerate(order):
            x = 72 + 16 * place + 4 * (place // 4)
            d.box(x, y, 15, 26, "", inks[place // 4])
            d.text(x, y + 4, str(row), "", size=9)
    d.text(WIDTH / 2, 188, "16 steps, 4 minibatches, 3 epochs: 12 updates", "faint", size=11.5)
    return d.svg()


def value_clip() -> str:
    """Row 2 of the example: V_old 2, V 2.5, R 2.2, ε .1."""
    d = Drawing(WIDTH, HEIGHT, "Two squared errors; the larger one counts")
    plot = Plot(d, 30, 20, 280, 100, (1.8, 2.7), (0.0, 1.0))
    x0, y0 = plot.at(1.8, 0)
    d.line([(x0, y0), (plot.right, y0)], "axis")
    for at, words, ink, up in (
        (2.0, "V_{old}", "ink-state", 0),
        (2.1, "clipped", "ink-noise", 1),
        (2.2, "R", "ink-reward", 0),
        (2.5, "V", "ink-critic", 0),
    ):
        x, y = plot.at(at, 0)
        d.dot(x, y, ink, 5)
        d.text(x, y - 14 - 22 * up, words, f"{ink} strong", size=12)
        d.text(x, y + 20, f"{at:g}", "faint", size=11)
    d.text(WIDTH / 2, 166, "(2.5 − 2.2)² = 0.09,  (2.1 − 2.2)² = 0.01", "", size=12.5)
    d.text(WIDTH / 2, 188, "the larger counts: 0.09", "ink-target strong", size=12.5)
    return d.svg()


def entropies() -> str:
    """A policy that is sure, and one that is not."""
    d = Drawing(WIDTH, HEIGHT, "Entropy of a uniform and a certain policy")
    for x, shares in ((90, (0.25, 0.25, 0.25, 0.25)), (250, (0.91, 0.03, 0.03, 0.03))):
        for j, share in enumerate(shares):
            d.add("rect", "box ink-actor", x=x - 58 + 30 * j, y=140 - 110 * share, width=25, height=110 * share)
        entropy = -sum(share * np.log(share) for share in shares)
        d.text(x, 164, f"H = {entropy:.2f}", "ink-actor strong")
    d.text(WIDTH / 2, 190, "the bonus favors high entropy", "faint", size=11.5)
    return d.svg()


def schedule() -> str:
    """Learning rate over a run."""
    d = Drawing(
        WIDTH,
        HEIGHT,
        "The learning rate decays linearly to 0",
    )
    plot = Plot(d, 60, 26, 240, 120, (0.0, 1.0), (0.0, 2.6e-4))
    plot.axes((0, 0.5, 1), (0, 1e-4, 2e-4), "progress of the run", "learning rate, preset atari")
    plot.curve([(0, 2.5e-4), (1, 0)], "ink-critic")
    return d.svg()


REWARD, VALUE = (1.0, 2.0, 3.0, 4.0), (0.5, 1.0, 1.5, 2.0)
NEXT, TERMINATED, TRUNCATED = (1.0, 0.0, 2.5, 3.0), (False, True, False, False), (False, False, True, False)


def example(trace: float = 0.8) -> np.ndarray:
    """Return the advantages of four steps: the second terminates, the third is truncated; γ = 0.9."""
    columns = (np.array(column) for column in (REWARD, VALUE, NEXT, TERMINATED, TRUNCATED))
    return generalized_advantages(*columns, 0.9, trace)


def _rows(words: str, values: tuple[tuple[str, Any, str], ...]) -> tuple[Drawing, float]:
    """Return a drawing with rows of four numbers, and the y coordinate below them."""
    d = Drawing(WIDTH, HEIGHT, words)
    for t in range(4):
        d.text(120 + 62 * t, 34, f"t = {t}", "faint", size=11.5)
    for row, (name, numbers, ink) in enumerate(values):
        y = 66 + 38 * row
        d.text(70, y + 5, name, f"{ink} strong", "end", size=13)
        for t in range(4):
            d.box(120 + 62 * t, y, 56, 28, f"{numbers[t]:.3g}", ink)
    return d, 66 + 38 * len(values)


def values_line() -> str:
    """Step 2: rewards, values and the TD errors of the example."""
    d, y = _rows(
        "Rewards, values and TD errors of four steps",
        (("r", REWARD, "ink-reward"), ("V", VALUE, "ink-critic"), ("δ", example(0.0), "ink-target")),
    )
    d.text(WIDTH / 2, y + 6, "terminated at t = 1, truncated at t = 2, γ = 0.9", "faint", size=11.5)
    return d.svg()


def returns_line() -> str:
    """Step 4: advantages and returns of the example."""
    advantage = example()
    d, y = _rows(
        "Returns are advantages plus values",
        (("A", advantage, "ink-target"), ("V", VALUE, "ink-critic"), ("R", advantage + np.array(VALUE), "ink-reward")),
    )
    d.text(WIDTH / 2, y + 6, "λ = 0.8: 1.4 + 0.72 · 1 = 2.12, and so on", "faint", size=11.5)
    return d.svg()


def normalized() -> str:
    """Step 7: the example's advantages."""
    advantage = np.array([1.0, -1.0, 2.0, -2.0])
    scaled = (advantage - advantage.mean()) / advantage.std(ddof=1)
    d, y = _rows(
        "Advantages before and after normalization",
        (("A", advantage, "ink-target"), ("Â", scaled, "ink-target")),
    )
    d.text(WIDTH / 2, y + 6, f"mean 0, std {advantage.std(ddof=1):.4g}", "faint", size=11.5)
    return d.svg()


def clip_small() -> str:
    """Step 8: the objective for A = 1 and A = -1 in one picture."""
    d = Drawing(WIDTH, HEIGHT, "The clipped objective for A = 1 and A = −1")
    plot = Plot(d, 44, 20, 260, 140, (0.4, 1.6), (-1.7, 1.7))
    plot.axes((0.8, 1.0, 1.2), (-1, 0, 1), "ratio ρ", "")
    for end in (1 - CLIP, 1 + CLIP):
        d.line([plot.at(end, -1.7), plot.at(end, 1.7)], "thin quiet dashed")
    for advantage, words in ((1.0, "A = 1"), (-1.0, "A = −1")):
        _objective(plot, advantage)
        x, y = plot.at(0.46, surrogate(0.46, advantage))
        d.text(x, y + (-12 if advantage > 0 else 18), words, "ink-target", "start", size=12)
    return d.svg()
