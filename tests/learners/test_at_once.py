"""Updates that are due at once are made in one program (JAX): those that are made one by one, in their order."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning_cases import batch, build, small

import duetto
from duetto.algorithms import DDPG, DQN, SAC, TD3
from duetto.algorithms.base import DIVERGENCE, OptimizerSpec
from duetto.learners import jax as jax_learner
from duetto.learners.base import on_host
from duetto.testing import conformance


def state(learner: Any) -> dict[str, np.ndarray]:
    saved = learner.state_dict()
    found = {f"{net}/{key}": value for net, own in saved["parameters"].items() for key, value in own.items()}
    for net, own in saved["optimizers"].items():
        found |= {f"{net}/{kind}/{key}": value for kind in ("first", "second") for key, value in own[kind].items()}
        found[f"{net}/steps"] = np.array(own["steps"])
    return found


def assert_close(one: Any, other: Any, tolerance: float = 1e-5) -> None:
    ours, theirs = state(one), state(other)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of updates that programs make, where several are due."""
    called: list[int] = []
    alike = jax_learner.JaxLearner._alike

    def noting(self: Any, updates: list[Any]) -> Any:
        for some in alike(self, updates):
            called.extend([len(some)] if len(updates) > 1 else [])
            yield some

    monkeypatch.setattr(jax_learner.JaxLearner, "_alike", noting)
    return called


def together(learner: Any, batches: list[Any], progress: list[float]) -> list[Any]:
    return learner.update_each(batches, progress)


def test_thirteen_are_eight_four_and_one(programs: list[int]):
    """With noise, falling rates and a temperature; each has its own metrics."""
    falling = {"learning_rate_decay": "linear"} if "learning_rate_decay" in SAC.options() else {}
    one, other = (build("jax", small(SAC, **falling)) for _ in range(2))
    batches, progress = [batch(seed=i) for i in range(13)], [i / 13 for i in range(13)]
    found = together(one, batches, progress)
    alone = [other.update(some, how_far) for some, how_far in zip(batches, progress, strict=True)]
    assert programs == [8, 4, 1]
    assert one.updates == other.updates == 13
    for ours, theirs in zip(found, alone, strict=True):
        assert ours.names == theirs.names
        np.testing.assert_allclose(on_host(ours.values), on_host(theirs.values), rtol=1e-4, atol=1e-5)
    assert_close(one, other)
    assert one.random.random() == other.random.random()


def assert_those_made_one_by_one(one: Any, other: Any, batches: list[Any]) -> None:
    """The parameters and moments of the first, at once, are those of the second."""
    together(one, batches, [0.0] * len(batches))
    for some in batches:
        other.update(some)
    assert_close(one, other)


def test_another_phase_is_another_program(programs: list[int]):
    """TD3's actor learns at every third update: two, then one."""
    one, other = (build("jax", small(TD3, policy_delay=3)) for _ in range(2))
    batches = [batch(seed=i) for i in range(6)]
    assert_those_made_one_by_one(one, other, batches)
    assert programs == [2, 1, 2, 1]


def test_another_shape_is_another_program(programs: list[int]):
    one, other = (build("jax", small(SAC)) for _ in range(2))
    batches = [batch(size, seed=size) for size in (8, 8, 16, 16, 16)]
    assert_those_made_one_by_one(one, other, batches)
    assert programs == [2, 2, 1]


def test_one_buffer(programs: list[int]):
    one, other = (build("jax", small(SAC)) for _ in range(2))
    assert isinstance(one, jax_learner.JaxLearner)
    one.on_gpu = True
    batches = [batch(seed=i) for i in range(4)]
    together(one, batches, [0.0] * 4)
    together(other, batches, [0.0] * 4)
    assert programs == [4, 4]
    assert_close(one, other)


# ------------------------------------------------------------------------------------------------ rollouts
class Unsplit(duetto.PPO):
    """Its rollouts are learned from whole."""

    def split(self, random: np.random.Generator, size: int) -> Any:
        return None


class Uneven(duetto.PPO):
    """Its epochs have one minibatch or two, as it comes."""

    def split(self, random: np.random.Generator, size: int) -> np.ndarray:
        parts = int(random.integers(1, 3))
        return random.permutation(size).astype(np.int32).reshape(parts, -1)


class Rising(duetto.PPO):
    """Its even updates are of another phase."""

    def phase(self, update: int) -> int:
        return update % 2


def of_five_epochs(trial: Any, kind: type[duetto.PPO], **options: Any) -> list[Any]:
    """Two learners."""
    fields = {field.name: getattr(trial.algorithm, field.name) for field in dataclasses.fields(trial.algorithm)}
    changed = dataclasses.replace(trial, algorithm=kind(**fields | {"epochs": 5} | options))
    return [conformance._learner(changed, "jax") for _ in range(2)]


def assert_epochs_are_those_made_one_by_one(pair: list[Any], rollout: Any) -> None:
    """Parameters, moments, metrics of each, and what was drawn."""
    one, other = pair
    progress = [0.1 * i for i in range(5)]
    found = together(one, [rollout] * 5, progress)
    alone = [other.update(rollout, how_far) for how_far in progress]
    assert one.updates == other.updates == 5
    for ours, theirs in zip(found, alone, strict=True):
        assert ours.names == theirs.names
        np.testing.assert_allclose(on_host(ours.values), on_host(theirs.values), rtol=1e-4, atol=1e-5)
    assert on_host(found[0].values).tolist() != on_host(found[1].values).tolist()
    assert_close(one, other)
    assert one.random.random() == other.random.random()


@pytest.mark.parametrize(
    ("kind", "calls"),
    [(duetto.PPO, [5]), (Unsplit, [5]), (Uneven, [2, 1, 2]), (Rising, [1] * 5)],
    ids=lambda one: str(one),
)
def test_epochs_of_a_rollout_are_those_made_one_by_one(programs: list[int], kind: Any, calls: list[int]):
    """With fresh minibatches in each, falling rates and clip range."""
    with conformance._trials(duetto.PPO) as (trial, *_):
        pair = of_five_epochs(trial, kind, learning_rate_decay="linear", clip_range_decay="linear")
        rollout = trial.batches(1)[0]
    assert_epochs_are_those_made_one_by_one(pair, rollout)
    assert programs == calls


def test_epochs_of_a_rollout_in_one_buffer(programs: list[int]):
    """As on a GPU."""
    with conformance._trials(duetto.PPO) as (trial, *_):
        pair, rollout = of_five_epochs(trial, duetto.PPO), trial.batches(1)[0]
    pair[0].on_gpu = True
    assert_epochs_are_those_made_one_by_one(pair, rollout)
    assert programs == [5]


def test_epochs_of_recurrent_networks(programs: list[int]):
    with conformance._trials(duetto.PPO, recurrent="lstm") as (trial, *_):
        pair, rollout = of_five_epochs(trial, duetto.PPO), trial.batches(1)[0]
    assert_epochs_are_those_made_one_by_one(pair, rollout)
    assert programs == [5]


class Parted(DDPG):
    """Its batches are learned from in two parts."""

    def split(self, random: np.random.Generator, size: int) -> np.ndarray:
        return random.permutation(size).astype(np.int32).reshape(2, -1)


def test_batches_that_are_learned_from_in_parts(programs: list[int]):
    one, other = (build("jax", small(Parted)) for _ in range(2))
    batches = [batch(seed=i) for i in range(4)]
    assert_those_made_one_by_one(one, other, batches)
    assert programs == [4]


def test_other_rollouts_are_learned_from_one_by_one(programs: list[int]):
    with conformance._trials(duetto.PPO) as (trial, *_):
        batches = [trial.batches(1)[0], trial.batches(1)[0]]
        pair = [conformance._learner(trial, "jax") for _ in range(2)]
    assert_those_made_one_by_one(*pair, batches)
    assert programs == [1, 1]


# ------------------------------------------------------------------------------------------------ in a run
OPTIONS: dict[str, Any] = {
    "backend": "jax",
    "num_envs": 4,
    "log_every": 20,
    "evaluate_every": 0,
    "checkpoint_every": 40,
    "seed": 3,
}


def algorithm(**options: Any) -> DQN:
    return DQN(hidden=(16,), learning_starts=16, random_steps=16, batch_size=8, replay_capacity=100, **options)


def parameters(run: duetto.Run) -> dict[str, np.ndarray]:
    return {f"{net}/{key}": value for net, own in run.agent().parameters().items() for key, value in own.items()}


def test_a_run_of_several_environments_in_two_parts(tmp_path: Path, programs: list[int]):
    """Bit for bit, and with as many updates as steps."""
    some = algorithm(train_every=1)
    options = OPTIONS | {"steps": 160, "runs_dir": tmp_path}
    whole = duetto.train(some, "CartPole-v1", name="whole", **options)
    assert set(programs) == {4}
    assert 4 * len(programs) == whole.metrics()[-1]["learn/updates"] == 160 - 16
    stop = [lambda trainer: trainer.stop() if trainer.step == 80 else None]
    part = duetto.train(some, "CartPole-v1", name="part", callbacks=stop, **options)
    assert len(programs) < 2 * (160 - 16) // 4
    part.resume()
    theirs = parameters(part)
    for name, value in parameters(whole).items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def test_priorities_are_fed_back_before_the_next_batch_is_drawn(tmp_path: Path, programs: list[int]):
    some = algorithm(train_every=1, prioritized=True)
    duetto.train(some, "CartPole-v1", steps=60, runs_dir=tmp_path, name="run", **OPTIONS)
    assert programs == []


def ppo(**options: Any) -> duetto.PPO:
    return duetto.PPO(hidden=(16,), rollout_steps=10, minibatches=2, epochs=3, **options)


def test_a_run_learns_from_each_rollout_in_one_program(tmp_path: Path, programs: list[int]):
    """The whole of it and in two parts, bit for bit; observations are scaled as the rollout's were."""
    some = ppo(normalize_observations=True, normalize_rewards=True)
    options = OPTIONS | {"steps": 160, "runs_dir": tmp_path}
    whole = duetto.train(some, "CartPole-v1", name="whole", **options)
    assert programs == [3] * 4
    assert whole.metrics()[-1]["learn/updates"] == 12
    stop = [lambda trainer: trainer.stop() if trainer.step == 100 else None]  # in the middle of a rollout
    part = duetto.train(some, "CartPole-v1", name="part", callbacks=stop, **options)
    assert programs == [3] * 6
    part.resume()
    theirs = parameters(part)
    for name, value in parameters(whole).items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


@pytest.mark.parametrize("option", [{"recompute_advantages": True}, {"target_kl": 1e-5}, {"learning_rate_kl": 0.01}])
def test_an_epoch_that_depends_on_the_one_before_waits_for_it(
    tmp_path: Path, programs: list[int], monkeypatch: pytest.MonkeyPatch, option: dict[str, Any]
):
    """Bit for bit what a learner does that makes one update at a time."""
    options = OPTIONS | {"steps": 80, "runs_dir": tmp_path}
    run = duetto.train(ppo(**option), "CartPole-v1", name="run", **options)
    assert programs == []
    monkeypatch.setattr(jax_learner.JaxLearner, "_alike", lambda self, updates: ([one] for one in updates))
    other = duetto.train(ppo(**option), "CartPole-v1", name="other", **options)
    assert run.metrics()[-1]["learn/updates"] == other.metrics()[-1]["learn/updates"]
    theirs = parameters(other)
    for name, value in parameters(run).items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


@dataclasses.dataclass(frozen=True)
class Adapting(DDPG):
    """Its rates follow what its updates report."""

    def optimizers(self) -> dict[str, OptimizerSpec]:
        return {name: dataclasses.replace(spec, kl=0.01) for name, spec in super().optimizers().items()}

    def actor_loss(self, nets: Any, batch: Any) -> Any:
        loss, info = super().actor_loss(nets, batch)
        return loss, info | {DIVERGENCE: loss * 0 + 1.0}


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_rates_that_follow_each_update_do_so_where_several_are_due(backend: Any):
    """In JAX they stayed what they were."""
    one, other = (build(backend, small(Adapting)) for _ in range(2))
    batches = [batch(seed=i) for i in range(4)]
    together(one, batches, [0.0] * 4)
    for some in batches:
        other.update(some, 0.0)
    rate = one.learning_rates(0.0)["actor"]
    assert rate == other.learning_rates(0.0)["actor"] < small(Adapting).actor_learning_rate
