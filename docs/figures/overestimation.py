"""What the critics of DDPG and TD3 say, against what happens: runs on Pendulum-v1, and the figure of them.

    python docs/figures/overestimation.py        # about ten minutes on one core; writes data/overestimation.csv

Every 500 steps the policy of that moment is rolled out, without noise, from 64 starts in a pendulum that never stops.
In 20 states of each of the first 200 steps, Q_1(s, μ(s)) is compared with the discounted rewards that follow.
"""

from __future__ import annotations

import csv
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import duetto

DATA = Path(__file__).parent / "data" / "overestimation.csv"
DISCOUNT, STARTS, VISITED, BEYOND, EVERY, STEPS, SEEDS = 0.98, 64, 200, 300, 500, 8000, 3
FIELDS = ("variant", "seed", "step", "critic", "return", "episode_return")

# One change at a time. Everything else is the preset of Pendulum-v1, except the learning rate of the critic.
VARIANTS: dict[str, dict[str, Any]] = {
    "TD3": {},
    "one critic": {"twin_critic": False},
    "no smoothing": {"target_noise": 0.0},
    "no delay": {"policy_delay": 1},
    "targets at every step": {"target_update": "every_step"},
    "only the actor's target waits": {},
    "no target networks": {"tau": 1.0, "target_update": "every_step"},
    "DDPG": {},
}
SETTINGS: dict[str, Any] = {
    "hidden": (64, 64),
    "batch_size": 128,
    "discount": DISCOUNT,
    "replay_capacity": 20_000,
    "random_steps": 1_000,
    "learning_starts": 1_000,
}


@dataclass(frozen=True)
class Impatient(duetto.TD3):
    """TD3 whose target critics move at every update, and whose target actor moves with the actor."""

    def update(self, learner: Any, batch: Any, noise: Any, phase: int) -> None:
        """Critics and their targets at every update, the actor and its own in phase 0."""
        learner.minimize("critic", self.critic_loss, batch, noise)
        learner.track("target_critic", "critic", self.tau)
        if phase == 0:
            learner.minimize("actor", self.actor_loss, batch)
            learner.track("target_actor", "actor", self.tau)


def algorithm(variant: str, settings: dict[str, Any]) -> duetto.TD3 | duetto.DDPG:
    """TD3, without one of its parts."""
    kinds = {"DDPG": duetto.DDPG, "only the actor's target waits": Impatient}
    return kinds.get(variant, duetto.TD3)(**settings | VARIANTS[variant])


def swing(state: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pendulum-v1's next states (N, 2), angle and speed, and rewards (N,), of states and actions (N,) in [-1, 1]."""
    angle, speed = state.T
    torque = 2.0 * np.clip(action, -1.0, 1.0)
    upright = (angle + np.pi) % (2 * np.pi) - np.pi
    reward = -(upright**2 + 0.1 * speed**2 + 0.001 * torque**2)
    speed = np.clip(speed + (15.0 * np.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
    return np.stack([angle + 0.05 * speed, speed], axis=1), reward


def observed(state: np.ndarray) -> np.ndarray:
    """Observations (N, 3) of states (N, 2)."""
    return np.stack([np.cos(state[:, 0]), np.sin(state[:, 0]), state[:, 1]], axis=1).astype(np.float32)


def measured(actor: Any, critic: Any) -> tuple[float, float, float]:
    """Return mean critic value and mean discounted return in visited states, and the mean sum of 200 rewards."""
    random = np.random.default_rng(0)
    state = random.uniform([-np.pi, -1.0], [np.pi, 1.0], (STARTS, 2))
    rewards, said = [], []
    for _ in range(VISITED + BEYOND):
        obs = observed(state)
        action = actor(obs)
        said.append(critic(obs, action))
        state, reward = swing(state, action[:, 0])
        rewards.append(reward)
    following, returns = np.zeros(STARTS), []
    for reward in reversed(rewards):
        following = reward + DISCOUNT * following
        returns.append(following)
    looked = slice(0, VISITED, VISITED // 20)
    return (
        float(np.mean(said[looked])),
        float(np.mean(returns[::-1][looked])),
        float(np.sum(rewards[:VISITED], axis=0).mean()),
    )


def train(variant: str, seed: int) -> list[dict[str, Any]]:
    """One run's rows."""
    from duetto.networks import numpy_layers
    from duetto.networks.network import Network

    layers: Any = numpy_layers

    rows: list[dict[str, Any]] = []

    def look(trainer: duetto.Trainer) -> None:
        if trainer.step % EVERY:
            return
        learner = trainer.learner
        specs: Any = learner.specs
        nets = {name: Network(specs[name], learner.parameters()[name], layers) for name in ("actor", "critic")}
        values = measured(nets["actor"], nets["critic"].q1)
        rows.append(
            dict(zip(FIELDS, (variant, seed, trainer.step, *(round(value, 3) for value in values)), strict=True))
        )

    with tempfile.TemporaryDirectory() as folder:
        duetto.train(
            algorithm(variant, SETTINGS),
            "Pendulum-v1",
            steps=STEPS,
            seed=seed,
            backend="torch",
            threads=1,
            evaluate_every=0,
            checkpoint_every=0,
            runs_dir=folder,
            callbacks=[look],
        )
    return rows


if __name__ == "__main__":
    DATA.parent.mkdir(exist_ok=True)
    with DATA.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for seed in range(SEEDS):
            for variant in VARIANTS:
                writer.writerows(train(variant, seed))
                file.flush()
