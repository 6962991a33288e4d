"""Figures and tables of the first pages: the run of "five minutes", the choice of an algorithm, extras."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drawing import Drawing, Plot

from duetto.algorithms import ALGORITHMS
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Discrete, Space

DATA = Path(__file__).parent / "data" / "five-minutes.csv"
KILLED, RESUMED = 44_744, 40_000


def evaluations() -> list[tuple[float, float]]:
    """Step and mean return, from the run's own evaluations.csv."""
    with DATA.open(encoding="utf-8") as file:
        return [(float(row["step"]), float(row["mean_return"])) for row in csv.DictReader(file)]


def five_minutes() -> str:
    """The run, its kill, and its resume."""
    d = Drawing(
        680,
        270,
        "PPO on CartPole: 500 after 10,000 steps, once back to 219, then 500; killed at 44,744, resumed at 40,000",
    )
    plot = Plot(d, 60, 30, 560, 170, (0, 100_000), (0.0, 560.0))
    plot.axes((0, 20_000, 40_000, 60_000, 80_000, 100_000), (0, 250, 500), "steps", "mean return of ten episodes")
    points = evaluations()
    plot.curve(points, "ink-critic")
    for point in points:
        d.dot(*plot.at(*point), "ink-critic", 4)
    x, top = plot.at(KILLED, 560)
    d.line([(x, top), (x, plot.bottom)], "ink-target dashed")
    d.text(x + 6, top + 110, "kill -9", "ink-target strong", "start", size=12.5)
    back = plot.at(RESUMED, 0)[0]
    d.arrow([(x, plot.bottom - 22), (back, plot.bottom - 22)], "ink-reward")
    d.text(
        x + 6, plot.bottom - 17, "resume: from the last checkpoint, at 40,000", "ink-reward strong", "start", size=12.5
    )
    return d.svg()


# ---------------------------------------------------------------------------------------------------- extras
ABOUT = {
    "torch": "train with PyTorch",
    "jax": "train with JAX",
    "classic": "CartPole, Pendulum, MountainCar, Acrobot",
    "mujoco": "HalfCheetah, Hopper, Walker2d, Ant, Humanoid",
    "box2d": "LunarLander, BipedalWalker, CarRacing",
    "pybullet": "AntBulletEnv and PyBullet's other tasks",
    "envpool": "environments in C++, many at once",
    "atari": "Atari games",
    "minigrid": "MiniGrid and BabyAI",
    "gymnax": "classic control and MinAtar in JAX, thousands at once; needs Gymnasium below 1.4",
    "playground": "MuJoCo Playground in JAX, thousands at once",
    "navix": "MiniGrid's tasks in JAX, thousands at once",
    "video": "`duetto video`",
    "plot": "`duetto plot`",
    "tensorboard": "view a run's TensorBoard events",
    "demos": "record and import demonstrations",
    "onnx": "export to ONNX",
    "cluster": "actors on a Ray cluster",
    "tune": "`duetto tune`",
    "report": "`duetto report`",
    "hub": "`duetto push`, `duetto pull`",
    "wandb": "`--track wandb`",
    "mlflow": "`--track mlflow`",
    "trackio": "`--track trackio`",
}


def extras() -> tuple[list[str], list[list[str]]]:
    """Return a table of the extras."""
    return ["extra", "for"], [[f"`{name}`", words] for name, words in ABOUT.items()]


# ---------------------------------------------------------------------------------------------------- which one
CHOICES: dict[tuple[str, str], tuple[str, ...]] = {  # answers, and the algorithms that remain
    ("discrete", "demonstrations, no rewards"): ("bc",),
    ("discrete", "demonstrations, full observation"): ("dqfd",),
    ("discrete", "demonstrations, partial observation"): ("r2d3",),
    ("discrete", "cheap steps"): ("ppo",),
    ("discrete", "expensive steps, full observation"): ("dqn", "discretesac"),
    ("discrete", "expensive steps, partial observation"): ("r2d2",),
    ("continuous", "cheap steps"): ("ppo",),
    ("continuous", "expensive steps"): ("crossq", "sac", "td3"),
}


def names(keys: tuple[str, ...]) -> str:
    """As they are written."""
    return ", ".join(ALGORITHMS[key].__name__ for key in keys)


def decision() -> str:
    """Four questions."""
    d = Drawing(
        790,
        420,
        "Four questions lead to an algorithm: demonstrations, action space, cost of steps, observability",
    )
    d.box(110, 40, 190, 44, "demonstrations?", "ink-state", more="and discrete actions")
    d.box(110, 200, 190, 44, "which actions?", "ink-state")
    d.box(340, 130, 170, 44, "cheap steps?", "ink-state", more="discrete actions")
    d.box(340, 330, 170, 44, "cheap steps?", "ink-state", more="continuous actions")
    d.box(516, 190, 150, 44, "full observation?", "ink-state")
    d.box(340, 40, 170, 44, "full observation?", "ink-state")
    d.arrow([(206, 40), (254, 40)])
    d.text(230, 32, "yes", "faint", size=11.5)
    d.arrow([(110, 63), (110, 177)])
    d.text(118, 124, "no", "faint", "start", size=11.5)
    d.arrow([(206, 190), (254, 142)])
    d.arrow([(206, 212), (254, 318)])
    for y, words, end, ink in (
        (22, "yes", "demonstrations, full observation", "ink-reward"),
        (72, "no", "demonstrations, partial observation", "ink-reward"),
    ):
        d.arrow([(426, 40), (622, y)])
        d.text(520, 24 if words == "yes" else 66, words, "faint", size=11.5)
        _end(d, 700, y, ("discrete", end), ink)
    d.arrow([(426, 124), (622, 122)])
    d.text(520, 115, "yes", "faint", size=11.5)
    _end(d, 700, 122, ("discrete", "cheap steps"), "ink-critic")
    d.arrow([(426, 138), (470, 168)])
    d.text(436, 162, "no", "faint", "end", size=11.5)
    for y, words, end in (
        (180, "yes", "expensive steps, full observation"),
        (238, "no", "expensive steps, partial observation"),
    ):
        d.arrow([(592, 190), (627, y)] if words == "yes" else [(516, 213), (516, 238), (627, 238)])
        d.text(
            610 if words == "yes" else 528,
            176 if words == "yes" else 232,
            words,
            "faint",
            "middle" if words == "yes" else "start",
            size=11.5,
        )
        _end(d, 708, y, ("discrete", end), "ink-critic", 156)
    for y, words, end in ((310, "yes", "cheap steps"), (362, "no", "expensive steps")):
        d.arrow([(426, 330), (566, y)])
        d.text(500, 310 if words == "yes" else 362, words, "faint", size=11.5)
        _end(d, 670, y, ("continuous", end), "ink-actor", 200)
    d.text(
        20,
        408,
        "demonstrations without rewards: BC · partial observation: --recurrent lstm works with every algorithm",
        "faint",
        "start",
        size=12,
    )
    return d.svg()


def _end(d: Drawing, x: float, y: float, answers: tuple[str, str], ink: str, width: float = 150) -> None:
    d.box(x, y, width, 36, names(CHOICES[answers]), f"{ink} strong")


IMAGE = Box((84, 84, 4), "uint8", (0.0,), (255.0,))
VECTOR = Box((4,), "float32", (-1.0,), (1.0,))
ACTIONS: dict[str, Space] = {"Box": VECTOR, "Discrete": Discrete(4)}  # one of them is taken by every algorithm


def _refuses(asked: Callable[..., None], *given: object) -> bool:
    """Whether an algorithm's check says no."""
    try:
        asked(*given)
    except UsageError:
        return True
    return False


def spaces() -> tuple[list[str], list[list[str]]]:
    """Return a table of the algorithms: actions, and support of images, masks, recurrence, HER and demonstrations.

    Images: without a custom network. Masks apply to discrete actions only.
    """
    rows = []
    for name, kind in ALGORITHMS.items():
        options = kind.options()
        needed: dict[str, Any] = {"demonstrations": "folder"} if "demonstrations" in options else {}
        made = kind(**needed)
        taken = [action for action in ACTIONS.values() if not _refuses(made.check_spaces, VECTOR, action, name)]
        choices = any(isinstance(action, Discrete) for action in taken)
        has = (
            not _refuses(made.check_spaces, IMAGE, taken[0], name),
            choices and not _refuses(made.check_masks, name),
            "recurrent" in options,
            "hindsight" in options,
            "demonstrations" in options,
        )
        actions = re.sub(r"[A-Z]\w+", r"`\g<0>`", kind.actions)
        rows.append([f"[{kind.__name__}](algorithms/{name}.md)", actions, *("yes" if one else "" for one in has)])
    return ["algorithm", "actions", "images", "action masks", "recurrence", "HER", "demonstrations"], rows


def readme() -> tuple[list[str], list[list[str]]]:
    """Return the same table with links from the README's folder."""
    header, rows = spaces()
    links = [[row[0].replace("(algorithms/", "(docs/algorithms/"), *row[1:]] for row in rows]
    return header, links
