"""PPO computes the same on both backends, by value: see test_parity.py. And what its batches mean to a learner."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from learning_cases import assert_same, observations
from policy_cases import ACTIONS, OBSERVATIONS, VECTOR, build, gradient, noise, rollout, small
from test_parity import assert_parity, close, compare_state

from duetto.algorithms import PPO
from duetto.learners import policy

# After a step from 0 a parameter is that step alone, whose size the two optimisers compute .7e-5 apart.
FROM_SOMEWHERE = {"zero_biases": False, "initial_log_std": -0.5}
SLOW = FROM_SOMEWHERE | {"learning_rate": 1e-5}  # so that what `away_from_kinks` does lasts
# Options of the algorithm, what is observed, and what the rollouts are like. The golden traces, the same for both
# backends, are of more.
CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "choices": ({"entropy_coefficient": 0.05} | FROM_SOMEWHERE, "vector", {"action": "choices", "weighted": True}),
    "baselines": (
        {
            "clip_value": True,
            "shared_torso": True,
            "learning_rate_decay": "linear",
            "clip_range_decay": "linear",
            "entropy_coefficient": 0.01,
            "max_grad_norm": 0.05,
        }
        | FROM_SOMEWHERE,
        "parts",
        {"weighted": True},
    ),
    "image and vectors": (
        {"shared_torso": True, "clip_value": True} | SLOW,
        "both",
        {"size": 24, "action": "numbers"},
    ),
}
ACTING = 40  # rows


@pytest.fixture
def in_frameworks(monkeypatch):
    """No network is small enough to act in NumPy."""
    monkeypatch.setattr(policy, "MAX_HIDDEN", -1)


@pytest.mark.usefixtures("in_frameworks")
@pytest.mark.parametrize("case", CASES)
def test_both_backends_compute_the_same(case):
    options, observation, data = CASES[case]
    observation, action = OBSERVATIONS[observation], data.get("action", "choice")
    pair = [build(backend, small(**options), observation, action) for backend in ("torch", "jax")]
    compare_state(pair, 0.0)
    for learner in pair:
        away_from_kinks(learner)
    batches = [rollout(**{"size": 48, "seed": update, "observation": observation} | data) for update in range(1, 51)]
    acting = partial(compare_acting, pair, observation, action)
    assert_parity(pair, batches, acting, early=1, metrics=compare_metrics)


def away_from_kinks(learner):
    """Convolutions and the layer behind them become positive means, whose ReLUs pass everything on.

    Of 100,000 random pixels some are so near 0 that a rounding decides whether ReLU has a gradient there.
    """
    parameters = learner.parameters()
    for name, value in parameters["agent"].items():
        if "convolutions" in name or "features" in name:
            positive = np.abs(value)
            rows = positive.reshape(len(value), -1).sum(axis=1).reshape(-1, *[1] * (value.ndim - 1))
            parameters["agent"][name] = positive / rows if name.endswith("weight") else positive
    learner.load_parameters(parameters)


def compare_metrics(metrics, tolerance):
    """Relative to 1 where they are smaller: a mean of normalised advantages is 0 but for rounding."""
    ours, theirs = metrics
    assert ours.names == theirs.names
    assert ours.priority is theirs.priority is None
    for name, one, other in zip(ours.names, np.asarray(ours.values), np.asarray(theirs.values), strict=True):
        assert one == pytest.approx(other, rel=tolerance, abs=tolerance), name


def compare_acting(pair, observation, action, tolerance):
    """Actions with and without noise, the log-probabilities and values that go with them, and values alone."""
    obs = observations(observation, ACTING, np.random.default_rng(7))
    drawn = noise(ACTIONS[action], ACTING)
    for given in (None, drawn):
        compare_actions(*(learner.act(obs, given) for learner in pair), tolerance)
    (ours, our_extras), (theirs, their_extras) = (learner.collect(obs, drawn) for learner in pair)
    compare_actions(ours, theirs, tolerance)
    compare_actions(ours, pair[0].act(obs, drawn), 0.0)
    assert list(our_extras) == list(their_extras) == ["log_prob", "value"]
    for name, values in our_extras.items():
        assert values.dtype == their_extras[name].dtype == np.float32
        assert values.shape == (ACTING,)
        close(values, their_extras[name], tolerance, name)
    for learner, extras in zip(pair, (our_extras, their_extras), strict=True):
        np.testing.assert_allclose(learner.value(obs), extras["value"], rtol=1e-5, atol=1e-6)


def compare_actions(ours, theirs, tolerance):
    assert ours.shape == theirs.shape
    assert ours.dtype.kind == theirs.dtype.kind
    if ours.dtype.kind == "f":
        close(ours, theirs, tolerance, "actions")
    else:
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("action", ACTIONS)
def test_acting_in_numpy_is_acting_in_the_framework(backend, action, monkeypatch):
    """Also after an update: it acts with the parameters of the moment."""
    learner = build(backend, action=action)
    obs, drawn = observations(VECTOR, 6, np.random.default_rng(1)), noise(ACTIONS[action], 6)
    before = learner.value(obs)
    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(policy, "MAX_HIDDEN", -1)
            other = build(backend, action=action, seed=5)
        other.load_parameters(learner.parameters())
        compare_acting([learner, other], VECTOR, action, 1e-5)
        compare_actions(learner.act(obs, drawn), other.act(obs, drawn), 1e-5)
        learner.update(rollout(action=action))
    assert not np.allclose(learner.value(obs), before)


def test_it_acts_with_loaded_parameters_at_once(backend):
    learner, other = build(backend), build(backend, seed=1)
    obs = observations(VECTOR, 6, np.random.default_rng(1))
    learner.value(obs), other.value(obs)
    learner.load_state_dict(other.state_dict())
    np.testing.assert_array_equal(learner.value(obs), other.value(obs))


def test_metrics_have_the_same_names_in_the_same_order(backend):
    names = ["agent_loss", "approx_kl", "approx_kl_k2", "clip_fraction", "entropy", "policy_loss", "value_loss"]
    clipped = [*names[:1], "agent_gradient_norm", *names[1:]]
    assert list(build(backend).update(rollout()).names) == clipped
    assert list(build(backend, small(max_grad_norm=0.0)).update(rollout()).names) == names


# ---------------------------------------------------------------------------------------------------- minibatches
class Counting(PPO):
    """A loss that reports the sum of the rows' returns, and learns nothing."""

    def loss(self, nets, batch, clip):
        _, value = nets.agent(batch.obs)
        return (value * 0.0).sum(), {"seen": batch.returns.sum()}


def test_p15_every_row_is_learned_from_once(backend):
    """Row i counts 2^i: 16 rows add up to 2^16 - 1 in one way only. The metric is the mean of 4 minibatches' sums."""
    learner = build(backend, Counting(hidden=(8,), minibatches=4))
    one = rollout(16)._replace(returns=2.0 ** np.arange(16, dtype=np.float32))
    for _ in range(3):
        assert learner.update(one).value("seen") * 4 == 2**16 - 1


def test_p15_epochs_are_shuffled_and_both_backends_alike():
    """Each epoch's first minibatch is another, and the same on both backends: the shuffle is drawn on the host."""
    rows = []
    for backend in ("torch", "jax"):
        learner = build(backend, seed=3)
        split, seen = learner.algorithm.split, []
        object.__setattr__(
            learner.algorithm, "split", lambda random, size, s=split, n=seen: n.append(s(random, size)) or n[-1]
        )
        for _ in range(3):
            learner.update(rollout(16))
        rows.append(seen)
    np.testing.assert_array_equal(*rows)
    assert len({tuple(epoch.ravel()) for epoch in rows[0]}) == 3


def test_metrics_are_means_over_the_minibatches(backend):
    """Of a policy that stands still: the whole batch's entropy and value loss are the means of its parts'."""
    options = {"learning_rate": 1e-12, "normalize_advantages": False}
    whole, parts = (build(backend, small(minibatches=n, **options)).update(rollout(32)) for n in (1, 4))
    for name in ("entropy", "value_loss", "policy_loss", "approx_kl", "clip_fraction", "agent_loss"):
        assert whole.value(name) == pytest.approx(parts.value(name), rel=1e-4, abs=1e-6), name


def test_each_minibatch_is_a_step_of_the_optimiser(backend):
    learner = build(backend, small(minibatches=8))
    for _ in range(2):
        learner.update(rollout(32))
    assert learner.optimizer_state()["agent"]["steps"] == 16
    assert learner.updates == 2


def test_rows_of_weight_0_have_no_gradient(backend):
    """Whatever they hold: the update is that of the other rows alone."""
    options = {"minibatches": 1, "clip_value": True, "entropy_coefficient": 0.1}
    some = rollout(24, weighted=True)
    real = some.weight > 0
    assert 0 < real.sum() < 24
    for junk in (some.advantage, np.full(24, 1e4, np.float32)):
        spoiled = some._replace(
            advantage=np.where(real, some.advantage, junk), returns=np.where(real, some.returns, junk)
        )
        alone = type(some)(*(part[real] for part in some))
        found, wanted = (gradient(build(backend, small(**options)), batch) for batch in (spoiled, alone))
        for name, values in wanted.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-6, err_msg=name)


# ---------------------------------------------------------------------------------------------------- state
@pytest.mark.parametrize("observation", ["vector", "both"])
def test_what_one_backend_saved_the_other_loads(backend, observation):
    """Bit for bit; and the next update agrees, its shuffle included, as near as kinks allow where images are seen."""
    other = {"torch": "jax", "jax": "torch"}[backend]
    tolerance, observation = {"vector": 1e-5, "both": 1e-2}[observation], OBSERVATIONS[observation]
    algorithm = small(**FROM_SOMEWHERE)
    ours, theirs = (build(name, algorithm, observation, seed=seed) for name, seed in ((backend, 0), (other, 99)))
    ours.update(rollout(observation=observation))
    theirs.load_state_dict(ours.state_dict())
    state, copied = ours.state_dict(), theirs.state_dict()
    assert_same(state["parameters"]["agent"], copied["parameters"]["agent"])
    assert state["random"] == copied["random"]
    metrics = [learner.update(rollout(seed=1, observation=observation)) for learner in (ours, theirs)]
    compare_metrics(metrics, tolerance)
    compare_state([ours, theirs], tolerance)
