"""Both backends compute the same: from the same seed, on the same batches, by value. DESIGN section 3."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learning_cases import ACTION, PARTS, VECTOR, assert_same, batch, build, observations, small

from duetto.algorithms import DDPG, DQN, SAC, TD3
from duetto.networks.spaces import Discrete

# Options of the algorithm, and what the batches are like: 48 rows take oneDNN's products on AMD, 20 take MKL's. The
# golden traces, the same for both, are of more options.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {"size": 48}),
    "clipped, L2, rate falls linearly, action joins later": (
        {
            "max_grad_norm": 0.05,
            "actor_weight_decay": 0.1,
            "critic_weight_decay": 0.01,
            "learning_rate_decay": "linear",
            "critic_action_layer": 1,
        },
        {"size": 48, "weighted": True},
    ),
}


def assert_parity(pair, batches, acting=lambda tolerance: None, early=2, metrics=None, state=1):
    """Metrics, parameters, moments and actions are equal: at the start, after `early` updates each, and at the end.

    `acting` compares actions, `metrics` metrics; `state` times as much may parameters differ.
    """
    compare_state(pair, 0.0)  # the same numbers to start with, and none was copied
    acting(1e-5)
    for number, one in enumerate(batches, 1):
        found = [learner.update(one, (number - 1) / len(batches)) for learner in pair]
        if number <= early or number == len(batches):
            tolerance = 1e-5 if number <= early else 1e-3
            (metrics or compare_metrics)(found, tolerance)
            compare_state(pair, tolerance * (state if number <= early else 1))
            acting(tolerance)


@pytest.mark.parametrize("kind", [TD3, DDPG])
@pytest.mark.parametrize("case", CASES)
def test_both_backends_compute_the_same(kind, case):
    options, data = CASES[case]
    pair = [build(backend, small(kind, **options)) for backend in ("torch", "jax")]
    batches = [batch(seed=update, **data) for update in range(1, 51)]
    assert_parity(pair, batches, lambda tolerance: compare_actions(pair, VECTOR, tolerance))


def test_so_do_distributions_of_dict_observations_over_several_steps():
    """Returns look as many steps ahead as an episode has."""
    algorithm = SAC(hidden=(16,), max_grad_norm=0.5, target_entropy_scale=0.5)
    pair = [build(backend, algorithm, PARTS) for backend in ("torch", "jax")]
    batches = [batch(20, seed=update, observation=PARTS, weighted=True) for update in range(1, 21)]
    steps = 1 + np.arange(20, dtype=np.float32) % 3
    batches = [one._replace(discount=one.discount**steps) for one in batches]
    assert_parity(pair, batches, lambda tolerance: compare_actions(pair, PARTS, tolerance))


def test_so_do_action_values_of_residual_blocks():
    options = {"network": "simba", "hidden": (8,), "head_hidden": (6,), "learning_rate": 1e-3}
    pair = [build(backend, DQN(**options), VECTOR, Discrete(3)) for backend in ("torch", "jax")]
    batches = [
        batch(48, seed=seed, weighted=True)._replace(action=np.random.default_rng(seed).integers(3, size=48))
        for seed in range(1, 11)
    ]
    assert_parity(pair, batches)


def compare_metrics(metrics, tolerance):
    ours, theirs = metrics
    assert ours.names == theirs.names
    close(ours.values, theirs.values, tolerance, "metrics")
    close(ours.priority, theirs.priority, tolerance, "priority")


def compare_state(pair, tolerance):
    """Parameters, and gradients by Adam's two moments."""
    ours, theirs = (flat({"net": learner.parameters(), "adam": learner.optimizer_state()}) for learner in pair)
    assert list(ours) == list(theirs)
    for name, values in ours.items():
        # A gradient that is zero (of a value, where only differences of values are learned) is rounding: 1e-12.
        least = 1e-5 if "/first/" in name else 1e-13 if "/second/" in name else 0.0
        close(values, theirs[name], tolerance, name, least)


def compare_actions(pair, observation, tolerance):
    random = np.random.default_rng(7)
    for size in (1, 40):
        obs = observations(observation, size, random)
        for noise in (None, random.normal(size=(size, ACTION.size)).astype(np.float32)):
            ours, theirs = (learner.act(obs, noise) for learner in pair)
            assert ours.dtype == theirs.dtype == np.float32
            close(ours, theirs, tolerance, "actions")


def close(ours, theirs, tolerance, name, least=0.0):
    """Every element, relative to the largest of its array, or `least`: Adam's steps do not shrink with the element."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape, name
    scale = max(least, np.abs(ours).max()) if ours.size else 0.0
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale, err_msg=name)


def flat(tree, prefix=""):
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {name: value for key, part in tree.items() for name, value in flat(part, f"{prefix}/{key}").items()}


def test_another_seed_is_another_beginning(backend):
    one, other, again = (build(backend, small(), seed=seed).parameters() for seed in (0, 1, 0))
    assert not np.any(one["actor"]["layers.0.weight"] == other["actor"]["layers.0.weight"])
    assert_same(one["actor"], again["actor"])


@pytest.mark.parametrize("kind", [TD3, DDPG])
def test_metrics_have_the_same_names_in_the_same_order(kind):
    """`q` and `target` of the critic's loss; the priority is no metric. The actor's turn comes last."""
    for backend in ("torch", "jax"):
        learner = build(backend, small(kind))
        names = [learner.update(batch()).names for _ in range(2)]
        critic = ["critic_loss", *(f"{what}_{part}" for what in ("q", "target") for part in ("mean", "min", "max"))]
        assert list(names[1]) == [*critic, "actor_loss"]
        assert list(names[0]) == (critic if kind is TD3 else [*critic, "actor_loss"])


def test_metrics_are_means_least_and_greatest(backend):
    """Of the targets, which with terminated transitions are the rewards themselves."""
    one = batch(4)._replace(reward=np.array([1, 2, 3, 6], np.float32), discount=np.zeros(4, np.float32))
    metrics = build(backend, small()).update(one)
    found = dict(zip(metrics.names, np.asarray(metrics.values).tolist(), strict=True))
    assert (found["target_mean"], found["target_min"], found["target_max"]) == (3.0, 1.0, 6.0)
