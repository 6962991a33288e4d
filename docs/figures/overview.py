"""Results at a glance, from committed runs: four panels, on the page of results and in README.

python docs/figures/overview.py        # writes docs/_static/results.svg, with its own colors
"""

from __future__ import annotations

from pathlib import Path

from drawing import Drawing, Plot, alone
from learned import banded, published

STATIC = Path(__file__).parents[1] / "_static"
Curve = list[tuple[float, float]]


def overview() -> str:
    """Draw four panels: HalfCheetah, Pong, MemoryS9, KeyCorridor."""
    d = Drawing(
        860,
        560,
        "Returns of committed runs: HalfCheetah, Pong, MemoryS9 (partial observation) and KeyCorridor (demonstrations)",
    )
    plot = _panel(d, 0, "HalfCheetah-v5, a million steps", (0, 1e6), (-600, 13_000), (0, 5e5, 1e6), (0, 5_000, 10_000))
    for run, name, ink, shift in (
        ("ddpg-halfcheetah", "DDPG", "ink-critic", -5),
        ("td3-halfcheetah", "TD3", "ink-actor", 11),
        ("ppo-halfcheetah", "PPO", "ink-reward", 4),
    ):
        banded(d, plot, run, name, ink, shift)
    banded(d, plot, "crossq-halfcheetah-100k", "CrossQ", "ink-noise", -56)
    _crosses(d, plot, published("td3-halfcheetah", "TD3's authors, 10 seeds, v1"))

    plot = _panel(d, 1, "Pong, ten million steps", (0, 1e7), (-22, 22), (0, 5e6, 1e7), (-21, 0, 21))
    banded(d, plot, "ppo-pong", "PPO", "ink-reward", 16)
    _crosses(d, plot, published("ppo-pong", "CleanRL's PPO (37 details, 2022), 3 seeds, training returns"))

    plot = _panel(d, 2, "MemoryS9, partial observation", (0, 4e5), (-0.05, 1.05), (0, 2e5, 4e5), (0, 0.5, 1))
    banded(d, plot, "r2d2-memory", "R2D2", "ink-actor")
    banded(d, plot, "dqn-memory", "DQN", "ink-critic")

    title = "KeyCorridor, demonstrations"
    plot = _panel(d, 3, title, (0, 1e5), (-0.05, 1.05), (0, 5e4, 1e5), (0, 0.5, 1))
    for run, name, ink, shift in (
        ("keycorridor-r2d3", "R2D3", "ink-actor", 4),
        ("keycorridor-bc", "BC", "ink-noise", 0),
        ("keycorridor-dqfd", "DQfD", "ink-critic", 8),
        ("keycorridor-r2d2", "R2D2", "quiet", 4),
    ):
        banded(d, plot, run, name, ink, shift)
    return d.svg()


def _panel(
    d: Drawing,
    place: int,
    title: str,
    x: tuple[float, float],
    y: tuple[float, float],
    x_ticks: tuple[float, ...],
    y_ticks: tuple[float, ...],
) -> Plot:
    plot = Plot(d, 62 + 430 * (place % 2), 38 + 282 * (place // 2), 300, 190, x, y)
    plot.axes(x_ticks, y_ticks, "steps", "")
    d.text((plot.left + plot.right) / 2, plot.top - 16, title, "strong", size=13.5)
    return plot


def _crosses(d: Drawing, plot: Plot, points: Curve) -> None:
    for step, value in points:
        x, y = plot.at(step, value)
        d.line([(x - 4, y - 4), (x + 4, y + 4)])
        d.line([(x - 4, y + 4), (x + 4, y - 4)])


if __name__ == "__main__":
    (STATIC / "results.svg").write_text(alone(overview()), "utf-8")
