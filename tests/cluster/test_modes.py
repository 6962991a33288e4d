"""Sync and async experience from actors in simulated fault scenarios: order, completeness, exactness."""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest
from history_environment import HistoryEnv
from simulated import STEADY, Rates, Simulated
from small_runs import small

from duetto.buffers.update_schedule import Schedule
from duetto.cluster import actor
from duetto.cluster.actor import ActorRole, pack
from duetto.cluster.actor_pool import ActorPool
from duetto.cluster.block_source import BlockSource
from duetto.cluster.modes import AsyncSource, SyncSource
from duetto.cluster.remote_engine import RemoteEngine, shares
from duetto.environments import VecEnv
from duetto.environments.errors import EnvironmentFault
from duetto.errors import EnvironmentFailedError
from duetto.functional.rng import restore_rng, rng_state
from duetto.training.normalizer import Normalizer

FREQUENT_FAULTS = Rates(0.02, 0.02, 0.03, 0.01, 0.01, 0.2)
STEPS, NUM_ENVS, TOTAL = 24, 4, 400
ALGORITHMS = {
    "dqn": small("dqn", random_steps=8, exploration_steps=100),
    "r2d2": small("r2d2", random_steps=8, recurrent="lstm", recurrent_size=8),
    "ppo": small("ppo", normalize_observations=True, observation_statistics="steps", normalize_rewards=True),
}


class FakeNetwork:
    """Its actions depend on one number in place of the weights, and on every input that networks may use."""

    def __init__(self, algorithm: Any) -> None:
        self.algorithm, self.recurrent, self.weight = algorithm, "r2d2" in algorithm.name(), 0

    def load_parameters(self, parameters: Any) -> None:
        [self.weight] = (int(values["w"][0]) for values in parameters.values())

    def carry_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"q/h": (1, 2)} if self.recurrent else {}

    def collect(self, obs: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        greedy = (np.abs(obs[:, 0] * 7000).astype(np.int64) + self.weight) % 4
        noise = (noise[:, 0] * 1000).astype(np.int64)
        return np.where(noise >= 0, noise % 4, greedy), {"seen": np.full(len(obs), self.weight)}

    def call_with_carry(self, method: str, window: Any, noise: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
        inputs = window.obs[:, 0, 0] + window.previous_action[:, 0] + window.previous_reward[:, 0]
        carry = (window.carry["q/h"] * 3 + inputs[:, None, None].astype(np.float32)) % 1009
        return self.collect(carry[:, 0], noise), {"q/h": carry.astype(np.float32)}


class FakeLearner:
    """A learner whose only weight is a checksum of all experience and updates."""

    def __init__(self, algorithm: Any) -> None:
        self.algorithm, self.updates, self.seen = algorithm, 0, 0

    def update(self) -> None:
        self.updates += 1
        self.seen = (self.seen * 31 + self.updates) % 2**31

    def parameters(self) -> dict[str, Any]:
        return {self.algorithm.acting_networks[0]: {"w": np.array([self.seen])}, "target": {}}


class SimulatedRun:
    """A run with a `FakeLearner` on a simulated cluster."""

    def __init__(self, mode: type[BlockSource], name: str, actors: int, length: int, transport: Simulated) -> None:
        self.algorithm = ALGORITHMS[name]
        self.learner, self.step = FakeLearner(self.algorithm), 0
        self.schedule = Schedule(SimpleNamespace(learning_starts=10, train_every=4, gradient_steps=2))
        self.checksums: list[int] = []
        self.rows: list[Any] = []
        self.notices: list[str] = []
        self.connect(mode, actors, length, transport)
        self.stepper.reset(3)

    def connect(self, mode: type[BlockSource], actors: int, length: int, transport: Simulated) -> None:
        self.transport = transport
        role = cloudpickle.dumps(ActorRole(PACKED_ENV, self.algorithm, "torch", "float32", 1, NUM_ENVS))
        self.stepper = VecEnv(RemoteEngine(ActorPool(transport, role, shares(NUM_ENVS, actors), 5.0, self.notices)))
        self.normalizer = Normalizer(self.stepper.observation_space, *self.algorithm.observation_scaling())
        learner: Any = self.learner
        self.source = mode(self.algorithm, self.stepper, learner, self.normalizer, length)

    def saved_state(self) -> bytes:
        parts = (self.source.state_dict(), self.normalizer.state_dict(), self.stepper.state_dict())
        return pickle.dumps(parts)

    def kill_and_resume(self, mode: type[BlockSource], actors: int, length: int, transport: Simulated) -> None:
        """Kill the run, and resume it from its saved state on another transport."""
        mine, observed, theirs = pickle.loads(self.saved_state())
        self.stepper.close()
        self.connect(mode, actors, length, transport)
        self.source.load_state_dict(mine)
        self.normalizer.load_state_dict(observed)
        self.stepper.load_state_dict(theirs)
        assert self.stepper.resumed_exactly

    def collect_steps(self, steps: int) -> None:
        for _ in range(steps):
            experience, episodes = self.source.collect(self.step, TOTAL)
            assert self.stepper.aborted is None
            self.step += len(experience.env)
            self.rows.append(experience)
            for part in (*experience[:-1], *experience.extras.values(), np.array([e[:3] for e in episodes])):
                self.learner.seen = zlib.crc32(np.ascontiguousarray(part).tobytes(), self.learner.seen) % 2**31
            self.checksums.append(self.learner.seen)
            self.schedule.advance(len(experience.env), episode_ended=False)
            while self.schedule.take():
                self.learner.update()
                self.transport.pause(0.1)

    def check_rows(self) -> None:
        """Assert that each environment's steps are complete, in order, and continue each other."""
        for env in range(NUM_ENVS):
            last = None
            for rows in self.rows:
                for row in np.flatnonzero(rows.env == env):
                    count = 0 if last is None else last[1] + 1
                    assert rows.obs[row, 1] == count, f"environment {env}"
                    assert rows.next_obs[row, 1] == count + 1
                    if last is not None and not last[2]:
                        assert np.array_equal(rows.obs[row], last[0])
                    done = bool(rows.terminated[row] | rows.truncated[row])
                    last = (rows.next_obs[row], count, done)
        assert self.step == sum(len(rows.env) for rows in self.rows)
        assert self.learner.updates == max(0, self.step - 10) // 4 * 2


class SaveableHistoryEnv(HistoryEnv):
    """A `HistoryEnv` with a fast `state_dict`."""

    def state_dict(self) -> dict[str, Any]:
        return {"numbers": [self.mix, self.steps, self.length], "random": rng_state(self.np_random)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mix, self.steps, self.length = state["numbers"]
        restore_rng(self.np_random, state["random"])


PACKED_ENV = pack(SaveableHistoryEnv, {})


@pytest.fixture(autouse=True)
def fake_networks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(actor.policy, "build", lambda algorithm, *_, **__: FakeNetwork(algorithm))


def undisturbed_checksums(name: str, actors: int, length: int) -> list[int]:
    run = SimulatedRun(SyncSource, name, actors, length, Simulated(0, STEADY))
    run.collect_steps(STEPS)
    run.stepper.close()
    return run.checksums


def run_sync_scenario(seed: int, references: dict[Any, list[int]]) -> Counter[str]:
    """Compare a run with random faults and one kill with an undisturbed run; return the counts of events."""
    random = np.random.default_rng([seed, 2])
    how = (list(ALGORITHMS)[seed % 3], int(random.integers(1, 5)), int(random.integers(1, 8)))
    reference = (
        references.setdefault(how, []) or references.__setitem__(how, undisturbed_checksums(*how)) or references[how]
    )
    happened: Counter[str] = Counter()
    transports = [Simulated(seed, FREQUENT_FAULTS), Simulated(seed + 10**6, FREQUENT_FAULTS)]
    run = None
    try:
        run = SimulatedRun(SyncSource, *how, transports[0])
        run.collect_steps(int(random.integers(STEPS)))
        run.kill_and_resume(SyncSource, how[1], how[2], transports[1])
        run.collect_steps(STEPS - len(run.checksums))
        assert run.checksums == reference
        if how[0] != "ppo":
            run.check_rows()
    except (EnvironmentFault, EnvironmentFailedError) as error:
        happened["stopped"] += count_expected_stop(error)
    finally:
        if run is not None:
            run.stepper.close()
            assert all("no number has changed" in notice for notice in run.notices)
            happened["restarted"] += len(run.notices)
    return happened + Counter(transports[0].mishaps) + Counter(transports[1].mishaps)


def count_expected_stop(error: Exception) -> int:
    if "for the third time in a row" not in str(error) and "could not be started" not in str(error):
        raise error
    return 1


def run_async_scenario(seed: int) -> Counter[str]:
    """Check the counts of a run with random faults and one kill; return the counts of events."""
    random = np.random.default_rng([seed, 3])
    name, actors, length = ["dqn", "r2d2"][seed % 2], int(random.integers(1, 5)), int(random.integers(1, 8))
    happened: Counter[str] = Counter()
    transports = [Simulated(seed, FREQUENT_FAULTS), Simulated(seed + 10**6, FREQUENT_FAULTS)]
    run = None
    try:
        run = SimulatedRun(AsyncSource, name, actors, length, transports[0])
        for turn in range(2):
            for _ in range(STEPS):
                run.collect_steps(1)
                source: Any = run.source
                ahead = sum(len(ready.experience.env) for ready in source._ready)
                ahead += sum(sum(block.counts) for held in source._held for block, _ in held)
                ahead += sum(length * len(source._shares[index]) for index in source._asked)
                assert ahead <= source.ahead
                owed = max(0, run.step - 10) // 4 * 2
                assert run.learner.updates == owed
            if turn == 0:
                happened["held at the kill"] += any(source._held)
                run.kill_and_resume(AsyncSource, actors, length, transports[1])
        run.check_rows()
    except (EnvironmentFault, EnvironmentFailedError) as error:
        happened["stopped"] += count_expected_stop(error)
    finally:
        if run is not None:
            run.stepper.close()
            happened["restarted"] += len(run.notices)
    return happened + Counter(transports[0].mishaps) + Counter(transports[1].mishaps)


def sync_scenarios(schedules: int) -> Counter[str]:
    references: dict[Any, list[int]] = {}
    return sum((run_sync_scenario(seed, references) for seed in range(schedules)), Counter())


def async_scenarios(schedules: int) -> Counter[str]:
    return sum(map(run_async_scenario, range(schedules)), Counter())


@pytest.mark.parametrize("play", [sync_scenarios, async_scenarios])
@pytest.mark.parametrize("schedules", [40, 200])
def test_block_sources_stay_consistent_under_random_faults(play, schedules: int):
    happened = play(schedules)
    assert happened["stopped"] < schedules / 5
    assert happened["restarted"] > schedules / 3
    assert all(happened[name] > schedules / 100 for name in Rates.__dataclass_fields__), happened
    assert play is sync_scenarios or happened["held at the kill"] > schedules / 3


class WithoutDelay(Simulated):
    """Each answer arrives at once."""

    def _delay(self) -> float:
        return 0.0


def test_async_busy_learner_receives_rows_of_all_actors():
    run = SimulatedRun(AsyncSource, "dqn", NUM_ENVS, 8, WithoutDelay(0, STEADY))
    run.collect_steps(50 * 8)
    assert np.mean([len(rows.env) for rows in run.rows]) == NUM_ENVS
    run.check_rows()
    run.stepper.close()
