"""The distribution of a composite action space."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from duetto.environments import from_gymnasium
from duetto.functional.distributions import Categorical, DiagonalGaussian, Joint
from duetto.networks import heads

MOVE = Tuple((Discrete(3, start=-1), Box(np.array([0, -np.inf]), np.array([4, np.inf]), dtype=np.float64)))
SPACE = from_gymnasium(Dict({"move": MOVE, "buttons": MultiBinary(2), "aim": MultiDiscrete([2, 3])}))


def test_joint_distribution_sums_log_probs_and_entropies(array: Any) -> None:
    """The outputs are, in order, aim (2 + 3 logits), buttons (2 + 2), move/0 (3), move/1 (2 means, 2 log std)."""
    numbers = np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
    action = np.array([[1, 2, 0, 1, 2, 0.5, -3]] * 4, np.float32)
    whole = heads.distribution(SPACE, array(numbers.tolist()))
    parts = [
        (Joint((Categorical(numbers[:, :2]), Categorical(numbers[:, 2:5]))), action[:, :2].astype(int)),
        (Joint((Categorical(numbers[:, 5:7]), Categorical(numbers[:, 7:9]))), action[:, 2:4].astype(int)),
        (Categorical(numbers[:, 9:12]), action[:, 4].astype(int)),
        (DiagonalGaussian(numbers[:, 12:14], numbers[:, 14:]), action[:, 5:]),
    ]
    log_prob, entropy = whole.log_prob(array(action.tolist())), whole.entropy()
    np.testing.assert_allclose(log_prob, sum(part.log_prob(own) for part, own in parts), rtol=1e-5)
    np.testing.assert_allclose(entropy, sum(part.entropy() for part, _ in parts), rtol=1e-5)
    mode = np.asarray(whole.mode())
    assert mode.shape == (4, 7)
    np.testing.assert_allclose(mode[:, 5:], numbers[:, 12:14])
    assert mode[:, 4].tolist() == numbers[:, 9:12].argmax(axis=1).tolist()
