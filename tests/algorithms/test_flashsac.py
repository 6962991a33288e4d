"""What makes FlashSAC FlashSAC, one test per fact, and the same updates by a plain implementation; on both backends."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from learning_cases import ACTION, VECTOR, batch, build, changed
from plain_flashsac import Net, PlainFlashSAC

from duetto.algorithms import FlashSAC
from duetto.algorithms.exploration import RepeatedSampling
from duetto.errors import UsageError
from duetto.learners.base import Learner

SMALL: dict[str, Any] = {"hidden": (8, 8), "critic_hidden": (12, 12)}
UPDATES, ROWS = 50, 64


def small(**options: Any) -> FlashSAC:
    return FlashSAC(**(SMALL | options))


@dataclass(frozen=True)
class Alone(FlashSAC):
    """One of the losses by itself."""

    only: str = "critic"

    def update(self, learner: Any, batch: Any, noise: Any, phase: int) -> None:
        loss, numbers = (self.actor_loss, noise.now) if self.only == "actor" else (self.critic_loss, noise.next)
        learner.minimize(self.only, loss, batch, numbers)
        self.track_targets(learner)


# ------------------------------------------------------------------------------------------------ a plain one
def plain_names(arrays: dict[str, np.ndarray], member: int | None = None) -> dict[str, np.ndarray]:
    """The names of `plain_flashsac`, and one member's arrays of an ensemble."""
    found = {}
    for name, array in arrays.items():
        kind, i, part = name.split(".")
        norm = {"weight": "gamma", "bias": "beta"}.get(part, part)
        plain = f"{'w' if part == 'weight' else 'b'}{i}" if kind == "layers" else f"norm{i}.{norm}"
        found[plain.replace("norm5.gamma", "g")] = array if member is None else array[member]
    return found


def plain(learner: Learner) -> PlainFlashSAC:
    """The plain implementation with a learner's parameters."""
    nets = learner.parameters()
    critics, targets = ([Net(plain_names(nets[name], i)) for i in (0, 1)] for name in ("critic", "target_critic"))
    return PlainFlashSAC(
        Net(plain_names(nets["actor"])), critics, targets, float(nets["log_alpha"]["value"]), ACTION.size
    )


def assert_near(learner: Learner, other: PlainFlashSAC, tolerance: float) -> None:
    """All parameters and running statistics, relative to the largest of their array."""
    nets = learner.parameters()
    assert abs(float(nets["log_alpha"]["value"]) - other.log_alpha) <= tolerance
    pairs = [("actor", nets["actor"], None, other.actor)]
    pairs += [("critic", nets["critic"], i, other.critics[i]) for i in (0, 1)]
    pairs += [("target_critic", nets["target_critic"], i, other.targets[i]) for i in (0, 1)]
    for name, arrays, member, net in pairs:
        theirs = net.weights | (net.running if name != "target_critic" else {})
        for key, ours in plain_names(arrays, member).items():
            if key in theirs:
                expected = theirs[key].numpy()
                worst = np.abs(ours - expected).max() / max(np.abs(expected).max(), 1e-3)
                assert worst <= tolerance, f"{name} {member} {key} differs by {worst:.1e} of the largest"


def test_a_plain_implementation_computes_the_same(backend: str):
    """To 1e-5 after an update, to 1e-3 after 50 with other batches, noise and learning rates."""
    learner = build(backend, small(), seed=3)
    other = plain(learner)
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


# ------------------------------------------------------------------------------------------------ order and delays
class Recorder:
    """An updater that only notes what is asked for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def minimize(self, name: str, loss: Any, *args: Any) -> dict[str, Any]:
        self.calls.append(name)
        return {"log_prob": 0.0}

    def track(self, target: str, source: str, tau: float) -> None:
        self.calls.append(f"{target} {tau}")


def test_the_order_is_actor_temperature_critics_targets():
    algorithm, recorder = FlashSAC(), Recorder()
    noise = algorithm.draw(np.random.default_rng(0), batch(4))
    algorithm.update(recorder, batch(4), noise, 0)
    assert recorder.calls == ["actor", "log_alpha", "critic", "target_critic 0.01"]
    algorithm.update(recorder, batch(4), noise, 1)
    assert recorder.calls[4:] == ["critic", "target_critic 0.01"]


def test_the_actor_is_updated_in_the_first_of_two_updates(backend: str):
    learner = build(backend, small())
    for number in range(1, 5):
        before = learner.parameters()
        learner.update(batch(16))
        actor = {"actor", "log_alpha"} if number % 2 == 1 else set[str]()
        assert changed(before, learner.parameters()) == actor | {"critic", "target_critic"}
    assert [FlashSAC(policy_delay=3).phase(update) for update in range(1, 8)] == [0, 1, 1, 0, 1, 1, 0]


def test_rates_of_the_actors_updates_end_in_the_middle_of_the_cosine():
    rates = build("torch", small()).learning_rates(1.0)
    assert rates["critic"] == pytest.approx(1.5e-4)
    assert rates["actor"] == rates["log_alpha"] == pytest.approx(2.25e-4)


# ------------------------------------------------------------------------------------------------ unit norms
def test_weights_have_unit_norm_at_the_start_and_after_each_update(backend: str):
    learner = build(backend, small())
    for _ in range(3):
        nets = learner.parameters()
        for name in ("actor", "critic"):
            for i in range(6):
                np.testing.assert_allclose(np.linalg.norm(nets[name][f"layers.{i}.weight"], axis=-1), 1, rtol=1e-5)
            for i in range(6):
                parts = [nets[name].get(f"layers_norms.{i}.{part}", np.zeros(())) for part in ("weight", "bias")]
                squares = sum((part**2).sum(-1) for part in parts)
                np.testing.assert_allclose(squares, parts[0].shape[-1], rtol=1e-5)
        learner.update(batch(16))


def test_targets_are_not_projected(backend: str):
    """An average of directions is shorter than 1."""
    learner = build(backend, Alone(**SMALL, critic_learning_rate=0.3, tau=0.5))
    learner.update(batch(16))
    rows = np.linalg.norm(learner.parameters()["target_critic"]["layers.5.weight"], axis=-1)
    assert rows.max() < 0.999


# ------------------------------------------------------------------------------------------------ policy, temperature
def test_the_log_std_is_squashed():
    """In the middle of (-10, 2) for 0; .15 is reached for atanh(.3505)."""
    head = FlashSAC().policy(1)
    found = head.interpret(np.array([[0, 0], [0, 0.3660], [0, 9], [0, -9]], np.float32)).log_std[:, 0]
    np.testing.assert_allclose(found, [-4, np.log(0.15), 2, -10], atol=1e-3)


def test_noise_stays_for_random_numbers_of_steps():
    """P(1) = .631 and a mean of 2.13 steps, the same steps for all environments."""
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
    assert explorer.for_evaluation(random, 3, ACTION) is None


def test_noise_goes_on_from_its_state_over_ends_of_episodes():
    explorer, state = RepeatedSampling(), np.zeros((2, 2), np.float32)
    one, other = (np.random.default_rng(4) for _ in range(2))
    for _ in range(50):
        noise, after = explorer.draw(one, explorer.after_episode(state, np.ones(2, bool)), 0, 1, ACTION)
        again, _ = explorer.draw(other, state.copy(), 0, 1, ACTION)
        np.testing.assert_array_equal(noise, again)
        state = after
    assert RepeatedSampling(most=1).draw(one, state[:, :2], 0, 1, ACTION)[1][:, -1].tolist() == [0, 0]


# ------------------------------------------------------------------------------------------------ reports and mistakes
def test_it_reports_the_share_of_targets_outside_of_the_atoms():
    learner = build("torch", small())
    inside = learner.update(batch(16)._replace(discount=np.zeros(16, np.float32))).value("clipped")
    outside = learner.update(batch(16)._replace(reward=np.full(16, 20, np.float32))).value("clipped")
    assert (inside, outside) == (pytest.approx(0, abs=1e-6), pytest.approx(1, abs=1e-3))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hidden": (8, 16)}, "hidden layers have one size; hidden is"),
        ({"value_range": (5.0, -5.0)}, "the first one lower"),
        ({"value_range": (5.0,)}, "it must be two numbers"),
        ({"critic": "scalar"}, "no hyper-parameter 'critic'"),
        ({"critic_action_layer": 1}, "no hyper-parameter 'critic_action_layer'"),
        ({"num_atoms": 1}, "num_atoms is 1"),
    ],
)
def test_mistakes_get_a_sentence(options: dict[str, Any], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        FlashSAC(**(SMALL | options)).networks(VECTOR, ACTION)


def test_xqcs_layers_have_no_residual_connections_and_free_norms(backend: str):
    learner = build(backend, small(network="xqc", hidden=(8, 6)))
    learner.update(batch(16))
    actor = learner.parameters()["actor"]
    assert [actor[f"layers.{i}.weight"].shape for i in range(3)] == [(8, 5), (6, 8), (4, 6)]
    assert "layers.0.bias" not in actor
    assert (actor["layers_norms.1.weight"] ** 2).sum() + (actor["layers_norms.1.bias"] ** 2).sum() != pytest.approx(8)
    np.testing.assert_allclose(np.linalg.norm(actor["layers.1.weight"], axis=-1), 1, rtol=1e-5)


def test_xqcs_updates_are_equal_in_both_frameworks():
    """But for the first norm's shift: the next norm removes it, so its gradient is of rounding errors."""
    nets = []
    for backend in ("torch", "jax"):
        learner = build(backend, small(network="xqc", activation="tanh"))
        learner.update(batch(32))
        nets.append(learner.parameters())
    for name, arrays in nets[0].items():
        for key in arrays.keys() - {"layers_norms.0.bias"}:
            np.testing.assert_allclose(arrays[key], nets[1][name][key], rtol=1e-4, atol=1e-5, err_msg=f"{name} {key}")
