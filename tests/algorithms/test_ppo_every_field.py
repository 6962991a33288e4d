"""Every hyper-parameter of PPO changes the run: see test_every_field.py."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import numpy as np
import pytest
import toy_networks
from probes import run
from test_every_field import Drift, Pictured, Unhashed

from duetto.algorithms import PPO

STEPS = 60  # 6 rollouts
BASE = {"hidden": (8,), "rollout_steps": 10, "minibatches": 2, "epochs": 2, "learning_rate": 1e-2, "clip_range": 0.05}
LSTM = {"recurrent": "lstm", "recurrent_size": 4, "minibatches": 1}

# Each field's other values, and the options with which alone it matters. A new field needs a line here.
FIELDS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "discount": ([0.5], {}),
    "gae_lambda": ([0.5], {}),
    "rollout_steps": ([20], {}),
    "epochs": ([3], {}),
    "minibatches": ([1], {}),
    "learning_rate": ([1e-3], {}),
    "learning_rate_decay": (["linear", "cosine"], {}),
    "learning_rate_final": ([0.5], {"learning_rate_decay": "linear"}),
    "adam_epsilon": ([1e-2], {}),
    "max_grad_norm": ([0.01], {}),
    "clip_range": ([0.3], {}),
    "clip_range_decay": (["linear", "cosine"], {}),
    "clip_value": ([True], {}),
    "normalize_advantages": ([False], {}),
    "recompute_advantages": ([True], {}),
    "value_coefficient": ([0.1], {}),
    "entropy_coefficient": ([0.1], {}),
    "target_kl": ([1e-6], {}),
    "learning_rate_kl": ([1e-6], {}),
    "normalize_observations": ([True], {}),
    "observation_statistics": (["steps"], {"normalize_observations": True}),
    "observation_clip": ([0.1], {"normalize_observations": True}),
    "normalize_rewards": ([True], {}),
    "normalization_prior": ([1e-4], {"normalize_rewards": True}),
    "stochastic_evaluation": ([True], {}),
    "hidden": ([(8, 8)], {}),
    "activation": (["relu", "silu"], {}),
    "image_features": ([8], {}),
    "shared_torso": ([True], {}),
    "policy_gain": ([1.0], {}),
    "zero_biases": ([False], {}),
    "initial_log_std": ([-1.0], {}),
    "network": (["layer_norm", "simba"], {}),
    "agent_network": ([toy_networks.agent(0.1)], {}),
    "recurrent": (["lstm", "gru"], {"recurrent_size": 4, "minibatches": 1}),
    "recurrent_size": ([6], LSTM),
    "recurrent_layers": ([2], LSTM),
    "previous_reward": (["raw", "sign"], LSTM),
}
RUN_OPTIONS = {"seed": 1, "num_envs": 2, "precision": "bf16"}
# What each backend reads for itself, and JAX is tried with. Others are read by what they share; PyTorch's are tried by
# test_conformance.
OWN = {"learning_rate", "learning_rate_decay", "adam_epsilon", "max_grad_norm", "epochs", "minibatches", "target_kl"}
OWN |= {"learning_rate_kl", "hidden", "network", "zero_biases", "policy_gain", "initial_log_std", "agent_network"}


class Seen(Pictured, Drift):
    """`Drift`, of which a picture is seen."""


@pytest.fixture(scope="module")
def fingerprint(tmp_path_factory):
    """The sum of everything that a short run learned, how it acts in the end, and how often it learned."""

    @cache
    def of(backend: str, options: tuple, environment: Any, run_options: tuple) -> str:
        algorithm = PPO(**BASE | {"image_features": 4} | dict(options))
        trainer = run(algorithm, environment, backend, tmp_path_factory.mktemp("run"), STEPS, **dict(run_options))
        digest = hashlib.sha256(str(trainer.learner.updates).encode())
        parameters = trainer.learner.parameters()["agent"]
        for name in sorted(parameters):
            digest.update(name.encode() + parameters[name].tobytes())
        if algorithm.recurrent == "none":
            digest.update(trainer.policy(np.repeat(trainer.stepper.obs[:1], 5, axis=0)).tobytes())
        return digest.hexdigest()

    def call(backend: str, environment: Any = Drift, run_options: dict[str, Any] | None = None, **options: Any) -> str:
        return of(backend, Unhashed(options.items()), environment, tuple((run_options or {}).items()))

    call.again = of.__wrapped__
    return call


# Layers with a carry take long to compile; that both frameworks' are the same is in tests/learners/test_recurrent.py.
ONCE = {"recurrent_size", "recurrent_layers", "previous_reward"}


@pytest.mark.parametrize(
    ("backend", "field"),
    [
        pytest.param(b, f, marks=() if b == "jax" and f in OWN else pytest.mark.slow)
        for b in ("torch", "jax")
        for f in PPO.options()
        if b == "torch" or f not in ONCE
    ],
)
def test_the_field_changes_the_run(fingerprint, backend, field):
    values, needed = FIELDS[field]
    environment = Seen if field == "image_features" else Drift
    seen = [fingerprint(backend, environment, **needed)]
    seen += [fingerprint(backend, environment, **needed | {field: value}) for value in values]
    assert len(set(seen)) == len(values) + 1


def test_the_same_config_is_the_same_run(fingerprint, backend):
    assert fingerprint(backend) == fingerprint.again(backend, (), Drift, ())


@pytest.mark.parametrize("option", RUN_OPTIONS)
def test_the_run_option_changes_the_run(fingerprint, backend, option):
    assert fingerprint(backend) != fingerprint(backend, run_options={option: RUN_OPTIONS[option]})


def test_the_table_holds_no_field_of_the_past():
    assert list(FIELDS) == PPO.options()
