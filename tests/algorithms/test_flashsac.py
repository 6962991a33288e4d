"""FlashSAC compared with a reference implementation on both backends; its noise, metrics, errors, and XQC."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from learning_cases import ACTION, VECTOR, batch, build
from plain_flashsac import Net, PlainFlashSAC

from duetto.algorithms import FlashSAC
from duetto.errors import UsageError
from duetto.learners.base import Learner

SMALL: dict[str, Any] = {"hidden": (8, 8), "critic_hidden": (12, 12)}
UPDATES, ROWS = 50, 64


def small(**options: Any) -> FlashSAC:
    return FlashSAC(**(SMALL | options))


# ------------------------------------------------------------------------------------------------ reference
def reference_names(arrays: dict[str, np.ndarray], member: int | None = None) -> dict[str, np.ndarray]:
    """Name a learner's arrays as in `plain_flashsac`; `member` selects one of an ensemble."""
    found = {}
    for name, array in arrays.items():
        kind, i, part = name.split(".")
        norm = {"weight": "gamma", "bias": "beta"}.get(part, part)
        plain = f"{'w' if part == 'weight' else 'b'}{i}" if kind == "layers" else f"norm{i}.{norm}"
        found[plain.replace("norm5.gamma", "g")] = array if member is None else array[member]
    return found


def reference_of(learner: Learner) -> PlainFlashSAC:
    """Build the reference implementation with a learner's parameters."""
    nets = learner.parameters()
    critics, targets = ([Net(reference_names(nets[name], i)) for i in (0, 1)] for name in ("critic", "target_critic"))
    return PlainFlashSAC(
        Net(reference_names(nets["actor"])), critics, targets, float(nets["log_alpha"]["value"]), ACTION.size
    )


def assert_near(learner: Learner, other: PlainFlashSAC, tolerance: float) -> None:
    """Compare parameters and running statistics relative to the largest element of their array."""
    nets = learner.parameters()
    assert abs(float(nets["log_alpha"]["value"]) - other.log_alpha) <= tolerance
    pairs = [("actor", nets["actor"], None, other.actor)]
    pairs += [("critic", nets["critic"], i, other.critics[i]) for i in (0, 1)]
    pairs += [("target_critic", nets["target_critic"], i, other.targets[i]) for i in (0, 1)]
    for name, arrays, member, net in pairs:
        theirs = net.weights | (net.running if name != "target_critic" else {})
        for key, ours in reference_names(arrays, member).items():
            if key in theirs:
                expected = theirs[key].numpy()
                worst = np.abs(ours - expected).max() / max(np.abs(expected).max(), 1e-3)
                assert worst <= tolerance, f"{name} {member} {key} differs by {worst:.1e} of the largest"


def test_flashsac_matches_reference_implementation(backend: str):
    """To 1e-5 after one update, and to 1e-3 after 50 with new batches, noise and learning rates."""
    learner = build(backend, small(), seed=3)
    other = reference_of(learner)
    for number in range(UPDATES):
        given = batch(ROWS, seed=number)
        noise = learner.algorithm.draw(copy.deepcopy(learner.random), given)
        fields = {
            name: torch.tensor(part, dtype=torch.float64)
            for name, part in given._asdict().items()
            if name != "expert" and part is not None
        }
        now, later = (torch.tensor(part, dtype=torch.float64) for part in (noise.now, noise.next))
        learner.update(given, progress=number / UPDATES)
        other.update(fields, now, later, UPDATES)
        if number == 0:
            assert_near(learner, other, 1e-5)
    assert_near(learner, other, 1e-3)


# ------------------------------------------------------------------------------------------------ exploration
def test_exploration_noise_repeats_for_random_durations():
    """P(1) = .631, and the mean is 2.13 steps. All environments draw new noise at the same steps."""
    explorer, random, state = FlashSAC().explorer(), np.random.default_rng(0), np.zeros((3, 2), np.float32)
    drawn = []
    for _ in range(20_000):
        noise, state = explorer.draw(random, state, 0, 1, ACTION)
        drawn.append(noise)
    new = np.any(np.diff(drawn, axis=0) != 0, axis=-1)  # (steps, N)
    assert (new == new[:, :1]).all()
    lengths = np.diff(np.flatnonzero(new[:, 0]))
    assert lengths.max() == 16
    assert lengths.mean() == pytest.approx(2.13, rel=0.03)
    assert (lengths == 1).mean() == pytest.approx(0.631, abs=0.01)
    assert np.std(drawn) == pytest.approx(1, abs=0.02)
    np.testing.assert_array_equal(explorer.after_episode(state, np.ones(3, bool)), state)
    assert explorer.for_evaluation(random, 3, ACTION) is None


# ------------------------------------------------------------------------------------------------ metrics and errors
def test_clipped_metric_is_share_of_targets_outside_atoms():
    learner = build("torch", small())
    inside = learner.update(batch(16)._replace(discount=np.zeros(16, np.float32))).value("clipped")
    outside = learner.update(batch(16)._replace(reward=np.full(16, 20, np.float32))).value("clipped")
    assert (inside, outside) == (pytest.approx(0, abs=1e-6), pytest.approx(1, abs=1e-3))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hidden": (8, 16)}, "hidden layers have one size, not"),
        ({"value_range": (5.0, -5.0)}, "the lower one first"),
        ({"value_range": (5.0,)}, "it must be two numbers"),
        ({"num_atoms": 1}, "num_atoms is 1"),
    ],
)
def test_invalid_flashsac_option_is_rejected(options: dict[str, Any], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        FlashSAC(**(SMALL | options)).networks(VECTOR, ACTION)


def test_xqc_has_no_residual_connections_and_unconstrained_norms(backend: str):
    learner = build(backend, small(network="xqc", hidden=(8, 6)))
    learner.update(batch(16))
    actor = learner.parameters()["actor"]
    assert [actor[f"layers.{i}.weight"].shape for i in range(3)] == [(8, 5), (6, 8), (4, 6)]
    assert "layers.0.bias" not in actor
    assert (actor["layers_norms.1.weight"] ** 2).sum() + (actor["layers_norms.1.bias"] ** 2).sum() != pytest.approx(8)
    np.testing.assert_allclose(np.linalg.norm(actor["layers.1.weight"], axis=-1), 1, rtol=1e-5)
