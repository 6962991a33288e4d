"""Atari preprocessing with real frames of Breakout.

    python docs/figures/frames.py        # plays a game, half a minute; writes data/breakout-*.png and data/breakout.csv

Who plays is a rule, not an agent: it follows the ball. The same game comes out every time.
"""

from __future__ import annotations

import base64
import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from drawing import Drawing, Plot

DATA = Path(__file__).parent / "data"
GAME, SKIP, SIZE, STACK = "breakout", 4, 84, 4
SHOWN = 300  # the step whose frames are drawn
BALL = (200, 72, 72)
ROWS = slice(93, 189)  # between bricks and paddle


class Step(NamedTuple):
    """One step of the agent: the frames that it takes, what is paid, and what is left."""

    action: int
    color: list[np.ndarray]  # (210, 160, 3) each
    grey: list[np.ndarray]  # (210, 160)
    seen: np.ndarray  # (84, 84)
    reward: float
    lives: int


def play() -> Iterator[Step]:
    """A game, by the console alone: without frames at random in the beginning, without sticky actions."""
    import ale_py
    import cv2

    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("frame_skip", 1)
    ale.setInt("random_seed", 0)
    ale.loadROM(ale_py.roms.get_rom_path(GAME))
    ale.reset_game()
    actions = ale.getMinimalActionSet()
    while not ale.game_over():
        action = follow(ale.getScreenRGB())
        color, grey, reward = [], [], 0.0
        for _ in range(SKIP):
            reward += ale.act(actions[action])
            color.append(ale.getScreenRGB())
            grey.append(ale.getScreenGrayscale())
        seen = cv2.resize(np.maximum(grey[-2], grey[-1]), (SIZE, SIZE), interpolation=cv2.INTER_AREA)
        yield Step(action, color, grey, seen, reward, ale.lives())


def follow(screen: np.ndarray) -> int:
    """No action, FIRE, right or left (0 to 3): towards the ball, which FIRE brings if there is none."""
    ball = np.flatnonzero((screen[ROWS, 8:152] == BALL).all(axis=2).any(axis=0))
    paddle = np.flatnonzero((screen[190, 8:152] == BALL).all(axis=1))
    if not len(ball):
        return 1
    apart = ball.mean() - paddle.mean() if len(paddle) else 0.0
    return 0 if abs(apart) < 4 else 2 if apart > 0 else 3


def write() -> None:
    """The pictures that are drawn, and of each step what was paid and the lives left."""
    import imageio.v3 as imageio

    last: list[Step] = []
    rows = []
    lost: tuple[np.ndarray, np.ndarray] | None = None
    for number, step in enumerate(play()):
        if number == SHOWN:
            for i, frame in enumerate(step.color):
                imageio.imwrite(DATA / f"breakout-frame-{i}.png", frame)
            imageio.imwrite(DATA / "breakout-grey.png", np.maximum(*step.grey[-2:]))
            for i, one in enumerate([*last[-STACK + 1 :], step]):
                imageio.imwrite(DATA / f"breakout-seen-{i}.png", one.seen)
        if last and step.lives < last[-1].lives and lost is None:
            lost = last[-1].color[-1], step.color[-1]
            for name, frame in zip(("before", "after"), lost, strict=True):
                imageio.imwrite(DATA / f"breakout-{name}.png", frame)
        rows.append((number, int(step.reward), step.lives))
        last = [*last[-STACK + 1 :], step]
    with (DATA / "breakout.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("step", "reward", "lives"), *rows])


@cache
def game() -> list[dict[str, int]]:
    """Each step's reward and lives."""
    with (DATA / "breakout.csv").open(encoding="utf-8") as file:
        return [{name: int(value) for name, value in row.items()} for row in csv.DictReader(file)]


def _image(d: Drawing, name: str, x: float, y: float, width: float, height: float, **more: Any) -> None:
    """A committed picture, in the drawing itself."""
    data = base64.b64encode((DATA / f"breakout-{name}.png").read_bytes()).decode()
    d.add("image", href=f"data:image/png;base64,{data}", x=x, y=y, width=width, height=height, **more)


def steps() -> str:
    """From four frames of the console to an observation."""
    d = Drawing(
        860,
        320,
        "Four frames of Breakout; the brighter of the last two, in gray; reduced to 84 by 84; the last four of these",
    )
    for i in range(SKIP):
        _image(d, f"frame-{i}", 10 + 26 * i, 44 + 14 * i, 120, 157.5, **({"opacity": 0.45} if i < 2 else {}))
    d.text(100, 30, "one step: four frames", "strong", size=13)
    d.text(100, 262, "210 · 160, color", "faint", size=11.5)
    d.text(100, 280, "the action is held,", "faint", size=11.5)
    d.text(100, 296, "rewards are added up", "faint", size=11.5)
    d.arrow([(218, 140), (262, 140)])
    _image(d, "grey", 272, 61, 120, 157.5)
    d.text(332, 30, "the last two: gray, maximum", "strong", size=13)
    d.text(332, 262, "210 · 160 · 1", "faint", size=11.5)
    d.text(332, 280, "some games draw objects only", "faint", size=11.5)
    d.text(332, 296, "in every second frame", "faint", size=11.5)
    d.arrow([(402, 140), (446, 140)])
    _image(d, "seen-3", 456, 98, 84, 84)
    d.text(498, 70, "smaller", "strong", size=13)
    d.text(498, 262, "84 · 84", "faint", size=11.5)
    d.text(498, 280, "each pixel: mean", "faint", size=11.5)
    d.text(498, 296, "of an area", "faint", size=11.5)
    d.arrow([(550, 140), (594, 140)])
    for i in range(STACK):
        _image(d, f"seen-{i}", 606 + 50 * i, 44 + 38 * i, 84, 84)
    d.text(722, 30, "the last four: an observation", "strong", size=13)
    d.text(722, 280, "4 · 84 · 84, oldest first:", "faint", size=11.5)
    d.text(722, 296, "the ball has a direction", "faint", size=11.5)
    return d.svg()


def ends() -> str:
    """Draw a lost life, and the score of a game with the clipped rewards."""
    rows = game()
    d = Drawing(
        860,
        300,
        "A lost life in Breakout does not end the game; its score grows faster than the sum of clipped rewards",
    )
    _image(d, "before", 16, 44, 120, 157.5)
    _image(d, "after", 176, 44, 120, 157.5)
    d.arrow([(140, 122), (172, 122)])
    d.text(156, 26, "a life is lost", "strong", size=13)
    d.text(156, 224, "the learner receives: terminated.", "", size=12)
    d.text(156, 242, "The game continues with fewer lives;", "faint", size=11.5)
    d.text(156, 260, "the next step starts an episode.", "faint", size=11.5)
    score, learned, lost = totals()
    top = 10 * -(-max(score) // 10)  # the next ten
    plot = Plot(d, 390, 44, 360, 186, (0, len(rows)), (0, top))
    plot.axes(range(0, len(rows), 500), (0, 50, 100), "steps", "points of one game")
    for step in lost:
        plot.curve([(step, 0), (step, top)], "quiet dashed thin")
    for values, name, ink in ((score, "the game", "ink-reward"), (learned, "the learner", "ink-critic")):
        plot.curve([(i, value) for i, value in enumerate(values)], ink)
        x, y = plot.at(len(rows), values[-1])
        d.text(x + 6, y + 4, name, f"{ink} strong", "start", size=12)
    d.text(570, 290, "dashed: lives lost", "faint", size=11.5)
    return d.svg()


def totals() -> tuple[list[int], list[int], list[int]]:
    """The score so far, the sum of the rewards' signs so far, and the steps in which a life was lost."""
    rewards = np.array([row["reward"] for row in game()])
    lives = np.array([row["lives"] for row in game()])
    lost = np.flatnonzero(np.diff(lives, prepend=lives[0]) < 0)
    return np.cumsum(rewards).tolist(), np.cumsum(np.sign(rewards)).tolist(), lost.tolist()


if __name__ == "__main__":
    write()
