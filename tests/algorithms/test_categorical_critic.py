"""Categorical critics of DDPG, TD3, SAC and CrossQ: the loss by hand, and the head's size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learning_cases import ACTION, VECTOR

from duetto.algorithms import DDPG, SAC, TD3, CrossQ
from duetto.algorithms.actor_critic import categorical_loss
from duetto.algorithms.base import PRIORITY, Batch

ALGORITHMS = [DDPG, TD3, SAC, CrossQ]


def test_categorical_loss_by_hand(array: Any):
    """Atoms -1, 0, 1. The target uses the second target critic, whose mean is lower: .1 instead of .2.

    With r = .3, γ = .5 and entropy cost -.2, its distribution (.2, .5, .3) becomes (.02, .51, .47), whose mean is .45
    (see tests/functional). Its cross-entropy with (.1, .6, .3) is .8724, with (1/3, 1/3, 1/3) log 3.
    """
    one = array([1.0])
    given = Batch(one, one[None], array([0.3]), array([0.5]), one, array([2.0]))
    logits = array(np.log([[[0.1, 0.6, 0.3]], [[0.2, 0.2, 0.2]]]))
    next_logits = array(np.log([[[0.1, 0.6, 0.3]], [[0.2, 0.5, 0.3]]]))
    loss, info = categorical_loss(given, logits, next_logits, array([-0.2]), (-1.0, 1.0))
    assert float(loss) == pytest.approx(2.0 * (0.8724 + np.log(3)) / 2, abs=1e-3)  # the weight is 2
    np.testing.assert_allclose(np.asarray(info["q"]), [[0.2], [0.0]], atol=1e-5)
    assert float(info["target"][0]) == pytest.approx(0.45, abs=1e-5)
    assert float(info[PRIORITY][0]) == pytest.approx((0.25 + 0.45) / 2, abs=1e-5)
    assert float(info["clipped"]) == pytest.approx(0.0)


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_categorical_critic_has_one_output_per_atom(kind: Any):
    spec: Any = kind(critic="categorical", num_atoms=51).networks(VECTOR, ACTION)["critic"]
    assert spec.stacks[0][0].layers[-1][1] == 51
