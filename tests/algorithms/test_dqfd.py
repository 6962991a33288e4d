"""DQfD's and R2D3's maths by hand: SPEC O3, O4, E8, E9, E11, E12, each on both frameworks."""

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
# O4. Observations are numbers: 0 is s, 1 the one after a step, 2 the one after three; a fourth is for two-row batches.
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
SQUARES: dict[str, Any] = {"huber_delta": 0.0}


def rows(table: Any, seen: Any) -> Any:
    """Values of observations, which are their own numbers; of a window, its positions'."""
    return table[seen.query_steps if isinstance(seen, SequenceInput) else seen]


def value_and_gradient(backend: str, algorithm: DQN, batch: Any) -> tuple[float, dict, np.ndarray]:
    """The loss, what it reports, and its gradient with respect to the table of the online network's values."""
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

    def of(values: Any) -> Any:
        nets = SimpleNamespace(q=lambda at: rows(values, at), target_q=lambda at: rows(jnp.asarray(target), at))
        return algorithm.loss(nets, converted(batch, jnp.asarray))

    with jax.numpy_rank_promotion("raise"):
        (loss, info), gradient = jax.value_and_grad(of, has_aux=True)(jnp.asarray(online))
    return float(loss), {name: np.asarray(x) for name, x in info.items()}, np.asarray(gradient)


def converted(tree: Any, to: Any) -> Any:
    if isinstance(tree, tuple):
        return type(tree)(*(converted(part, to) for part in tree))
    return tree if tree is None or isinstance(tree, dict) else to(tree)


def test_o4_the_targets(backend):
    """y₁ = 1 + .9·3 = 3.7: online [2, 4, 3] chooses 1. yₙ = 5.23 + .729·9 = 11.791: [0, 1, 6] chooses 2."""
    _, info, _ = value_and_gradient(backend, DQfD(**SQUARES), O4)
    np.testing.assert_allclose(info["q"], [1.0])
    np.testing.assert_allclose(info["target"], [11.791], rtol=1e-6)
    _, info, _ = value_and_gradient(backend, DQfD(n_step_weight=0.0, margin_weight=0.0), O4)
    np.testing.assert_allclose(info["priority"], [2.7], rtol=1e-6)  # |δ₁|


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (SQUARES, 125.535681),  # 10.791² + 2.7² + 1.8
        ({"huber_delta": 1e6}, 63.6678405),  # ½ of the squares + 1.8
        ({"huber_delta": 1.0}, 14.291),  # 10.291 + 2.2 + 1.8
        (SQUARES | {"margin_weight": 0.0}, 123.735681),
        (SQUARES | {"one_step_weight": 0.0}, 118.245681),
        (SQUARES | {"n_step_weight": 0.0}, 9.09),
        (SQUARES | {"margin": 1.0, "one_step_weight": 0.8}, 124.277681),  # DI-engine's swapped arguments
        (SQUARES | {"n_step_weight": 2.0, "one_step_weight": 3.0, "margin_weight": 4.0}, 261.961362),
    ],
)
def test_o4_the_loss(backend, options, expected):
    loss, _, _ = value_and_gradient(backend, DQfD(**options), O4)
    assert loss == pytest.approx(expected, rel=1e-6)


def test_o4_the_gradient(backend):
    """Only Q(s) moves: 2·(-10.791) + 2·(-2.7) - 1 for the expert's action, 1 for the best of the others."""
    _, _, gradient = value_and_gradient(backend, DQfD(**SQUARES), O4)
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
def test_o4_the_priority(backend, options, expected):
    _, info, _ = value_and_gradient(backend, DQfD(**options), O4)
    np.testing.assert_allclose(info["priority"], [expected], rtol=1e-6)


def test_q8_errors_of_opposite_sign_do_not_cancel(backend):
    """Q = 1, y₁ = 3 (terminated) and yₙ = -.5: |-2| + |1.5| = 3.5, not .5."""
    one = O4._replace(
        reward=np.array([-0.5], np.float32),
        discount=np.zeros(1, np.float32),
        one_step=OneStep(np.array([3.0], np.float32), np.zeros(1, np.float32), np.array([1])),
    )
    _, info, _ = value_and_gradient(backend, DQfD(), one)
    np.testing.assert_allclose(info["priority"], [3.5], rtol=1e-6)


def test_without_single_steps_the_n_step_ones_are_they(backend):
    """A memory with n = 1 hands over no `one_step`: both losses have the same target, y₁ = 3.7."""
    one = O4._replace(
        reward=np.ones(1, np.float32), discount=np.full(1, GAMMA, np.float32), next_obs=np.array([1]), one_step=None
    )
    loss, info, _ = value_and_gradient(backend, DQfD(margin_weight=0.0, **SQUARES), one)
    assert loss == pytest.approx(2 * 2.7**2, rel=1e-6)
    np.testing.assert_allclose(info["priority"], [5.4], rtol=1e-6)


def pair(expert: tuple[float, float], weight: tuple[float, float] = (1.0, 1.0)) -> Batch:
    """Two items, at the observations 0 and 3, that are alike otherwise."""
    twice = O4._replace(
        **{name: np.repeat(getattr(O4, name), 2) for name in ("action", "reward", "discount", "next_obs")},
        one_step=OneStep(*(np.repeat(part, 2) for part in O4.one_step or ())),
    )
    return twice._replace(
        obs=np.array([0, 3]), expert=np.array(expert, np.float32), weight=np.array(weight, np.float32)
    )


def test_the_margin_reaches_demonstrations_only(backend):
    """Without the temporal errors: of two items, the second one's values (row 3) are the agent's own."""
    only = DQfD(n_step_weight=0.0, one_step_weight=0.0)
    loss, info, gradient = value_and_gradient(backend, only, pair((1.0, 0.0), (0.5, 1.0)))
    assert loss == pytest.approx(0.5 * 1.8 / 2)
    np.testing.assert_allclose(gradient[0], [-0.25, 0.25, 0], atol=1e-7)  # weighted, and of a mean over two
    assert not gradient[1:].any()
    assert info["margin_loss"] == pytest.approx(0.9)  # unweighted, over all
    _, info, gradient = value_and_gradient(backend, only, pair((0.0, 0.0)))
    assert not gradient.any()
    assert info["margin_loss"] == 0


@pytest.mark.parametrize("kind", [DQfD, R2D3])
def test_e12_the_agents_own_batch_is_dqns_with_a_one_step_term(backend, kind):
    """Gradient of the full loss = DQN's n-step gradient + DQN's gradient for the single steps."""
    batch = pair((0.0, 0.0), (0.3, 0.9))
    algorithm = kind(recurrent="none", rescale_values=False, discount=GAMMA, **SQUARES)
    base = DQN(**SQUARES)
    loss, info, gradient = value_and_gradient(backend, algorithm, batch)
    assert batch.one_step is not None
    single = batch._replace(
        reward=batch.one_step.reward, discount=batch.one_step.discount, next_obs=batch.one_step.ahead
    )
    parts = [value_and_gradient(backend, base, one) for one in (batch, single)]
    assert loss == pytest.approx(sum(part[0] for part in parts), rel=1e-6)
    np.testing.assert_allclose(gradient, sum(part[2] for part in parts), rtol=1e-6)
    np.testing.assert_allclose(info["priority"], sum(part[1]["priority"] for part in parts), rtol=1e-6)


def test_e12_without_one_step_and_margin_it_is_r2d2_bit_for_bit(backend):
    """Also on a batch with demonstrations: the paper's preset has no loss that looks at `expert`."""
    batch = pair((1.0, 0.0), (0.3, 0.9))
    algorithm = R2D3(one_step_weight=0.0, margin_weight=0.0, recurrent="none")
    ours, theirs = (value_and_gradient(backend, one, batch) for one in (algorithm, R2D2(recurrent="none")))
    assert ours[0] == theirs[0]
    np.testing.assert_array_equal(ours[2], theirs[2])
    np.testing.assert_array_equal(ours[1]["priority"], theirs[1]["priority"])


# ---------------------------------------------------------------------------------------------------- sequences
def sequences(mask: Any, expert: Any, action: Any = 0) -> SequenceBatch:
    """Two sequences of two steps, at the positions 0 and 3, both as O4's sample; the second has weight ½."""
    shape = (2, 2)

    def full(value: float) -> np.ndarray:
        return np.full(shape, value, np.float32)

    nothing = np.zeros((2, 4))
    at = np.array([[0, 3], [0, 3]])
    return SequenceBatch(
        obs=SequenceInput(nothing, nothing, nothing, nothing, {}, np.zeros(2, bool), at),
        action=np.full(shape, action),
        reward=full(5.23),
        discount=full(0.729),
        ahead=np.full(shape, 2),
        weight=np.array([1.0, 0.5], np.float32),
        mask=np.array(mask, np.float32),
        expert=np.array(expert, np.float32),
        one_step=OneStep(full(1.0), full(GAMMA), np.full(shape, 1)),
    )


def test_e9_by_hand_on_the_scale_h(backend):
    """Both targets: h of the return, h⁻¹ of the target network's value; the margin is added on that scale."""
    y1 = rescale(np.array(1 + GAMMA * unrescale(np.array(3.0), 1e-3)), 1e-3)
    yn = rescale(np.array(5.23 + 0.729 * unrescale(np.array(9.0), 1e-3)), 1e-3)
    loss, info, _ = value_and_gradient(backend, R2D3(), sequences([[1, 0], [1, 0]], [1, 0]))
    first = (1 - yn) ** 2 + (1 - y1) ** 2
    assert loss == pytest.approx(((first + 1.8) + 0.5 * first) / 2, rel=1e-5)
    np.testing.assert_allclose(info["priority"][:, 0], abs(1 - yn) + abs(1 - y1), rtol=1e-5)
    assert info["margin_loss"] == pytest.approx(0.9)  # of the two steps that count, one is an expert's


def test_e5_the_flag_is_for_every_step_that_counts_and_for_no_other(backend):
    """Without temporal errors. At position 0 J_E is 1.8, at position 3, Q = [1, 3, 1.5], it is 2.8."""
    only = R2D3(n_step_weight=0.0, one_step_weight=0.0)
    loss, info, gradient = value_and_gradient(backend, only, sequences([[1, 1], [1, 1]], [1, 0]))
    assert loss == pytest.approx((1.8 + 2.8) / 2 / 2)  # mean over steps, mean over sequences
    np.testing.assert_allclose(gradient[[0, 3]], [[-0.25, 0.25, 0], [-0.25, 0.25, 0]], atol=1e-7)
    assert info["margin_loss"] == pytest.approx((1.8 + 2.8) / 4)
    loss, info, gradient = value_and_gradient(backend, only, sequences([[1, 0], [1, 1]], [1, 0]))
    assert loss == pytest.approx(1.8 / 2)
    assert info["margin_loss"] == pytest.approx(1.8 / 3)
    assert not gradient[3].any()  # a padded step has no margin


def test_e11_the_margin_in_the_priority_is_the_experts_only(backend):
    plain, more = (
        value_and_gradient(backend, R2D3(margin_in_priority=flag), sequences([[1, 1], [1, 1]], [1, 0]))[1]["priority"]
        for flag in (False, True)
    )
    np.testing.assert_allclose(more - plain, [[1.8, 2.8], [0, 0]], atol=1e-5)


def test_behaviour_cloning_by_hand(backend):
    """-log softmax([1, 2, 1.5])(0) = 1.680, of [1, 3, 1.5] 2.310; weights 1 and ½ of demonstrations and the agent's."""
    one, three = np.log(np.exp([0, 1, 0.5]).sum()), np.log(np.exp([0, 2, 0.5]).sum())
    loss, info, _ = value_and_gradient(backend, BC(), sequences([[1, 1], [1, 1]], [1, 0]))
    assert loss == pytest.approx((one + three) / 2 / 2, rel=1e-6)
    np.testing.assert_allclose(info["priority"], [[one, three], [0, 0]], atol=1e-6)
    loss, _, gradient = value_and_gradient(backend, BC(), sequences([[0, 1], [1, 1]], [0, 1]))
    assert loss == pytest.approx(0.5 * (one + three) / 2 / 2, rel=1e-6)
    np.testing.assert_allclose(gradient.sum(axis=1), 0, atol=1e-7)  # p - 1 for the expert's action, p for the others


def test_the_share_needs_demonstrations():
    for kind in (DQfD, R2D3, BC):
        with pytest.raises(UsageError, match=rf"{kind.name()} learns from demonstrations. Give --demonstrations"):
            kind().demonstration_folder()
        assert kind(demonstrations="here").demonstration_folder() == "here"
    assert R2D2().demonstration_folder() == ""


def test_the_defaults_are_those_that_the_spec_names():
    """SPEC Q1, E9: λ = 1, 1, 1, 1e-5 and margin .8; n = 10 for DQfD, and for R2D3 n = 5, burn-in 2, unroll 40."""
    for kind, n in ((DQfD, 10), (R2D3, 5)):
        given = kind()
        assert (given.n_step_weight, given.one_step_weight, given.margin_weight, given.margin) == (1, 1, 1, 0.8)
        assert (given.weight_decay, given.decoupled_weight_decay, given.prioritized) == (1e-5, True, True)
        assert (given.n_step, given.demonstration_share) == (n, 0.25)
    assert (R2D3().burn_in, R2D3().unroll, R2D3().discount, R2D3().rescale_values) == (2, 40, 0.997, True)
    assert (DQfD().recurrent, R2D3().recurrent, BC().recurrent) == ("none", "lstm", "lstm")
