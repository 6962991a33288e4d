"""DQfD, R2D3 and behaviour cloning through the learners: both backends compute the same, by value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import recurrent_cases
from learning_cases import PARTS, VECTOR, assert_same, build, first_moments, observations
from test_parity import assert_parity, close

from duetto.algorithms import BC, R2D2, R2D3, DQfD
from duetto.algorithms.base import Batch, OneStep, SequenceBatch
from duetto.networks.spaces import Discrete, Space

CHOICE = Discrete(3)
SMALL: dict[str, Any] = {"hidden": (16, 12), "head_hidden": (6,), "target_period": 2}
SEQUENCES: dict[str, Any] = SMALL | {"recurrent_size": 8, "burn_in": 2, "unroll": 5, "overlap": 3}
SEQUENCES |= {"target_period": 1, "tau": 0.3}  # a single phase: JAX takes long to compile recurrent layers


def _known(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in BC.options()}


CASES = {
    "dqfd": (DQfD(**SMALL), VECTOR),
    "dqfd, squares on the scale h, margin in the priority, plain L2, dict": (
        DQfD(
            huber_delta=0.0,
            rescale_values=True,
            margin_in_priority=True,
            weight_decay=0.01,
            decoupled_weight_decay=False,
            n_step_weight=0.7,
            one_step_weight=1.3,
            margin_weight=2.0,
            tau=0.3,
            **SMALL,
        ),
        PARTS,
    ),
    "dqfd, lstm": (DQfD(recurrent="lstm", **SEQUENCES), VECTOR),
    "r2d3": (R2D3(**SEQUENCES), VECTOR),
    "r2d3, gru, margin alone": (R2D3(recurrent="gru", one_step_weight=0.0, **SEQUENCES), VECTOR),
    "bc": (BC().with_options(**_known(SEQUENCES)), VECTOR),
    "bc, without memory": (BC(recurrent="none").with_options(**_known(SMALL)), VECTOR),
}
FAST = {"dqfd", "dqfd, squares on the scale h, margin in the priority, plain L2, dict", "r2d3", "bc, without memory"}
# On JAX the same follows from parity, and takes long to compile.
LSTM = ["torch", pytest.param("jax", marks=pytest.mark.slow)]
BOTH = [("torch", "dqfd"), ("torch", "r2d3"), ("jax", "dqfd"), pytest.param("jax", "r2d3", marks=pytest.mark.slow)]


def batch(algorithm: Any, observation: Space, carry: Any, seed: int) -> Batch | SequenceBatch:
    """Some of it demonstrations; of every fourth seed nothing or everything. Their states are zeros, or left out."""
    random = np.random.default_rng(seed + 2000)
    share = {0: 0.0, 1: 1.0}.get(seed % 4, 0.4)
    if algorithm.recurrent == "none":
        return steps(observation, random, share)
    made = recurrent_cases.batch(observation, CHOICE, carry, seed=seed)
    size, length = made.mask.shape
    expert = (random.random(size) < share).astype(np.float32)
    states: dict[str, np.ndarray] = {}
    if share < 1:
        states = {name: part * (1 - expert)[:, None, None] for name, part in made.obs.carry.items()}
    ahead = np.minimum(np.arange(length) + 1, length) + np.zeros((size, 1), np.int64)
    one_step = OneStep(random.normal(size=(size, length)).astype(np.float32), made.discount, ahead)
    return made._replace(
        obs=made.obs._replace(carry=states),
        expert=expert,
        one_step=one_step if algorithm.memory().one_step else None,
    )


def steps(observation: Space, random: np.random.Generator, share: float, size: int = 24) -> Batch:
    obs, next_obs, ahead = (observations(observation, size, random) for _ in range(3))

    def numbers() -> np.ndarray:
        return random.normal(size=size).astype(np.float32)

    def discounts() -> np.ndarray:
        return np.where(random.random(size) < 0.25, 0, 0.9).astype(np.float32)

    return Batch(
        obs=obs,
        action=random.integers(3, size=size),
        reward=numbers(),
        discount=discounts(),
        next_obs=next_obs,
        weight=random.uniform(0.1, 1, size).astype(np.float32),
        expert=(random.random(size) < share).astype(np.float32),
        one_step=OneStep(numbers(), discounts(), ahead),
    )


@pytest.mark.parametrize("case", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in CASES])
def test_both_backends_compute_the_same(case):
    algorithm, observation = CASES[case]
    pair = [build(backend, algorithm, observation, CHOICE) for backend in ("torch", "jax")]
    carry = pair[0].carry_shapes()
    batches = [batch(algorithm, observation, carry, update) for update in range(1, 21)]
    # with some, and all, and no demonstrations; and the first that follows a target's move
    assert_parity(pair, batches, early=4, state=2)
    if algorithm.recurrent == "none":
        obs = observations(observation, 40, np.random.default_rng(7))
        close(*(learner.act(obs) for learner in pair), 0.0, "actions")


@pytest.mark.parametrize(("backend", "case"), BOTH)
def test_the_margin_reaches_demonstrations_only(backend, case):
    """Of a loss that is the margin alone: the agent's items may be anything, and a batch of only them moves nothing."""
    options = {"n_step_weight": 0.0, "one_step_weight": 0.0, "weight_decay": 0.0}
    algorithm, observation = CASES[case][0].with_options(**options), VECTOR
    learners = [build(backend, algorithm, observation, CHOICE) for _ in range(3)]
    one = batch(algorithm, observation, learners[0].carry_shapes(), 3)
    assert one.expert is not None
    own = one.expert == 0
    assert 0 < own.sum() < len(own)
    other = one._replace(action=np.where(own.reshape(-1, *[1] * (one.action.ndim - 1)), 2 - one.action, one.action))
    before = learners[0].parameters()["q"]
    for learner, given in zip(learners, (one, other, one._replace(expert=np.zeros_like(one.expert))), strict=True):
        learner.update(given)
    assert_same(learners[0].parameters()["q"], learners[1].parameters()["q"])
    assert any((before[name] != value).any() for name, value in learners[0].parameters()["q"].items())
    assert_same(before, learners[2].parameters()["q"])


@pytest.mark.parametrize("backend", LSTM)
def test_e12_the_agents_own_batch_has_r2d2s_gradient_and_a_one_step_term(backend):
    """Adam's first moments are .1 times the gradient; without clipping they add up."""
    options = SEQUENCES | {"max_grad_norm": 0.0}
    full = R2D3(weight_decay=0.0, **options)
    learners = [build(backend, algorithm, VECTOR, CHOICE) for algorithm in (full, R2D2(**options), R2D2(**options))]
    one = batch(full, VECTOR, learners[0].carry_shapes(), 4)
    assert isinstance(one, SequenceBatch)
    assert one.expert is not None
    assert one.one_step is not None
    assert not one.expert.any()
    reward, discount, ahead = one.one_step
    plain = one._replace(expert=None, one_step=None)
    singles = plain._replace(reward=reward, discount=discount, ahead=ahead)
    for learner, given in zip(learners, (one, plain, singles), strict=True):
        learner.update(given)
    both, n_step, one_step = (first_moments(learner, "q") for learner in learners)
    for name, value in both.items():
        np.testing.assert_allclose(value, n_step[name] + one_step[name], rtol=1e-4, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("backend", LSTM)
def test_e12_without_one_step_and_margin_it_is_r2d2_bit_for_bit(backend):
    paper = R2D3(one_step_weight=0.0, margin_weight=0.0, weight_decay=0.0, **SEQUENCES)
    learners = [build(backend, algorithm, VECTOR, CHOICE) for algorithm in (paper, R2D2(**SEQUENCES))]
    for update in (2, 3, 4):  # all with a state: the agent's are among them
        one = batch(paper, VECTOR, learners[0].carry_shapes(), update)
        metrics = [learner.update(one._replace(one_step=None)) for learner in learners]
        np.testing.assert_array_equal(metrics[0].priority, metrics[1].priority)
    for name in ("q", "target_q"):
        assert_same(*(learner.parameters()[name] for learner in learners))


@pytest.mark.parametrize(("backend", "case"), BOTH)
def test_learning_on_demonstrations_brings_the_margin_loss_below_the_margin(backend, case):
    """On a fixed set: at the start it is about the margin, in the end far below (SPEC, section 10)."""
    options = {"n_step_weight": 0.1, "one_step_weight": 0.1, "learning_rate": 1e-2, "adam_epsilon": 1e-5}
    algorithm = CASES[case][0].with_options(**options)
    learner = build(backend, algorithm, VECTOR, CHOICE)
    one = batch(algorithm, VECTOR, learner.carry_shapes(), 1)
    assert one.expert is not None
    assert one.expert.all()
    found = [learner.update(one).value("margin_loss") for _ in range(150)]
    assert found[0] > 0.75 * algorithm.margin
    assert found[-1] < 0.25 * algorithm.margin
