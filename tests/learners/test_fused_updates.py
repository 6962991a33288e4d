"""JAX fuses updates that are due together into one program. The results equal those of single updates."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning_cases import assert_same, batch, build, small

import duetto
from duetto.algorithms import DDPG, DQN, TD3
from duetto.learners import jax as jax_learner
from duetto.learners.base import on_host
from duetto.testing import conformance


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of updates in each program whenever several updates are due."""
    sizes_of_programs: list[int] = []
    groups = jax_learner.JaxLearner._alike

    def record_sizes(self: Any, updates: list[Any]) -> Any:
        for group in groups(self, updates):
            sizes_of_programs.extend([len(group)] if len(updates) > 1 else [])
            yield group

    monkeypatch.setattr(jax_learner.JaxLearner, "_alike", record_sizes)
    return sizes_of_programs


def assert_fused_equal_single_updates(pair: list[Any], batches: list[Any]) -> list[Any]:
    """Compare the first learner's fused updates with the second's single updates; return the first's metrics.

    Compares parameters, moments, the metrics of each update, and the random generators.
    """
    one, other = pair
    progress = [i / len(batches) for i in range(len(batches))]
    found = one.update_each(batches, progress)
    single = [other.update(one_batch, fraction) for one_batch, fraction in zip(batches, progress, strict=True)]
    assert one.updates == other.updates == len(batches)
    for ours, theirs in zip(found, single, strict=True):
        assert ours.names == theirs.names
        np.testing.assert_allclose(on_host(ours.values), on_host(theirs.values), rtol=1e-4, atol=1e-5)
    mine, its = ({name: learner.state_dict()[name] for name in ("parameters", "optimizers")} for learner in pair)
    for name, value in conformance.flat(mine).items():
        np.testing.assert_allclose(value, conformance.flat(its)[name], rtol=1e-5, atol=1e-5, err_msg=name)
    assert one.random.random() == other.random.random()
    return found


class TwoMinibatches(DDPG):
    """Splits each batch into two minibatches."""

    def split(self, random: np.random.Generator, size: int) -> np.ndarray:
        return random.permutation(size).astype(np.int32).reshape(2, -1)


@pytest.mark.parametrize(
    ("algorithm", "sizes", "calls"),
    [
        (
            small(TD3, policy_delay=3, learning_rate_decay="linear"),
            [32] * 6,
            [2, 1, 2, 1],
        ),  # a new phase
        (small(TwoMinibatches), [8, 8, 8, 16], [2, 1, 1]),  # a new shape
    ],
    ids=["phase", "shape and minibatches"],
)
def test_updates_of_different_phases_or_shapes_are_not_fused(
    programs: list[int], algorithm: Any, sizes: list[int], calls: list[int]
):
    pair = [build("jax", algorithm) for _ in range(2)]
    assert_fused_equal_single_updates(pair, [batch(size, seed=seed) for seed, size in enumerate(sizes)])
    assert programs == calls


# ------------------------------------------------------------------------------------------------ rollouts
class OneOrTwoMinibatches(duetto.PPO):
    """Splits each epoch at random into one or two minibatches."""

    def split(self, random: np.random.Generator, size: int) -> np.ndarray:
        parts = int(random.integers(1, 3))
        return random.permutation(size).astype(np.int32).reshape(parts, -1)


def test_fused_epochs_equal_single_epochs(programs: list[int]):
    """Each epoch draws new minibatches; learning rate and clip range decay."""
    options = {"epochs": 3, "learning_rate_decay": "linear", "clip_range_decay": "linear"}
    with conformance._trials(duetto.PPO) as (trial, *_):
        fields = {field.name: getattr(trial.algorithm, field.name) for field in dataclasses.fields(trial.algorithm)}
        trial = dataclasses.replace(trial, algorithm=OneOrTwoMinibatches(**fields | options))
        pair, rollout = [conformance._learner(trial, "jax") for _ in range(2)], trial.batches(1)[0]
    first, second, *_ = assert_fused_equal_single_updates(pair, [rollout] * 3)
    assert on_host(first.values).tolist() != on_host(second.values).tolist()
    assert programs == [2, 1]


# ------------------------------------------------------------------------------------------------ runs
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
    ("algorithm", "updates", "updates_per_program"),
    [(DQN_RUN, 160 - 16, 4), (ppo(normalize_observations=True, normalize_rewards=True), 12, 3)],
    ids=["dqn", "ppo"],
)
def test_resumed_run_with_fused_updates_is_identical(
    tmp_path: Path, programs: list[int], algorithm: Any, updates: int, updates_per_program: int
):
    """Bit for bit, after a stop between two fused updates or in a rollout with normalized observations."""
    options = OPTIONS | {"steps": 160, "runs_dir": tmp_path}
    whole = duetto.train(algorithm, "CartPole-v1", name="whole", **options)
    assert programs == [updates_per_program] * (updates // updates_per_program)
    assert whole.metrics()[-1]["learn/updates"] == updates
    stop = [lambda trainer: trainer.stop() if trainer.step == 100 else None]  # in the middle of a rollout
    part = duetto.train(algorithm, "CartPole-v1", name="part", callbacks=stop, **options)
    assert len(programs) < 2 * updates // updates_per_program
    part.resume()
    assert_same_end(whole, part)


def test_prioritized_updates_are_not_fused(tmp_path: Path, programs: list[int]):
    """The next batch depends on the new priorities."""
    algorithm = dataclasses.replace(DQN_RUN, prioritized=True)
    duetto.train(algorithm, "CartPole-v1", steps=60, runs_dir=tmp_path, name="run", **OPTIONS)
    assert programs == []


@pytest.mark.parametrize("option", [{"recompute_advantages": True}, {"target_kl": 1e-5}, {"learning_rate_kl": 0.01}])
def test_dependent_epochs_are_not_fused(tmp_path: Path, programs: list[int], option: dict[str, Any]):
    duetto.train(ppo(**option), "CartPole-v1", steps=80, runs_dir=tmp_path, name="run", **OPTIONS)
    assert programs == []
