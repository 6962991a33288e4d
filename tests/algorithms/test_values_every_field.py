"""Every hyper-parameter of DQN, R2D2, DQfD, R2D3 and behaviour cloning changes the run: see test_every_field.py."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import numpy as np
import pytest
import toy_networks
from gymnasium.spaces import Discrete
from probes import run
from test_every_field import GOALS, Drift, Pictured, Unhashed

from duetto import demonstrations
from duetto.algorithms import BC, DQN, R2D2, R2D3, DQfD
from duetto.demonstrations import Demonstration, Metadata
from duetto.environments import make

STEPS = 60
SMALL = {"hidden": (8,), "batch_size": 8, "random_steps": 10, "learning_starts": 16, "replay_capacity": 1000}
SMALL |= {
    "n_step": 2,
    "target_period": 5,
    "learning_rate": 1e-2,
    "exploration_steps": 40,
    "head_hidden": (),
    "train_every": 2,
}
WINDOWS = {"recurrent_size": 4, "burn_in": 2, "unroll": 4, "overlap": 2}
LSTM = {"recurrent": "lstm"} | WINDOWS
BASE: dict[Any, dict[str, Any]] = {
    DQN: SMALL,
    R2D2: SMALL | WINDOWS,
    DQfD: SMALL,
    R2D3: SMALL | WINDOWS,
    BC: {name: value for name, value in (SMALL | WINDOWS).items() if name in BC.options()},
}
PER: dict[str, Any] = {"prioritized": True}
LADDER = {"exploration": "ladder", "exploration_start": 0.4}

# Each field's other values, and the options with which alone it matters. A new field needs a line here.
FIELDS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "discount": ([0.5], {}),
    "batch_size": ([4], {}),
    "replay_capacity": ([30], {"prioritized": False}),
    "n_step": ([3], {}),
    "learning_starts": ([30], {}),
    "train_every": ([4], {}),
    "gradient_steps": ([2], {}),
    "train_at_episode_end": ([True], {"recurrent": "none"}),
    "prioritized": ([True], {"prioritized": False}),
    "priority_exponent": ([1.0], PER | {"priority_exponent": 0.6}),
    "priority_epsilon": ([0.5], PER),
    "importance_exponent": ([1.0], PER),
    "importance_anneal_samples": ([10], PER | {"importance_anneal_samples": 0}),
    "recurrent": (["lstm", "gru"], {"recurrent": "none"} | WINDOWS),
    "recurrent_size": ([6], LSTM),
    "recurrent_layers": ([2], LSTM),
    "burn_in": ([1], LSTM),
    "unroll": ([5], LSTM),
    "overlap": ([3], LSTM),
    "stored_carry": ([False], LSTM),
    "learn_from_start": ([False], LSTM),
    "priority_mix": ([0.1], LSTM | PER),
    "previous_reward": (["raw", "sign"], LSTM),
    "learning_rate": ([1e-3], {}),
    "learning_rate_decay": (["linear", "cosine"], {}),
    "learning_rate_final": ([0.5], {"learning_rate_decay": "linear"}),
    "adam_epsilon": ([1e-2], {}),
    "weight_decay": ([0.1], {}),
    "decoupled_weight_decay": ([True], {"weight_decay": 0.1, "decoupled_weight_decay": False}),
    "max_grad_norm": ([0.01], {}),
    "tau": ([0.5], {}),
    "target_period": ([3], {}),
    "double": ([False], {"learning_rate": 0.1, "tau": 0.1, "target_period": 1}),
    "huber_delta": ([0.1], {"huber_delta": 0.0}),
    "rescale_values": ([True], {"rescale_values": False}),
    "rescale_epsilon": ([1e-2], {"rescale_values": True}),
    "random_steps": ([20], {}),
    "exploration": (["linear", "exponential", "ladder"], {"exploration": "linear", "exploration_start": 0.9}),
    "exploration_start": ([0.5], {"exploration_start": 1.0}),
    "exploration_end": ([0.5], {"exploration": "linear"}),
    "exploration_steps": ([20], {"exploration": "linear"}),
    "ladder_exponent": ([0.0], LADDER),
    "evaluation_epsilon": ([0.5], {}),
    "hidden": ([(8, 8)], {}),
    "activation": (["tanh"], {}),
    "image_features": ([6], {}),
    "head_hidden": ([(4,)], {}),
    "dueling": ([False], {}),
    "network": (["layer_norm", "simba"], {}),
    "q_network": ([toy_networks.actor(0.1)], {"recurrent": "none"}),
    "demonstrations": (["others"], {}),
    "demonstration_share": ([0.5], {"demonstration_share": 0.25}),
    "share_by_priority": ([True], PER),
    "demonstration_priority_epsilon": ([1.0], PER),
    "pretraining_updates": ([5], {}),
    "n_step_weight": ([0.5], {}),
    "one_step_weight": ([0.5, 0.0], {}),
    "margin_weight": ([0.5, 0.0], {}),
    "margin": ([0.1], {}),
    "margin_in_priority": ([True], PER),
}


class Choices(Drift):
    """`Drift` with three actions."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = Discrete(3)

    def step(self, action):
        return super().step(float(action) - 1)


class Pictures(Pictured, Choices):
    """The same, of which a picture is seen."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Folders of demonstrations, by environment and name; made when they are asked for."""

    @cache
    def of(environment: Any, name: str) -> str:
        random, env, stepper = np.random.default_rng(len(name)), environment(), make(environment)
        env.np_random = random
        made = []
        for steps in (7, 5):
            seen, rewards = [env.reset()[0]], []
            actions = random.integers(0, 3, steps)
            for action in actions:
                obs, reward, *_ = env.step(action)
                seen.append(obs)
                rewards.append(reward)
            obs = np.array(seen)
            if obs.ndim > 2:
                obs = np.moveaxis(obs, -1, 1) if stepper.observation_space.shape[0] == 3 else obs
            made.append(Demonstration(obs, actions, np.array(rewards, np.float32), len(made) == 0, len(made) == 1))
        about = Metadata("a probe", {}, "chance", stepper.observation_space, stepper.action_space)
        stepper.close()
        return str(demonstrations.save(tmp_path_factory.mktemp("demos") / name, about, made))

    return of


@pytest.fixture(scope="module")
def fingerprint(tmp_path_factory, recorded):
    """The sum of everything that a short run learned, did and saw, and of how it acts; equal calls are run once."""

    @cache
    def of(kind: Any, backend: str, environment: Any, options: tuple) -> str:
        given = BASE[kind] | dict(options)
        if "demonstrations" in kind.options():
            given["demonstrations"] = recorded(environment, given.get("demonstrations", "some"))
        trainer = run(kind(**given), environment, backend, tmp_path_factory.mktemp("run"), STEPS, num_envs=2)
        arrays = {
            f"{net}/{key}": v for net, values in trainer.learner.parameters().items() for key, v in values.items()
        }
        arrays |= trainer.memory.segment(np.zeros(2, np.int64))
        obs = np.repeat(trainer.stepper.obs[:1], 40, axis=0)
        arrays["acts"] = trainer.policy(obs, np.ones(40, bool))
        digest = hashlib.sha256()
        for name in sorted(arrays):
            digest.update(name.encode() + arrays[name].tobytes())
        return digest.hexdigest()

    def call(kind: Any, backend: str, environment: Any = Choices, **options: Any) -> str:
        return of(kind, backend, environment, Unhashed(options.items()))

    call.again = of.__wrapped__
    return call


def cases():
    """Slowly, but those that matter to BC alone: another value of each is tried by test_conformance, on PyTorch."""
    for backend, kind in [(b, k) for b in ("torch", "jax") for k in BASE]:
        for field in kind.options():
            if field in GOALS:
                continue
            fast = kind is BC and field not in DQN.options() and backend == "torch"
            yield pytest.param(kind, backend, field, marks=() if fast else pytest.mark.slow)


@pytest.mark.parametrize(("kind", "backend", "field"), list(cases()))
def test_the_field_changes_the_run(fingerprint, kind, backend, field):
    values, needed = FIELDS[field]
    if kind is BC and field == "demonstration_share":
        values, needed = [0.5], {}
    environment = Pictures if field == "image_features" else Choices
    seen = [fingerprint(kind, backend, environment, **needed)]
    others = [value for value in values if needed.get(field) != value]
    seen += [fingerprint(kind, backend, environment, **needed | {field: value}) for value in others]
    assert len(set(seen)) == len(others) + 1


@pytest.mark.parametrize("kind", BASE)
def test_the_same_config_is_the_same_run(fingerprint, kind):
    assert fingerprint(kind, "torch") == fingerprint.again(kind, "torch", Choices, ())


def test_the_table_holds_no_field_of_the_past():
    assert set(FIELDS) == {field for kind in BASE for field in kind.options()}
