"""Twenty seeds of PPO on CartPole-v1 with two settings of λ.

python docs/figures/twenty.py        # about ten minutes on one core; writes data/twenty.csv
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data" / "twenty.csv"
FIELDS = ("gae_lambda", "seed", "step", "mean_return", "std_return")
LAMBDAS, SEEDS, STEPS, EVERY, EPISODES = (0.8, 0.98), 20, 12_000, 4_000, 20


def train(gae_lambda: float, seed: int) -> list[dict[str, Any]]:
    """One run's evaluations, those of the untrained policy left out."""
    import duetto

    with tempfile.TemporaryDirectory() as folder:
        run = duetto.train(
            duetto.PPO(gae_lambda=gae_lambda, rollout_steps=64, epochs=10, minibatches=4, learning_rate=1e-3),
            "CartPole-v1",
            steps=STEPS,
            seed=seed,
            num_envs=4,
            backend="torch",
            threads=1,
            evaluate_every=EVERY,
            evaluation_episodes=EPISODES,
            checkpoint_every=0,
            runs_dir=folder,
            progress=False,
        )
        return [
            dict(zip(FIELDS, (gae_lambda, seed, int(row["step"]), *_rounded(row)), strict=True))
            for row in run.evaluations()
            if row["step"]
        ]


def _rounded(row: dict[str, float]) -> tuple[float, float]:
    return round(row["mean_return"], 2), round(row["std_return"], 2)


if __name__ == "__main__":
    with DATA.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for seed in range(SEEDS):
            for gae_lambda in LAMBDAS:
                writer.writerows(train(gae_lambda, seed))
                file.flush()
