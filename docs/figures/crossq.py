"""The pictures of the page on CrossQ: SAC's example through its losses, and what one batch keeps."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import sac
from drawing import Drawing, Plot
from td3 import number

from duetto.algorithms import CrossQ
from duetto.networks.batch_norm import D_MAX, EPSILON, MOMENTUM, R_MAX, WARM_UP, eval_norm, renormalized, updated_stats

WIDTH, HEIGHT = 340, 200


def critics(obs: np.ndarray, action: np.ndarray, train: bool = False) -> np.ndarray:
    """SAC's example, without a norm: (2, B)."""
    return sac.critics(obs, action)


NETS = SimpleNamespace(actor=sac.policy, critic=critics, log_alpha=np.log(sac.ALPHA))
_loss, _info = CrossQ().critic_loss(NETS, sac.BATCH, sac.NEXT * sac.ONE)
LOSS, TARGET = float(_loss), float(_info["target"][0])

# Rows of a normalization by hand: two current, two next; and running statistics.
DONE, AHEAD, RUNNING = np.array([1.0, 3.0]), np.array([2.0, 6.0]), (2.0, 3.999)
ROWS = np.concatenate([DONE, AHEAD])
MEAN, VARIANCE = float(ROWS.mean()), float(ROWS.var())


def normalized(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """x by the mean and variance of rows."""
    return (x - rows.mean()) / np.sqrt(rows.var() + EPSILON)


TOGETHER = normalized(ROWS, ROWS)
APART = np.concatenate([normalized(DONE, DONE), normalized(AHEAD, AHEAD)])


def values(mean: float = 0.0, variance: float = 1.0, count: int = 0) -> dict[str, Any]:
    """A norm's arrays, of one feature."""
    return {"n.mean": np.array([mean]), "n.variance": np.array([variance]), "n.count": np.array(count)}


def after_one_batch() -> tuple[float, float]:
    """Running mean and variance once the rows were seen."""
    found = updated_stats(values(), "n", np.array([MEAN]), np.array([VARIANCE]))
    return float(found["n.mean"][0]), float(found["n.variance"][0])


def renormalized_rows(count: int) -> np.ndarray:
    """The rows with the running statistics above, after `count` batches."""
    one, zero = np.ones(1), np.zeros(1)
    batch = np.array([MEAN]), np.array([VARIANCE])
    return renormalized(TOGETHER[:, None], values(*RUNNING, count), "n", *batch, one, zero)[:, 0]


BY_RUNNING = eval_norm(ROWS[:, None], values(*RUNNING), "n", np.ones(1), np.zeros(1))[:, 0]


def idea() -> str:
    """One pass of the critics over both halves."""
    d = Drawing(760, 230, "Current and next state-action pairs go through the critics as one batch")
    d.box(100, 66, 140, 44, "(s, a)", "ink-state", more="from the buffer")
    d.box(100, 164, 140, 44, "(s′, a′)", "ink-actor", more="a′ from the policy")
    d.line([(186, 44), (194, 44), (194, 186), (186, 186)], "quiet")
    d.arrow([(198, 115), (252, 115)])
    d.box(340, 115, 160, 70, "critics", "ink-critic", more="with batch normalization")
    d.arrow([(424, 96), (492, 66)], "ink-critic")
    d.arrow([(424, 134), (492, 164)], "ink-critic")
    d.box(560, 66, 120, 44, "Q(s, a)", "ink-critic", more="learns")
    d.box(560, 164, 120, 44, "Q(s′, a′)", "ink-target", more="a number")
    d.arrow([(624, 164), (668, 132)], "ink-target")
    d.arrow([(624, 66), (668, 98)], "ink-critic")
    d.text(700, 120, "error", "ink-target strong", size=13)
    d.text(340, 188, "no target network", "faint", size=12)
    return d.svg()


@cache
def actions() -> tuple[np.ndarray, np.ndarray]:
    """Return 256 actions of a replay buffer, and 256 of a policy with little entropy."""
    random = np.random.default_rng(0)
    return random.uniform(-1, 1, 256), np.clip(random.normal(0.6, 0.15, 256), -1, 1)


def apart() -> str:
    """Draw both kinds of actions: raw, normalized separately, and together."""
    d = Drawing(
        760, 240, "Normalized separately, actions of the buffer and the policy look alike; together they do not"
    )
    done, ahead = actions()
    both = np.concatenate([done, ahead])
    panels = (
        ("as they are", done, ahead, (-1.5, 1.5)),
        ("normalized separately", normalized(done, done), normalized(ahead, ahead), (-3.5, 3.5)),
        ("normalized together", normalized(done, both), normalized(ahead, both), (-3.5, 3.5)),
    )
    for i, (title, one, other, (low, high)) in enumerate(panels):
        plot = Plot(d, 24 + 248 * i, 44, 212, 140, (low, high), (0.0, 0.42))
        plot.axes((-1, 0, 1) if i == 0 else (-2, 0, 2), (), "", "")
        d.text(plot.left + 106, 24, title, "strong", size=12.5)
        for part, ink in ((one, "ink-state"), (other, "ink-actor")):
            share, edges = np.histogram(part, bins=24, range=(low, high))
            for count, left, right in zip(share / len(part), edges, edges[1:], strict=False):
                if count:
                    x, y = plot.at(float(left), float(count))
                    wide = plot.at(float(right), 0)[0] - x
                    d.add("rect", f"box {ink}", x=x, y=y, width=wide, height=plot.bottom - y)
        for part, ink in ((one, "ink-state"), (other, "ink-actor")):
            x, _ = plot.at(float(part.mean()), 0)
            d.line([(x, plot.bottom + 22), (x, plot.bottom + 32)], f"{ink} thick")
    d.text(380, 234, "marks: means; gray: replay buffer, orange: policy", "faint", size=11.5)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- steps
def next_action() -> str:
    """Step 1."""
    d = Drawing(WIDTH, 150, f"The current policy chooses the next action, {sac.NEXT_ACTION:.4f}")
    d.box(50, 60, 60, 36, "s′ = 2", "ink-state")
    d.arrow([(82, 60), (112, 60)])
    d.box(170, 60, 110, 46, "policy", "ink-actor", more="running statistics")
    d.arrow([(227, 60), (258, 60)], "ink-actor")
    d.text(264, 65, f"a′ = {sac.NEXT_ACTION:.4f}", "ink-actor strong", "start", size=12)
    d.text(170, 122, f"log π(a′|s′) = {sac.NEXT_LOG_PROB:.4f}".replace("-", "−"), "ink-actor", size=12)
    return d.svg()


def one_batch() -> str:
    """Step 2."""
    d = Drawing(WIDTH, 190, "B current rows above B next rows")
    for i in range(6):
        ink = "ink-state" if i < 3 else "ink-actor"
        y = 30 + 26 * i
        d.box(120, y, 120, 20, "", ink)
        d.arrow([(184, y), (226, y)], "ink-critic")
        d.box(262, y, 64, 20, "", "ink-critic" if i < 3 else "ink-target")
    d.text(50, 62, "s, a", "ink-state strong", "end", size=13)
    d.text(50, 140, "s′, a′", "ink-actor strong", "end", size=13)
    d.text(302, 62, "Q", "ink-critic strong", "start", size=13)
    d.text(302, 140, "next", "ink-target strong", "start", size=12)
    return d.svg()


def norm() -> str:
    """Step 3: four rows, apart and together."""
    d = Drawing(WIDTH, 200, "Rows 1, 3 and 2, 6 normalized together, and separately")
    for i, (row, one, other) in enumerate(zip(ROWS, TOGETHER, APART, strict=True)):
        x = 120 + 56 * i
        ink = "ink-state" if i < 2 else "ink-actor"
        d.box(x, 40, 44, 32, number(float(row)), ink)
        d.text(x, 98, f"{one:.2f}".replace("-", "−"), "ink-critic strong", size=13)
        d.text(x, 134, f"{other:.2f}".replace("-", "−"), "quiet", size=13)
    for y, words in ((45, "feature"), (98, "together"), (134, "apart")):
        d.text(84, y, words, "faint", "end", size=12)
    d.text(WIDTH / 2, 172, f"together: mean {number(MEAN)}, variance {number(VARIANCE)}", "faint", size=11.5)
    return d.svg()


def target() -> str:
    """Step 4."""
    d = Drawing(WIDTH, 150, f"Reward, value and entropy add up to a target of {TARGET:.4f}")
    scale, x = 100.0, 30.0
    parts = (
        (1.0, "r = 1", "ink-reward"),
        (sac.GAMMA * sac.NEXT_VALUE, f"0.5 · {sac.NEXT_VALUE:.4f}", "ink-critic"),
    )
    for size, words, ink in parts:
        d.box(x + size * scale / 2, 52, size * scale, 36, words, ink)
        x += size * scale
    rest = TARGET - 1 - sac.GAMMA * sac.NEXT_VALUE
    d.add("rect", "box ink-noise", x=x, y=34, width=rest * scale, height=36)
    d.text(x + rest * scale, 96, f"y = {TARGET:.4f}", "ink-target strong", "end")
    d.text(30, 126, "no gradient goes through y", "faint", "start", size=11.5)
    return d.svg()


def loss() -> str:
    """Step 5."""
    d = Drawing(WIDTH, 150, f"Two squared errors add up to {LOSS:.4f}")
    for i in range(2):
        y = 40 + 46 * i
        d.box(76, y, 100, 34, f"Q_{i + 1} = 1.5", "ink-critic")
        d.arrow([(128, y), (176, y)], "ink-critic")
        d.text(184, y + 5, f"({1.5 - TARGET:.4f})^2".replace("-", "−"), "ink-target", "start", size=13)
    d.text(170, 134, f"sum {LOSS:.4f}", "ink-target strong", size=13)
    return d.svg()


def running() -> str:
    """Step 6: a running mean on its way."""
    d = Drawing(WIDTH, 210, "The running mean is half-way to a new one after 69 batches")
    plot = Plot(d, 44, 24, 250, 140, (0, 300), (0.0, 3.2))
    plot.axes((0, 100, 200, 300), (0, 1.5, 3), "batches of mean 3", "running mean")
    mean, points = 0.0, []
    for batch in range(301):
        points.append((batch, mean))
        mean = MOMENTUM * mean + (1 - MOMENTUM) * MEAN
    plot.curve(points, "ink-critic")
    plot.curve([(0, MEAN), (300, MEAN)], "quiet dashed")
    x, y = plot.at(*points[69])
    d.dot(x, y, "ink-critic", 4)
    d.text(x + 8, y + 12, "half-way after 69", "ink-critic", "start", size=11.5)
    return d.svg()


def waits() -> str:
    """Step 7."""
    d = Drawing(WIDTH, 150, "Actor and temperature are updated every third time")
    for row, (words, ink, moves) in enumerate((("critics", "ink-critic", range(6)), ("actor, α", "ink-actor", (2, 5)))):
        y = 46 + 46 * row
        d.text(86, y + 5, words, f"{ink} strong", "end", size=12.5)
        for i in range(6):
            d.box(112 + 38 * i, y, 30, 30, "", ink if i in moves else "box cell quiet")
    d.text(206, 132, "updates 1 … 6, policy_delay 3".replace("_", " "), "faint", size=11.5)
    return d.svg()


def renorm() -> str:
    """Step 8: the same rows by the batch, and by the running statistics."""
    d = Drawing(WIDTH, 190, "After 100,000 updates training normalizes like acting")
    late, early = renormalized_rows(WARM_UP), renormalized_rows(0)
    for i, row in enumerate(ROWS):
        x = 138 + 52 * i
        d.box(x, 36, 42, 30, number(float(row)), "ink-state" if i < 2 else "ink-actor")
        d.text(x, 92, f"{early[i]:.2f}".replace("-", "−"), "ink-critic", size=12.5)
        d.text(x, 126, f"{late[i]:.2f}".replace("-", "−"), "ink-critic strong", size=12.5)
    for y, words in ((41, "feature"), (92, "before"), (126, "renormalized")):
        d.text(104, y, words, "faint", "end", size=11.5)
    d.text(WIDTH / 2, 164, f"running mean {number(RUNNING[0])}, variance {number(RUNNING[1])}", "faint", size=11.5)
    d.text(
        WIDTH / 2, 182, f"r within 1/{number(R_MAX)} … {number(R_MAX)}, d within ±{number(D_MAX)}", "faint", size=11.5
    )
    return d.svg()
