"""What an algorithm is without one of its parts: small runs, and the figures of them.

    python docs/figures/ablated.py [ALGORITHM ...]      # minutes each on one core; writes data/ablations.csv

Every run is a preset's, shorter, with one option or method changed; the returns are those of its evaluations. TD3's
are in `overestimation.py`.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, NamedTuple

from array_api_compat import array_namespace
from drawing import Drawing, Plot

import duetto
from duetto.presets import presets

DATA = Path(__file__).parent / "data" / "ablations.csv"
FIELDS = ("algorithm", "variant", "seed", "step", "return")
WHOLE = "all of it"


@dataclass(frozen=True)
class OneCritic(duetto.SAC):
    """SAC whose critic has no twin."""

    def critics(self) -> int:
        """One."""
        return 1


@dataclass(frozen=True)
class Apart(duetto.CrossQ):
    """CrossQ with two passes, for current and next pairs, each with its own statistics."""

    def critic_loss(self, nets: Any, batch: Any, noise: Any) -> Any:
        """Return CrossQ's critic loss with two passes."""

        def critic(obs: Any, action: Any, train: bool) -> Any:
            xp, half = array_namespace(action), len(batch.reward)
            passes = [nets.critic(obs[part], action[part], train=train) for part in (slice(half), slice(half, None))]
            return xp.concat(passes, axis=1)

        apart = SimpleNamespace(actor=nets.actor, log_alpha=nets.log_alpha, critic=critic)
        return super().critic_loss(apart, batch, noise)


class Ablations(NamedTuple):
    """Of one algorithm on one task."""

    task: str
    steps: int
    every: int  # steps between two evaluations
    least: float
    most: float
    without: dict[str, dict[str, Any]]  # the part that is left out, and the options that do that; or a class
    seeds: int = 5


PENDULUM, CARTPOLE = ("Pendulum-v1", 8_000, 500, -1_900.0, 0.0), ("CartPole-v1", 50_000, 2_500, 0.0, 500.0)
ABLATIONS = {
    "ddpg": Ablations(
        *PENDULUM,
        {
            "no target networks": {"tau": 1.0},
            "a buffer of 200 steps": {"replay_capacity": 200},
            "no noise": {"exploration_noise": 0.0},
        },
    ),
    "sac": Ablations(
        *PENDULUM,
        {
            "α stays at 1": {"learn_temperature": False, "temperature": 1.0},
            "almost no entropy": {"learn_temperature": False, "temperature": 1e-6},
            "one critic": {"class": OneCritic},
        },
        seeds=3,
    ),
    "crossq": Ablations(
        *PENDULUM,
        {
            "separate halves": {"class": Apart},
            "no normalization": {"network": "mlp"},
        },
        seeds=3,
    ),
    "ppo": Ablations(
        *CARTPOLE,
        {
            "no clipping": {"clip_range": 1e6},
            "one epoch": {"epochs": 1},
            "λ = 0": {"gae_lambda": 0.0},
            "λ = 1": {"gae_lambda": 1.0},
        },
    ),
    "dqn": Ablations(
        *CARTPOLE,
        {
            "no target network": {"target_period": 1},
            "a buffer of 256 steps": {"replay_capacity": 256},
            "no exploration": {"exploration_start": 0.0, "exploration_end": 0.0},
        },
    ),
}


def train(name: str, variant: str) -> list[dict[str, Any]]:
    """One variant's rows, of all seeds side by side."""
    task = ABLATIONS[name]
    changes = dict(task.without.get(variant, {}))
    kind = changes.pop("class", None)
    with tempfile.TemporaryDirectory() as folder:
        runs = duetto.train(
            kind(**presets(name)[task.task].algorithm | changes) if kind else name,
            task.task,
            seeds=range(task.seeds),
            steps=task.steps,
            backend="jax",
            evaluate_every=task.every,
            evaluation_episodes=10,
            checkpoint_every=0,
            runs_dir=folder,
            progress=False,
            **({} if kind else changes),
        )
        return [
            dict(zip(FIELDS, (name, variant, seed, row["step"], round(row["mean_return"], 2)), strict=True))
            for seed, run in enumerate(runs)
            for row in run.evaluations()
        ]


def main(names: list[str]) -> None:
    """Replace the rows of these algorithms."""
    for name in names or list(ABLATIONS):
        for variant in (WHOLE, *ABLATIONS[name].without):
            new = train(name, variant)
            with DATA.open(encoding="utf-8") as file:
                kept = [row for row in csv.DictReader(file) if (row["algorithm"], row["variant"]) != (name, variant)]
            with DATA.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                writer.writeheader()
                writer.writerows([*kept, *new])
            ends = [row["return"] for row in new if row["step"] == new[-1]["step"]]
            print(name, variant, ends, flush=True)


# ---------------------------------------------------------------------------------------------------- the figures
@cache
def curves(name: str) -> dict[str, dict[int, list[tuple[float, float]]]]:
    """By variant and seed: steps and returns."""
    found: dict[str, dict[int, list[tuple[float, float]]]] = {}
    with DATA.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["algorithm"] == name:
                point = (float(row["step"]), float(row["return"]))
                found.setdefault(row["variant"], {}).setdefault(int(row["seed"]), []).append(point)
    return found


def _drawn(name: str) -> str:
    task, variants = ABLATIONS[name], [one for one in ABLATIONS[name].without if one in curves(name)]
    d = Drawing(54 + 206 * len(variants), 240, f"Returns on {task.task}; each curve lacks one part")
    for i, variant in enumerate(variants):
        plot = Plot(d, 54 + 206 * i, 40, 172, 145, (0, task.steps), (task.least, task.most))
        ticks = range(int(task.most), int(task.least) - 1, -500 if task.least < 0 else -250)
        plot.axes((0, task.steps / 2, task.steps), ticks if i == 0 else (), "steps", "")
        d.text(plot.left + 86, plot.top - 14, variant, "strong", size=11.5)
        for which, ink in ((WHOLE, "quiet"), (variant, "ink-critic")):
            at = [list(points) for points in zip(*curves(name)[which].values(), strict=True)]
            steps = [points[0][0] for points in at]
            values = [[max(value, task.least) for _, value in points] for points in at]
            if which != WHOLE:
                plot.band(steps, [min(value) for value in values], [max(value) for value in values], ink)
            plot.curve(list(zip(steps, map(fmean, values), strict=True)), ink)
    return d.svg()


def ddpg() -> str:
    """DDPG."""
    return _drawn("ddpg")


def sac() -> str:
    """SAC."""
    return _drawn("sac")


def crossq() -> str:
    """CrossQ."""
    return _drawn("crossq")


def ppo() -> str:
    """PPO."""
    return _drawn("ppo")


def dqn() -> str:
    """DQN."""
    return _drawn("dqn")


if __name__ == "__main__":
    main(sys.argv[1:])
