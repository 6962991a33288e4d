"""Errors in custom networks and custom losses name the user's class or network, on both frameworks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import duetto
from duetto.errors import UsageError
from duetto.networks.specs import CustomNetwork

SMALL: dict[str, Any] = {"learning_starts": 8, "batch_size": 8, "steps": 12, "evaluate_every": 0}


class Wide(torch.nn.Module):
    """Returns an array (B, *shape), or a tuple of two arrays if `several`."""

    def __init__(self, observation: Any, action_size: int, shape: tuple[int, ...], several: bool = False) -> None:
        super().__init__()
        self.shape, self.several = shape, several
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, obs: Any, *_: Any) -> Any:
        found = self.weight + torch.zeros((len(obs), *self.shape))
        return (found, found[:, 0]) if self.several else found


class JaxWide(eqx.Module):
    """The same in JAX."""

    weight: Any
    shape: tuple[int, ...]
    several: bool

    def __init__(self, observation: Any, action_size: int, shape: tuple[int, ...], several: bool = False, *, key: Any):
        self.weight, self.shape, self.several = jnp.zeros(()), shape, several

    def __call__(self, obs: Any, *_: Any) -> Any:
        found = self.weight + jnp.zeros((len(obs), *self.shape))
        return (found, found[:, 0]) if self.several else found


def wide(*shape: int, several: bool = False) -> CustomNetwork:
    return CustomNetwork(torch=Wide, jax=JaxWide, arguments={"shape": shape, "several": several})


WRONG_OUTPUTS = [
    ("torch", "dqn", "CartPole-v1", {"q_network": wide(1)}, r"value \(B, 2\); it returned one of shape \(\d, 1\)"),
    ("jax", "td3", "Pendulum-v1", {"critic_network": wide(1)}, r"value \(B,\); it returned one of shape \(8, 1\)"),
    (
        "torch",
        "ppo",
        "CartPole-v1",
        {"agent_network": wide(2)},
        r"2 arrays, policy \(B, 2\) and value \(B,\); it",
    ),
    ("jax", "ppo", "CartPole-v1", {"agent_network": wide(3, several=True)}, r"2 arrays, .* one of shape \(\d, 3\)"),
    ("torch", "dqn", "CartPole-v1", {"q_network": wide(2, several=True)}, r"value \(B, 2\); it returned a tuple"),
]


@pytest.mark.parametrize(("backend", "algorithm", "environment", "network", "sentence"), WRONG_OUTPUTS)
def test_custom_network_with_wrong_output_is_rejected(
    tmp_path: Path, backend: Any, algorithm: str, environment: str, network: dict[str, Any], sentence: str
):
    options = {name: SMALL[name] for name in SMALL if algorithm != "ppo" or name in ("steps", "evaluate_every")}
    with pytest.raises(UsageError, match=rf"Your network Wide / JaxWide must return {sentence}"):
        duetto.train(algorithm, environment, backend=backend, runs_dir=tmp_path, **options, **network)


# ---------------------------------------------------------------------------------------------------- losses
@dataclass(frozen=True)
class MisspelledNetwork(duetto.DDPG):
    def update(self, learner: Any, batch: Any, noise: Any, phase: int) -> None:
        learner.minimize("critc", self.critic_loss, batch, noise)


@dataclass(frozen=True)
class LossPerSample(duetto.DDPG):
    def actor_loss(self, nets: Any, batch: Any) -> Any:
        return -nets.critic.q1(batch.obs, nets.actor(batch.obs)), {}


@dataclass(frozen=True)
class LossWithoutMetrics(duetto.DDPG):
    def actor_loss(self, nets: Any, batch: Any) -> Any:
        return super().actor_loss(nets, batch)[0]


@dataclass(frozen=True)
class TextMetric(duetto.DDPG):
    def actor_loss(self, nets: Any, batch: Any) -> Any:
        return super().actor_loss(nets, batch)[0], {"beta": "3"}


@dataclass(frozen=True)
class MisspelledOptimizer(duetto.DDPG):
    def optimizers(self) -> Any:
        return {"aktor" if name == "actor" else name: one for name, one in super().optimizers().items()}


@dataclass(frozen=True)
class MisspelledActor(duetto.DDPG):
    acting_networks: ClassVar[tuple[str, ...]] = ("aktor",)


WRONG_LOSSES = [
    (MisspelledActor, r"acting_networks names a network 'aktor'; there are actor, critic.* Did you mean 'actor'\?"),
    (TextMetric, r"The loss of 'actor' reports 'beta' as a str; report arrays or numbers\."),
    (MisspelledOptimizer, r"optimizers\(\) names a network 'aktor'; there are actor, critic.* Did you mean 'actor'\?"),
    (MisspelledNetwork, r"without an optimizer, 'critc'; there are actor, critic\. Did you mean 'critic'\?"),
    (LossPerSample, r"The loss of 'actor' must return a scalar array, such as batch\.mean.* an array of shape \(8,\)"),
    (LossWithoutMetrics, r"must return a scalar array, such as batch.mean\(...\), and a dict of metrics"),
]


def train_custom(kind: Any, backend: Any, folder: Path, **options: Any) -> Any:
    own = {name: SMALL[name] for name in ("learning_starts", "batch_size")}
    algorithm = kind(**own, hidden=(8,), random_steps=8)
    options |= {"steps": 12, "evaluate_every": 0, "backend": backend, "runs_dir": folder}
    return duetto.train(algorithm, "Pendulum-v1", **options)


@pytest.mark.parametrize(("kind", "sentence"), WRONG_LOSSES)
def test_custom_loss_mistake_is_reported(tmp_path: Path, kind: Any, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        train_custom(kind, "jax" if kind is MisspelledNetwork else "torch", tmp_path)


@dataclass(frozen=True)
class NumberMetrics(duetto.DDPG):
    def actor_loss(self, nets: Any, batch: Any) -> Any:
        loss, info = super().actor_loss(nets, batch)
        return loss, info | {"beta": 3, "share": np.float32(0.25)}


def test_custom_loss_may_report_numbers(tmp_path: Path, backend: str):
    run = train_custom(NumberMetrics, backend, tmp_path)
    assert (run.metrics()[-1]["learn/beta"], run.metrics()[-1]["learn/share"]) == (3.0, 0.25)


def test_custom_network_with_wrong_arguments_is_rejected(backend: Any, tmp_path: Path):
    network = CustomNetwork(torch=Wide, jax=JaxWide, arguments={"shape": (1,), "depth": 3})
    sentence = r"network (Jax)?Wide cannot be made as (Jax)?Wide\(observation_space, .* keyword argument 'depth'"
    with pytest.raises(UsageError, match=sentence):
        duetto.train("td3", "Pendulum-v1", backend=backend, runs_dir=tmp_path, actor_network=network)
    assert not list(tmp_path.iterdir())


def test_custom_network_requires_classes():
    wrong: Any = Wide(None, 1, (1,))
    with pytest.raises(
        UsageError,
        match=r"^CustomNetwork has Wide\(\); give classes, torch=..., jax=... or both\. Duetto constructs",
    ):
        CustomNetwork(torch=wrong)
    with pytest.raises(UsageError, match="has no class"):
        CustomNetwork()
    wrong = Wide
    with pytest.raises(UsageError, match=r"it must be a duetto.CustomNetwork\(torch=..., jax=...\), or None"):
        duetto.TD3(actor_network=wrong)


def test_custom_networks_determine_the_framework(tmp_path: Path):
    algorithm = duetto.DQN(q_network=CustomNetwork(torch=Wide, arguments={"shape": (2,)}), hidden=(8,))
    options: dict[str, Any] = {"steps": 4, "evaluate_every": 0, "progress": False, "runs_dir": tmp_path}
    assert duetto.train(algorithm, "CartPole-v1", **options).config.run.backend == "torch"
    actor, critic = CustomNetwork(torch=Wide), CustomNetwork(jax=JaxWide)
    with pytest.raises(UsageError, match="actor_network for torch, critic_network for jax"):
        duetto.train(duetto.TD3(actor_network=actor, critic_network=critic), "Pendulum-v1", **options)
