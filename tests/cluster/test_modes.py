"""Thousands of courses of events for actors that act themselves: what is handed out, in which order, with what."""

from __future__ import annotations

import itertools
import pickle
import zlib
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pytest
from simulated import STEADY, Rates, Simulated
from small_runs import small
from taped import Taped

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

OFTEN = Rates(0.02, 0.02, 0.03, 0.01, 0.01, 0.2)
STEPS, NUM_ENVS, TOTAL = 24, 4, 400
ALGORITHMS = {
    "dqn": small("dqn", random_steps=8, exploration_steps=100),
    "r2d2": small("r2d2", random_steps=8, recurrent="lstm", recurrent_size=8),
    "ppo": small("ppo", normalize_observations=True, observation_statistics="steps", normalize_rewards=True),
}


class Net:
    """Acts by a number that stands for all that was learned, and by all that networks may look at."""

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

    def remember(self, method: str, window: Any, noise: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
        inputs = window.obs[:, 0, 0] + window.previous_action[:, 0] + window.previous_reward[:, 0]
        carry = (window.carry["q/h"] * 3 + inputs[:, None, None].astype(np.float32)) % 1009
        return self.collect(carry[:, 0], noise), {"q/h": carry.astype(np.float32)}


class Learned:
    """In the place of a learner: what was learned is a checksum of everything that was seen."""

    def __init__(self, algorithm: Any) -> None:
        self.algorithm, self.updates, self.seen = algorithm, 0, 0

    def update(self) -> None:
        self.updates += 1
        self.seen = (self.seen * 31 + self.updates) % 2**31

    def parameters(self) -> dict[str, Any]:
        return {self.algorithm.acting_networks[0]: {"w": np.array([self.seen])}, "target": {}}


class Course:
    """A run that learns by counting, on a simulated cluster."""

    def __init__(self, mode: type[BlockSource], name: str, actors: int, length: int, transport: Simulated) -> None:
        self.algorithm = ALGORITHMS[name]
        self.learner, self.step = Learned(self.algorithm), 0
        self.schedule = Schedule(10, 4, 2)
        self.tape: list[int] = []
        self.rows: list[Any] = []
        self.notices: list[str] = []
        self.place(mode, actors, length, transport)
        self.stepper.reset(3)

    def place(self, mode: type[BlockSource], actors: int, length: int, transport: Simulated) -> None:
        self.transport = transport
        role = cloudpickle.dumps(ActorRole(RECIPE, self.algorithm, "torch", "float32", 1, NUM_ENVS))
        self.stepper = VecEnv(RemoteEngine(ActorPool(transport, role, shares(NUM_ENVS, actors), 5.0, self.notices)))
        self.normalizer = Normalizer(self.stepper.observation_space, *self.algorithm.observation_scaling())
        learner: Any = self.learner
        self.source = mode(self.algorithm, self.stepper, learner, self.normalizer, length)

    def saved(self) -> bytes:
        parts = (self.source.state_dict(), self.normalizer.state_dict(), self.stepper.state_dict())
        return pickle.dumps(parts)

    def move(self, mode: type[BlockSource], actors: int, length: int, transport: Simulated) -> None:
        """Killed, and resumed from a cut."""
        mine, observed, theirs = pickle.loads(self.saved())
        self.stepper.close()
        self.place(mode, actors, length, transport)
        self.source.load_state_dict(mine)
        self.normalizer.load_state_dict(observed)
        self.stepper.load_state_dict(theirs)
        assert self.stepper.resumed_exactly

    def go(self, steps: int) -> None:
        for _ in range(steps):
            experience, episodes = self.source.collect(self.step, TOTAL)
            assert self.stepper.aborted is None
            self.step += len(experience.env)
            self.rows.append(experience)
            for part in (*experience[:-1], *experience.extras.values(), np.array([e[:3] for e in episodes])):
                self.learner.seen = zlib.crc32(np.ascontiguousarray(part).tobytes(), self.learner.seen) % 2**31
            self.tape.append(self.learner.seen)
            self.schedule.advance(len(experience.env), episode_ended=False)
            while self.schedule.take():
                self.learner.update()
                self.transport.pause(0.1)

    def check_rows(self) -> None:
        """Every environment's steps are all there, once, in their order, and follow from each other."""
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


class Kept(Taped):
    """The same, quickly saved."""

    def state_dict(self) -> dict[str, Any]:
        return {"numbers": [self.mix, self.steps, self.length], "random": rng_state(self.np_random)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mix, self.steps, self.length = state["numbers"]
        restore_rng(self.np_random, state["random"])


class Unkept(Taped):
    """The same, and it cannot be saved."""

    metadata: ClassVar[dict[str, Any]] = {"resets_only": True}


class Half(Kept):
    """The same, which cannot be restored if its seed was odd."""

    odd = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.odd = self.odd if seed is None else seed % 2 == 1
        return super().reset(seed=seed, options=options)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"odd": self.odd}

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        super().load_state_dict(state)
        self.odd = state["odd"]
        return not self.odd


RECIPE = pack(Kept, {})


@pytest.fixture(autouse=True)
def nets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(actor.policy, "build", lambda algorithm, *_, **__: Net(algorithm))


def steady(name: str, actors: int, length: int) -> list[int]:
    course = Course(SyncSource, name, actors, length, Simulated(0, STEADY))
    course.go(STEPS)
    course.stepper.close()
    return course.tape


def sync_course(seed: int, references: dict[Any, list[int]]) -> Counter[str]:
    """One course of events, with a kill of the run in it, against an undisturbed one."""
    random = np.random.default_rng([seed, 2])
    how = (list(ALGORITHMS)[seed % 3], int(random.integers(1, 5)), int(random.integers(1, 8)))
    reference = references.setdefault(how, []) or references.__setitem__(how, steady(*how)) or references[how]
    happened: Counter[str] = Counter()
    transports = [Simulated(seed, OFTEN), Simulated(seed + 10**6, OFTEN)]
    course = None
    try:
        course = Course(SyncSource, *how, transports[0])
        course.go(int(random.integers(STEPS)))
        course.move(SyncSource, how[1], how[2], transports[1])
        course.go(STEPS - len(course.tape))
        assert course.tape == reference
        if how[0] != "ppo":
            course.check_rows()
    except (EnvironmentFault, EnvironmentFailedError) as error:
        happened["stopped"] += told(error)
    finally:
        if course is not None:
            course.stepper.close()
            assert all("no number has changed" in notice for notice in course.notices)
            happened["restarted"] += len(course.notices)
    return happened + Counter(transports[0].mishaps) + Counter(transports[1].mishaps)


def told(error: Exception) -> int:
    if "for the third time without an answer" not in str(error) and "has found no place" not in str(error):
        raise error
    return 1


def async_course(seed: int) -> Counter[str]:
    """One course of events, with a kill of the run in it."""
    random = np.random.default_rng([seed, 3])
    name, actors, length = ["dqn", "r2d2"][seed % 2], int(random.integers(1, 5)), int(random.integers(1, 8))
    happened: Counter[str] = Counter()
    transports = [Simulated(seed, OFTEN), Simulated(seed + 10**6, OFTEN)]
    course = None
    try:
        course = Course(AsyncSource, name, actors, length, transports[0])
        for turn in range(2):
            for _ in range(STEPS):
                course.go(1)
                source: Any = course.source
                ahead = sum(len(ready.experience.env) for ready in source._ready)
                ahead += sum(sum(block.counts) for held in source._held for block, _ in held)
                ahead += sum(length * len(source._shares[index]) for index in source._asked)
                assert ahead <= source.ahead
                owed = max(0, course.step - 10) // 4 * 2
                assert course.learner.updates == owed
            if turn == 0:
                happened["held in a cut"] += any(source._held)
                course.move(AsyncSource, actors, length, transports[1])
        course.check_rows()
    except (EnvironmentFault, EnvironmentFailedError) as error:
        happened["stopped"] += told(error)
    finally:
        if course is not None:
            course.stepper.close()
            happened["restarted"] += len(course.notices)
    return happened + Counter(transports[0].mishaps) + Counter(transports[1].mishaps)


def sync_all(schedules: int) -> Counter[str]:
    references: dict[Any, list[int]] = {}
    return sum((sync_course(seed, references) for seed in range(schedules)), Counter())


def async_all(schedules: int) -> Counter[str]:
    return sum(map(async_course, range(schedules)), Counter())


@pytest.mark.parametrize("play", [sync_all, async_all])
@pytest.mark.parametrize("schedules", [40, 200])
def test_whatever_happens(play, schedules: int):
    happened = play(schedules)
    assert happened["stopped"] < schedules / 5
    assert happened["restarted"] > schedules / 3
    assert all(happened[name] > schedules / 100 for name in Rates.__dataclass_fields__), happened
    assert play is sync_all or happened["held in a cut"] > schedules / 3


def test_statistics_are_those_of_all_actors():
    course = Course(SyncSource, "ppo", 3, 5, Simulated(0, OFTEN))
    course.go(15)
    samples = course.algorithm.normalization_prior + 15 * NUM_ENVS
    rewards = course.source.rewards
    assert rewards is not None
    assert course.normalizer.moments[""].count == rewards.moments.count == samples
    course.stepper.close()


class AtOnce(Simulated):
    """Every answer is there at once."""

    def _delay(self) -> float:
        return 0.0


@pytest.mark.parametrize(("transport", "least"), [(AtOnce, NUM_ENVS), (Simulated, 0.9 * NUM_ENVS)])
def test_a_busy_learner_gets_the_rows_of_all_actors_at_each_step(transport: type[Simulated], least: float):
    course = Course(AsyncSource, "dqn", NUM_ENVS, 8, transport(0, STEADY))
    course.go(50 * 8)
    assert np.mean([len(rows.env) for rows in course.rows]) >= least
    course.check_rows()
    course.stepper.close()


def test_actors_explore_each_by_itself():
    course = Course(SyncSource, "dqn", 4, 4, Simulated(0, STEADY))
    course.go(2)  # at random
    actions = np.stack([rows.action for rows in course.rows])
    assert len({tuple(column) for column in actions.T}) > 1
    course.stepper.close()


@pytest.mark.parametrize("mode", [SyncSource, AsyncSource])
@pytest.mark.parametrize("seed", range(15))
def test_what_cannot_be_brought_back_begins_new_episodes_and_says_so(mode, seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "RECIPE", pack(Unkept, {}))
    course, lost, made = Course(mode, "dqn", 3, 4, Simulated(seed, STEADY)), 0, dict.fromkeys(range(NUM_ENVS), 0)
    course.transport._rates = OFTEN
    try:
        for _ in range(STEPS):
            experience, _ = course.source.collect(course.step, TOTAL)
            course.step += len(experience.env)
            for env in () if course.stepper.aborted is None else np.flatnonzero(course.stepper.aborted).tolist():
                lost, made[env] = lost + 1, 0
            for env, count in zip(experience.env.tolist(), experience.obs[:, 1], strict=True):  # since it was seeded
                assert count == made[env]
                made[env] += 1
    except (EnvironmentFault, EnvironmentFailedError) as error:
        told(error)
    finally:
        course.stepper.close()
    assert any("start new episodes" in notice for notice in course.notices) or not lost


@pytest.mark.parametrize("mode", [SyncSource, AsyncSource])
def test_only_what_cannot_be_restored_begins_a_new_episode(mode: type[BlockSource], monkeypatch: pytest.MonkeyPatch):
    """Environments 0 and 2, after a death and at a resume; rows of the others follow from each other."""
    monkeypatch.setitem(globals(), "RECIPE", pack(Half, {}))
    course, aborted = Course(mode, "dqn", 2, 4, Simulated(0, STEADY)), list[list[int]]()

    def collect(steps: int) -> None:
        for _ in range(steps):
            course.rows.append(course.source.collect(course.step, TOTAL)[0])
            course.step += len(course.rows[-1].env)
            if course.stepper.aborted is not None:
                aborted.append(np.flatnonzero(course.stepper.aborted).tolist())

    collect(6)
    course.transport.kill(course.source._pool.actors[0].worker)
    while not aborted and course.step < 200:
        collect(1)
    assert aborted == [[0]]
    [notice] = course.notices
    assert "but 1 of its environments (0) could not be restored and start new episodes, because its load" in notice
    parts = pickle.loads(course.saved())
    course.stepper.close()
    course.place(mode, 2, 4, Simulated(0, STEADY))
    for part, state in zip((course.source, course.normalizer, course.stepper), parts, strict=True):
        part.load_state_dict(state)
    assert course.stepper.restored[[1, 2, 3]].tolist() == [True, False, True]
    collect(20)
    assert all(2 in envs and not {1, 3} & set(envs) for envs in aborted[1:])
    assert len(aborted) == 1 + bool(parts[0]["ready"])  # without steps to hand out, the trainer knows at once
    follow(course.rows, (1, 3))
    course.stepper.close()


def follow(rows: list[Any], envs: Iterable[int]) -> None:
    """Assert that each step of these environments starts where the one before it ended."""
    for env in envs:
        of = [
            (step.obs[i], step.next_obs[i], step.terminated[i] | step.truncated[i])
            for step in rows
            for i in np.flatnonzero(step.env == env)
        ]
        assert len(of) > 5
        assert all(done or np.array_equal(then, obs) for (_, then, done), (obs, _, _) in itertools.pairwise(of))
