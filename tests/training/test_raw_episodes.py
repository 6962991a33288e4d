"""Raw episodes in, batches out: whatever lies between, a batch holds what the environments saw."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from raw_episodes import (
    Episode,
    Minds,
    Place,
    Record,
    Recording,
    as_learned,
    previous_action,
    previous_reward,
)
from vector_envs import Whole

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.base import RolloutBatch, SequenceBatch, SequenceSpec
from duetto.buffers.base import Sample
from duetto.storage.config import Config, RunOptions
from duetto.training.trainer import Trainer

DISCOUNT = 0.9
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}  # one row at a time, instead of one of each environment
# Parameters stay what they were: the networks that acted can still be asked at the end.
STILL = {"learning_rate": 1e-30, "hidden": (16,), "discount": DISCOUNT}
ACTOR = {"actor_learning_rate": 1e-30, "critic_learning_rate": 1e-30, "hidden": (16,), "discount": DISCOUNT}
SEQUENCES = {
    "recurrent": "gru",
    "recurrent_size": 8,
    "burn_in": 1,
    "unroll": 4,
    "overlap": 2,
    "n_step": 3,
    "batch_size": 16,
    "learning_starts": 40,
    "train_every": 20,
    "replay_capacity": 1000,
}


class Played:
    """A run on `Recording`, and all that was handed over in it."""

    def __init__(
        self,
        folder: Path,
        algorithm: Algorithm,
        steps: int = 240,
        backend: str = "torch",
        vector: bool = False,
        num_envs: int = 3,
    ) -> None:
        Recording.made.clear()
        make: Any = partial(Recording, choices="Discrete" in algorithm.actions)
        if vector:
            make = Whole([make] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
        options: Any = {"backend": backend, "device": "cpu", "threads": 1, "num_envs": 1 if vector else num_envs}
        chosen = RunOptions(steps=steps, evaluate_every=0, checkpoint_every=0, **options)
        self.algorithm = algorithm
        self.trainer = Trainer(Config(algorithm, "recorded", chosen), folder, make)
        self.learner = self.trainer.learner
        self.samples: list[Sample] = []
        self.prepared: list[Any] = []
        self.divergences: list[float] = []
        self.turns: list[tuple[int, list[Place]]] = []  # steps made before each vector step, and its places
        self._watch()
        try:
            self.trainer.run([self._note])
        finally:
            self.trainer.close()
        self.record = Record(self._alive())

    def _alive(self) -> list[Recording]:
        return [env for env in Recording.made if env.episodes]

    def _watch(self) -> None:
        due, update_each = self.trainer.memory.due, self.learner.update_each

        def watched_due() -> Iterator[Sample]:
            for sample in due():
                self.samples.append(
                    sample._replace(batch=copy.deepcopy(sample.batch))
                )  # a rollout's arrays are written again
                yield sample

        def watched_update_each(batches: Any, progress: Any) -> Any:
            self.prepared += copy.deepcopy(batches)
            metrics = update_each(batches, progress)
            if isinstance(batches[0], RolloutBatch):
                self.divergences += [one.value("approx_kl_k2") for one in metrics]
            return metrics

        self.trainer.memory.due = watched_due
        self.learner.update_each = watched_update_each

    def _note(self, trainer: Trainer) -> None:
        """Which places the vector step was of: those that are new in the environments' episodes."""
        known = {(place.env, id(place.episode), place.time) for _, places in self.turns for place in places}
        places = []
        for i, env in enumerate(self._alive()):
            for episode in env.episodes[-2:]:
                last = len(episode) - 1
                if last >= 0 and (i, id(episode), last) not in known:
                    places.append(Place(i, episode, last))
        self.turns.append((trainer.step - len(places), places))


# ---------------------------------------------------------------------------------------------------- sequences
def dqn(**options: Any) -> Algorithm:
    greedy = {"exploration": "linear", "exploration_start": 0.0, "exploration_end": 0.0, "random_steps": 24}
    return ALGORITHMS["dqn"](**STILL | SEQUENCES | greedy | options)


def r2d2(**options: Any) -> Algorithm:
    return ALGORITHMS["r2d2"](**STILL | SEQUENCES | {"recurrent": "lstm", "previous_reward": "raw"} | options)


def actor(name: str, **options: Any) -> Algorithm:
    return ALGORITHMS[name](**ACTOR | SEQUENCES | {"exploration": "none", "random_steps": 24} | options)


@pytest.mark.parametrize(
    ("algorithm", "backend", "vector"),
    [
        (dqn(), "torch", False),
        (r2d2(), "torch", False),
        (r2d2(), "torch", True),
        (r2d2(), "jax", False),
        (actor("td3"), "torch", False),
        (actor("td3"), "torch", True),
        (actor("ddpg", burn_in=2, unroll=5, overlap=2, learn_from_start=False, n_step=1), "torch", False),
        (actor("td3", stored_carry=False), "torch", False),
    ],
    ids=lambda value: value.name() if isinstance(value, Algorithm) else str(value),
)
def test_sequences(tmp_path: Path, algorithm: Algorithm, backend: str, vector: bool):
    played = Played(tmp_path, algorithm, backend=backend, vector=vector)
    record, minds = played.record, Minds(played.learner)
    memory: Any = played.trainer.memory
    last = memory.sample(400)
    spec = algorithm.memory()
    assert isinstance(spec, SequenceSpec)
    found = set()
    for sample in [*played.samples, last]:
        assert isinstance(sample.batch, SequenceBatch)
        for row in range(len(sample.batch.mask)):
            place = check_sequence(sample.batch, row, spec, record, minds)
            found.add((id(place.episode), place.time))
    assert found == set(sequences(record, spec))
    assert len(played.prepared) == len(played.samples) > 5
    check_actions(played, minds)


def check_sequence(batch: SequenceBatch, row: int, spec: SequenceSpec, record: Record, minds: Minds) -> Place:
    """One row of a batch against its episode; the place that it starts at."""
    window, length = batch.obs, spec.burn_in + spec.unroll
    place = record.place(window.obs[row, 0])
    episode, first = place.episode, place.time
    real = min(length, len(episode) - first)
    assert real == length or episode.over
    assert window.is_first[row] == (first == 0)
    for name, part in minds.carry(place).items():
        if spec.stored_carry:
            np.testing.assert_allclose(window.carry[name][row], part, **CLOSE, err_msg=f"state before step {first}")
    assert bool(window.carry) == spec.stored_carry
    for position in range(length + 1):
        time = first + min(position, real)
        np.testing.assert_array_equal(window.obs[row, position], episode.obs[time])
        np.testing.assert_allclose(window.previous_action[row, position], previous_action(episode, time), **CLOSE)
        np.testing.assert_allclose(window.previous_reward[row, position], previous_reward(episode, time), **CLOSE)
        assert window.starts[row, position] == (time == 0)
    for step in range(length):
        learned = step < real and (step >= spec.burn_in or (first == 0 and spec.learn_from_start))
        assert batch.mask[row, step] == learned
        if step < real:
            reward, discount, ahead = ahead_of(episode, first + step, min(spec.n_step, real - step), spec)
            np.testing.assert_allclose(batch.action[row, step], as_learned(episode.actions[first + step]), **CLOSE)
            np.testing.assert_allclose(batch.reward[row, step], reward, **CLOSE)
            np.testing.assert_allclose(batch.discount[row, step], discount, **CLOSE)
            assert batch.ahead[row, step] == ahead - first
    return place


def ahead_of(episode: Episode, time: int, steps: int, spec: Any) -> tuple[float, float, int]:
    """Discounted rewards of the next steps, what the future after them counts, and the time where it starts."""
    ahead = min(time + steps, len(episode))
    reward = sum(DISCOUNT**k * episode.rewards[time + k] for k in range(ahead - time))
    dead = ahead == len(episode) and episode.terminated
    return reward, 0.0 if dead else DISCOUNT ** (ahead - time), ahead


def sequences(record: Record, spec: SequenceSpec) -> Iterator[tuple[int, int]]:
    """Episode and first step of each that there should be."""
    length = spec.burn_in + spec.unroll
    for episode in record.episodes():
        for first in range(0, len(episode), length - spec.overlap):
            left = len(episode) - first
            adds = episode.over and (first == 0 or left > spec.overlap)
            if (left >= length or adds) and (left > spec.burn_in or spec.learn_from_start):
                yield id(episode), first


def check_actions(played: Played, minds: Minds) -> None:
    """After the random steps every action is the policy's, of that observation and that state."""
    assert played.turns[-1][0] > 200
    if played.algorithm.name() == "r2d2":  # it explores
        return
    agreed = []
    for before, places in played.turns:
        for place in places:
            done = as_learned(place.episode.actions[place.time])
            agreed.append((before >= played.algorithm.first_random_steps(), close(done, minds.action(place))))
    assert all(same for policy, same in agreed if policy)
    assert 8 <= sum(not same for policy, same in agreed if not policy) <= 24


def close(one: Any, other: Any) -> bool:
    return bool(np.allclose(one, other, **CLOSE))


# ---------------------------------------------------------------------------------------------------- rollouts
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("options", [{"recurrent": "lstm"}, {"recurrent": "gru", "previous_reward": "raw"}], ids=str)
def test_rollouts(tmp_path: Path, options: dict[str, Any], vector: bool):
    options = options | {"recurrent_size": 8, "rollout_steps": 13, "epochs": 1, "minibatches": 1, "gae_lambda": 0.8}
    played = Played(tmp_path, ALGORITHMS["ppo"](**STILL | {"policy_gain": 3.0} | options), vector=vector)
    minds, count = Minds(played.learner), 0
    for sample, prepared in zip(played.samples, played.prepared, strict=True):
        assert isinstance(sample.batch, RolloutBatch)
        count += check_rollout(played, sample.batch, minds)
        np.testing.assert_array_equal(prepared.obs.previous_reward, sample.batch.obs.previous_reward)
    assert count == sum(len(places) for _, places in played.turns[: 13 * len(played.samples)])
    assert len(played.divergences) > 4
    np.testing.assert_allclose(played.divergences, 0, atol=1e-10)  # of the policy that learns from the one that acted


def check_rollout(played: Played, batch: RolloutBatch, minds: Minds) -> int:
    """Every step of a rollout against its episode; their number."""
    window = batch.obs
    for env in range(3):
        following = 0.0
        for t in reversed(np.flatnonzero(batch.weight[env]).tolist()):
            place = played.record.place(window.obs[env, t])
            episode, time = place.episode, place.time
            last = t == max(np.flatnonzero(batch.weight[env])) or time + 1 == len(episode)
            dead = time + 1 == len(episode) and episode.terminated
            v, after = minds.value(place), 0.0 if dead else minds.value(Place(env, episode, time + 1))
            delta = episode.rewards[time] + DISCOUNT * after - v
            following = delta + (0.0 if last else DISCOUNT * 0.8 * following)
            assert place.env == env
            assert batch.action[env, t] == pytest.approx(as_learned(episode.actions[time]), abs=1e-5)
            assert batch.value[env, t] == pytest.approx(v, abs=1e-5)
            assert batch.advantage[env, t] == pytest.approx(following, abs=1e-4)
            assert batch.returns[env, t] == pytest.approx(following + v, abs=1e-4)
            # A rollout keeps previous rewards as networks saw them.
            reward = played.algorithm.seen_reward(np.array(previous_reward(episode, time), np.float32))
            assert window.starts[env, t] == (time == 0)
            np.testing.assert_allclose(window.previous_action[env, t], previous_action(episode, time), **CLOSE)
            np.testing.assert_allclose(window.previous_reward[env, t], reward, **CLOSE)
        if batch.weight[env, 0]:
            for name, part in minds.carry(played.record.place(window.obs[env, 0])).items():
                np.testing.assert_allclose(window.carry[name][env] * ~window.starts[env, 0], part, **CLOSE)
    return int(batch.weight.sum())
