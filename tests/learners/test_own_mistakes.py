"""What is wrong in a network or an algorithm of the user's own is said in their words, on both frameworks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import duetto
from duetto.errors import UsageError
from duetto.networks.specs import CustomNetwork

SMALL: dict[str, Any] = {"learning_starts": 8, "batch_size": 8, "steps": 12, "evaluate_every": 0}
BACKENDS = pytest.mark.parametrize("backend", ["torch", "jax"])


class Wide(torch.nn.Module):
    """It returns (B, *shape) of its only weight."""

    def __init__(self, observation: Any, action_size: int, shape: tuple[int, ...], several: bool = False) -> None:
        super().__init__()
        self.shape, self.several = shape, several
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, obs: Any, *_: Any) -> Any:
        found = self.weight + torch.zeros((len(obs), *self.shape))
        return (found, found[:, 0]) if self.several else found


class JaxWide(eqx.Module):
    """The same."""

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


CASES = [
    ("dqn", "CartPole-v1", {"q_network": wide(1)}, r"value \(B, 2\); it returned one of shape \(\d, 1\)"),
    ("dqn", "CartPole-v1", {"q_network": wide(3)}, r"value \(B, 2\); it returned one of shape \(\d, 3\)"),
    ("td3", "Pendulum-v1", {"actor_network": wide(2)}, r"action \(B, 1\); it returned one of shape \(\d, 2\)"),
    ("td3", "Pendulum-v1", {"critic_network": wide(1)}, r"value \(B,\); it returned one of shape \(8, 1\)"),
    ("sac", "Pendulum-v1", {"actor_network": wide(1)}, r"policy \(B, 2\); it returned one of shape \(\d, 1\)"),
    (
        "ppo",
        "CartPole-v1",
        {"agent_network": wide(2)},
        r"2 arrays, policy \(B, 2\) and value \(B,\); it returned one of",
    ),
    (
        "ppo",
        "CartPole-v1",
        {"agent_network": wide(3, several=True)},
        r"2 arrays, policy \(B, 2\) and value \(B,\); it returned one of shape \(\d, 3\)",
    ),
]


@BACKENDS
@pytest.mark.parametrize(("algorithm", "environment", "network", "sentence"), CASES)
def test_a_network_that_returns_another_shape(
    tmp_path: Path, backend: str, algorithm: str, environment: str, network: dict[str, Any], sentence: str
):
    options = {name: SMALL[name] for name in SMALL if algorithm != "ppo" or name in ("steps", "evaluate_every")}
    with pytest.raises(UsageError, match=rf"Your network Wide / JaxWide must return {sentence}"):
        duetto.train(algorithm, environment, backend=backend, runs_dir=tmp_path, **options, **network)


def test_one_that_returns_no_array(tmp_path: Path):
    network = CustomNetwork(torch=Wide, arguments={"shape": (2,), "several": True})
    with pytest.raises(UsageError, match=r"Your network Wide must return value \(B, 2\); it returned a tuple"):
        duetto.train("dqn", "CartPole-v1", backend="torch", runs_dir=tmp_path, q_network=network, **SMALL)


class JaxNumber(eqx.Module):
    def __init__(self, observation: Any, action_size: int, *, key: Any):
        pass

    def __call__(self, obs: Any) -> Any:
        return 0.5


def test_one_of_jax_that_returns_a_number(tmp_path: Path):
    with pytest.raises(UsageError, match=r"Your network JaxNumber must return value \(B, 2\); it returned a float"):
        duetto.train(
            "dqn", "CartPole-v1", backend="jax", runs_dir=tmp_path, q_network=CustomNetwork(jax=JaxNumber), **SMALL
        )


# ---------------------------------------------------------------------------------------------------- losses
@dataclass(frozen=True)
class Misspelt(duetto.DDPG):
    def update(self, learner: Any, batch: Any, noise: Any, phase: int) -> None:
        learner.minimize("critc", self.critic_loss, batch, noise)


@dataclass(frozen=True)
class Whole(duetto.DDPG):
    def actor_loss(self, nets: Any, batch: Any) -> Any:
        return -nets.critic.q1(batch.obs, nets.actor(batch.obs)), {}


@dataclass(frozen=True)
class Silent(duetto.DDPG):
    def actor_loss(self, nets: Any, batch: Any) -> Any:
        return super().actor_loss(nets, batch)[0]


@dataclass(frozen=True)
class Wordy(duetto.DDPG):
    def actor_loss(self, nets: Any, batch: Any) -> Any:
        return super().actor_loss(nets, batch)[0], {"beta": "3"}


@dataclass(frozen=True)
class Elsewhere(duetto.DDPG):
    def optimizers(self) -> Any:
        return {"aktor" if name == "actor" else name: one for name, one in super().optimizers().items()}


@dataclass(frozen=True)
class Number(duetto.DDPG):
    def actor_loss(self, nets: Any, batch: Any) -> Any:
        return 0.0, {}


MISTAKES = [
    (Wordy, r"The loss of 'actor' reports 'beta' as a str; report arrays or numbers\."),
    (Elsewhere, r"optimizers\(\) names a network 'aktor'; there are actor, critic.* Did you mean 'actor'\?"),
    (Number, r"The loss of 'actor' must return a scalar array.*; it returned a float\."),
    (Misspelt, r"without an optimizer, 'critc'; there are actor, critic\. Did you mean 'critic'\?"),
    (Whole, r"The loss of 'actor' must return a scalar array, such as batch\.mean.* an array of shape \(8,\)"),
    (Silent, r"must return a scalar array, such as batch.mean\(...\), and a dict of metrics"),
]


def trained(kind: Any, backend: Any, folder: Path, **options: Any) -> Any:
    own = {name: SMALL[name] for name in ("learning_starts", "batch_size")}
    algorithm = kind(**own, hidden=(8,), random_steps=8)
    options |= {"steps": 12, "evaluate_every": 0, "backend": backend, "runs_dir": folder}
    return duetto.train(algorithm, "Pendulum-v1", **options)


@BACKENDS
@pytest.mark.parametrize(("kind", "sentence"), MISTAKES)
def test_an_algorithm_whose_loss_is_none(tmp_path: Path, backend: str, kind: Any, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        trained(kind, backend, tmp_path)


@dataclass(frozen=True)
class Counting(duetto.DDPG):
    def actor_loss(self, nets: Any, batch: Any) -> Any:
        loss, info = super().actor_loss(nets, batch)
        return loss, info | {"beta": 3, "share": np.float32(0.25)}


@BACKENDS
def test_a_loss_may_report_numbers(tmp_path: Path, backend: str):
    run = trained(Counting, backend, tmp_path)
    assert (run.metrics()[-1]["learn/beta"], run.metrics()[-1]["learn/share"]) == (3.0, 0.25)


class Alone(torch.nn.Module):
    """Made from nothing, as a network outside of Duetto often is."""

    def __init__(self) -> None:
        super().__init__()


class JaxAlone(eqx.Module):
    """The same."""


@BACKENDS
def test_a_class_that_is_made_from_other_things(backend: Any, tmp_path: Path):
    network = CustomNetwork(torch=Alone, jax=JaxAlone)
    with pytest.raises(
        UsageError, match=r"Your network (Jax)?Alone cannot be made as (Jax)?Alone\(observation_space, action"
    ):
        duetto.train("td3", "Pendulum-v1", backend=backend, runs_dir=tmp_path, actor_network=network)
    network = CustomNetwork(torch=Wide, jax=JaxWide, arguments={"shape": (1,), "depth": 3})
    with pytest.raises(UsageError, match=r"cannot be made .* unexpected keyword argument 'depth'"):
        duetto.train("td3", "Pendulum-v1", backend=backend, runs_dir=tmp_path, actor_network=network)
    network = CustomNetwork(torch=Wide, jax=JaxWide, arguments={"shape": (1,), "key": 3})
    said = "multiple values for keyword argument 'key'" if backend == "jax" else "unexpected keyword argument 'key'"
    with pytest.raises(UsageError, match=said):
        duetto.train("td3", "Pendulum-v1", backend=backend, runs_dir=tmp_path, actor_network=network)
    assert not list(tmp_path.iterdir())


def test_what_is_no_class():
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


def test_the_framework_is_one_that_every_own_network_is_for(tmp_path: Path):
    algorithm = duetto.DQN(q_network=CustomNetwork(torch=Wide, arguments={"shape": (2,)}), hidden=(8,))
    options: dict[str, Any] = {"steps": 4, "evaluate_every": 0, "progress": False, "runs_dir": tmp_path}
    assert duetto.train(algorithm, "CartPole-v1", **options).config.run.backend == "torch"
    actor, critic = CustomNetwork(torch=Wide), CustomNetwork(jax=JaxWide)
    with pytest.raises(UsageError, match="actor_network for torch, critic_network for jax"):
        duetto.train(duetto.TD3(actor_network=actor, critic_network=critic), "Pendulum-v1", **options)
