"""The pictures of the page on TD3. One example runs through all of them; Duetto's own functions compute its numbers."""

from __future__ import annotations

from itertools import pairwise
from math import exp, pi, sqrt

import numpy as np
from drawing import Drawing, Plot

from duetto.algorithms import TD3
from duetto.functional.returns import bootstrap, smoothed_action

WIDTH, HEIGHT = 340, 200
OPTIONS = TD3()
GAMMA = OPTIONS.discount

# One transition: the reward, the action that was taken, what the target actor says in s', and a normal number.
REWARD, TAKEN, NEXT, NORMAL = 1.0, 0.5, 0.3, 3.5
NOISE = OPTIONS.target_noise * NORMAL
CLIPPED = float(np.clip(NOISE, *OPTIONS.target_noise_clip))
SMOOTHED = float(
    smoothed_action(np.array([[NEXT]]), np.array([[NORMAL]]), OPTIONS.target_noise, *OPTIONS.target_noise_clip)[0, 0]
)


def first(action: float) -> float:
    """Q_1 of the example, at every state."""
    return 10.0 + 2.0 * action


def second(action: float) -> float:
    """Q_2."""
    return 12.0 - action


LOWER = min(first(SMOOTHED), second(SMOOTHED))
TARGET = float(bootstrap(np.array([REWARD]), np.array([GAMMA]), np.array([LOWER]))[0])
ERRORS = (first(TAKEN) - TARGET, second(TAKEN) - TARGET)
LOSS = sum(error**2 for error in ERRORS)


def number(value: float, digits: int = 3) -> str:
    """As the pictures write it."""
    return f"{value:.{digits}f}".rstrip("0").rstrip(".").replace("-", "−")


# ---------------------------------------------------------------------------------------------------- the idea
def idea() -> str:
    """DDPG's loop, and where TD3 changes it."""
    d = Drawing(700, 318, "Data flow of TD3 and its three changes")
    d.box(80, 60, 120, 44, "replay buffer", "ink-state", more="(s, a, r, γ, s′)")
    d.box(270, 60, 130, 44, "target actor", "ink-actor dashed", more="μ′(s′)")
    d.box(430, 60, 110, 44, "+ noise", "ink-noise", more="clipped to ±0.5")
    d.box(600, 60, 150, 44, "target critics", "ink-critic dashed", more="Q_1′ and Q_2′")
    d.box(600, 160, 150, 44, "minimum", "ink-critic", more="min(Q_1′, Q_2′)")
    d.box(430, 160, 110, 44, "target", "ink-target", more="y = r + γ min")
    d.box(270, 160, 130, 44, "two critics", "ink-critic", more="(Q_1 − y)² + (Q_2 − y)²")
    d.box(270, 268, 130, 44, "actor", "ink-actor", more="maximizes Q_1(s, μ(s))")
    d.box(600, 268, 150, 44, "target networks", "ink-state dashed", more="μ′, Q_1′, Q_2′")
    d.arrow([(140, 60), (205, 60)])
    d.arrow([(335, 60), (375, 60)])
    d.arrow([(485, 60), (525, 60)])
    d.arrow([(600, 82), (600, 138)])
    d.arrow([(525, 160), (485, 160)])
    d.arrow([(375, 160), (335, 160)])
    d.arrow([(60, 82), (60, 160), (205, 160)])
    d.arrow([(100, 82), (100, 112), (430, 112), (430, 138)])
    d.arrow([(270, 182), (270, 246)])
    d.arrow([(335, 268), (525, 268)])
    d.text(132, 150, "s, a", "faint", size=11)
    d.text(320, 105, "r, γ", "faint", size=11)
    d.text(356, 150, "y", "faint", size=11)
    d.text(172, 50, "s′", "faint", size=11)
    d.text(300, 218, "every second update", "strong", "start", size=12)
    d.text(430, 256, "with the actor", "faint", size=11)
    for x, y, mark in ((662, 125, "1"), (430, 24, "2"), (283, 218, "3")):
        d.add("circle", "box ink-target", cx=x, cy=y - 4, r=10)
        d.text(x, y + 1, mark, "ink-target strong", size=13)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- fifteen steps
def memory() -> str:
    """Step 1: a ring of eight rows that was written to eleven times."""
    d = Drawing(WIDTH, HEIGHT, "A replay buffer: the newest rows overwrite the oldest")
    rows, written = 8, 11
    held = [max(n for n in range(written) if n % rows == slot) for slot in range(rows)]
    for slot, transition in enumerate(held):
        x = 30 + 40 * slot
        new = transition >= rows
        d.box(x, 95, 36, 44, str(transition), "ink-target" if new else "ink-state")
        d.text(x, 134, str(slot), "faint", size=10.5)
    x = 30 + 40 * (written % rows)
    d.arrow([(x, 38), (x, 70)], "ink-target")
    d.text(x, 28, f"transition {written} overwrites {held[written % rows]}", "ink-target", size=12)
    d.text(WIDTH / 2, 160, "row = number of the transition mod 8", "faint", size=11.5)
    d.text(WIDTH / 2, 180, "each: s, a, r, s′, terminated?, truncated?", "faint", size=11.5)
    return d.svg()


def _layers(d: Drawing, left: float, middle: float, inks: list[str], names: list[str], gap: float = 66) -> None:
    """Columns of units, joined."""
    sizes = [3, 5, 4, 1]
    columns = [
        [(left + gap * i, middle + (j - (size - 1) / 2) * 22) for j in range(size)] for i, size in enumerate(sizes)
    ]
    for one, other in pairwise(columns):
        for a in one:
            for b in other:
                d.line([a, b], "thin quiet")
    for i, column in enumerate(columns):
        for x, y in column:
            d.dot(x, y, inks[i], 6)
        d.text(left + gap * i, middle + 76, names[i], "faint", size=11)


def actor() -> str:
    """Step 2."""
    d = Drawing(WIDTH, HEIGHT, "The actor: observation, 400 units, 300 units, tanh")
    _layers(d, 60, 90, ["ink-state", "ink-actor", "ink-actor", "ink-actor"], ["s", "400, ReLU", "300, ReLU", "tanh"])
    d.arrow([(266, 90), (296, 90)], "ink-actor")
    d.text(318, 95, "μ(s)", "ink-actor strong")
    d.text(WIDTH / 2, 192, "one number in [−1, 1] for each dimension of the action", "faint", size=11.5)
    return d.svg()


def target_actor() -> str:
    """Step 14."""
    d = Drawing(WIDTH, HEIGHT, "The actor, trained, and its target")
    d.box(95, 55, 130, 50, "actor μ", "ink-actor", more="gradient steps")
    d.box(95, 150, 130, 50, "target μ′", "ink-actor dashed", more="no gradients")
    d.arrow([(95, 80), (95, 123)], "ink-actor")
    d.text(107, 107, f"first a copy, then by τ = {OPTIONS.tau:g}", "faint", "start", size=11.5)
    d.arrow([(162, 55), (215, 55)])
    d.text(222, 59, "acts", "", "start")
    d.arrow([(162, 150), (215, 150)])
    d.text(222, 154, "next actions", "", "start")
    return d.svg()


def critics() -> str:
    """Step 3."""
    d = Drawing(WIDTH, HEIGHT, "Two critics: state and action in, a value out")
    d.box(45, 60, 56, 36, "s", "ink-state")
    d.box(45, 140, 56, 36, "a", "ink-actor")
    for y, name in ((60, "1"), (140, "2")):
        d.box(175, y, 110, 50, f"critic {name}", "ink-critic", more="400, 300, 1")
        for source in (60, 140):
            d.arrow([(74, source), (118, y + (source - y) * 0.1)], "quiet")
        d.arrow([(231, y), (268, y)], "ink-critic")
        d.text(274, y + 5, f"Q_{name}(s, a)", "ink-critic strong", "start")
    d.text(WIDTH / 2, 192, "equal in shape, different in their initial weights", "faint", size=11.5)
    return d.svg()


def target_critics() -> str:
    """Before step 4."""
    d = Drawing(WIDTH, HEIGHT, "Three trained networks and their three targets")
    for x, name, ink in ((60, "μ", "ink-actor"), (170, "Q_1", "ink-critic"), (280, "Q_2", "ink-critic")):
        d.box(x, 58, 84, 44, name, ink)
        d.box(x, 146, 84, 44, f"{name}′", f"{ink} dashed")
        d.arrow([(x, 82), (x, 122)], ink)
    d.text(12, 24, "trained", "faint", "start", size=11.5)
    d.text(12, 188, "targets", "faint", "start", size=11.5)
    return d.svg()


def batch() -> str:
    """Step 4: rows drawn as the replay buffer draws them."""
    d = Drawing(WIDTH, HEIGHT, "Rows drawn uniformly from the replay buffer")
    drawn = [int(i) for i in np.random.default_rng(0).integers(16, size=4)]
    for i in range(16):
        d.box(26 + 19.2 * i, 28, 16, 26, "", "ink-critic" if i in drawn else "quiet")
        d.text(26 + 19.2 * i, 32, str(i), "ink-critic strong" if i in drawn else "faint", size=9)
    d.arrow([(WIDTH / 2, 46), (WIDTH / 2, 66)], "quiet")
    columns = (("s", "ink-state"), ("a", "ink-actor"), ("r", "ink-reward"), ("γ", "ink-state"), ("s′", "ink-state"))
    for column, (name, ink) in enumerate(columns):
        d.text(98 + 44 * column, 82, name, f"{ink} strong")
        for row in range(len(drawn)):
            d.box(98 + 44 * column, 98 + 21 * row, 38, 16, "", ink)
    for row, i in enumerate(drawn):
        d.text(62, 102 + 21 * row, str(i), "ink-critic strong", "end", size=11)
    d.text(WIDTH / 2, 190, f"4 rows here; {OPTIONS.batch_size} by default; a row may occur twice", "faint", size=11.5)
    return d.svg()


def _action_axis(d: Drawing, y: float) -> Plot:
    plot = Plot(d, 40, y - 10, WIDTH - 80, 10, (-1.0, 1.0), (0.0, 1.0))
    d.line([(plot.left, y), (plot.right, y)], "axis")
    for tick in (-1.0, -0.5, 0.0, 0.5, 1.0):
        x, _ = plot.at(tick, 0)
        d.line([(x, y - 3), (x, y + 4)], "axis")
        d.text(x, y + 18, number(tick), "faint", size=11)
    d.text(plot.right, y + 34, "action", "faint", "end", size=11)
    return plot


def next_action() -> str:
    """Step 5."""
    d = Drawing(WIDTH, HEIGHT, f"The target actor's next action: {NEXT}")
    d.box(60, 60, 64, 40, "s′", "ink-state")
    d.box(190, 60, 110, 44, "target μ′", "ink-actor dashed")
    d.arrow([(93, 60), (133, 60)])
    plot = _action_axis(d, 150)
    x, _ = plot.at(NEXT, 0)
    d.arrow([(x, 84), (x, 142)], "ink-actor")
    d.dot(x, 150, "ink-actor", 5)
    d.text(x + 12, 122, f"μ′(s′) = {number(NEXT)}", "ink-actor strong", "start")
    return d.svg()


def noise() -> str:
    """Step 6: the clipped normal density, and the example's draw."""
    d = Drawing(
        WIDTH,
        236,
        f"Noise {number(NOISE)} is clipped to {number(CLIPPED)}; the action is {number(SMOOTHED)}",
    )
    std, (low, high) = OPTIONS.target_noise, OPTIONS.target_noise_clip
    plot = Plot(d, 40, 20, WIDTH - 80, 90, (-1.0, 1.0), (0.0, 2.2))
    xs = np.linspace(low, high, 41)
    density = [(float(x), exp(-0.5 * (x / std) ** 2) / (std * sqrt(2 * pi))) for x in xs]
    plot.band([x for x, _ in density], [0.0] * len(xs), [y for _, y in density], "ink-noise")
    plot.curve(density, "ink-noise")
    for end in (low, high):
        d.line([plot.at(end, 0), plot.at(end, 1.5)], "ink-noise dashed thin")
    d.line([(plot.left, plot.bottom), (plot.right, plot.bottom)], "axis")
    for tick in (-0.5, 0.0, 0.5):
        d.text(plot.at(tick, 0)[0], plot.bottom + 16, number(tick), "faint", size=11)
    x, y = plot.at(NOISE, 0)
    d.arrow([(x + 1, y - 16), (plot.at(CLIPPED, 0)[0] + 3, y - 16)], "ink-noise")
    d.text(x + 6, y - 12, f"{number(NOISE)}", "ink-noise", "start", size=12)
    d.text(44, 34, "ε, σ = 0.2", "ink-noise strong", "start")
    d.text(plot.right, plot.bottom + 16, "noise", "faint", "end", size=11)
    axis = _action_axis(d, 190)
    start, end = axis.at(NEXT, 0)[0], axis.at(SMOOTHED, 0)[0]
    d.dot(start, 190, "ink-actor", 5)
    d.arrow([(start, 170), (end, 170)], "ink-noise")
    d.dot(end, 190, "ink-target", 5)
    d.text((start + end) / 2, 162, f"+ {number(CLIPPED)}", "ink-noise", size=12)
    d.text(end + 9, 182, f"a′ = {number(SMOOTHED)}", "ink-target strong", "start", size=12)
    return d.svg()


def _values(d: Drawing, prime: str, height: float = 130) -> Plot:
    plot = Plot(d, 46, 24, WIDTH - 100, height, (-1.0, 1.0), (8.0, 13.4))
    plot.axes((-1, 0, 1), (8, 10, 12), "action", "value")
    for value, name in ((first, "1"), (second, "2")):
        plot.curve([(-1.0, value(-1.0)), (1.0, value(1.0))], "ink-critic" + (" dashed" if prime else ""))
        x, y = plot.at(1.0, value(1.0))
        d.text(x + 6, y + 4, f"Q_{name}{prime}", "ink-critic", "start", size=12)
    return plot


def target_values() -> str:
    """Step 7."""
    d = Drawing(
        WIDTH,
        HEIGHT,
        f"The target critics' values: {number(first(SMOOTHED))} and {number(second(SMOOTHED))}",
    )
    plot = _values(d, "′")
    d.line([plot.at(SMOOTHED, 8), plot.at(SMOOTHED, 13)], "ink-target thin dashed")
    d.text(
        plot.at(SMOOTHED, 13)[0], plot.at(SMOOTHED, 13.2)[1] - 2, f"a′ = {number(SMOOTHED)}", "ink-target", size=11.5
    )
    for value, shift in ((first, -8), (second, 16)):
        x, y = plot.at(SMOOTHED, value(SMOOTHED))
        d.dot(x, y, "ink-critic", 4.5)
        d.text(x - 8, y + shift, number(value(SMOOTHED)), "ink-critic strong", "end", size=12.5)
    return d.svg()


def lower_value() -> str:
    """Step 8."""
    d = Drawing(WIDTH, HEIGHT, f"Minimum of both target critics: {number(LOWER)}")
    plot = _values(d, "′")
    crossing = 2.0 / 3.0
    plot.curve([(-1.0, first(-1.0)), (crossing, first(crossing)), (1.0, second(1.0))], "ink-target thick")
    x, y = plot.at(SMOOTHED, LOWER)
    d.dot(x, y, "ink-target", 5.5)
    d.text(x - 6, y + 22, f"{number(LOWER)}", "ink-target strong", "end")
    x, y = plot.at(-0.35, min(first(-0.35), second(-0.35)))
    d.text(x + 10, y + 14, "minimum", "ink-target", "start", size=12)
    return d.svg()


def target() -> str:
    """Step 9."""
    d = Drawing(
        WIDTH,
        HEIGHT,
        f"The target, {number(TARGET)}; if terminated, {number(REWARD)}",
    )
    left, scale = 24, 22.5
    for y, words, discounted in ((58, "not terminated", GAMMA * LOWER), (134, "terminated", 0.0)):
        d.text(left, y - 28, f"{words}: γ = {number(GAMMA if discounted else 0.0)}", "faint", "start", size=11.5)
        d.box(left + REWARD * scale / 2, y, REWARD * scale, 34, "", "ink-reward")
        d.text(left + REWARD * scale / 2, y + 5, "r", "ink-reward strong")
        if discounted:
            d.box(
                left + REWARD * scale + discounted * scale / 2,
                y,
                discounted * scale,
                34,
                f"γ · {number(LOWER)} = {number(discounted)}",
                "ink-critic dashed",
            )
        end = left + (REWARD + discounted) * scale
        d.text(
            end if discounted else end + 10,
            y + (36 if discounted else 5),
            f"y = {number(REWARD + discounted)}",
            "ink-target strong",
            "end" if discounted else "start",
        )
    return d.svg()


def predictions() -> str:
    """Step 10."""
    d = Drawing(
        WIDTH,
        HEIGHT,
        f"Predictions of both critics: {number(first(TAKEN))} and {number(second(TAKEN))}",
    )
    plot = _values(d, "")
    d.line([plot.at(-1, TARGET), plot.at(1, TARGET)], "ink-target dashed thin")
    x, y = plot.at(-1, TARGET)
    d.text(x + 6, y + 16, f"y = {number(TARGET)}", "ink-target", "start", size=12)
    d.line([plot.at(TAKEN, 8), plot.at(TAKEN, 13)], "ink-actor thin dashed")
    d.text(plot.at(TAKEN, 8)[0] - 6, plot.at(TAKEN, 8.4)[1], f"a = {number(TAKEN)}", "ink-actor", "end", size=12)
    for value, shift in ((first, 18), (second, -8)):
        x, y = plot.at(TAKEN, value(TAKEN))
        d.dot(x, y, "ink-critic", 4.5)
        d.text(x + 8, y + shift, number(value(TAKEN)), "ink-critic strong", "start", size=12.5)
    return d.svg()


def _errors(words: str, stepped: bool) -> str:
    """Squared error over the value, and both critics' places on it."""
    d = Drawing(WIDTH, HEIGHT, words)
    plot = Plot(d, 46, 20, WIDTH - 80, 130, (10.6, 13.2), (0.0, 1.5))
    plot.axes((11, 12, 13), (0, 1), "value of Q_1 or Q_2", "(Q − y)²")
    plot.curve([(float(q), (q - TARGET) ** 2) for q in np.linspace(10.9, 13.18, 60)], "ink-target")
    x, bottom = plot.at(TARGET, 0)
    d.line([(x, bottom), (x, plot.top + 20)], "ink-target thin dashed")
    d.text(x, plot.top + 14, "y", "ink-target strong")
    for value, name in ((first, "1"), (second, "2")):
        q = value(TAKEN)
        x, y = plot.at(q, (q - TARGET) ** 2)
        d.dot(x, y, "ink-critic", 5)
        if stepped:
            near = q + 0.28 * (TARGET - q)
            d.arrow([(x, y), plot.at(near, (near - TARGET) ** 2)], "ink-critic")
        words = f"Q_{name}" if stepped else f"Q_{name}: {number((q - TARGET) ** 2)}"
        if name == "1":
            d.text(x + 12, y + 2, words, "ink-critic", "start", size=12)
        else:  # on the side away from the target's line
            d.text(x - 10, y + 18, words, "ink-critic", "end", size=12)
    return d.svg()


def loss() -> str:
    """Step 11: the squared errors of the example."""
    return _errors(f"Squared errors of both critics: {number(LOSS)}", stepped=False)


def critic_step() -> str:
    """Step 12: both critics move."""
    return _errors("Both critics move towards the target", stepped=True)


def actor_step() -> str:
    """Step 13: uphill on Q_1, and the timetable."""
    d = Drawing(WIDTH, 230, "The actor follows the first critic's gradient")
    plot = Plot(d, 46, 20, WIDTH - 100, 96, (-1.0, 1.0), (8.0, 12.6))
    plot.axes((-1, 0, 1), (8, 10, 12), "", "value")
    d.text(plot.at(0.5, 8)[0], plot.bottom + 17, "action", "faint", size=11)
    plot.curve([(-1.0, first(-1.0)), (1.0, first(1.0))], "ink-critic")
    x, y = plot.at(1.0, first(1.0))
    d.text(x + 6, y + 4, "Q_1", "ink-critic", "start", size=12)
    start, end = plot.at(NEXT, first(NEXT)), plot.at(0.72, first(0.72))
    d.dot(*start, "ink-actor", 5)
    d.arrow([(start[0], start[1] - 9), (end[0], end[1] - 9)], "ink-actor")
    d.text(start[0] - 8, start[1] - 8, f"μ(s) = {NEXT}", "ink-actor strong", "end")
    phases = [OPTIONS.phase(update) for update in range(1, 7)]
    d.text(88, 152, "six updates, filled: moves", "faint", "start", size=11)
    for row, name, ink in ((170, "critics", "ink-critic"), (196, "actor", "ink-actor"), (222, "targets", "ink-state")):
        d.text(70, row, name, f"{ink}", "end", size=12)
        for i, phase in enumerate(phases):
            x = 95 + 40 * i
            if name == "critics" or phase == 0:
                d.dot(x, row - 4, ink, 5)
            else:
                d.add("circle", "box quiet", cx=x, cy=row - 4, r=4)
    return d.svg()


def chase(steps: int) -> list[float]:
    """A target weight that starts at 1 and follows an online weight of 2."""
    weights = [1.0]
    for _ in range(steps):
        weights.append(OPTIONS.tau * 2.0 + (1.0 - OPTIONS.tau) * weights[-1])
    return weights


def targets_move() -> str:
    """Step 15."""
    d = Drawing(WIDTH, HEIGHT, "A target weight follows a jump, half-way after 139 moves")
    weights = chase(1000)
    half = next(i for i, weight in enumerate(weights) if weight >= 1.5)
    plot = Plot(d, 46, 24, WIDTH - 80, 124, (0.0, 1000.0), (0.9, 2.1))
    plot.axes((0, 500, 1000), (1, 1.5, 2), "moves of the target", "weight")
    plot.curve([(0, 2.0), (1000, 2.0)], "ink-critic")
    plot.curve([(i, weights[i]) for i in range(0, 1001, 20)], "ink-critic dashed")
    x, y = plot.at(half, 1.5)
    d.line([(plot.left, y), (x, y), (x, plot.bottom)], "thin quiet")
    d.dot(x, y, "ink-critic")
    d.text(x + 9, y + 12, f"half-way after {half}", "ink-critic", "start", size=12)
    d.text(plot.right - 4, plot.at(0, 2.0)[1] - 6, "θ", "ink-critic strong", "end")
    d.text(plot.right - 60, plot.at(0, 1.86)[1] + 4, "θ′", "ink-critic strong", "end")
    return d.svg()
