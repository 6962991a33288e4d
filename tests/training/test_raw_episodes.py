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
from duetto.algorithms.base import Batch, RolloutBatch, SequenceBatch, SequenceSpec
from duetto.buffers import Sample
from duetto.storage.config import Config, RunOptions
from duetto.training.normalizer import Normalizer, RewardScaler
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


class Moments:
    """Mean and variance of all that was seen and what a fresh one starts with, in one sum."""

    def __init__(self, fresh: dict[str, Any]) -> None:
        self.count = float(fresh["count"])
        self.sum = self.count * np.array(fresh["mean"])
        self.squares = self.count * (np.array(fresh["variance"]) + np.array(fresh["mean"]) ** 2)

    def see(self, values: Any) -> None:
        for value in values:
            self.count, self.sum, self.squares = self.count + 1, self.sum + value, self.squares + value**2

    @property
    def mean(self) -> Any:
        return self.sum / self.count

    @property
    def std(self) -> Any:
        return np.sqrt(self.squares / self.count - self.mean**2)

    def scaled(self, x: Any) -> Any:
        return ((x - self.mean) / self.std).astype(np.float32)


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
        (actor("td3", normalize_observations="collected"), "torch", False),
        (actor("td3", normalize_observations="collected"), "torch", True),
        (actor("td3", stored_carry=False), "torch", False),
    ],
    ids=lambda value: value.name() if isinstance(value, Algorithm) else str(value),
)
def test_sequences(tmp_path: Path, algorithm: Algorithm, backend: str, vector: bool):
    played = Played(tmp_path, algorithm, backend=backend, vector=vector)
    record, minds = played.record, Minds(played.learner, seen_when_acting(played))
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


def seen_when_acting(played: Played) -> Any:
    """How each place's observation was scaled: by all that were acted on until then, its own turn included."""
    raw = lambda place: place.episode.obs[place.time]  # noqa: E731
    if played.trainer.normalizer.mode != "collected":
        return raw
    moments = Moments(fresh_observations(played))
    seen = {}
    for _, places in played.turns:
        moments.see(raw(place) for place in places)
        seen |= {(id(place.episode), place.time): moments.scaled(raw(place)) for place in places}
    return lambda place: seen.get((id(place.episode), place.time), raw(place))


def fresh_observations(played: Played) -> dict[str, Any]:
    return Normalizer(played.trainer.stepper.observation_space, "collected").state_dict()[""]


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


# ---------------------------------------------------------------------------------------------------- single steps
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
def test_single_steps(tmp_path: Path, n_step: int, vector: bool):
    algorithm = ALGORITHMS["td3"](
        **ACTOR, n_step=n_step, batch_size=16, learning_starts=20, random_steps=24, exploration="none"
    )
    played = Played(tmp_path, algorithm, vector=vector)
    record, spec = played.record, algorithm.memory()
    memory: Any = played.trainer.memory
    batch = memory.sample(4000).batch
    assert isinstance(batch, Batch)
    found = set()
    for row in range(len(batch.reward)):
        place = record.place(batch.obs[row])
        reward, discount, ahead = ahead_of(place.episode, place.time, n_step, spec)
        np.testing.assert_allclose(batch.action[row], as_learned(place.episode.actions[place.time]), **CLOSE)
        np.testing.assert_allclose(batch.reward[row], reward, **CLOSE)
        np.testing.assert_allclose(batch.discount[row], discount, **CLOSE)
        np.testing.assert_array_equal(batch.next_obs[row], place.episode.obs[ahead])
        found.add((id(place.episode), place.time))
    assert found == {(id(episode), time) for episode in record.episodes() for time in range(len(episode))}
    for before, places in played.turns:
        obs = np.array([place.episode.obs[place.time] for place in places])
        done = np.array([as_learned(place.episode.actions[place.time]) for place in places])
        assert not places or close(done, played.learner.act(obs)) == (before >= 24)


def test_statistics_of_what_was_learned_from(tmp_path: Path):
    """Mode "sampled": each batch enters them, then is scaled; of sequences, the steps learned from and the next."""
    played = Played(tmp_path, actor("td3", normalize_observations="sampled"))
    moments = Moments(fresh_observations(played))
    for sample, prepared in zip(played.samples, played.prepared, strict=True):
        assert isinstance(sample.batch, SequenceBatch)
        for row in range(len(sample.batch.mask)):
            for step in np.flatnonzero(sample.batch.mask[row]):
                moments.see([sample.batch.obs.obs[row, step]])
                moments.see([sample.batch.obs.obs[row, step + 1]])
        np.testing.assert_allclose(prepared.obs.obs, moments.scaled(sample.batch.obs.obs), rtol=1e-4, atol=1e-4)
        seen = played.algorithm.seen_reward(sample.batch.obs.previous_reward)
        np.testing.assert_array_equal(prepared.obs.previous_reward, seen)


def test_statistics_of_single_steps(tmp_path: Path):
    """The observations of each batch enter them and are scaled; then the same for what they led to."""
    options = {"batch_size": 16, "learning_starts": 20, "normalize_observations": "sampled"}
    played = Played(tmp_path, ALGORITHMS["td3"](**ACTOR | options), steps=90)
    moments = Moments(fresh_observations(played))
    for sample, prepared in zip(played.samples, played.prepared, strict=True):
        assert isinstance(sample.batch, Batch)
        moments.see(sample.batch.obs)
        np.testing.assert_allclose(prepared.obs, moments.scaled(sample.batch.obs), rtol=1e-4, atol=1e-4)
        moments.see(sample.batch.next_obs)
        np.testing.assert_allclose(prepared.next_obs, moments.scaled(sample.batch.next_obs), rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------------------------------------------- rollouts
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"recurrent": "lstm", "recurrent_size": 8},
        {"recurrent": "gru", "recurrent_size": 8, "normalize_rewards": True, "previous_reward": "raw"},
        {"normalize_rewards": True},
        {"normalize_observations": True},
    ],
    ids=str,
)
def test_rollouts(tmp_path: Path, options: dict[str, Any], vector: bool):
    algorithm = ALGORITHMS["ppo"](
        **STILL | {"rollout_steps": 13, "epochs": 1, "minibatches": 1, "gae_lambda": 0.8, "policy_gain": 3.0} | options
    )
    played = Played(tmp_path, algorithm, vector=vector)
    rewards, count = scaled_rewards(played), 0
    known = Values(played)
    for sample, prepared in zip(played.samples, played.prepared, strict=True):
        assert isinstance(sample.batch, RolloutBatch)
        count += check_rollout(played, sample.batch, known, rewards)
        known.learned(sample.batch)
        if played.learner.recurrent:
            np.testing.assert_array_equal(prepared.obs.previous_reward, sample.batch.obs.previous_reward)
    assert count == sum(len(places) for _, places in played.turns[: 13 * len(played.samples)])
    assert len(played.divergences) > 4
    np.testing.assert_allclose(played.divergences, 0, atol=1e-10)  # of the policy that learns from the one that acted


class Values:
    """V of every place, final observations too."""

    def __init__(self, played: Played) -> None:
        self._learner = played.learner
        scales = played.trainer.normalizer.mode == "rollouts"
        self._seen = Moments(fresh_observations(played)) if scales else None
        self.minds = Minds(played.learner) if played.learner.recurrent else None

    def __call__(self, place: Place) -> float:
        if self.minds is not None:
            return self.minds.value(place)
        obs = place.episode.obs[place.time]
        obs = obs if self._seen is None else self._seen.scaled(obs)
        return float(self._learner.value(obs[None])[0])

    def learned(self, batch: RolloutBatch) -> None:
        """Observations are scaled by those of the rollouts before."""
        if self._seen is not None:
            self._seen.see(batch.obs[batch.weight > 0])


def scaled_rewards(played: Played) -> dict[tuple[int, int], float]:
    """Each place's reward as it is learned from: over the std of the discounted sums until then, its turn included."""
    moments = Moments(RewardScaler(1, DISCOUNT).state_dict()["moments"])
    sums, found = np.zeros(3), {}
    for _, places in played.turns:
        for place in places:
            sums[place.env] = DISCOUNT * sums[place.env] * (place.time > 0) + place.episode.rewards[place.time]
        moments.see(sums[place.env] for place in places)
        for place in places:
            scale = moments.std if played.algorithm.reward_scaling() else 1.0
            found[id(place.episode), place.time] = place.episode.rewards[place.time] / scale
    return found


def check_rollout(played: Played, batch: RolloutBatch, value: Values, rewards: dict[tuple[int, int], float]) -> int:
    """Every step of a rollout against its episode; their number."""
    recurrent = value.minds is not None
    obs = batch.obs.obs if recurrent else by_environment(batch.obs)
    action, weight, old, advantage, returns = (
        part if recurrent else by_environment(part)
        for part in (batch.action, batch.weight, batch.value, batch.advantage, batch.returns)
    )
    for env in range(3):
        following = 0.0
        for t in reversed(np.flatnonzero(weight[env]).tolist()):
            place = played.record.place(obs[env, t])
            episode, time = place.episode, place.time
            last = t == max(np.flatnonzero(weight[env])) or time + 1 == len(episode)
            dead = time + 1 == len(episode) and episode.terminated
            v, after = value(place), 0.0 if dead else value(Place(env, episode, time + 1))
            delta = rewards[id(episode), time] + DISCOUNT * after - v
            following = delta + (0.0 if last else DISCOUNT * 0.8 * following)
            assert place.env == env
            assert action[env, t] == pytest.approx(as_learned(episode.actions[time]), abs=1e-5)
            assert old[env, t] == pytest.approx(v, abs=1e-5)
            assert advantage[env, t] == pytest.approx(following, abs=1e-4)
            assert returns[env, t] == pytest.approx(following + v, abs=1e-4)
            if recurrent:
                check_context(batch, env, t, place, played.algorithm)
        if value.minds is not None and weight[env, 0]:
            for name, part in value.minds.carry(played.record.place(obs[env, 0])).items():
                np.testing.assert_allclose(batch.obs.carry[name][env] * ~batch.obs.starts[env, 0], part, **CLOSE)
    return int(weight.sum())


def by_environment(rows: np.ndarray) -> np.ndarray:
    """(T·N, ...) as (N, T, ...)."""
    return np.swapaxes(rows.reshape(-1, 3, *rows.shape[1:]), 0, 1)


def check_context(batch: RolloutBatch, env: int, t: int, place: Place, algorithm: Algorithm) -> None:
    """A rollout keeps previous rewards as networks saw them."""
    window, episode, time = batch.obs, place.episode, place.time
    reward = algorithm.seen_reward(np.array(previous_reward(episode, time), np.float32))
    assert window.starts[env, t] == (time == 0)
    np.testing.assert_allclose(window.previous_action[env, t], previous_action(episode, time), **CLOSE)
    np.testing.assert_allclose(window.previous_reward[env, t], reward, **CLOSE)
