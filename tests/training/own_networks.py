"""A user's own actor and critic, with layer normalisation, in both frameworks."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import torch
from torch import nn

from duetto.networks.specs import CustomNetwork


class TorchActor(nn.Module):
    def __init__(self, observation: Any, action_size: int, width: int = 16):
        super().__init__()
        self.inside = nn.Linear(observation.size, width)
        self.norm = nn.LayerNorm(width)
        self.outside = nn.Linear(width, action_size)

    def forward(self, obs):
        return torch.tanh(self.outside(torch.relu(self.norm(self.inside(obs)))))


class TorchCritic(nn.Module):
    def __init__(self, observation: Any, action_size: int, width: int = 16):
        super().__init__()
        self.inside = nn.Linear(observation.size + action_size, width)
        self.outside = nn.Linear(width, 1)

    def forward(self, obs, action):
        return self.outside(torch.relu(self.inside(torch.cat([obs, action], -1))))[:, 0]


class JaxActor(eqx.Module):
    inside: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    outside: eqx.nn.Linear

    def __init__(self, observation: Any, action_size: int, width: int = 16, *, key: Any):
        keys = jax.random.split(key)
        self.inside = eqx.nn.Linear(observation.size, width, key=keys[0])
        self.norm = eqx.nn.LayerNorm(width)
        self.outside = eqx.nn.Linear(width, action_size, key=keys[1])

    def __call__(self, obs):
        return jax.vmap(lambda x: jnp.tanh(self.outside(jax.nn.relu(self.norm(self.inside(x))))))(obs)


class JaxCritic(eqx.Module):
    inside: eqx.nn.Linear
    outside: eqx.nn.Linear

    def __init__(self, observation: Any, action_size: int, width: int = 16, *, key: Any):
        keys = jax.random.split(key)
        self.inside = eqx.nn.Linear(observation.size + action_size, width, key=keys[0])
        self.outside = eqx.nn.Linear(width, 1, key=keys[1])

    def __call__(self, obs, action):
        one = jax.vmap(lambda x: self.outside(jax.nn.relu(self.inside(x))))
        return one(jnp.concatenate([obs, action], -1))[:, 0]


def networks(width: int = 16) -> dict[str, CustomNetwork]:
    return {
        "actor_network": CustomNetwork(TorchActor, JaxActor, {"width": width}),
        "critic_network": CustomNetwork(TorchCritic, JaxCritic, {"width": width}),
    }
