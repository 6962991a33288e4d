"""Losses of DQfD, R2D3 and BC by hand, on both frameworks: SPEC O3, O4, E8, E9, E11, E12."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from duetto.algorithms import BC, DQN, R2D2, R2D3, DQfD
from duetto.algorithms.base import Batch, OneStep, SequenceBatch
from duetto.errors import UsageError
from duetto.functional.q_values import rescale, unrescale
from duetto.networks.layers import SequenceInput

GAMMA = 0.9
# O4. Observations are rows of these tables: 0 is s, 1 the state after one step, 2 the state after three. Row 3 is for
# batches of two.
ONLINE = [[1.0, 2.0, 1.5], [2.0, 4.0, 3.0], [0.0, 1.0, 6.0], [1.0, 3.0, 1.5]]
TARGET = [[9.0, 9.0, 9.0], [1.5, 3.0, 5.0], [7.0, 8.0, 9.0], [9.0, 9.0, 9.0]]
O4 = Batch(
    obs=np.array([0]),
    action=np.array([0]),
    reward=np.array([5.23], np.float32),  # 1 + .9·2 + .81·3
    discount=np.array([0.729], np.float32),
    next_obs=np.array([2]),
    weight=np.ones(1, np.float32),
    expert=np.ones(1, np.float32),
    one_step=OneStep(np.array([1.0], np.float32), np.array([GAMMA], np.float32), np.array([1])),
)
SQUARED_LOSS: dict[str, Any] = {"huber_delta": 0.0}


def rows(table: Any, seen: Any) -> Any:
    """Return the rows of `table` for observations, or for the query steps of a window."""
    return table[seen.query_steps if isinstance(seen, SequenceInput) else seen]


def value_and_gradient(backend: str, algorithm: DQN, batch: Any) -> tuple[float, dict, np.ndarray]:
    """Return the loss, its metrics, and its gradient with respect to the online network's table."""
    online = np.array(ONLINE, np.float32)
    target = np.array(TARGET, np.float32)
    if backend == "torch":
        import torch

        q = torch.tensor(online, requires_grad=True)
        nets = SimpleNamespace(q=lambda at: rows(q, at), target_q=lambda at: rows(torch.tensor(target), at))
        loss, info = algorithm.loss(nets, converted(batch, torch.tensor))
        (gradient,) = torch.autograd.grad(loss, q)
        return float(loss.detach()), {name: np.asarray(x.detach()) for name, x in info.items()}, gradient.numpy()
    import jax
    import jax.numpy as jnp

    def loss_of(values: Any) -> Any:
        nets = SimpleNamespace(q=lambda at: rows(values, at), target_q=lambda at: rows(jnp.asarray(target), at))
        return algorithm.loss(nets, converted(batch, jnp.asarray))

    with jax.numpy_rank_promotion("raise"):
        (loss, info), gradient = jax.value_and_grad(loss_of, has_aux=True)(jnp.asarray(online))
    return float(loss), {name: np.asarray(x) for name, x in info.items()}, np.asarray(gradient)


def converted(tree: Any, to: Any) -> Any:
    if isinstance(tree, tuple):
        return type(tree)(*(converted(part, to) for part in tree))
    return tree if tree is None or isinstance(tree, dict) else to(tree)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (SQUARED_LOSS, 125.535681),  # 10.791² + 2.7² + 1.8
        ({"huber_delta": 1e6}, 63.6678405),  # ½ of the squares + 1.8
        ({"huber_delta": 1.0}, 14.291),  # 10.291 + 2.2 + 1.8
        (SQUARED_LOSS | {"margin_weight": 0.0}, 123.735681),
        (SQUARED_LOSS | {"one_step_weight": 0.0}, 118.245681),
        (SQUARED_LOSS | {"n_step_weight": 0.0}, 9.09),
        (SQUARED_LOSS | {"margin": 1.0, "one_step_weight": 0.8}, 124.277681),  # DI-engine's swapped arguments
        (SQUARED_LOSS | {"n_step_weight": 2.0, "one_step_weight": 3.0, "margin_weight": 4.0}, 261.961362),
    ],
)
def test_dqfd_loss_by_hand_o4(backend, options, expected):
    loss, _, _ = value_and_gradient(backend, DQfD(**options), O4)
    assert loss == pytest.approx(expected, rel=1e-6)


def test_dqfd_gradient_by_hand_o4(backend):
    """Only Q(s) has a gradient: 2·(-10.791) + 2·(-2.7) - 1 at the expert's action, 1 at the best other action."""
    _, _, gradient = value_and_gradient(backend, DQfD(**SQUARED_LOSS), O4)
    np.testing.assert_allclose(gradient[0], [-27.982, 1.0, 0.0], rtol=1e-6)
    assert not gradient[1:].any()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 13.491),  # 10.791 + 2.7
        ({"margin_in_priority": True}, 15.291),  # + 1.8
        ({"n_step_weight": 0.5, "one_step_weight": 2.0}, 10.7955),
        ({"margin_in_priority": True, "margin_weight": 0.5}, 14.391),
        ({"one_step_weight": 0.0}, 10.791),
    ],
)
def test_dqfd_priority_by_hand_o4(backend, options, expected):
    _, info, _ = value_and_gradient(backend, DQfD(**options), O4)
    np.testing.assert_allclose(info["priority"], [expected], rtol=1e-6)


def test_td_errors_of_opposite_sign_do_not_cancel_q8(backend):
    """Q = 1, y₁ = 3 (terminated) and yₙ = -.5: |-2| + |1.5| = 3.5, not .5."""
    one = O4._replace(
        reward=np.array([-0.5], np.float32),
        discount=np.zeros(1, np.float32),
        one_step=OneStep(np.array([3.0], np.float32), np.zeros(1, np.float32), np.array([1])),
    )
    _, info, _ = value_and_gradient(backend, DQfD(), one)
    np.testing.assert_allclose(info["priority"], [3.5], rtol=1e-6)


def two_samples(expert: tuple[float, float], weight: tuple[float, float] = (1.0, 1.0)) -> Batch:
    """Return a batch of two O4 samples, at observations 0 and 3."""
    twice = O4._replace(
        **{name: np.repeat(getattr(O4, name), 2) for name in ("action", "reward", "discount", "next_obs")},
        one_step=OneStep(*(np.repeat(part, 2) for part in O4.one_step or ())),
    )
    return twice._replace(
        obs=np.array([0, 3]), expert=np.array(expert, np.float32), weight=np.array(weight, np.float32)
    )


def test_margin_loss_applies_only_to_demonstrations(backend):
    """TD losses are off. The second sample (row 3) is the agent's own."""
    only = DQfD(n_step_weight=0.0, one_step_weight=0.0)
    loss, info, gradient = value_and_gradient(backend, only, two_samples((1.0, 0.0), (0.5, 1.0)))
    assert loss == pytest.approx(0.5 * 1.8 / 2)
    np.testing.assert_allclose(gradient[0], [-0.25, 0.25, 0], atol=1e-7)  # weighted mean of two samples
    assert not gradient[1:].any()
    assert info["margin_loss"] == pytest.approx(0.9)  # unweighted mean of both samples
    _, info, gradient = value_and_gradient(backend, only, two_samples((0.0, 0.0)))
    assert not gradient.any()
    assert info["margin_loss"] == 0


@pytest.mark.parametrize("kind", [DQfD, R2D3])
def test_agent_batch_equals_dqn_plus_one_step_e12(backend, kind):
    """The gradient is the sum of DQN's n-step and DQN's one-step gradient."""
    batch = two_samples((0.0, 0.0), (0.3, 0.9))
    algorithm = kind(recurrent="none", rescale_values=False, discount=GAMMA, **SQUARED_LOSS)
    base = DQN(**SQUARED_LOSS)
    loss, info, gradient = value_and_gradient(backend, algorithm, batch)
    assert batch.one_step is not None
    single = batch._replace(
        reward=batch.one_step.reward, discount=batch.one_step.discount, next_obs=batch.one_step.ahead
    )
    parts = [value_and_gradient(backend, base, one) for one in (batch, single)]
    assert loss == pytest.approx(sum(part[0] for part in parts), rel=1e-6)
    np.testing.assert_allclose(gradient, sum(part[2] for part in parts), rtol=1e-6)
    np.testing.assert_allclose(info["priority"], sum(part[1]["priority"] for part in parts), rtol=1e-6)


# ---------------------------------------------------------------------------------------------------- sequences
def sequences(mask: Any, expert: Any, action: Any = 0) -> SequenceBatch:
    """Return two sequences of two O4 samples each, at observations 0 and 3; the second sequence has weight ½."""
    shape = (2, 2)

    def full(value: float) -> np.ndarray:
        return np.full(shape, value, np.float32)

    zeros = np.zeros((2, 4))
    at = np.array([[0, 3], [0, 3]])
    return SequenceBatch(
        obs=SequenceInput(zeros, zeros, zeros, zeros, {}, np.zeros(2, bool), at),
        action=np.full(shape, action),
        reward=full(5.23),
        discount=full(0.729),
        ahead=np.full(shape, 2),
        weight=np.array([1.0, 0.5], np.float32),
        mask=np.array(mask, np.float32),
        expert=np.array(expert, np.float32),
        one_step=OneStep(full(1.0), full(GAMMA), np.full(shape, 1)),
    )


def test_r2d3_loss_with_value_rescaling_e9(backend):
    """Both targets are h(R + γ h⁻¹(target value)). The margin is added to rescaled values."""
    y1 = rescale(np.array(1 + GAMMA * unrescale(np.array(3.0), 1e-3)), 1e-3)
    yn = rescale(np.array(5.23 + 0.729 * unrescale(np.array(9.0), 1e-3)), 1e-3)
    loss, info, _ = value_and_gradient(backend, R2D3(), sequences([[1, 0], [1, 0]], [1, 0]))
    first = (1 - yn) ** 2 + (1 - y1) ** 2
    assert loss == pytest.approx(((first + 1.8) + 0.5 * first) / 2, rel=1e-5)
    np.testing.assert_allclose(info["priority"][:, 0], abs(1 - yn) + abs(1 - y1), rtol=1e-5)
    assert info["margin_loss"] == pytest.approx(0.9)  # one of the two unmasked steps is an expert's


def test_margin_in_priority_applies_only_to_demonstrations_e11(backend):
    plain, more = (
        value_and_gradient(backend, R2D3(margin_in_priority=flag), sequences([[1, 1], [1, 1]], [1, 0]))[1]["priority"]
        for flag in (False, True)
    )
    np.testing.assert_allclose(more - plain, [[1.8, 2.8], [0, 0]], atol=1e-5)


def test_bc_loss_by_hand(backend):
    """-log softmax([1, 2, 1.5])[0] = 1.680, and 2.310 for [1, 3, 1.5]. The sequences have weights 1 and ½."""
    one, three = np.log(np.exp([0, 1, 0.5]).sum()), np.log(np.exp([0, 2, 0.5]).sum())
    loss, info, _ = value_and_gradient(backend, BC(), sequences([[1, 1], [1, 1]], [1, 0]))
    assert loss == pytest.approx((one + three) / 2 / 2, rel=1e-6)
    np.testing.assert_allclose(info["priority"], [[one, three], [0, 0]], atol=1e-6)
    loss, _, gradient = value_and_gradient(backend, BC(), sequences([[0, 1], [1, 1]], [0, 1]))
    assert loss == pytest.approx(0.5 * (one + three) / 2 / 2, rel=1e-6)
    np.testing.assert_allclose(gradient.sum(axis=1), 0, atol=1e-7)  # p - 1 at the expert's action, p at the others


def test_dqfd_r2d3_and_bc_require_demonstrations():
    for kind in (DQfD, R2D3, BC):
        with pytest.raises(UsageError, match=rf"{kind.name()} learns from demonstrations. Give --demonstrations"):
            kind().demonstration_folder()
        assert kind(demonstrations="here").demonstration_folder() == "here"
    assert R2D2().demonstration_folder() == ""
