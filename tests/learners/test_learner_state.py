"""A state saved by one backend loads in the other. The conformance check "state" covers exact resume."""

import numpy as np
import pytest
import toy_networks
from learning_cases import VECTOR, aligned, assert_same, batch, build, observations, small

from duetto.errors import CheckpointError
from duetto.testing.conformance import flat

OTHER = {"torch": "jax", "jax": "torch"}
OPTIONS = {"max_grad_norm": 0.5, "critic_weight_decay": 0.01}  # so JAX's optimizer state has more than one part


def trained(backend, updates, **options):
    learner = build(backend, small(**options))
    for seed in range(updates):
        learner.update(batch(seed=seed))
    return learner


def test_state_transfers_between_backends(backend):
    """Bit for bit. The next update agrees, including its smoothing noise and policy delay."""
    ours = trained(backend, 3, **OPTIONS)
    theirs = build(OTHER[backend], small(**OPTIONS), seed=99)
    theirs.load_state_dict(ours.state_dict())
    assert_same(flat(ours.state_dict()), flat(theirs.state_dict()))
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


def test_custom_network_state_transfers_between_backends(backend):
    options = {"actor_network": toy_networks.actor(), "critic_network": toy_networks.noisy_critic()}
    ours, theirs = (build(name, small(**options)) for name in (backend, OTHER[backend]))
    theirs.load_state_dict(ours.state_dict())
    assert_same(flat(ours.state_dict()), flat(theirs.state_dict()))
    assert set(ours.parameters()["critic"]) == {"members.0.w", "members.1.w"}


def test_state_dict_is_a_copy(backend):
    """Updates do not change a saved state, and changing a loaded state does not change the learner.

    The arrays are aligned, because JAX may use aligned arrays without a copy.
    """
    learner = trained(backend, 2)
    state, kept = learner.state_dict(), learner.state_dict()
    learner.update(batch(seed=2))
    assert_same(flat(state), flat(kept))
    handed = [state["parameters"]["actor"], *(state["optimizers"]["actor"][name] for name in ("first", "second"))]
    for values in handed:
        values["layers.0.weight"] = aligned(values["layers.0.weight"])
    learner.load_state_dict(state)
    for values in handed:
        values["layers.0.weight"][:] = 0
    assert_same(flat(learner.state_dict()), flat(kept))


@pytest.mark.parametrize("part", ["parameters", "moments"])
def test_state_of_another_network_is_rejected(backend, part):
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
