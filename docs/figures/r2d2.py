"""The pictures of the page on R2D2: sequences, states, the scale h, priorities; and what DQN does without a memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from drawing import Drawing, Plot
from learned import banded
from td3 import number

from duetto.algorithms import R2D2
from duetto.buffers.sequences import completed_sequences
from duetto.functional.priorities import sequence_priority
from duetto.functional.q_values import rescale, unrescale

WIDTH, HEIGHT = 340, 200

# The example: rewards of three steps, what the target network says afterwards, and what Q(s, a) is; on the scale h.
REWARDS, GAMMA, NEXT, VALUE, EPSILON = (1.0, 2.0, 3.0), 0.9, 2.0, 1.0, 1e-3
RETURN = sum(GAMMA**k * reward for k, reward in enumerate(REWARDS))
BEHIND = float(unrescale(np.array(NEXT), EPSILON))
SUM = RETURN + GAMMA**3 * BEHIND
_nets = SimpleNamespace(q=lambda obs: np.array([[0.0, 1.0]]), target_q=lambda obs: np.array([[9.0, NEXT]]))
TARGET = float(R2D2().target(_nets, np.array([RETURN]), np.array([GAMMA**3]), "s'")[0])
ERROR = VALUE - TARGET
ERRORS = np.array([[0.1, 0.5, 0.2]])  # |δ| of a sequence's steps
PRIORITY = float(sequence_priority(ERRORS, np.ones((1, 3)), 0.9)[0])

# A state that halves and takes in what it sees: h ← h / 2 + x; true before the sequence, stored long ago, and zero.
SEEN, STARTS = (1.0, 2.0, 3.0, 4.0), (("the true state", 10.0), ("stored", 6.0), ("zeros", 0.0))


def toy(state: float) -> list[float]:
    """The states of the small example after each step, the first one too."""
    found = [state]
    for seen in SEEN:
        found.append(found[-1] / 2 + seen)
    return found


def idea() -> str:
    """An episode, the state that runs along it, and a sequence of it that is learned from."""
    d = Drawing(790, 300, "Acting with a hidden state, and learning from a sequence with its stored state")
    for i in range(9):
        x = 60 + 78 * i
        d.box(x, 60, 50, 34, f"o_{i}", "ink-state")
        d.arrow([(x, 78), (x, 101)], "ink-state")
        d.box(x, 120, 50, 36, "", "ink-critic")
        d.text(x, 125, f"Q_{i}", "ink-critic")
        if i < 8:
            d.arrow([(x + 26, 120), (x + 52, 120)], "ink-critic")
    d.text(725, 125, "acting", "faint", "start", size=11.5)
    d.text(60 + 78 * 2 - 39, 100, "h_2", "ink-critic strong", size=12)
    d.line([(60 + 78 * 2 - 39, 126), (60 + 78 * 2 - 39, 214)], "ink-critic dashed")
    d.dot(60 + 78 * 2 - 39, 222, "ink-critic", 6)
    d.text(60 + 78 * 2 - 52, 226, "stored", "ink-critic strong", "end", size=12)
    for i in range(2, 8):
        x, burning = 60 + 78 * i, i < 4
        d.box(x, 222, 50, 36, "", "quiet" if burning else "ink-target")
        d.text(x, 227, f"Q_{i}", "quiet" if burning else "ink-target")
        d.arrow([(x - 52 if i > 2 else x - 32, 222), (x - 27, 222)], "quiet" if burning else "ink-target")
    for first, last, words, ink in ((2, 3, "burn-in", "quiet"), (4, 7, "learned from", "ink-target")):
        left, right = 60 + 78 * first - 25, 60 + 78 * last + 25
        d.line([(left, 254), (left, 260), (right, 260), (right, 254)], ink)
        d.text((left + right) / 2, 279, words, "faint" if ink == "quiet" else f"{ink} strong", size=12.5)
    d.text(725, 227, "learning", "faint", "start", size=11.5)
    return d.svg()


def memory() -> str:
    """R2D2 and DQN on MemoryS9."""
    d = Drawing(680, 300, "MemoryS9: R2D2 reaches a return near 1, DQN one half")
    plot = Plot(d, 60, 34, 520, 210, (0, 400_000), (0.0, 1.0))
    plot.axes((0, 100_000, 200_000, 300_000, 400_000), (0, 0.25, 0.5, 0.75, 1), "steps", "mean return of 50 episodes")
    for run, words, ink in (("r2d2-memory", "R2D2", "ink-critic"), ("dqn-memory", "DQN", "ink-target")):
        banded(d, plot, run, words, ink)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- steps
def state() -> str:
    """Step 1: inputs and outputs of one step of the network."""
    d = Drawing(WIDTH, 190, "Inputs and outputs of the recurrent network")
    d.box(185, 95, 86, 60, "recurrent", "ink-critic", more="network")
    for i, (words, ink) in enumerate((("o_t", "ink-state"), ("a_{t−1}", "ink-actor"), ("r_{t−1}", "ink-reward"))):
        y = 50 + 45 * i
        d.text(56, y + 5, words, f"{ink} strong", "end", size=13.5)
        d.arrow([(64, y), (140, 78 + 17 * i)], ink)
    d.text(185, 172, "h_t", "ink-critic strong", size=13.5)
    d.arrow([(185, 156), (185, 128)], "ink-critic")
    d.arrow([(230, 80), (275, 60)], "ink-critic")
    d.text(282, 60, "Q(·)", "ink-critic strong", "start", size=13.5)
    d.arrow([(230, 108), (275, 128)], "ink-critic")
    d.text(282, 136, "h_{t+1}", "ink-critic strong", "start", size=13.5)
    return d.svg()


def cuts(steps: int, length: int, overlap: int) -> list[tuple[int, int]]:
    """First step and number of steps of each sequence of an episode."""
    found: list[tuple[int, int]] = []
    for t in range(1, steps + 1):
        complete, start, real = completed_sequences(np.array([t]), np.array([t == steps]), length, overlap)
        if complete[0]:
            found.append((int(start[0]), int(real[0])))
    return found


def sequences() -> str:
    """Step 2: an episode of 13 steps, sequences of 8 that share 4."""
    found = cuts(13, 8, 4)
    d = Drawing(WIDTH, 190, f"An episode of 13 steps has {len(found)} sequences; the last one has {found[-1][1]} steps")
    for t in range(13):
        d.box(46 + 21 * t, 36, 18, 22, "", "ink-state")
    d.text(WIDTH / 2, 17, "13 steps of one episode", "faint", size=11.5)
    for i, (start, real) in enumerate(found):
        y = 76 + 34 * i
        for k in range(real):
            d.box(46 + 21 * (start + k), y, 18, 22, "", "ink-critic")
        d.dot(46 + 21 * start - 13, y, "ink-critic", 3.5)
    d.text(WIDTH / 2, 180, "dots: where a state is stored", "faint", size=11.5)
    return d.svg()


def stored() -> str:
    """Step 3: the stored hidden state of a sequence."""
    d = Drawing(WIDTH, 170, "Only the state before the first step is stored")
    d.dot(40, 70, "ink-critic", 8)
    d.text(40, 104, "h", "ink-critic strong", size=13)
    d.text(40, 122, "stored", "ink-critic", size=11.5)
    for i in range(6):
        x = 92 + 42 * i
        d.box(x, 70, 34, 34, f"o_{i}", "ink-state")
        if i:
            d.add("circle", "box cell quiet", cx=x - 21, cy=104, r=4)
    d.arrow([(50, 70), (73, 70)], "ink-critic")
    d.text(206, 128, "recomputed by the current network", "faint", size=11.5)
    return d.svg()


def burn_in() -> str:
    """Step 4: the toy state from three beginnings."""
    d = Drawing(WIDTH, 220, "Different initial states of the toy network converge")
    plot = Plot(d, 34, 22, 160, 150, (0, 4), (0.0, 10.5))
    plot.axes((0, 1, 2, 3, 4), (0, 5, 10), "steps", "")
    for (words, first), ink, shift in zip(STARTS, ("ink-critic", "ink-noise", "ink-target"), (-12, 3, 18), strict=True):
        path = toy(first)
        plot.curve(list(enumerate(path)), ink)
        for point in enumerate(path):
            d.dot(*plot.at(*point), ink, 3)
        x, y = plot.at(4, path[-1])
        d.text(x + 8, y + shift, f"{words}: {number(path[-1])}", f"{ink} strong", "start", size=11)
    return d.svg()


def n_steps() -> str:
    """Step 5: windows near a sequence's end."""
    d = Drawing(WIDTH, 190, "Each step sums five rewards, fewer near the end of the sequence")
    for t in range(8):
        d.box(44 + 36 * t, 34, 28, 26, str(t), "ink-state")
    for row, (t, n) in enumerate(((0, 5), (3, 5), (5, 3), (7, 1))):
        y = 72 + 26 * row
        d.arrow([(44 + 36 * t, y), (44 + 36 * (t + n) - (0 if t + n < 8 else 14), y)], "ink-reward")
        d.dot(44 + 36 * t, y, "ink-reward", 3.5)
        if t:
            d.text(44 + 36 * t - 8, y + 4, f"n′ = {n}", "ink-reward", "end", size=11)
    d.text(WIDTH / 2, 182, "a sequence of 8 steps, n = 5", "faint", size=11.5)
    return d.svg()


def scale() -> str:
    """Step 6: h, from small to large."""
    d = Drawing(WIDTH, 220, "h is linear near 0 and a square root elsewhere: h(1,000) is 32")
    plot = Plot(d, 48, 24, 190, 140, (-1000.0, 1000.0), (-35.0, 35.0))
    plot.axes((-1000, 0, 1000), (-30, 0, 30), "x", "h(x)")
    plot.curve([(float(x), float(rescale(np.array(x), EPSILON))) for x in np.linspace(-1000, 1000, 401)], "ink-target")
    for i, x in enumerate((1.0, 10.0, 100.0, 1000.0)):
        value = float(rescale(np.array(x), EPSILON))
        d.text(WIDTH - 6, 60 + 22 * i, f"h({number(x)}) = {value:.2f}", "ink-target", "end", size=11.5)
    return d.svg()


def cost(size: float, scaled: bool) -> float:
    """Squared error of a prediction that is off by 1 % of a return."""
    one, other = np.array(size), np.array(1.01 * size)
    return float((rescale(other, EPSILON) - rescale(one, EPSILON)) ** 2 if scaled else (other - one) ** 2)


def target() -> str:
    """Step 7: off the scale, summed, back on it."""
    d = Drawing(WIDTH, 210, f"The value is {BEHIND:.3f}, the return {SUM:.3f}, the target {TARGET:.3f}")
    d.box(80, 40, 110, 34, f"Q′ = {number(NEXT)}", "ink-critic dashed")
    d.arrow([(138, 40), (198, 40)], "ink-critic")
    d.text(168, 30, "h^{−1}", "ink-critic", size=12)
    d.box(262, 40, 120, 34, f"{BEHIND:.4f}", "ink-critic dashed")
    d.arrow([(262, 60), (262, 88)], "ink-critic")
    d.text(254, 79, "· 0.729", "faint", "end", size=11.5)
    d.box(200, 108, 252, 36, f"R + γ³ · … = {number(RETURN)} + {GAMMA**3 * BEHIND:.3f}", "ink-reward")
    d.arrow([(200, 128), (200, 160)], "ink-target")
    d.text(210, 149, "h", "ink-target", "start", size=12)
    d.box(200, 180, 130, 36, f"y = {TARGET:.4f}", "ink-target")
    return d.svg()


def loss() -> str:
    """Step 8: which steps count."""
    d = Drawing(WIDTH, 180, "Burn-in and padding have the mask 0")
    rows = (("middle", (0, 0, 1, 1, 1, 1)), ("first, short", (1, 1, 1, 1, 0, 0)))
    for row, (words, mask) in enumerate(rows):
        y = 56 + 62 * row
        d.text(88, y + 4, words, "faint", "end", size=11.5)
        for i, counts in enumerate(mask):
            d.box(114 + 36 * i, y, 30, 30, str(counts), "ink-target" if counts else "quiet")
    d.text(WIDTH / 2, 24, "mask, burn-in 2 and unroll 4", "faint", size=11.5)
    d.text(WIDTH / 2, 166, "4 steps count in each: a mean, not a sum", "faint", size=11.5)
    return d.svg()


def priority() -> str:
    """Step 9: the mix of the largest error and the mean one."""
    d = Drawing(WIDTH, 190, f"Errors 0.1, 0.5 and 0.2 give the priority {PRIORITY:.4f}")
    plot = Plot(d, 44, 24, 160, 130, (0.0, 4.0), (0.0, 0.6))
    plot.axes((), (0, 0.2, 0.4), "steps", "|δ|")
    for i, error in enumerate(ERRORS[0]):
        x, y = plot.at(i + 1, float(error))
        d.add("rect", "box ink-critic", x=x - 13, y=y, width=26, height=plot.bottom - y)
    mean = float(ERRORS.mean())
    lines = (
        ("max", 0.5, "ink-critic", -4),
        ("mean", mean, "ink-critic dashed", 4),
        ("priority", PRIORITY, "ink-target", 16),
    )
    for words, value, ink, shift in lines:
        d.line([plot.at(0.2, value), plot.at(4.0, value)], f"{ink} thin")
        x, y = plot.at(4.0, value)
        d.text(x + 6, y + shift, f"{words} {value:.3f}", f"{ink.split()[0]} strong", "start", size=11.5)
    return d.svg()
