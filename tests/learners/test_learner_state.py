"""What one backend saved the other loads. That a learner continues exactly is the check "state" of conformance."""

import numpy as np
import pytest
import toy_networks
from learning_cases import VECTOR, assert_same, batch, build, observations, small

from duetto.algorithms import DDPG, TD3
from duetto.errors import CheckpointError
from duetto.testing.conformance import flat

OTHER = {"torch": "jax", "jax": "torch"}
OPTIONS = {"max_grad_norm": 0.5, "critic_weight_decay": 0.01}  # so that JAX's optimiser state has more than one part


def trained(backend, updates, **options):
    learner = build(backend, small(**options))
    for seed in range(updates):
        learner.update(batch(seed=seed))
    return learner


def assert_same_state(one, other):
    assert_same(flat(one), flat(other))


@pytest.mark.parametrize("kind", [TD3, DDPG])
def test_what_one_backend_saved_the_other_loads_and_back(backend, kind):
    """Bit for bit; and the next update agrees, smoothing noise and the actor's turn included."""
    ours = trained(backend, 3, kind=kind, **OPTIONS)
    theirs = build(OTHER[backend], small(kind, **OPTIONS), seed=99)
    theirs.load_state_dict(ours.state_dict())
    assert_same_state(ours.state_dict(), theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    obs = observations(VECTOR, 5, np.random.default_rng(0))
    np.testing.assert_allclose(ours.act(obs), theirs.act(obs), rtol=1e-5)
    metrics = [learner.update(batch(seed=10)) for learner in (ours, theirs)]
    np.testing.assert_allclose(*(one.values for one in metrics), rtol=1e-5)
    np.testing.assert_allclose(*(one.priority for one in metrics), rtol=1e-4)
    for name, net in ours.parameters().items():
        for key, values in net.items():
            theirs_values = theirs.parameters()[name][key]
            np.testing.assert_allclose(values, theirs_values, rtol=0, atol=1e-5 * np.abs(values).max())


def test_own_networks_move_between_the_backends_too(backend):
    options = {"actor_network": toy_networks.actor(), "critic_network": toy_networks.noisy_critic()}
    ours, theirs = (build(name, small(**options)) for name in (backend, OTHER[backend]))
    theirs.load_state_dict(ours.state_dict())
    assert_same_state(ours.state_dict(), theirs.state_dict())
    assert set(ours.parameters()["critic"]) == {"members.0.w", "members.1.w"}


def test_saved_state_is_a_copy(backend):
    """It must not change while learning continues."""
    learner = trained(backend, 2)
    state = learner.state_dict()
    kept = state["parameters"]["actor"]["layers.0.weight"].copy()
    for seed in range(2):
        learner.update(batch(seed=seed))
    np.testing.assert_array_equal(state["parameters"]["actor"]["layers.0.weight"], kept)
    assert not np.array_equal(learner.parameters()["actor"]["layers.0.weight"], kept)


def test_loaded_state_is_a_copy(backend):
    """Whoever loaded it may change it. JAX would continue reading arrays that start at a multiple of 64 bytes."""
    learner = trained(backend, 2)
    state, kept = learner.state_dict(), learner.state_dict()
    handed = [state["parameters"]["actor"], *(state["optimizers"]["actor"][name] for name in ("first", "second"))]
    for values in handed:
        values["layers.0.weight"] = aligned(values["layers.0.weight"])
    learner.load_state_dict(state)
    for values in handed:
        values["layers.0.weight"][:] = 0
    assert_same_state(learner.state_dict(), kept)


def aligned(array):
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


@pytest.mark.parametrize("part", ["parameters", "moments"])
def test_another_networks_state_is_refused(backend, part):
    learner = build(backend, small())

    def load(values):
        if part == "parameters":
            learner.load_parameters(learner.parameters() | {"actor": values})
        else:
            state = learner.optimizer_state()
            learner.load_optimizer_state(state | {"actor": state["actor"] | {"second": values}})

    values = learner.parameters()["actor"]
    for broken, words in (
        (values | {"layers.1.bias": np.zeros(13, np.float32)}, r"layers\.1\.bias has shape \(13,\)"),
        ({key: values[key] for key in list(values)[1:]}, r"missing \['layers\.0\.weight'\]"),
        (values | {"layers.9.bias": np.zeros(2, np.float32)}, r"unknown \['layers\.9\.bias'\]"),
    ):
        with pytest.raises(CheckpointError, match=words):
            load(broken)
    parameters = learner.parameters()
    del parameters["target_critic"]
    with pytest.raises(CheckpointError, match="target_critic"):
        learner.load_parameters(parameters)
