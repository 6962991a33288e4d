"""The pictures of the page on R2D3: two memories, the coin between them, and the committed runs on KeyCorridor."""

from __future__ import annotations

import csv
from math import comb
from types import SimpleNamespace

import numpy as np
from drawing import Drawing, Plot
from learned import BENCHMARKS, banded

from duetto.algorithms import R2D3
from duetto.algorithms.base import PRIORITY, Batch, OneStep
from duetto.functional.priorities import importance_weights, mass
from duetto.functional.q_values import rescale, unrescale

WIDTH, HEIGHT = 340, 200
BATCH_SIZE, SHARES = 64, (1 / 4, 1 / 16, 1 / 256)

# The example: DQfD's numbers, on R2D2's scale h; one step of a demonstration.
ONLINE = {"s": [[1.0, 2, 1.5]], "s'": [[2.0, 4, 3]], "s'''": [[0.0, 1, 6]]}
TARGETS = {"s'": [[1.5, 3, 5]], "s'''": [[7.0, 8, 9]]}
NETS = SimpleNamespace(q=lambda obs: np.array(ONLINE[obs]), target_q=lambda obs: np.array(TARGETS[obs]))
ONE = np.ones(1)
BATCH = Batch("s", np.array([0]), 5.23 * ONE, 0.729 * ONE, "s'''", ONE, ONE, OneStep(ONE, 0.9 * ONE, "s'"))
_loss, _info = R2D3().loss(NETS, BATCH)
LOSS, N_STEP, PRIORITY_OF = float(_loss), float(_info["target"][0]), float(_info[PRIORITY][0])
ONE_STEP = float(rescale(np.array(1 + 0.9 * unrescale(np.array(3.0), 1e-3)), 1e-3))


def idea() -> str:
    """Two replay buffers, a random choice, a learner."""
    d = Drawing(760, 270, "Each sequence of a batch is a demonstration with probability ρ")
    d.box(110, 70, 180, 54, "demonstrations", "ink-reward", more="never overwritten")
    d.box(110, 200, 180, 54, "own episodes", "ink-state", more="replay buffer")
    d.add("circle", "box ink-noise", cx=320, cy=135, r=32)
    d.text(320, 140, "ρ", "ink-noise strong", size=17)
    d.arrow([(202, 80), (292, 120)], "ink-reward")
    d.arrow([(202, 190), (292, 150)], "ink-state")
    d.text(258, 88, "ρ", "ink-reward strong", size=13)
    d.text(262, 194, "1 − ρ", "ink-state strong", size=13)
    d.arrow([(354, 135), (414, 135)])
    d.box(480, 135, 128, 56, "a batch", "ink-critic", more="64 sequences")
    d.arrow([(546, 135), (606, 135)])
    d.box(676, 135, 136, 56, "R2D2's update", "ink-target", more="with DQfD's losses")
    d.line([(676, 165), (676, 250), (110, 250)], "quiet dashed")
    d.arrow([(110, 250), (110, 230)], "quiet dashed")
    d.line([(676, 105), (676, 22), (110, 22)], "quiet dashed")
    d.arrow([(110, 22), (110, 41)], "quiet dashed")
    d.text(480, 16, "priorities of the demonstrations", "faint", size=11.5)
    d.text(480, 244, "priorities of the own sequences", "faint", size=11.5)
    return d.svg()


def network() -> str:
    """The network: features, LSTM, two streams."""
    d = Drawing(770, 220, "The network: features, an LSTM, and streams for the value and the advantages")
    d.text(48, 65, "observation", "ink-state strong", size=12.5)
    d.arrow([(94, 60), (128, 60)], "ink-state")
    d.box(188, 60, 116, 48, "MLP", "ink-state", more="128, ReLU")
    d.arrow([(248, 66), (314, 94)], "ink-state")
    d.text(272, 115, "previous action, one-hot", "ink-actor strong", "end", size=12.5)
    d.arrow([(280, 110), (312, 110)], "ink-actor")
    d.text(272, 159, "previous reward, tanh", "ink-reward strong", "end", size=12.5)
    d.arrow([(280, 154), (316, 126)], "ink-reward")
    d.box(378, 110, 118, 56, "LSTM", "ink-critic", more="128 units")
    d.line([(438, 124), (452, 124), (452, 176), (378, 176)], "ink-critic dashed")
    d.arrow([(378, 176), (378, 141)], "ink-critic dashed")
    d.text(415, 195, "hidden state of the next step", "faint", size=11.5)
    d.arrow([(438, 98), (486, 68)], "ink-critic")
    d.arrow([(438, 110), (486, 142)], "ink-critic")
    d.box(550, 60, 120, 48, "value V", "ink-target", more="128, then 1")
    d.box(550, 150, 120, 48, "advantages A", "ink-target", more="128, then 7")
    d.arrow([(612, 66), (652, 94)], "ink-target")
    d.arrow([(612, 144), (652, 118)], "ink-target")
    d.box(704, 106, 96, 48, "Q", "ink-target", more="V + A − mean A")
    return d.svg()


def probability(count: int, share: float, size: int = BATCH_SIZE) -> float:
    """That so many of a batch are demonstrations."""
    return comb(size, count) * share**count * (1 - share) ** (size - count)


def shares() -> str:
    """How many demonstrations are in a batch of 64."""
    d = Drawing(740, 250, "Demonstrations in batches of 64, with ρ = 1/4, 1/16 and 1/256")
    for i, share in enumerate(SHARES):
        plot = Plot(d, 44 + 240 * i, 46, 190, 140, (-0.5, 28.5), (0.0, 0.8 if i == 2 else 0.25))
        plot.axes((0, 8, 16, 24), (0, 0.4, 0.8) if i == 2 else (0, 0.1, 0.2), "demonstrations of 64", "")
        d.text(plot.left + 95, 26, f"ρ = 1/{round(1 / share)}", "strong", size=13)
        for count in range(29):
            x, y = plot.at(count, probability(count, share))
            if plot.bottom - y > 0.3:
                d.add("rect", "box ink-reward", x=x - 2.6, y=y, width=5.2, height=plot.bottom - y)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- committed runs
def keycorridor() -> str:
    """R2D3, cloning, DQfD and R2D2."""
    d = Drawing(720, 310, "Returns on KeyCorridor: R2D3, behavior cloning, DQfD and R2D2")
    plot = Plot(d, 60, 34, 480, 220, (0, 100_000), (0.0, 1.0))
    plot.axes((0, 25_000, 50_000, 75_000, 100_000), (0, 0.25, 0.5, 0.75, 1), "steps", "mean return of 50 episodes")
    for run, words, ink in (
        ("keycorridor-r2d3", "R2D3", "ink-critic"),
        ("keycorridor-bc", "cloning", "ink-reward"),
        ("keycorridor-dqfd", "DQfD", "ink-noise"),
        ("keycorridor-r2d2", "R2D2", "ink-target"),
    ):
        banded(d, plot, run, words, ink)
    return d.svg()


def share_runs() -> str:
    """One run for each share."""
    d = Drawing(720, 310, "Returns on KeyCorridor with ρ = 1/4, 1/16, 1/64 and 1/256")
    plot = Plot(d, 60, 34, 480, 220, (0, 100_000), (0.0, 1.0))
    plot.axes((0, 25_000, 50_000, 75_000, 100_000), (0, 0.25, 0.5, 0.75, 1), "steps", "mean return of 50 episodes")
    for run, words, ink, shift in (
        ("keycorridor-r2d3", "1/4", "ink-critic", -9),
        ("keycorridor-share-16", "1/16", "ink-reward", 16),
        ("keycorridor-share-64", "1/64", "ink-noise", 6),
        ("keycorridor-share-256", "1/256 and 0", "ink-target", 2),
    ):
        banded(d, plot, run, words, ink, shift=shift)
    return d.svg()


RUNS = {
    "R2D3, 100 demonstrations, share 1/4": "keycorridor-r2d3",
    "share 1/16": "keycorridor-share-16",
    "share 1/64": "keycorridor-share-64",
    "share 1/256": "keycorridor-share-256",
    "share 0": "keycorridor-share-0",
    "10 demonstrations": "keycorridor-10-demonstrations",
    "1,000 demonstrations": "keycorridor-1000-demonstrations",
    "2,000 updates of pre-training": "keycorridor-pretraining",
    "no weight decay": "keycorridor-no-weight-decay",
    "the paper's loss alone": "keycorridor-paper-losses",
    "behavior cloning": "keycorridor-bc",
    "DQfD, no recurrence": "keycorridor-dqfd",
    "R2D2, no demonstrations": "keycorridor-r2d2",
}


def succeeded(run: str) -> list[float]:
    """Each seed's share of successes among its last episodes: those that were paid at all."""
    found = []
    for folder in sorted((BENCHMARKS / "results" / "learning").glob(f"{run}-s[0-9]")):
        with (folder / "final.csv").open(encoding="utf-8") as file:
            returns = [float(row["return"]) for row in csv.DictReader(file)]
        found.append(sum(one > 0 for one in returns) / len(returns))
    return found


def successes() -> tuple[list[str], list[list[str]]]:
    """A table of all of them."""
    rows = [[words, ", ".join(f"{100 * one:.1f} %" for one in succeeded(run))] for words, run in RUNS.items()]
    return ["KeyCorridorS3R3, 100,000 steps", "success rate of each seed, last 200 episodes"], rows


# ---------------------------------------------------------------------------------------------------- steps
def shown() -> str:
    """Step 1: a demonstration as sequences."""
    d = Drawing(WIDTH, 180, "A demonstration as two sequences, each from a zero state")
    for t in range(10):
        d.box(60 + 26 * t, 40, 22, 24, "", "ink-reward")
    d.text(WIDTH / 2, 18, "an expert's episode", "faint", size=11.5)
    for i, (first, last) in enumerate(((0, 5), (4, 9))):
        y = 86 + 38 * i
        d.text(60 + 26 * first - 17, y + 4, "0", "ink-critic strong", "end", size=12.5)
        for t in range(first, last + 1):
            d.box(60 + 26 * t, y, 22, 24, "", "quiet" if i and t < first + 2 else "ink-critic")
    d.text(WIDTH / 2, 168, "gray: burn-in; 0: initial state", "faint", size=11.5)
    return d.svg()


def coin() -> str:
    """Step 2."""
    d = Drawing(WIDTH, 150, "A batch of six sequences; two are demonstrations")
    for i, kind in enumerate("daadaa"):
        ink = "ink-reward" if kind == "d" else "ink-state"
        d.text(48 + 48 * i, 30, "ρ" if kind == "d" else "1 − ρ", "faint", size=11)
        d.box(48 + 48 * i, 62, 38, 40, kind, ink)
    d.text(WIDTH / 2, 112, "K = 2 of Binomial(6, ρ)", "ink-noise strong", size=13)
    d.text(WIDTH / 2, 136, "d: demonstration, a: agent", "faint", size=11.5)
    return d.svg()


def weights() -> str:
    """Step 3: weights are relative to the least likely of the same memory."""
    d = Drawing(WIDTH, 200, "In both buffers the largest weight is 1")
    for row, (words, priorities, ink) in enumerate(
        (("own", (0.5, 0.3, 0.2), "ink-state"), ("expert", (0.7, 0.3), "ink-reward"))
    ):
        masses = mass(np.array(priorities), 1.0)
        found = importance_weights(masses, float(masses.min()), 0.6)
        y = 58 + 80 * row
        d.text(70, y + 5, words, f"{ink} strong", "end", size=12.5)
        for i, (p, w) in enumerate(zip(priorities, found, strict=True)):
            d.box(116 + 76 * i, y, 64, 34, f"P = {p:g}", ink)
            d.text(116 + 76 * i, y + 34, f"w = {w:.2f}", "ink-critic strong", size=12)
    d.text(WIDTH / 2, 190, "β = 0.6", "faint", size=11.5)
    return d.svg()


def targets() -> str:
    """Step 4."""
    d = Drawing(WIDTH, 170, f"The one-step target is {ONE_STEP:.3f}, the n-step target {N_STEP:.3f}")
    rows = (("y_1", "h(1 + 0.9 · h^{−1}(3))", ONE_STEP), ("y_n", "h(5.23 + 0.729 · h^{−1}(9))", N_STEP))
    for row, (name, words, value) in enumerate(rows):
        y = 46 + 62 * row
        d.text(34, y + 5, name, "ink-target strong", size=13.5)
        d.box(150, y, 188, 36, words, "ink-target")
        d.text(256, y + 5, f"= {value:.4f}", "ink-target strong", "start", size=13)
    d.text(WIDTH / 2, 158, "h^{−1}(9) is about 97", "faint", size=11.5)
    return d.svg()


def losses() -> str:
    """Step 5."""
    d = Drawing(WIDTH, 190, "Own sequences have two errors; demonstrations also the margin")
    rows = (("own", "ink-state", ("δ_n^2", "δ_1^2")), ("expert", "ink-reward", ("δ_n^2", "δ_1^2", "J_E")))
    for row, (words, ink, parts) in enumerate(rows):
        y = 50 + 66 * row
        d.text(76, y + 5, words, f"{ink} strong", "end", size=12.5)
        for i, part in enumerate(parts):
            d.box(124 + 76 * i, y, 62, 38, part, "ink-reward" if part == "J_E" else "ink-target")
            if i:
                d.text(124 + 76 * i - 38, y + 5, "+", size=14)
    d.text(WIDTH / 2, 170, "preset paper: δ_n^2 only", "faint", size=11.5)
    return d.svg()


def back() -> str:
    """Step 6."""
    d = Drawing(WIDTH, 170, "Each priority returns to the buffer of its sequence")
    for i, kind in enumerate("aaaadd"):
        d.box(80 + 36 * i, 40, 30, 34, kind, "ink-reward" if kind == "d" else "ink-state")
    d.box(100, 134, 120, 38, "own", "ink-state")
    d.box(260, 134, 110, 38, "expert", "ink-reward")
    d.arrow([(134, 62), (106, 110)], "ink-state")
    d.arrow([(242, 62), (258, 110)], "ink-reward")
    d.text(170, 94, "p", "faint", size=12.5)
    return d.svg()
