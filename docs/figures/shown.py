"""Figures of the page on demonstrations, from committed runs."""

from __future__ import annotations

from statistics import fmean

from drawing import Drawing, Plot
from learned import evaluations
from r2d3 import RUNS, succeeded


def kinds() -> str:
    """Three ways to use an expert's episodes."""
    d = Drawing(760, 230, "Three ways to use demonstrations: BC, DQfD and R2D3")
    d.box(90, 115, 130, 56, "demonstrations", "ink-reward", more="episodes")
    rows = (
        (40, "imitate the expert", "BC: supervised learning", "ink-reward"),
        (115, "learn values from its steps", "DQfD: with a margin loss", "ink-critic"),
        (190, "mix them into each batch", "R2D3: a share ρ of each batch", "ink-noise"),
    )
    for y, words, more, ink in rows:
        d.arrow([(158, 115), (250, y)], ink)
        d.box(500, y, 490, 56, words, ink, more=more)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- bars
def bars(words: str, rows: list[tuple[str, str, str]]) -> str:
    """Successes of runs, a dot for each seed: label, name in `RUNS`, ink."""
    d = Drawing(680, 40 + 34 * len(rows) + 34, words)
    plot = Plot(d, 250, 14, 360, 34 * len(rows) + 8, (0.0, 1.0), (-0.6, len(rows) - 0.4))
    plot.axes((), (), "", "")
    for tick in (0, 0.25, 0.5, 0.75, 1):
        x, y = plot.at(tick, -0.6)
        d.line([(x, y), (x, y + 4)], "axis")
        d.text(x, y + 18, f"{100 * tick:g} %", "faint", size=11.5)
    for row, (label, name, ink) in enumerate(rows):
        found = succeeded(RUNS[name])
        x, y = plot.at(fmean(found), len(rows) - 1 - row)
        d.text(plot.left - 12, y + 4, label, "", "end", size=12.5)
        if x > plot.left:
            d.add("rect", f"box {ink}", x=plot.left, y=y - 10, width=x - plot.left, height=20, rx=2)
        for one in found if len(found) > 1 else ():
            d.dot(plot.at(one, 0)[0], y, ink, 3)
        d.text(plot.at(max(found), 0)[0] + 10, y + 4, f"{100 * fmean(found):.1f} %", f"{ink} strong", "start", size=12)
    return d.svg()


def who() -> str:
    """Four algorithms on KeyCorridor."""
    return bars(
        "Success on KeyCorridor: R2D3 92 %, BC 58 %, DQfD 37 %, R2D2 0 %",
        [
            ("R2D2, no demonstrations", "R2D2, no demonstrations", "ink-target"),
            ("BC", "behavior cloning", "ink-reward"),
            ("DQfD, not recurrent", "DQfD, no recurrence", "ink-noise"),
            ("R2D3", "R2D3, 100 demonstrations, share 1/4", "ink-critic"),
        ],
    )


def how_many() -> str:
    """Ten, a hundred, a thousand."""
    return bars(
        "Success of R2D3 with 10, 100 and 1,000 demonstrations",
        [
            ("10 demonstrations", "10 demonstrations", "ink-critic"),
            ("100", "R2D3, 100 demonstrations, share 1/4", "ink-critic"),
            ("1,000", "1,000 demonstrations", "ink-critic"),
        ],
    )


def share() -> str:
    """From a quarter to none."""
    return bars(
        "Success of R2D3 by the share of demonstrations in a batch",
        [
            ("ρ = 1/4", "R2D3, 100 demonstrations, share 1/4", "ink-critic"),
            ("1/16", "share 1/16", "ink-critic"),
            ("1/64", "share 1/64", "ink-critic"),
            ("1/256", "share 1/256", "ink-target"),
            ("0", "share 0", "ink-target"),
        ],
    )


def parts() -> str:
    """What else was tried."""
    return bars(
        "Success of R2D3 with the paper's loss, pre-training and no weight decay",
        [
            ("default", "R2D3, 100 demonstrations, share 1/4", "ink-critic"),
            ("the paper's loss", "the paper's loss alone", "ink-target"),
            ("2,000 pre-training updates", "2,000 updates of pre-training", "ink-noise"),
            ("no weight decay", "no weight decay", "ink-noise"),
        ],
    )


def lander() -> str:
    """DQfD on LunarLander, with much pre-training and with little."""
    d = Drawing(700, 300, "DQfD on LunarLander with long and short pre-training")
    plot = Plot(d, 66, 34, 440, 210, (0, 100_000), (-800.0, 320.0))
    plot.axes((0, 25_000, 50_000, 75_000, 100_000), (-800, -400, 0, 200), "steps", "mean return of ten episodes")
    plot.curve([(0, 200), (100_000, 200)], "quiet dashed")
    for run, words, ink, shift in (
        ("dqfd-lander", "5,000 updates, 100 episodes", "ink-critic", 4),
        ("dqfd-lander-di-engine", "10 updates, 40 episodes", "ink-noise", 18),
    ):
        _band(d, plot, run, words, ink, shift)
    return d.svg()


def _band(d: Drawing, plot: Plot, run: str, words: str, ink: str, shift: float) -> None:
    """Draw five seeds up to the end of the axis; step 0 is the evaluation after pre-training."""
    curves = [[point for point in evaluations(f"{run}-s{seed}")[1:] if point[0] <= 100_000] for seed in range(5)]
    steps = [step for step, _ in curves[0]]
    values = [[max(curve[i][1], -800.0) for curve in curves] for i in range(len(steps))]
    plot.band(steps, [min(v) for v in values], [max(v) for v in values], ink)
    plot.curve([(step, fmean(v)) for step, v in zip(steps, values, strict=True)], ink)
    x, y = plot.at(steps[-1], fmean(values[-1]))
    d.text(x + 8, y + shift, words, f"{ink} strong", "start", size=12)


def none_in_a_batch(share: float, size: int = 64) -> float:
    """How likely a batch has no demonstration at all."""
    return (1 - share) ** size
