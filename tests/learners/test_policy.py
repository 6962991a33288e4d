"""Acting apart from whoever learns: in NumPy as in the frameworks, without importing one; else by one.

That every algorithm of the registry acts in NumPy as it does in both frameworks, with recurrent layers too, is the
check "acting" of `tests/test_conformance.py`, and with other kinds of layers in `tests/golden`.
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

from duetto.algorithms import DQN, PPO, R2D2, SAC, TD3, CrossQ
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
        (chosen, _), carry = actor.remember("collect", seen, noise)
        assert carry.keys() == actor.carry_shapes().keys()
    else:
        chosen, _ = actor.collect(obs, noise)
    assert len(chosen) == 4
print("MODULES", *sys.modules)
"""


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_no_framework_is_imported(backend: str):
    done = subprocess.run([sys.executable, "-c", CODE.replace("{backend}", backend)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    modules = {name.partition(".")[0] for name in done.stdout.rpartition("MODULES")[2].split()}
    assert not modules & {"torch", "jax", "jaxlib", "equinox", "optax", "ray", "matplotlib", "tensorboardX", "rich"}


# ------------------------------------------------------------------------------------------------ parameters
def test_it_acts_with_copies():
    learner = build("torch", TD3(hidden=(8,)))
    actor = policy.build(learner.algorithm, VECTOR, ACTION, backend="torch")
    obs = observations(VECTOR, 3, np.random.default_rng(0))
    given = {"actor": learner.parameters()["actor"]}  # the critics are of no use to it
    for value in given["actor"].values():
        value.flags.writeable = False  # as what comes out of a cluster's memory
    actor.load_parameters(given)
    before = actor.act(obs)
    np.testing.assert_allclose(before, learner.act(obs), atol=1e-6)
    for value in given["actor"].values():
        value.flags.writeable = True
        value += 1
    np.testing.assert_array_equal(actor.act(obs), before)
    actor.load_parameters(given)
    assert np.abs(actor.act(obs) - before).max() > 1e-3


def test_actions_are_the_same_on_any_number_of_cores():
    """OpenBLAS adds 348 products in another order on two: so PPO with 64 Humanoids would differ."""
    algorithm, observation = PPO(hidden=(64, 64)), box(348)
    learner = build("torch", algorithm, observation=observation)
    actor = policy.NumpyPolicy(algorithm, learner.specs)
    actor.use(learner.parameters())
    obs = observations(observation, 64, np.random.default_rng(0))
    np.testing.assert_array_equal(*with_one_and_two_threads(lambda: [actor.value(obs), learner.value(obs)]))


@pytest.mark.parametrize("kind", [TD3, SAC, CrossQ])
def test_a_jax_learner_of_transitions_acts_in_numpy_with_its_newest_parameters(kind: type[Algorithm]):
    learner = build("jax", kind(hidden=(8, 8)), observation=PARTS)
    obs = observations(PARTS, 16, np.random.default_rng(0))
    actor = policy.NumpyPolicy(learner.algorithm, learner.specs)
    seen = []
    for number in range(3):
        actor.use(learner.parameters())
        seen.append(learner.act(obs))
        np.testing.assert_array_equal(seen[-1], actor.act(obs))
        np.testing.assert_allclose(seen[-1], learner._act("act", obs, None)[0], rtol=1e-5, atol=1e-6)
        for _ in range(3):  # TD3's actor learns in every second one, CrossQ's in every third
            learner.update(batch(seed=number, observation=PARTS))
    assert np.abs(np.diff(seen, axis=0)).max(axis=(1, 2)).min() > 1e-4
    other = build("jax", kind(hidden=(8, 8)), observation=PARTS, seed=1)
    learner.load_parameters(other.parameters())
    np.testing.assert_array_equal(learner.act(obs), other.act(obs))


@pytest.mark.parametrize(
    ("algorithm", "rows", "in_numpy"),
    [
        (TD3(hidden=(8,)), 16, True),
        (TD3(hidden=(8,)), 17, False),
        (TD3(hidden=(400, 300)), 1, True),
        (TD3(hidden=(512, 512)), 1, False),
        (PPO(hidden=(8,)), 17, True),  # of rollouts: as ever
    ],
    ids=str,
)
def test_jax_itself_acts_on_many_observations_and_with_large_networks(
    algorithm: Algorithm, rows: int, in_numpy: bool, monkeypatch: pytest.MonkeyPatch
):
    learner, asked = build("jax", algorithm), []
    itself = learner._act
    monkeypatch.setattr(learner, "_act", lambda *question: asked.append(question) or itself(*question))
    learner.act(observations(VECTOR, rows, np.random.default_rng(0)))
    assert bool(asked) != in_numpy


@pytest.mark.parametrize("options", [{}, {"actor_network": CustomNetwork(torch=toy_networks.TorchActor)}])
def test_other_parameters_are_refused(options: dict[str, Any]):
    actor = policy.build(TD3(hidden=(8,), **options), VECTOR, ACTION, backend="torch")
    with pytest.raises(CheckpointError, match="parameters of actor do not fit"):
        actor.load_parameters({"critic": {}})


# ------------------------------------------------------------------------------------------------ by a framework
FALLBACKS: dict[str, tuple[Any, Any, Any, Any]] = {
    "images": (DQN(hidden=(8,), image_features=8), PICTURE, CHOICE, "float32"),
    "images, recurrent": (R2D2(head_hidden=(8,), image_features=8, recurrent_size=4), PICTURE, CHOICE, "float32"),
    "a network of a user's own": (
        TD3(actor_network=CustomNetwork(torch=toy_networks.TorchActor, jax=toy_networks.JaxActor)),
        VECTOR,
        ACTION,
        "float32",
    ),
    "a rollout in bfloat16": (PPO(hidden=(8,)), VECTOR, ACTION, "bf16"),
}


@pytest.mark.parametrize("case", FALLBACKS)
def test_where_numpy_cannot_a_framework_acts(backend: Any, case: str):
    """With the networks that act alone, and to the bit as the learner whose parameters it has."""
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
        (ours, carry), (theirs, their_carry) = (one.remember("act", seen, None) for one in (actor, learner))
        for name, part in carry.items():
            np.testing.assert_array_equal(part, their_carry[name])
    else:
        ours, theirs = (one.act(obs) for one in (actor, learner))
    np.testing.assert_array_equal(ours, theirs)


def test_off_policy_numpy_acts_in_bfloat16_too(backend: Any):
    """Learners act in float32 then."""
    algorithm = SAC(hidden=(8,))
    learner = build(backend, algorithm, precision="bf16")
    actor = policy.build(algorithm, VECTOR, ACTION, backend=backend, precision="bf16")
    assert isinstance(actor, policy.NumpyPolicy)
    actor.load_parameters(learner.parameters())
    obs = observations(VECTOR, 4, np.random.default_rng(0))
    np.testing.assert_allclose(actor.act(obs), learner.act(obs), atol=1e-6)
