"""A custom network: a critic with layer normalization, as one class per framework.

    python examples/own_network.py

If both classes use the same parameter names, each framework can load networks that the other has trained. For one
framework, one class is enough.
"""

from __future__ import annotations

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import torch
from torch import nn

import duetto


class TorchCritic(nn.Module):
    """Q(s, a) in PyTorch."""

    def __init__(self, observation, action_size: int, width: int):
        super().__init__()
        self.inside = nn.Linear(observation.size + action_size, width)
        self.norm = nn.LayerNorm(width)
        self.value = nn.Linear(width, 1)

    def forward(self, obs, action):
        """Return values (B,) of observations (B, ...) and actions (B, A)."""
        x = self.inside(torch.cat([obs, action], -1))
        return self.value(torch.relu(self.norm(x)))[:, 0]


class JaxCritic(eqx.Module):
    """Q(s, a) in JAX, as an Equinox module; `key` determines its initial parameters."""

    inside: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    value: eqx.nn.Linear

    def __init__(self, observation, action_size: int, width: int, *, key):
        inside, value = jax.random.split(key)
        self.inside = eqx.nn.Linear(observation.size + action_size, width, key=inside)
        self.norm = eqx.nn.LayerNorm(width)
        self.value = eqx.nn.Linear(width, 1, key=value)

    def __call__(self, obs, action):
        """Return values (B,) of observations (B, ...) and actions (B, A)."""
        x = jax.vmap(self.inside)(jnp.concatenate([obs, action], -1))
        return jax.vmap(self.value)(jax.nn.relu(jax.vmap(self.norm)(x)))[:, 0]


def main(backend: str = "auto", steps: int = 8_000, runs_dir: str = "runs") -> duetto.Run:
    """Train TD3 with two of these critics on Pendulum-v1, and load the agent again."""
    networks = {"critic_network": duetto.CustomNetwork(torch=TorchCritic, jax=JaxCritic, arguments={"width": 128})}
    algorithm = duetto.TD3(
        hidden=(64, 64), batch_size=128, discount=0.98, random_steps=1_000, learning_starts=1_000, **networks
    )
    run = duetto.train(algorithm, "Pendulum-v1", steps=steps, backend=backend, evaluate_every=2_000, runs_dir=runs_dir)
    for row in run.evaluations():
        print(f"step {row['step']:6.0f}  mean return {row['mean_return']:8.1f}")
    # A run's folder contains no code: pass the classes again to load it.
    agent = duetto.load(run.path, networks=networks)
    print("An action:", agent.act([1.0, 0.0, 0.0]))
    return run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train TD3 with a custom critic.")
    parser.add_argument("--backend", choices=["auto", "torch", "jax"], default="auto")
    parser.add_argument("--steps", type=int, default=8_000)
    given = parser.parse_args()
    main(given.backend, given.steps)
