"""Blocks go from actors to the shards of a replay memory past the run's process: whoever dies, the memory has them."""

from __future__ import annotations

import pickle
import re
import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
import test_paces
from simulated import Rates, Simulated
from small_runs import small
from test_layers import LENGTH, AtOnce, numbers
from test_paces import NUM_ENVS, STEADY, TOTAL, Course, nets, told

from duetto import memory
from duetto.cluster.blocks import Blocks
from duetto.cluster.free import Free
from duetto.cluster.lockstep import Lockstep
from duetto.cluster.shards import Keeper, Keepers
from duetto.environments.faults import Fault
from duetto.environments.shares import shares
from duetto.errors import EnvironmentFailedError, PartLostError
from duetto.memory import Afar, Sharded
from duetto.memory.afar import Arrived
from duetto.memory.episodes import BrokenEpisodeError
from duetto.memory.shards import Shard

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

    def __init__(self, pace: type[Blocks], name: str, actors: int, length: int, count: int, *simulated: Any) -> None:
        self.count, self.free, self.said, self.cuts = count, pace is Free, 0, list[Any]()
        self.afar = 0
        super().__init__(pace, name, actors, length, *simulated)
        self.keep()

    def place(self, pace: type[Blocks], actors: int, length: int, transport: Simulated) -> None:
        super().place(pace, actors, length, transport)
        self.source.leave, self.how = self.count > 0, (pace, actors, length)
        elsewhere, spaces = None, (self.stepper.observation_space, self.stepper.action_space)
        if self.count:
            keepers = Keepers(self.source._crew, shares(NUM_ENVS, self.count), self.free)
            elsewhere = memory.Elsewhere(keepers, self.kept)
        random = np.random.default_rng(5)
        self.memory: Any = memory.build(self.algorithm.memory(), *spaces, NUM_ENVS, random, elsewhere=elsewhere)

    def kept(self) -> Any:
        if not self.cuts:
            return None
        state, segment = pickle.loads(self.cuts[-1])[0]
        return None if segment is None else memory.Kept(state, iter([segment]))

    def keep(self) -> None:
        """A checkpoint."""
        mine = (self.memory.state_dict(), self.memory.segment(np.zeros(NUM_ENVS, np.int64)))
        theirs = (self.source.state_dict(), self.normalizer.state_dict(), self.stepper.state_dict())
        counts = (self.step, self.learner.updates, self.learner.seen, len(self.tape))
        self.cuts.append(pickle.dumps((mine, theirs, counts)))

    def go_back(self, transport: Simulated, pace: type[Blocks], actors: int, length: int) -> None:
        self.stepper.close()
        self.place(pace, actors, length, transport)
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
            self.afar += isinstance(step, Afar)
            if self.stepper.lost is not None:
                self.memory.interrupt(self.stepper.lost)
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


def lockstep(seed: int, references: dict[Any, Any]) -> Counter[str]:
    """One course of events, which goes back to its newest cut as a run does, against a memory in the process."""
    random = np.random.default_rng([seed, 5])
    how = (list(ALGORITHMS)[seed % 2], int(random.integers(1, 4)), int(random.integers(1, 8)))
    if how not in references:
        quiet = Handed(Lockstep, *how, 0, Simulated(0, STEADY))
        quiet.go(STEPS)
        references[how] = (quiet.tape, stored(quiet))
        quiet.stepper.close()
    happened: Counter[str] = Counter()
    transports, course, kill, back = [Simulated(seed, OFTEN)], None, int(random.integers(STEPS)), False
    count, rows = int(random.integers(1, 4)), None
    try:
        while rows is None:
            try:
                course = course or Handed(Lockstep, *how, count, transports[-1])
                if back:
                    course.go_back(transports[-1], *course.how)
                    back = False
                if len(course.tape) < STEPS:
                    course.go(1)
                if len(course.tape) % 4 == seed % 4:
                    course.keep()
                if len(course.tape) == kill:
                    kill = -1
                    raise PartLostError("killed")
                rows = stored(course) if len(course.tape) == STEPS else None
            except PartLostError:
                if len(transports) == 12:
                    return happened + Counter(stopped=1)
                transports.append(Simulated(seed + 10**6 * len(transports), OFTEN))
                back = course is not None
                happened["went back"] += 1
        assert course.tape == references[how][0]
        happened["afar"] += course.afar
        assert all(np.array_equal(part, rows[name], equal_nan=True) for name, part in references[how][1].items())
    except (Fault, EnvironmentFailedError) as error:
        happened["stopped"] += told(error)
    finally:
        if course is not None:
            course.stepper.close()
    return sum((Counter(transport.mishaps) for transport in transports), happened)


LOST = re.compile(r"([\d,]+) steps (?:that came since|of environments? [\d to]+ are lost with)")


def free(seed: int) -> Counter[str]:
    """One course of events: every step is in the memory once, in its order, or was said to be lost."""
    random = np.random.default_rng([seed, 6])
    name, length, count = list(ALGORITHMS)[seed % 2], int(random.integers(1, 8)), int(random.integers(1, 4))
    happened: Counter[str] = Counter()
    transports, course = [Losing(seed, OFTEN), Losing(seed + 10**6, OFTEN)], None
    try:
        course = Handed(Free, name, int(random.integers(1, 5)), length, count, transports[0])
        for turn in range(2):
            for _ in range(STEPS):
                course.go(1)
                owed = course.algorithm.memory()
                assert course.learner.updates <= max(0, course.step - owed.learning_starts) // owed.train_every
                if random.random() < 0.2:
                    course.keep()
            written = int(course.memory.written.sum())
            lost = sum(int(found[1].replace(",", "")) for n in course.notices for found in [LOST.search(n)] if found)
            if name == "dqn":  # sequences keep what episodes end with, too
                assert written + lost - said_early(course) == course.step - course.said
                in_order(course)
            happened["lost steps"] += lost
            happened["missing"] += sum("lost with the machine" in notice for notice in course.notices)
            course.keep()
            if turn == 0:
                course.go_back(transports[1], Free, int(random.integers(1, 5)), length)
                course.said, course.notices[:] = course.step - int(course.memory.written.sum()), []
    except PartLostError as error:
        whats = ("in the middle of a checkpoint", "for the third time", "while the memory was read", "again and again")
        if not any(what in str(error) for what in whats):
            raise
        happened["went back"] += 1
    except (Fault, EnvironmentFailedError) as error:
        happened["stopped"] += told(error)
    finally:
        if course is not None:
            course.stepper.close()
    return happened + Counter(transports[0].mishaps) + Counter(transports[1].mishaps)


def said_early(course: Handed) -> int:
    """Of blocks that are gone, what was not handed out yet."""
    held = [one for each in course.memory._held for one in each.values()]
    return sum(len(one.envs(index, one.told)) for one in held for index in one.missing)


def in_order(course: Handed) -> None:
    """Each environment's steps, of which it shows the number, come once and in their order."""
    rows, end = stored(course), 0
    for count in rows["count"]:
        number = rows["obs"][end : end + count, 1]
        assert (np.diff(number) > 0).all()
        end += count


class Losing(Simulated):
    """Now and then all values that were left somewhere are gone."""

    def _fate(self, process: Any, message: tuple[Any, ...]) -> Any:
        if isinstance(process.object, Keeper) and self._random.random() < 0.01:
            self._lose(list(self._lies))
        return super()._fate(process, message)


def lockstep_all(schedules: int) -> Counter[str]:
    references: dict[Any, Any] = {}
    return sum((lockstep(seed, references) for seed in range(schedules)), Counter())


def free_all(schedules: int) -> Counter[str]:
    return sum(map(free, range(schedules)), Counter())


@pytest.fixture(autouse=True)
def algorithms(monkeypatch: pytest.MonkeyPatch):
    """That learn from a memory which may be in shards."""
    monkeypatch.setattr(test_paces, "ALGORITHMS", ALGORITHMS)


@pytest.mark.parametrize("play", [lockstep_all, free_all])
@pytest.mark.parametrize("schedules", [12, 30])
def test_whatever_happens(play, schedules: int):
    happened = play(schedules)
    assert happened["stopped"] < schedules / 5
    if play is lockstep_all:
        assert happened["went back"] > schedules
        assert happened["afar"] > STEPS * schedules / 2
    else:
        assert happened["lost steps"] > schedules
        assert happened["missing"] > schedules / 10


@pytest.mark.parametrize("gone", [False, True])
def test_what_is_held_is_in_a_cut(gone: bool):
    """With its rows; or they are said to be lost, and whose they were break off."""
    course = Handed(Free, "dqn", 2, LENGTH, 1, AtOnce(0, STEADY))
    course.go(LENGTH - 1)
    held: Any = course.source
    assert numbers(held) == [{0: 1, 1: 1}, {0: 2}]
    if gone:
        stored(course)  # what was handed out is in the shard
        course.transport._lose(list(course.transport._lies))
    course.keep()
    course.go_back(AtOnce(1, STEADY), *course.how)
    assert course.source._broken == [gone, gone]
    said = [int(notice.split()[0]) for notice in course.notices if "not in the checkpoint" in notice]
    assert said == ([2, 2, 2 * LENGTH, 2 * LENGTH, 2 * LENGTH] if gone else [])
    course.go(4 * LENGTH)
    rows, end, jumps = stored(course), 0, [2 * LENGTH + 1] * 2 + [LENGTH + 1] * 2
    for count, jump in zip(rows["count"], jumps, strict=True):
        number = rows["obs"][end : end + count, 1]
        assert np.diff(number).tolist() == [1 + jump * (gone and i == LENGTH - 2) for i in range(count - 1)]
        end += count
    course.stepper.close()


def handed_out_twice(patch: pytest.MonkeyPatch) -> None:
    """A vector step, and no shard objects."""
    ask = Sharded._ask

    def twice(self: Sharded, index: int, method: str, *arguments: Any) -> None:
        ask(self, index, method, *arguments)
        if method == "take" and arguments[1] == 1:
            ask(self, index, method, *arguments)

    def take(self: Arrived, step: int) -> Any:
        self._next = step
        return taken(self, step)

    taken = Arrived.take
    patch.setattr(Sharded, "_ask", twice)
    patch.setattr(Arrived, "take", take)
    patch.setattr(Arrived, "used_up", False)


def dropped(patch: pytest.MonkeyPatch) -> None:
    """What a shard holds of a block, but its first vector step."""
    take = Arrived.take
    patch.setattr(Arrived, "take", lambda self, step: take(self, step) if step == 0 else None)


def not_held_again(patch: pytest.MonkeyPatch) -> None:
    """A new shard is not given the blocks that the one before it held."""
    patch.setattr(Sharded, "_holding", lambda *_: iter(()))


def held_from_the_beginning(patch: pytest.MonkeyPatch) -> None:
    """A new shard is given them as if nothing had been handed out."""
    holding = Sharded._holding

    def whole(self: Sharded, *given: Any) -> Any:
        return ((method, (number, 0, *rest)) for method, (number, _, *rest) in holding(self, *given))

    patch.setattr(Sharded, "_holding", whole)


def done_again(patch: pytest.MonkeyPatch) -> None:
    """A shard does again what comes twice."""
    patch.setattr(Keeper, "do", lambda self, number, asked, _=None, *more: self._answer(number, asked, more))


def silent(patch: pytest.MonkeyPatch) -> None:
    """Steps that are gone are not said."""
    patch.setattr(Sharded, "_say_missing", lambda *_, **__: None)


def not_in_the_cut(patch: pytest.MonkeyPatch) -> None:
    """What was accepted and not handed out."""
    patch.setattr(Blocks, "_fetched", lambda self: ([], np.zeros(NUM_ENVS, bool)))


def episodes_go_on(patch: pytest.MonkeyPatch) -> None:
    """Nothing breaks off behind what is missing in a cut."""
    fetched = Blocks._fetched

    def whole(self: Blocks) -> Any:
        ready, gap = fetched(self)
        return [one._replace(broken=np.zeros_like(gap)) for one in ready], np.zeros_like(gap)

    patch.setattr(Blocks, "_fetched", whole)


def nothing_breaks_off(patch: pytest.MonkeyPatch) -> None:
    """Nor in a shard behind a block that is gone."""
    hold = Shard.hold

    def hold_only(self: Shard, *given: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Shard, "interrupt", lambda *_: None)
            return hold(self, *given)

    patch.setattr(Shard, "hold", hold_only)


MUTANTS = [
    (episodes_go_on, free_all),
    (nothing_breaks_off, free_all),
    (handed_out_twice, free_all),
    (handed_out_twice, lockstep_all),
    (dropped, free_all),
    (dropped, lockstep_all),
    (not_held_again, free_all),
    (held_from_the_beginning, free_all),
    (done_again, lockstep_all),
    (silent, free_all),
    (not_in_the_cut, lockstep_all),
]


@pytest.mark.parametrize(("broken", "play"), MUTANTS)
def test_without_any_one_rule_it_shows(broken, play, monkeypatch: pytest.MonkeyPatch):
    broken(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError, KeyError, BrokenEpisodeError)):
        play(30)
