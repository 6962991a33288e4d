"""Results at a glance, from committed runs: four panels, on the page of results and in README.

python docs/figures/overview.py        # writes docs/_static/results.svg, which brings its own colours
"""

from __future__ import annotations

import re
from pathlib import Path

from drawing import Drawing, Plot
from learned import banded, published

STATIC = Path(__file__).parents[1] / "_static"
Curve = list[tuple[float, float]]


def overview() -> str:
    """HalfCheetah, Pong, a task of memory, a task of exploration."""
    d = Drawing(
        860,
        560,
        "Returns of committed runs: HalfCheetah, Pong, MiniGrid's task of memory, and one that needs demonstrations",
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

    plot = _panel(d, 2, "MemoryS9, a task of memory", (0, 4e5), (-0.05, 1.05), (0, 2e5, 4e5), (0, 0.5, 1))
    banded(d, plot, "r2d2-memory", "R2D2", "ink-actor")
    banded(d, plot, "dqn-memory", "DQN", "ink-critic")

    title = "KeyCorridor, which needs to be shown"
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


def alone(svg: str) -> str:
    """A drawing as a file of its own: the site's palettes and rules for drawings, and the page's colours, in it."""
    style = (STATIC / "site.css").read_text("utf-8")
    rules = "".join(re.findall(r"^svg\.drawing .*\n", style, re.MULTILINE))
    inks = "".join(re.findall(r"^\.ink-\w+ \{.*\n", style, re.MULTILINE))
    light, dark = (
        re.findall(r"--ink-\w+: #\w+;", part) for part in style.split("@media (prefers-color-scheme: dark)")[:2]
    )
    pages = (
        "--color-foreground-primary:#1f2328;--color-foreground-secondary:#59636e;--color-foreground-muted:#8c959f;",
        "--color-foreground-primary:#f0f6fc;--color-foreground-secondary:#9198a1;--color-foreground-muted:#6e7681;",
    )
    first, second = ("".join(sorted(set(inks))) + page for inks, page in zip((light, dark), pages, strict=True))
    sheet = (
        f"svg{{{first}font-family:system-ui,sans-serif;color:var(--color-foreground-primary)}}\n"
        f"@media(prefers-color-scheme:dark){{svg{{{second}}}}}\n{inks}{rules}"
    )
    size = re.search(r'viewBox="0 0 (\S+) (\S+)"', svg)
    assert size is not None
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[1]}" height="{size[2]}" '
    return svg.replace("<svg ", head, 1).replace("<title>", f"<style>{sheet}</style><title>", 1) + "\n"


if __name__ == "__main__":
    (STATIC / "results.svg").write_text(alone(overview()), "utf-8")
