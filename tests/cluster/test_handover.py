"""Blocks go from actors to the shards of a replay memory past the run's process: whoever dies, the memory has them."""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
import test_modes
from simulated import Rates, Simulated
from small_runs import small
from test_layers import LENGTH, AtOnce, numbers
from test_modes import NUM_ENVS, STEADY, TOTAL, Course, nets, told

from duetto import buffers
from duetto.buffers import RemoteBlock, Shard
from duetto.buffers.storage import BrokenEpisodeError
from duetto.cluster.actor_pool import LOST_BLOCKS
from duetto.cluster.asynchronous import AsyncSource
from duetto.cluster.block_source import BlockSource
from duetto.cluster.shard_server import RemoteShards, ShardServer
from duetto.cluster.sync import SyncSource
from duetto.environments.errors import EnvironmentFault
from duetto.environments.sharding import shares
from duetto.errors import EnvironmentFailedError, PartLostError

assert nets  # a fixture
STEPS = 24
OFTEN = Rates(0.003, 0.003, 0.02, 0.03, 0.03, 0.002, 0.004, 0.1)
ALGORITHMS = {
    "dqn": small("dqn", random_steps=8, exploration_steps=100, n_step=3, batch_size=8, replay_capacity=4000),
    "r2d2": small(
        "r2d2",
        random_steps=8,
        recurrent="lstm",
        recurrent_size=8,
        unroll=4,
        overlap=2,
        burn_in=2,
        batch_size=4,
        prioritized=False,
        replay_capacity=4000,
    ),
}


class Handed(Course):
    """One that learns from a memory in shards, or (0) from one in its process."""

    def __init__(
        self, mode: type[BlockSource], name: str, actors: int, length: int, count: int, *simulated: Any
    ) -> None:
        self.count, self.cuts = count, list[Any]()
        self.afar = 0
        super().__init__(mode, name, actors, length, *simulated)
        self.keep()

    def place(self, mode: type[BlockSource], actors: int, length: int, transport: Simulated) -> None:
        super().place(mode, actors, length, transport)
        self.source.leave, self.how = self.count > 0, (mode, actors, length)
        spaces = (self.stepper.observation_space, self.stepper.action_space)
        keepers = RemoteShards(self.source._pool, shares(NUM_ENVS, self.count)) if self.count else None
        random = np.random.default_rng(5)
        self.memory: Any = buffers.build(self.algorithm.memory(), *spaces, NUM_ENVS, random, shards=keepers)

    def keep(self) -> None:
        """A checkpoint."""
        mine = (self.memory.state_dict(), self.memory.segment(np.zeros(NUM_ENVS, np.int64)))
        theirs = (self.source.state_dict(), self.normalizer.state_dict(), self.stepper.state_dict())
        counts = (self.step, self.learner.updates, self.learner.seen, len(self.tape))
        self.cuts.append(pickle.dumps((mine, theirs, counts)))

    def go_back(self, transport: Simulated, mode: type[BlockSource], actors: int, length: int) -> None:
        self.stepper.close()
        self.place(mode, actors, length, transport)
        (state, segment), (mine, observed, theirs), counts = pickle.loads(self.cuts[-1])
        self.memory.load_state_dict(state)
        if segment is not None:
            self.memory.load_segment(segment)
        self.source.load_state_dict(mine)
        self.normalizer.load_state_dict(observed)
        self.stepper.load_state_dict(theirs)
        self.step, self.learner.updates, self.learner.seen, made = counts
        del self.tape[made:]

    def go(self, steps: int) -> None:
        for _ in range(steps):
            step, _ = self.source.collect(self.step, TOTAL)
            self.afar += isinstance(step, RemoteBlock)
            if self.stepper.aborted is not None:
                self.memory.interrupt(self.stepper.aborted)
            self.memory.take(step)
            self.step += len(step.env)
            for sample in self.memory.due():
                for part in (sample.batch.reward, sample.index, sample.stamp):
                    self.learner.seen = zlib.crc32(np.ascontiguousarray(part).tobytes(), self.learner.seen) % 2**31
                self.learner.update()
                self.transport.pause(0.1)
            self.tape.append(self.learner.seen)


def stored(course: Handed) -> dict[str, np.ndarray]:
    return course.memory.segment(np.zeros(NUM_ENVS, np.int64))


def sync_course(seed: int, references: dict[Any, Any]) -> Counter[str]:
    """One course of events, against a memory in the process."""
    random = np.random.default_rng([seed, 5])
    how = (list(ALGORITHMS)[seed % 2], int(random.integers(1, 4)), int(random.integers(1, 8)))
    if how not in references:
        quiet = Handed(SyncSource, *how, 0, Simulated(0, STEADY))
        quiet.go(STEPS)
        references[how] = (quiet.tape, stored(quiet))
        quiet.stepper.close()
    course, rows, happened = finished(seed, SyncSource, how, random, [how[1:]] * 12)
    if course is not None and rows is not None:
        assert course.tape == references[how][0]
        assert all(np.array_equal(part, rows[name], equal_nan=True) for name, part in references[how][1].items())
    return happened


def async_course(seed: int) -> Counter[str]:
    """One course of events, on other actors each time: every step is in the memory once, in its order."""
    random = np.random.default_rng([seed, 6])
    sizes = [(int(random.integers(1, 5)), int(random.integers(1, 8))) for _ in range(12)]
    how = (list(ALGORITHMS)[seed % 2], *sizes[0])
    course, rows, happened = finished(seed, AsyncSource, how, random, sizes)
    if course is not None and rows is not None:
        owed = course.algorithm.memory()
        assert course.learner.updates <= max(0, course.step - owed.learning_starts) // owed.train_every
        if how[0] == "dqn":  # sequences keep what episodes end with, too
            assert rows["count"].sum() == course.step
            in_order(rows)
    return happened


def finished(
    seed: int, mode: type[BlockSource], how: tuple[str, int, int], random: Any, sizes: list[Any]
) -> tuple[Handed | None, dict[str, np.ndarray] | None, Counter[str]]:
    """A course that goes back to its newest cut as a run does, to actors of the next size; and what its memory holds,
    None if it has stopped.
    """
    happened: Counter[str] = Counter()
    transports, course, kill, back = [Losing(seed, OFTEN)], None, int(random.integers(STEPS)), False
    count, rows = int(random.integers(1, 4)), None
    try:
        while rows is None:
            try:
                course = course or Handed(mode, *how, count, transports[-1])
                if back:
                    course.go_back(transports[-1], mode, *sizes[len(transports) - 1])
                    back = False
                if len(course.tape) < STEPS:
                    course.go(1)
                if len(course.tape) % 4 == seed % 4:
                    course.keep()
                if len(course.tape) == kill:
                    kill = -1
                    raise PartLostError("killed")
                rows = stored(course) if len(course.tape) == STEPS else None
            except PartLostError as lost:
                happened["blocks gone"] += str(lost) == LOST_BLOCKS
                if len(transports) == 12:
                    happened["stopped"] += 1
                    break
                transports.append(Losing(seed + 10**6 * len(transports), OFTEN))
                back = course is not None
                happened["went back"] += 1
        happened["afar"] += 0 if course is None else course.afar
    except (EnvironmentFault, EnvironmentFailedError) as error:
        happened["stopped"] += told(error)
    finally:
        if course is not None:
            course.stepper.close()
    return course, rows, sum((Counter(transport.mishaps) for transport in transports), happened)


def in_order(rows: dict[str, np.ndarray]) -> None:
    """Each environment's steps, of which it shows the number, come once and in their order."""
    end = 0
    for count in rows["count"]:
        number = rows["obs"][end : end + count, 1]
        assert (np.diff(number) > 0).all()
        end += count


class Losing(Simulated):
    """Now and then all values that were left somewhere are gone."""

    def _fate(self, process: Any, message: tuple[Any, ...]) -> Any:
        if isinstance(process.object, ShardServer) and self._random.random() < 0.005:
            self._lose(list(self._lies))
        return super()._fate(process, message)


def sync_all(schedules: int) -> Counter[str]:
    references: dict[Any, Any] = {}
    return sum((sync_course(seed, references) for seed in range(schedules)), Counter())


def async_all(schedules: int) -> Counter[str]:
    return sum(map(async_course, range(schedules)), Counter())


@pytest.fixture(autouse=True)
def algorithms(monkeypatch: pytest.MonkeyPatch):
    """That learn from a memory which may be in shards."""
    monkeypatch.setattr(test_modes, "ALGORITHMS", ALGORITHMS)


@pytest.mark.parametrize("play", [sync_all, async_all])
@pytest.mark.parametrize("schedules", [12, 30])
def test_whatever_happens(play, schedules: int):
    happened = play(schedules)
    assert happened["stopped"] < schedules / 5
    assert happened["went back"] > schedules
    assert happened["blocks gone"] > schedules / 10
    assert happened["afar"] > STEPS * schedules / 2


def test_what_is_held_is_in_a_cut():
    """With its rows."""
    course = Handed(AsyncSource, "dqn", 2, LENGTH, 1, AtOnce(0, STEADY))
    course.go(LENGTH - 1)
    held: Any = course.source
    assert numbers(held) == [{0: 1, 1: 1}, {0: 2}]
    course.keep()
    course.go_back(AtOnce(1, STEADY), *course.how)
    course.go(4 * LENGTH)
    assert int(course.memory.written.sum()) == course.step
    in_order(stored(course))
    course.stepper.close()


def test_no_cut_is_made_where_a_block_is_gone():
    course = Handed(AsyncSource, "dqn", 2, LENGTH, 1, AtOnce(0, STEADY))
    course.go(LENGTH - 1)
    course.transport._lose(list(course.transport._lies))
    with pytest.raises(PartLostError, match=LOST_BLOCKS):
        course.keep()
    course.stepper.close()


def handed_out_twice(patch: pytest.MonkeyPatch) -> None:
    """A vector step."""
    taken = Shard.take

    def take(self: Shard, number: int) -> None:
        self._held[number].insert(1, self._held[number][0])
        taken(self, number)

    patch.setattr(Shard, "take", take)


def dropped(patch: pytest.MonkeyPatch) -> None:
    """A vector step of each block."""
    hold = Shard.hold

    def held(self: Shard, number: int, *arguments: Any) -> None:
        hold(self, number, *arguments)
        self._held[number][-1] = []

    patch.setattr(Shard, "hold", held)


def done_again(patch: pytest.MonkeyPatch) -> None:
    """A shard does again what comes twice."""
    patch.setattr(ShardServer, "do", lambda self, number, asked, _=None, *more: self._answer(number, asked, {}, more))


def not_in_the_cut(patch: pytest.MonkeyPatch) -> None:
    """What was accepted and not handed out."""
    patch.setattr(BlockSource, "_fetched", lambda self: [])


MUTANTS = [
    (handed_out_twice, async_all),
    (handed_out_twice, sync_all),
    (dropped, async_all),
    (dropped, sync_all),
    (done_again, sync_all),
    (not_in_the_cut, sync_all),
    (not_in_the_cut, async_all),
]


@pytest.mark.parametrize(("broken", "play"), MUTANTS)
def test_without_any_one_rule_it_shows(broken, play, monkeypatch: pytest.MonkeyPatch):
    broken(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError, KeyError, BrokenEpisodeError)):
        play(30)
