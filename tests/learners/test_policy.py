"""Actors without a learner act in NumPy without importing a framework, or in a framework if NumPy cannot.

The check "acting" of `tests/test_conformance.py` compares the actions of NumPy and both frameworks for each algorithm,
also with recurrent layers. `tests/golden` compares them for other kinds of layers.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import toy_networks
from cores import with_one_and_two_threads
from learning_cases import ACTION, PARTS, VECTOR, batch, box, build, observations
from policy_cases import PICTURE

from duetto.algorithms import PPO, R2D2, TD3, CrossQ
from duetto.algorithms.base import Algorithm
from duetto.errors import CheckpointError
from duetto.learners import Learner, policy
from duetto.networks.spaces import Discrete
from duetto.networks.specs import CustomNetwork

CHOICE = Discrete(3)
# ------------------------------------------------------------------------------------------------ without a framework
CODE = """
import sys
import numpy as np
import duetto
from duetto.learners import policy
from duetto.networks.initializers import initial_parameters
from duetto.networks.spaces import Box, Discrete
from duetto.training.collector import Collector
from duetto.training.policy import Recurrence

observation, box = Box((3,), "float32", (-1,) * 3, (1,) * 3), Box((2,), "float32", (-1,) * 2, (1,) * 2)
for kind in (duetto.TD3, duetto.SAC, duetto.PPO, duetto.DQN, duetto.R2D2):
    algorithm, action = kind(), Discrete(2) if issubclass(kind, (duetto.DQN, duetto.R2D2)) else box
    actor = policy.build(algorithm, observation, action, backend="{backend}")
    random = np.random.default_rng(0)
    actor.load_parameters({name: initial_parameters(spec, random) for name, spec in actor.specs.items()})
    obs = random.normal(size=(4, 3)).astype(np.float32)
    noise, _ = algorithm.explorer().draw(random, np.zeros((4, action.size), np.float32), 0, 100, action)
    if actor.recurrent:
        seen = Recurrence(actor, action, 4).window(obs, np.ones(4, bool))
        (chosen, _), carry = actor.call_with_carry("collect", seen, noise)
        assert carry.keys() == actor.carry_shapes().keys()
    else:
        chosen, _ = actor.collect(obs, noise)
    assert len(chosen) == 4
print("MODULES", *sys.modules)
"""


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_numpy_acting_imports_no_framework(backend: str):
    done = subprocess.run([sys.executable, "-c", CODE.replace("{backend}", backend)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    modules = {name.partition(".")[0] for name in done.stdout.rpartition("MODULES")[2].split()}
    assert not modules & {"torch", "jax", "jaxlib", "equinox", "optax", "ray", "matplotlib", "tensorboardX", "rich"}


# ------------------------------------------------------------------------------------------------ parameters
def test_actor_copies_loaded_parameters():
    learner = build("torch", TD3(hidden=(8,)))
    actor = policy.build(learner.algorithm, VECTOR, ACTION, backend="torch")
    obs = observations(VECTOR, 3, np.random.default_rng(0))
    given = {"actor": learner.parameters()["actor"]}  # an actor needs no critics
    for value in given["actor"].values():
        value.flags.writeable = False  # like arrays in a cluster's shared memory
    actor.load_parameters(given)
    before = actor.act(obs)
    np.testing.assert_allclose(before, learner.act(obs), atol=1e-6)
    for value in given["actor"].values():
        value.flags.writeable = True
        value += 1
    np.testing.assert_array_equal(actor.act(obs), before)
    actor.load_parameters(given)
    assert np.abs(actor.act(obs) - before).max() > 1e-3


def test_outputs_do_not_depend_on_thread_count():
    """OpenBLAS sums 348 products in another order with two threads; PPO with 64 Humanoids would differ."""
    algorithm, observation = PPO(hidden=(64, 64)), box(348)
    learner = build("torch", algorithm, observation=observation)
    actor = policy.NumpyPolicy(algorithm, learner.specs)
    actor.use(learner.parameters())
    obs = observations(observation, 64, np.random.default_rng(0))
    np.testing.assert_array_equal(*with_one_and_two_threads(lambda: [actor.value(obs), learner.value(obs)]))


def test_jax_learner_acts_in_numpy_with_newest_parameters():
    learner = build("jax", CrossQ(hidden=(8, 8)), observation=PARTS)
    obs = observations(PARTS, 16, np.random.default_rng(0))
    actor = policy.NumpyPolicy(learner.algorithm, learner.specs)
    seen = []
    for number in range(3):
        actor.use(learner.parameters())
        seen.append(learner.act(obs))
        np.testing.assert_array_equal(seen[-1], actor.act(obs))
        np.testing.assert_allclose(seen[-1], learner._act("act", obs, None)[0], rtol=1e-5, atol=1e-6)
        for _ in range(3):  # the actor moves at every third update
            learner.update(batch(seed=number, observation=PARTS))
    assert np.abs(np.diff(seen, axis=0)).max(axis=(1, 2)).min() > 1e-4
    other = build("jax", CrossQ(hidden=(8, 8)), observation=PARTS, seed=1)
    learner.load_parameters(other.parameters())
    np.testing.assert_array_equal(learner.act(obs), other.act(obs))


@pytest.mark.parametrize(
    ("algorithm", "rows", "in_numpy"),
    [(TD3(hidden=(400, 300)), 16, True), (TD3(hidden=(8,)), 17, False), (TD3(hidden=(512, 512)), 1, False)],
    ids=str,
)
def test_jax_acts_on_many_observations_or_large_networks(
    algorithm: Algorithm, rows: int, in_numpy: bool, monkeypatch: pytest.MonkeyPatch
):
    learner, jax_calls = build("jax", algorithm), []
    act_in_jax = learner._act
    monkeypatch.setattr(learner, "_act", lambda *arguments: jax_calls.append(arguments) or act_in_jax(*arguments))
    learner.act(observations(VECTOR, rows, np.random.default_rng(0)))
    assert bool(jax_calls) != in_numpy


def test_parameters_of_another_network_are_rejected():
    actor = policy.build(TD3(hidden=(8,)), VECTOR, ACTION, backend="torch")
    with pytest.raises(CheckpointError, match="parameters of actor do not fit"):
        actor.load_parameters({"critic": {}})


# ------------------------------------------------------------------------------------------------ by a framework
FALLBACKS: dict[str, tuple[Any, Any, Any, Any]] = {
    "images, recurrent": (R2D2(head_hidden=(8,), image_features=8, recurrent_size=4), PICTURE, CHOICE, "float32"),
    "custom network": (
        TD3(actor_network=CustomNetwork(torch=toy_networks.TorchActor, jax=toy_networks.JaxActor)),
        VECTOR,
        ACTION,
        "float32",
    ),
    "rollout in bfloat16": (PPO(hidden=(8,)), VECTOR, ACTION, "bf16"),
}


@pytest.mark.parametrize("case", FALLBACKS)
def test_framework_acts_if_numpy_cannot(backend: Any, case: str):
    """The actor has only the acting networks, and acts bit for bit like the learner."""
    algorithm, observation, action, precision = FALLBACKS[case]
    learner = build(backend, algorithm, observation, action, seed=1, precision=precision)
    actor = policy.build(algorithm, observation, action, backend=backend, precision=precision)
    assert isinstance(actor, Learner)
    assert actor.recurrent == learner.recurrent
    assert actor.carry_shapes() == learner.carry_shapes()
    assert actor.specs.keys() == set(algorithm.acting_networks)
    actor.load_parameters(learner.parameters())
    obs = observations(observation, 4, np.random.default_rng(0))
    if actor.recurrent:
        from duetto.training.policy import Recurrence

        seen = Recurrence(actor, action, 4).window(obs, np.ones(4, bool))
        (ours, carry), (theirs, their_carry) = (one.call_with_carry("act", seen, None) for one in (actor, learner))
        for name, part in carry.items():
            np.testing.assert_array_equal(part, their_carry[name])
    else:
        ours, theirs = (one.act(obs) for one in (actor, learner))
    np.testing.assert_array_equal(ours, theirs)
