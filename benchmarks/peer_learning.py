"""How SBX's SAC and CrossQ learn HalfCheetah-v5, evaluated as ours are; with the settings of our presets.

    PEERS/bin/python benchmarks/peer_learning.py crossq --seed 0

In an environment that has SBX. Ten episodes without exploration every 5,000 steps, in an environment of their own,
whose seeds are the same at every evaluation. It ends at --until, or at --steps. Each evaluation is a line of
`results/learning-peers/sbx-<algorithm>-halfcheetah-s<seed>/evaluations.csv`; the versions and settings are beside it.
"""

from __future__ import annotations

import argparse
import csv
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

RESULTS = Path(__file__).parent / "results" / "learning-peers"
EVERY, EPISODES = 5_000, 10
SETTINGS: dict[str, dict[str, Any]] = {  # duetto train sac --preset author; duetto train crossq --preset narrow
    "SAC": {
        "learning_rate": 3e-4,
        "qf_learning_rate": 3e-4,
        "learning_starts": 10_000,
        "tau": 0.005,
        "policy_kwargs": {"net_arch": {"pi": [256, 256], "qf": [256, 256]}},
    },
    "CrossQ": {
        "learning_rate": 1e-3,
        "qf_learning_rate": 1e-3,
        "learning_starts": 5_000,
        "policy_delay": 3,
        "policy_kwargs": {"net_arch": {"pi": [256, 256], "qf": [512, 512]}},
    },
}


def evaluate(model: Any, environment: gymnasium.Env, seed: int) -> list[float]:
    returns = []
    for episode in range(EPISODES):
        observation, _ = environment.reset(seed=seed + episode)
        total, over = 0.0, False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = environment.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=[name.lower() for name in SETTINGS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--until", type=float, default=float("inf"), help="end at an evaluation of this mean return")
    options = parser.parse_args()

    import sbx

    name = next(name for name in SETTINGS if name.lower() == options.algorithm)
    folder = RESULTS / f"sbx-{options.algorithm}-halfcheetah-s{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    packages = ("sbx-rl", "stable-baselines3", "jax", "flax", "optax", "numpy", "gymnasium", "mujoco")
    about = {"algorithm": name, "environment": "HalfCheetah-v5", "seed": options.seed, "settings": SETTINGS[name]}
    about |= {"versions": {package: version(package) for package in packages}}
    (folder / "settings.json").write_text(json.dumps(about, indent=2) + "\n", "utf-8")
    elsewhere = gymnasium.make("HalfCheetah-v5")
    model = getattr(sbx, name)(
        "MlpPolicy", gymnasium.make("HalfCheetah-v5"), seed=options.seed, batch_size=256, **SETTINGS[name]
    )
    with (folder / "evaluations.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "mean_return", "std_return", "episodes"])

        def look(locals_: dict[str, Any], _: dict[str, Any]) -> bool:
            if model.num_timesteps % EVERY:
                return True
            returns = evaluate(model, elsewhere, 1_000 + options.seed)
            writer.writerow([model.num_timesteps, np.mean(returns), np.std(returns), EPISODES])
            file.flush()
            print(f"{name} {model.num_timesteps:,}: {np.mean(returns):.1f}", flush=True)
            return bool(np.mean(returns) < options.until)

        model.learn(options.steps, callback=look)


if __name__ == "__main__":
    main()
