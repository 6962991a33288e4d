"""TD3 without one of its parts each, where values grow large: runs on InvertedDoublePendulum-v5.

    python docs/figures/balance.py        # half an hour on one core; writes data/balance.csv

A reward is 10 at most, so no policy is worth more than 10 / (1 - γ) = 1,000: a critic that says more is wrong.
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any

from overestimation import VARIANTS, algorithm

import duetto

DATA = Path(__file__).parent / "data" / "balance.csv"
STEPS, EVERY, SEEDS, DISCOUNT = 15_000, 1_000, 3, 0.99
BOUND = 10 / (1 - DISCOUNT)
FIELDS = ("variant", "seed", "step", "return", "q_max")
SETTINGS: dict[str, Any] = {
    "hidden": (64, 64),
    "batch_size": 128,
    "discount": DISCOUNT,
    "replay_capacity": 20_000,
    "random_steps": 1_000,
    "learning_starts": 1_000,
}


def train(variant: str, seed: int) -> list[dict[str, Any]]:
    """One run's rows: five episodes without noise, and the greatest value that was predicted since the row before."""
    with tempfile.TemporaryDirectory() as folder:
        run = duetto.train(
            algorithm(variant, SETTINGS),
            "InvertedDoublePendulum-v5",
            steps=STEPS,
            seed=seed,
            backend="torch",
            threads=1,
            evaluate_every=EVERY,
            evaluation_episodes=5,
            log_every=EVERY,
            checkpoint_every=0,
            runs_dir=folder,
        )
        said = {row["step"]: row.get("learn/q_max") for row in run.metrics()}
        rows = [row for row in run.evaluations() if row["step"] and said.get(row["step"]) is not None]
    return [
        {
            "variant": variant,
            "seed": seed,
            "step": int(row["step"]),
            "return": round(row["mean_return"], 1),
            "q_max": round(said[row["step"]], 2),
        }
        for row in rows
    ]


if __name__ == "__main__":
    DATA.parent.mkdir(exist_ok=True)
    with DATA.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for seed in range(SEEDS):
            for variant in VARIANTS:
                writer.writerows(train(variant, seed))
                file.flush()
