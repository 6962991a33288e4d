"""Every hyper-parameter changes the run: none is read by nobody, or by another backend only."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
import toy_networks
from gymnasium.spaces import Box
from probes import run

from duetto.algorithms import DDPG, TD3

STEPS = 60
SMALL = {"hidden": (8,), "batch_size": 8, "random_steps": 15, "learning_starts": 20, "replay_capacity": 1000}
BASE = {DDPG: SMALL, TD3: SMALL | {"policy_delay": 1}}  # a single phase, so that JAX compiles one program
PER = {"prioritized": True}
OU = {"exploration": "ou"}
WINDOWS = {"recurrent_size": 4, "burn_in": 2, "unroll": 4, "overlap": 2}
LSTM = {"recurrent": "lstm"} | WINDOWS

# Each field's other values, and the options with which alone it matters. A new field needs a line here.
FIELDS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "discount": ([0.5], {}),
    "batch_size": ([4], {}),
    "replay_capacity": ([30], {}),
    "n_step": ([3], {}),
    "learning_starts": ([30], {}),
    "train_every": ([2], {}),
    "gradient_steps": ([2], {}),
    "train_at_episode_end": ([True], {}),
    "prioritized": ([True], {}),
    "priority_exponent": ([1.0], PER),
    "priority_epsilon": ([0.5], PER),
    "importance_exponent": ([1.0], PER),
    "importance_anneal_samples": ([10], PER),
    "recurrent": (["lstm", "gru"], WINDOWS),
    "recurrent_size": ([6], LSTM),
    "recurrent_layers": ([2], LSTM),
    "burn_in": ([1], LSTM),
    "unroll": ([5], LSTM),
    "overlap": ([3], LSTM),
    "stored_carry": ([False], LSTM),
    "learn_from_start": ([False], LSTM),
    "priority_mix": ([0.1], LSTM | PER),
    "previous_reward": (["raw", "sign"], LSTM),
    "tau": ([0.5], {}),
    "actor_learning_rate": ([1e-2], {}),
    "critic_learning_rate": ([1e-2], {}),
    "learning_rate_decay": (["linear", "cosine"], {}),
    "learning_rate_final": ([0.5], {"learning_rate_decay": "linear"}),
    "max_grad_norm": ([0.01], {}),
    "actor_weight_decay": ([0.1], {}),
    "critic_weight_decay": ([0.1], {}),
    "decoupled_weight_decay": ([True], {"actor_weight_decay": 0.1}),
    "normalize_observations": (["collected", "sampled"], {}),
    "random_steps": ([25], {}),
    "exploration": (["ou", "none"], {}),
    "exploration_noise": ([0.3], {}),
    "exploration_noise_max": ([0.6], {}),
    "exploration_final_scale": ([0.5], {}),
    "ou_theta": ([0.5], OU),
    "ou_reset": ([False], OU),
    "hidden": ([(8, 8)], {}),
    "critic_hidden": ([(6,)], {}),
    "network": (["layer_norm", "simba"], {}),
    "activation": (["tanh"], {}),
    "critic_action_layer": ([1], {}),
    "initializer": (["normal"], {}),
    "initializer_gain": ([0.5], {}),
    "initializer_final_bound": ([0.003], {}),
    "actor_network": ([toy_networks.actor(0.1)], {}),
    "critic_network": ([toy_networks.critic(0.1)], {}),
    "critic": (["categorical"], {}),
    "num_atoms": ([11], {"critic": "categorical"}),
    "value_range": ([(-3.0, 4.0)], {"critic": "categorical"}),
    "normalize_rewards": ([True], {}),
    "return_bound": ([0.5], {"normalize_rewards": True}),
    "policy_delay": ([3], {}),
    "target_noise": ([0.0], {}),
    "target_noise_clip": ([(-0.01, 0.01)], {}),
    "twin_critic": ([False], {}),
    "target_update": (["every_step"], {"policy_delay": 2}),
}
GOALS = {"hindsight", "hindsight_share"}  # want goals: see tests/training/test_hindsight_runs.py
RUN_OPTIONS = {"seed": 1, "num_envs": 2, "precision": "bf16"}
# What each backend reads for itself, and JAX is tried with. Others are read by what they share; PyTorch's are tried by
# test_conformance.
OWN = {"recurrent", "recurrent_size", "recurrent_layers", "tau", "actor_learning_rate", "critic_learning_rate"}
OWN |= {"learning_rate_decay", "learning_rate_final", "max_grad_norm", "actor_weight_decay", "critic_weight_decay"}
OWN |= {"decoupled_weight_decay", "normalize_observations", "exploration", "hidden", "critic_hidden", "network"}
OWN |= {"activation", "critic_action_layer", "initializer", "initializer_gain", "initializer_final_bound"}
OWN |= {
    "actor_network",
    "critic_network",
    "policy_delay",
    "target_noise",
    "twin_critic",
    "target_update",
    "prioritized",
}


class Drift(gymnasium.Env):
    """A point that actions push about; every second episode is truncated after 7 steps, the others terminate."""

    def __init__(self) -> None:
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = Box(-2.0, 1.0, (1,), np.float32)
        self.episode = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.episode = 0, self.episode + 1
        self.at = self.np_random.normal(1.0, 1.0, 2)
        return self.at.astype(np.float32), {}

    def step(self, action):
        self.time += 1
        self.at = 0.9 * self.at + 0.3 * action
        over, odd = self.time == 7, self.episode % 2 == 1
        return self.at.astype(np.float32), float(self.at.sum()), over and odd, over and not odd, {}


class Pictured(gymnasium.Env):
    """Mixed into an environment, it shows its two numbers as a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(0, 255, (7, 7, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        return self._picture(obs), info

    def step(self, action):
        obs, *others = super().step(action)
        return self._picture(obs), *others

    def _picture(self, obs):
        ramp = np.arange(147).reshape(7, 7, 3)
        return ((ramp * abs(obs[0]) + 50 * abs(obs[1])) % 256).astype(np.uint8)


@pytest.fixture(scope="module")
def fingerprint(tmp_path_factory):
    """Sums of everything that a short run learned, did and saw, by name; equal calls are run once."""

    @cache
    def of(kind: Any, backend: str, options: tuple, run_options: tuple) -> str:
        algorithm = kind(**BASE[kind] | dict(options))
        trainer = run(algorithm, Drift, backend, tmp_path_factory.mktemp("run"), STEPS, **dict(run_options))
        arrays = {
            f"{net}/{key}": v for net, values in trainer.learner.parameters().items() for key, v in values.items()
        }
        arrays |= trainer.memory.segment(np.zeros(trainer.stepper.num_envs, np.int64))
        sums = {name: hashlib.sha256(array.tobytes()).hexdigest()[:16] for name, array in arrays.items()}
        return "\n".join(f"{name} {sums[name]}" for name in sorted(sums))

    def call(kind: Any, backend: str, run_options: dict[str, Any] | None = None, **options: Any) -> str:
        return of(kind, backend, Unhashed(options.items()), tuple((run_options or {}).items()))

    call.again = of.__wrapped__
    return call


class Unhashed(tuple):
    """A tuple whose values, networks of a user's own among them, are told apart by their text."""

    def __hash__(self) -> int:
        return hash(repr(self))


@pytest.mark.parametrize(
    ("kind", "backend", "field"),
    [
        pytest.param(k, b, f, marks=() if b == "jax" and f in OWN else pytest.mark.slow)
        for k, b in ((TD3, "torch"), (TD3, "jax"), (DDPG, "torch"))
        for f in k.options()
        if f not in GOALS
    ],
    ids=lambda value: value if isinstance(value, str) else value.name(),
)
def test_the_field_changes_the_run(fingerprint, kind, backend, field):
    values, needed = FIELDS[field]
    seen = [fingerprint(kind, backend, **needed)]
    seen += [fingerprint(kind, backend, **needed | {field: value}) for value in values]
    assert len(set(seen)) == len(values) + 1


@pytest.mark.parametrize("kind", [TD3, DDPG])
def test_the_same_config_is_the_same_run(fingerprint, backend, kind):
    assert fingerprint(kind, backend) == fingerprint.again(kind, backend, (), ())


@pytest.mark.parametrize("option", RUN_OPTIONS)
def test_the_run_option_changes_the_run(fingerprint, option):
    assert fingerprint(TD3, "torch") != fingerprint(TD3, "torch", {option: RUN_OPTIONS[option]})


def test_the_table_holds_no_field_of_the_past():
    assert set(FIELDS) | GOALS == set(TD3.options()) | set(DDPG.options())
