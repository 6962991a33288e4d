"""Updates that are due at once are made in one program (JAX): those that are made one by one, in their order."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning_cases import assert_same, batch, build, small

import duetto
from duetto.algorithms import DDPG, DQN, SAC, TD3
from duetto.learners import jax as jax_learner
from duetto.learners.base import on_host
from duetto.testing import conformance


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


def assert_those_made_one_by_one(pair: list[Any], batches: list[Any]) -> list[Any]:
    """Parameters, moments, metrics of each, and what was drawn, are those of the second; return the first's metrics."""
    one, other = pair
    progress = [i / len(batches) for i in range(len(batches))]
    found = one.update_each(batches, progress)
    alone = [other.update(some, how_far) for some, how_far in zip(batches, progress, strict=True)]
    assert one.updates == other.updates == len(batches)
    for ours, theirs in zip(found, alone, strict=True):
        assert ours.names == theirs.names
        np.testing.assert_allclose(on_host(ours.values), on_host(theirs.values), rtol=1e-4, atol=1e-5)
    mine, its = ({name: learner.state_dict()[name] for name in ("parameters", "optimizers")} for learner in pair)
    for name, value in conformance.flat(mine).items():
        np.testing.assert_allclose(value, conformance.flat(its)[name], rtol=1e-5, atol=1e-5, err_msg=name)
    assert one.random.random() == other.random.random()
    return found


class Parted(DDPG):
    """Its batches are learned from in two parts."""

    def split(self, random: np.random.Generator, size: int) -> np.ndarray:
        return random.permutation(size).astype(np.int32).reshape(2, -1)


@pytest.mark.parametrize(
    ("algorithm", "sizes", "calls"),
    [
        (small(SAC, learning_rate_decay="linear"), [32] * 13, [8, 4, 1]),
        (small(TD3, policy_delay=3), [32] * 6, [2, 1, 2, 1]),  # another phase, at every third update
        (small(SAC), [8, 8, 16, 16, 16], [2, 2, 1]),  # another shape
        (small(Parted), [32] * 4, [4]),
    ],
    ids=["thirteen", "phase", "shape", "parts"],
)
def test_what_differs_is_another_program(programs: list[int], algorithm: Any, sizes: list[int], calls: list[int]):
    pair = [build("jax", algorithm) for _ in range(2)]
    assert_those_made_one_by_one(pair, [batch(size, seed=seed) for seed, size in enumerate(sizes)])
    assert programs == calls


def test_other_rollouts_are_learned_from_one_by_one(programs: list[int]):
    with conformance._trials(duetto.PPO) as (trial, *_):
        batches = [trial.batches(1)[0], trial.batches(1)[0]]
        pair = [conformance._learner(trial, "jax") for _ in range(2)]
    assert_those_made_one_by_one(pair, batches)
    assert programs == [1, 1]


# ------------------------------------------------------------------------------------------------ rollouts
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
    first, second, *_ = assert_those_made_one_by_one(pair, [rollout] * 5)
    assert on_host(first.values).tolist() != on_host(second.values).tolist()


@pytest.mark.parametrize(
    ("kind", "calls"),
    [(duetto.PPO, [5]), (Uneven, [2, 1, 2]), (Rising, [1] * 5)],
    ids=lambda one: str(one),
)
def test_epochs_of_a_rollout_are_those_made_one_by_one(programs: list[int], kind: Any, calls: list[int]):
    """With fresh minibatches in each, falling rates and clip range."""
    with conformance._trials(duetto.PPO) as (trial, *_):
        pair = of_five_epochs(trial, kind, learning_rate_decay="linear", clip_range_decay="linear")
        rollout = trial.batches(1)[0]
    assert_epochs_are_those_made_one_by_one(pair, rollout)
    assert programs == calls


def test_epochs_of_recurrent_networks(programs: list[int]):
    with conformance._trials(duetto.PPO, recurrent="lstm") as (trial, *_):
        pair, rollout = of_five_epochs(trial, duetto.PPO), trial.batches(1)[0]
    assert_epochs_are_those_made_one_by_one(pair, rollout)
    assert programs == [5]


# ------------------------------------------------------------------------------------------------ in a run
OPTIONS: dict[str, Any] = {
    "backend": "jax",
    "num_envs": 4,
    "log_every": 20,
    "evaluate_every": 0,
    "checkpoint_every": 40,
    "seed": 3,
}


DQN_RUN = DQN(hidden=(16,), learning_starts=16, random_steps=16, batch_size=8, replay_capacity=100, train_every=1)


def ppo(**options: Any) -> duetto.PPO:
    return duetto.PPO(hidden=(16,), rollout_steps=10, minibatches=2, epochs=3, **options)


def assert_same_end(one: duetto.Run, other: duetto.Run) -> None:
    assert one.metrics()[-1]["learn/updates"] == other.metrics()[-1]["learn/updates"]
    theirs = other.agent().parameters()
    for net, own in one.agent().parameters().items():
        assert_same(own, theirs[net])


@pytest.mark.parametrize(
    ("some", "updates", "at_once"),
    [(DQN_RUN, 160 - 16, 4), (ppo(normalize_observations=True, normalize_rewards=True), 12, 3)],
    ids=["dqn", "ppo"],
)
def test_a_run_in_two_parts(tmp_path: Path, programs: list[int], some: Any, updates: int, at_once: int):
    """Bit for bit, and with as many updates as steps; PPO's observations are scaled as the rollout's were."""
    options = OPTIONS | {"steps": 160, "runs_dir": tmp_path}
    whole = duetto.train(some, "CartPole-v1", name="whole", **options)
    assert programs == [at_once] * (updates // at_once)
    assert whole.metrics()[-1]["learn/updates"] == updates
    stop = [lambda trainer: trainer.stop() if trainer.step == 100 else None]  # in the middle of a rollout
    part = duetto.train(some, "CartPole-v1", name="part", callbacks=stop, **options)
    assert len(programs) < 2 * updates // at_once
    part.resume()
    assert_same_end(whole, part)


def test_priorities_are_fed_back_before_the_next_batch_is_drawn(tmp_path: Path, programs: list[int]):
    some = dataclasses.replace(DQN_RUN, prioritized=True)
    duetto.train(some, "CartPole-v1", steps=60, runs_dir=tmp_path, name="run", **OPTIONS)
    assert programs == []


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
    assert_same_end(run, other)
