"""SPEC O16's networks, linear and without biases: μ(s) = θ·s and Q(s, a) = w·[s, a], in both frameworks."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import torch

from duetto.networks.specs import CustomNetwork


class TorchActor(torch.nn.Module):
    def __init__(self, observation: Any, action_size: int, start: float = 1.0):
        super().__init__()
        self.theta = torch.nn.Parameter(torch.full((observation.size, action_size), start))

    def forward(self, obs):
        return obs @ self.theta


class JaxActor(eqx.Module):
    theta: Any

    def __init__(self, observation: Any, action_size: int, start: float = 1.0, *, key: Any):
        self.theta = jnp.full((observation.size, action_size), start)

    def __call__(self, obs):
        return obs @ self.theta


class TorchCritic(torch.nn.Module):
    def __init__(self, observation: Any, action_size: int, start: float = 1.0):
        super().__init__()
        self.w = torch.nn.Parameter(torch.full((observation.size + action_size,), start))

    def forward(self, obs, action):
        return torch.cat([obs, action], -1) @ self.w


class JaxCritic(eqx.Module):
    w: Any

    def __init__(self, observation: Any, action_size: int, start: float = 1.0, *, key: Any):
        self.w = jnp.full((observation.size + action_size,), start)

    def __call__(self, obs, action):
        return jnp.concatenate([obs, action], -1) @ self.w


def actor(start: float = 1.0) -> CustomNetwork:
    return CustomNetwork(torch=TorchActor, jax=JaxActor, arguments={"start": start})


def critic(start: float = 1.0) -> CustomNetwork:
    return CustomNetwork(torch=TorchCritic, jax=JaxCritic, arguments={"start": start})


def single(value: float) -> np.ndarray:
    """A batch of one observation of one number."""
    return np.full((1, 1), value, np.float32)
