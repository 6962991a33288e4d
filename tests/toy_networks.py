"""SPEC O16's networks, linear and without biases: μ(s) = θ·s and Q(s, a) = w·[s, a], in both frameworks."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
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
        self.theta = jnp.full((observation.size, action_size), start, jnp.float32)

    def __call__(self, obs):
        return obs @ self.theta


class TorchSharedActor(torch.nn.Module):
    """μ(s) = (a + b)·s."""

    def __init__(self, observation: Any, action_size: int):
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(observation.size, action_size))
        self.b = torch.nn.Parameter(torch.ones(observation.size, action_size))

    def forward(self, obs):
        return obs @ (self.a + self.b)


class JaxSharedActor(eqx.Module):
    a: Any
    b: Any

    def __init__(self, observation: Any, action_size: int, *, key: Any):
        self.a, self.b = (jnp.ones((observation.size, action_size), jnp.float32) for _ in range(2))

    def __call__(self, obs):
        return obs @ (self.a + self.b)


class TorchGaussian(TorchActor):
    """A squashed Gaussian of mean θ·s and std 1."""

    def forward(self, obs):
        mean = obs @ self.theta
        return torch.cat([mean, torch.zeros_like(mean)], -1)


class JaxGaussian(JaxActor):
    def __call__(self, obs):
        mean = obs @ self.theta
        return jnp.concatenate([mean, jnp.zeros_like(mean)], -1)


class TorchCritic(torch.nn.Module):
    def __init__(self, observation: Any, action_size: int, start: float = 1.0):
        super().__init__()
        self.w = torch.nn.Parameter(torch.full((observation.size + action_size,), start))

    def forward(self, obs, action):
        return torch.cat([obs, action], -1) @ self.w


class JaxCritic(eqx.Module):
    w: Any

    def __init__(self, observation: Any, action_size: int, start: float = 1.0, *, key: Any):
        self.w = jnp.full((observation.size + action_size,), start, jnp.float32)

    def __call__(self, obs, action):
        return jnp.concatenate([obs, action], -1) @ self.w


class TorchAgent(torch.nn.Module):
    """A policy's outputs and a value function, linear: s·p and s·v."""

    def __init__(self, observation: Any, action_size: int, start: float = 1.0):
        super().__init__()
        self.p = torch.nn.Parameter(torch.full((observation.size, action_size), start))
        self.v = torch.nn.Parameter(torch.full((observation.size,), start))

    def forward(self, obs):
        return obs @ self.p, obs @ self.v


class JaxAgent(eqx.Module):
    p: Any
    v: Any

    def __init__(self, observation: Any, action_size: int, start: float = 1.0, *, key: Any):
        self.p = jnp.full((observation.size, action_size), start, jnp.float32)
        self.v = jnp.full((observation.size,), start, jnp.float32)

    def __call__(self, obs):
        return obs @ self.p, obs @ self.v


class TorchNoisyCritic(TorchCritic):
    """Draws its parameters from PyTorch's global generator, as modules do."""

    def __init__(self, observation: Any, action_size: int):
        super().__init__(observation, action_size)
        torch.nn.init.normal_(self.w)


class JaxNoisyCritic(JaxCritic):
    def __init__(self, observation: Any, action_size: int, *, key: Any):
        self.w = jax.random.normal(key, (observation.size + action_size,))


def actor(start: float = 1.0) -> CustomNetwork:
    return CustomNetwork(torch=TorchActor, jax=JaxActor, arguments={"start": start})


def gaussian(start: float = 1.0) -> CustomNetwork:
    return CustomNetwork(torch=TorchGaussian, jax=JaxGaussian, arguments={"start": start})


def critic(start: float = 1.0) -> CustomNetwork:
    return CustomNetwork(torch=TorchCritic, jax=JaxCritic, arguments={"start": start})


def agent(start: float = 1.0) -> CustomNetwork:
    return CustomNetwork(torch=TorchAgent, jax=JaxAgent, arguments={"start": start})


def shared_actor() -> CustomNetwork:
    return CustomNetwork(torch=TorchSharedActor, jax=JaxSharedActor)


def noisy_critic() -> CustomNetwork:
    return CustomNetwork(torch=TorchNoisyCritic, jax=JaxNoisyCritic)


def single(value: float) -> np.ndarray:
    """Return a batch of one observation with one number."""
    return np.full((1, 1), value, np.float32)


class TorchJoining(torch.nn.Module):
    """Sums its inputs. The sum is both actions of an actor, or the value of a critic."""

    def __init__(self, observation: Any, action_size: int):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(sum(part.size for _, part in observation.parts)))

    def forward(self, obs, *action):
        total = torch.cat(list(obs.values()), -1) @ self.w
        return total + action[0].sum(-1) if action else torch.stack([total, total], -1)


class JaxJoining(eqx.Module):
    w: Any

    def __init__(self, observation: Any, action_size: int, *, key: Any):
        self.w = jnp.ones(sum(part.size for _, part in observation.parts), jnp.float32)

    def __call__(self, obs, *action):
        total = jnp.concatenate(list(obs.values()), -1) @ self.w
        return total + action[0].sum(-1) if action else jnp.stack([total, total], -1)


def joining() -> CustomNetwork:
    return CustomNetwork(TorchJoining, JaxJoining)
