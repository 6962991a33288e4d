"""Categorical critics as an option of DDPG, TD3, SAC and CrossQ: the loss by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learning_cases import ACTION, VECTOR, batch, build

from duetto.algorithms import DDPG, SAC, TD3, TQC, CrossQ
from duetto.algorithms.actor_critic import categorical_loss
from duetto.algorithms.base import PRIORITY, Batch
from duetto.errors import UsageError

KINDS = [DDPG, TD3, SAC, CrossQ]


def test_the_loss_by_hand(array: Any):
    """Atoms -1, 0, 1: the second target critic has the lower mean, .1 instead of .2; see tests/functional.

    Its distribution (.2, .5, .3), with r .3, γ .5 and entropy cost -.2, becomes (.02, .51, .47) of mean .45. Under
    (.1, .6, .3) the cross-entropy is .8724; under (1/3, 1/3, 1/3) it is log 3.
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


@pytest.mark.parametrize("kind", KINDS)
def test_critics_learn_the_reward_where_episodes_end(kind: Any, backend: str):
    """Distributions whose means go to the rewards, which lie between the atoms."""
    options: dict[str, Any] = {"hidden": (32,), "critic": "categorical", "num_atoms": 21, "policy_delay": 3}
    options = {name: value for name, value in options.items() if name in kind.options()}
    learner = build(backend, kind(**options, value_range=(-4.0, 4.0), critic_learning_rate=3e-3))
    given = batch(32)._replace(discount=np.zeros(32, np.float32))
    errors = [np.asarray(learner.update(given).priority).mean() for _ in range(300)]
    assert errors[-1] < 0.25 * errors[0]


@pytest.mark.parametrize("kind", KINDS)
def test_heads_have_an_output_for_each_atom(kind: Any):
    spec: Any = kind(critic="categorical", num_atoms=51).networks(VECTOR, ACTION)["critic"]
    assert spec.stacks[0][0].layers[-1][1] == 51


def test_quantiles_are_another_kind():
    with pytest.raises(UsageError, match="tqc has no hyper-parameter 'critic'"):
        TQC(critic="categorical")  # pyright: ignore[reportArgumentType]
