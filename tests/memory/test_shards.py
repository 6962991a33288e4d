"""A memory in shards is one memory: the same items by the same law, in checkpoints that do not know of shards."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import memory_cases
import numpy as np
import pytest
import sequence_cases
from memory_cases import PROPORTIONAL, rows
from mixed_cases import demo, given, mixing
from sequence_cases import World
from shard_cases import equal, near, sharded

from duetto.algorithms import DQN
from duetto.algorithms.base import Q_BEST, Q_TAKEN
from duetto.errors import CheckpointError, PartLostError, UsageError
from duetto.memory import Experience, Kept
from duetto.storage.checkpoint import CheckpointStore

ENVS = 5
ANNEALED = replace(PROPORTIONAL, importance_anneal_samples=40)
JUDGED = replace(ANNEALED, initial=DQN(prioritized=True, initial_priority="actor").initial_error)
TRANSITIONS: dict[str, Any] = {
    "uniform": {"n_step": 3},
    "without replacement": {"replacement": False},
    "prioritised": {"n_step": 3, "prioritization": ANNEALED, "one_step": True},
    "judged by actors": {"n_step": 3, "prioritization": JUDGED},
}
SEQUENCES: dict[str, Any] = {
    "sequences": {},
    "prioritised sequences": {"prioritization": ANNEALED},
    "sequences judged by actors": {"prioritization": JUDGED},
}
KINDS = [*TRANSITIONS, *SEQUENCES]
Make = Callable[..., Any]


class Steps:
    """What five environments do, at their own pace."""

    def __init__(self, kind: str) -> None:
        self.sequences = kind in SEQUENCES
        self.world = World(ENVS, "dict", stacked=3)
        self.random = np.random.default_rng(3)
        self.number = 0

    def next(self) -> Experience:
        """The first environment becomes rare when states of a network begin to come: not all shards have some."""
        self.number += 1
        env = [
            env for env in self.random.permutation(ENVS).tolist() if env > 0 or self.number < 10 or self.number % 7 == 0
        ]
        if not self.sequences:
            return self.judged(rows(env, self.number, terminated=self.random.random(len(env)) < 0.1))
        end = ["terminated" if self.random.random() < 0.05 else "" for _ in env]
        # Without a state for all: zeros, as random actions bring them.
        made = [self.world.step(one, e, self.number > 9) for one, e in zip(env, end, strict=True)]
        return self.judged(sequence_cases.joined(made))

    def judged(self, steps: Experience) -> Experience:
        """With what those who made them knew of them."""
        known = {name: self.random.random(len(steps.env)).astype(np.float32) for name in (Q_TAKEN, Q_BEST)}
        return steps._replace(extras={**steps.extras, **known})


def maker(kind: str) -> Make:
    """Of a memory in so many shards."""
    often = {"train_every": 3, "gradient_steps": 2, "batch_size": 6, "learning_starts": 20}
    if kind in TRANSITIONS:
        spec = memory_cases.spec(capacity=ENVS * 16, **TRANSITIONS[kind] | often)
        return lambda count, **more: sharded(spec, ENVS, count, **more)
    world = World(ENVS, "dict", stacked=3)
    spec = sequence_cases.spec(capacity=ENVS * 26, stored_carry=True, **SEQUENCES[kind] | often)
    how = {"observation": world.space, "action": world.action, "stacked": 3}
    return lambda count, **more: sharded(spec, ENVS, count, **how | more)


def learn(memory: Any) -> list[Any]:
    """All batches that are due, and errors of their items back."""
    samples = []
    for sample in memory.due():
        samples.append(sample)
        if memory.needs_priorities:
            memory.feedback(
                sample,
                np.abs(sample.batch.reward) + sample.index.reshape(-1, *[1] * (sample.batch.reward.ndim - 1)) % 5,
            )
    return samples


def play(memories: list[Any], steps: Steps, count: int, cut: int = -1) -> int:
    """The same steps into all, and the same batches out of all; how many."""
    drawn = 0
    for step in range(count):
        experience = steps.next()
        for memory in memories:
            memory.add(experience)
            if step == cut:
                memory.interrupt(np.arange(ENVS) % 2 == 0)
        if step == cut:
            steps.world.interrupt()
            for memory in memories:
                memory.interrupt()
        first, *others = [learn(memory) for memory in memories]
        assert all(equal(first, other) for other in others), f"step {step}"
        drawn += len(first)
    return drawn


@pytest.mark.parametrize("kind", KINDS)
def test_batches_and_weights_are_those_of_one_memory(kind: str):
    make = maker(kind)
    memories = [make(count) for count in range(ENVS + 1)]
    assert play(memories, Steps(kind), 60, cut=30) > 100
    assert len({len(memory) for memory in memories}) == 1
    for memory in memories[1:]:
        assert equal(memory.written, memories[0].written)
    assert [len(near(memory).shards) for memory in memories[1:]] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_knows_of_no_shards(kind: str, tmp_path):
    """Written by three shards, read by one, by none, and by two; what each goes on with is what the first would."""
    make, steps = maker(kind), Steps(kind)
    store, undisturbed, memory = CheckpointStore(tmp_path, num_envs=ENVS), make(0), make(3)
    for number, count in enumerate((1, 0, 2)):
        play([undisturbed, memory], steps, 25, cut=11)
        window = (memory.written, memory.rows)
        state, segment = memory.state_dict(), memory.segment(store.covered)
        assert equal(ordered(state), ordered(undisturbed.state_dict()))
        assert equal(segment, undisturbed.segment(store.covered))
        store.save(number, {"memory": state}, segment, window)
        store = CheckpointStore(tmp_path, num_envs=ENVS)
        loaded = store.load_latest()
        memory = make(count, seed=99)
        memory.load_state_dict(loaded.state["memory"])
        for one in loaded.segments:
            memory.load_segment(one)
        assert sorted(map(tuple, memory.state_dict().get("cuts", []))) == sorted(map(tuple, state.get("cuts", [])))
    assert play([undisturbed, memory], steps, 10) > 10
    emptied = memory.emptied(memory.state_dict())
    assert equal(ordered(emptied), ordered(undisturbed.emptied(undisturbed.state_dict())))


def ordered(state: dict[str, Any]) -> dict[str, Any]:
    """Marks of broken episodes mean the same in any order."""
    return state | ({"cuts": sorted(map(tuple, state["cuts"]))} if "cuts" in state else {})


@pytest.mark.parametrize("prioritized", [False, True])
def test_of_shards_of_very_different_mass_each_item_comes_as_often_as_it_should(prioritized: bool):
    """10^5 draws; a shard of one heavy item, an empty one, one of many light items, and one of a middle one."""
    priorities = replace(PROPORTIONAL, exponent=1.0) if prioritized else None
    spec = memory_cases.spec(capacity=6 * 30, batch_size=100, prioritization=priorities)
    memory = sharded(spec, 6, 4, cuts=[0, 1, 3, 5])
    counts = [1, 0, 0, 30, 20, 3]
    for number in range(max(counts)):
        memory.add(rows([env for env, count in enumerate(counts) if number < count], number))
    expected = np.concatenate([np.full(count, 1.0) for count in counts])
    if prioritized:
        index = np.concatenate([env * 30 + np.arange(count) for env, count in enumerate(counts)])
        heavy = np.concatenate([[500.0], np.linspace(0.01, 0.2, 50), [9.0, 90.0, 1.0]])
        sample = memory.sample()._replace(index=index, stamp=index % 30)
        memory.feedback(sample, heavy)
        expected = heavy + priorities.epsilon
    drawn = np.zeros(6 * 30)
    for _ in range(1000):
        found = memory.sample()
        np.add.at(drawn, found.index, 1)
    stored = np.concatenate([env * 30 + np.arange(count) for env, count in enumerate(counts)])
    assert drawn.sum() == drawn[stored].sum() == 100_000
    wanted = expected / expected.sum() * 100_000
    enough = wanted > 5
    chi = ((drawn[stored] - wanted)[enough] ** 2 / wanted[enough]).sum()
    freedom = enough.sum() - 1
    assert chi < freedom + 4 * np.sqrt(2 * freedom)  # four standard deviations; stratified draws vary less
    assert drawn[stored][~enough].sum() < 2 * wanted[~enough].sum() + 10


def test_a_point_that_rounding_puts_at_the_very_end_is_the_last_item(monkeypatch: pytest.MonkeyPatch):
    """Not one of a shard behind it, in which nothing is."""
    memory = sharded(memory_cases.spec(capacity=6 * 30, prioritization=PROPORTIONAL), 6, 4, cuts=[0, 1, 3, 5])
    memory.add(rows([0, 3, 4], 7))
    monkeypatch.setattr("duetto.memory.joint.strata", lambda length, size, random: np.full(size, length))
    assert memory.sample().index.tolist() == [4 * 30] * 4


def test_a_draw_asks_each_shard_once_and_feedback_and_steps_once_more():
    memory = maker("prioritised")(3)
    steps = Steps("prioritised")
    play([memory], steps, 20)
    asked = near(memory).asked
    asked.clear()
    memory.add(steps.next())
    updates = len(learn(memory))
    assert updates > 0
    for index in range(3):
        own = [method for one, method in asked if one == index]
        assert own.count("resolve") <= updates
        assert own.count("prioritize") <= updates
        assert own.count("add") <= 1
        assert len(own) == sum(own.count(method) for method in ("add", "resolve", "prioritize"))


def test_what_needs_no_answer_travels_with_what_does_and_never_becomes_much():
    """Per shard and update: all steps since the last one, with its feedback; and the points."""
    memory, steps = (
        sharded(
            memory_cases.spec(
                capacity=ENVS * 100, learning_starts=ENVS * 100, train_every=ENVS * 10, prioritization=ANNEALED
            ),
            ENVS,
            2,
        ),
        Steps("prioritised"),
    )
    messages = near(memory).messages
    while not (samples := learn(memory)):
        memory.add(rows(range(ENVS), steps.number))
        assert max(map(len, memory._waiting.values()), default=0) < 32
    assert sorted({len(methods) for index, methods in messages if index == 0}) == [1, 14, 32]  # 110 = 3 * 32 + 14
    messages.clear()
    while len(samples) < 2:
        memory.add(rows(range(ENVS), steps.number))
        samples += learn(memory)
    own = [methods for index, methods in messages if index == 0]
    assert own == [["prioritize", *["add"] * 10], ["resolve"]]


def test_many_bytes_do_not_wait(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("duetto.memory.sharded.WAITING_BYTES", 10)
    memory = maker("uniform")(2)
    memory.add(rows(range(ENVS), 1))
    assert near(memory).messages == [(0, ["add"]), (1, ["add"])]


def test_errors_are_those_of_one_memory():
    memory = maker("uniform")(2)
    with pytest.raises(ValueError, match="The memory is empty"):
        memory.sample()
    state = maker("uniform")(0).state_dict()
    with pytest.raises(CheckpointError, match=r"has 4 environments of 16 transitions, this run's 5 of 16"):
        memory.load_state_dict(state | {"written": state["written"][:4]})
    with pytest.raises(CheckpointError, match="no priorities"):
        maker("prioritised")(2).load_state_dict(state)
    recurrent = maker("sequences")(2)
    state = recurrent.state_dict()
    with pytest.raises(CheckpointError, match=r"environments 4, here 5"):
        recurrent.load_state_dict(state | {"shape": state["shape"] | {"environments": 4}})
    with pytest.raises(CheckpointError, match="What should be the state of a memory is none"):
        recurrent.load_state_dict(state | {"episodes": None})
    step = Steps("sequences").next()
    step.next_obs["image"][step.env == 3] += 1
    with pytest.raises(UsageError, match="'obs/image' of environment 3 is no stack of 3 frames"):
        recurrent.add(step)


def test_a_shard_that_refuses_a_step_names_the_runs_environment():
    sequences, world = maker("sequences")(2), World(ENVS, "dict", stacked=3)
    sequences.add(world.step(4))
    step = world.step(4)
    step.obs["place"][:] += 1
    sequences.add(step)  # it waits for a message that has to be sent
    with pytest.raises(ValueError, match=r"^obs/place of environment 4 is not what the step before led to") as raised:
        len(sequences)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # from another process


# ---------------------------------------------------------------------------------------------------- demonstrations
@pytest.mark.parametrize("by_priority", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_demonstrations_are_mixed_in_as_with_one_memory(by_priority: bool, count: int):
    spec = memory_cases.spec(
        capacity=80, batch_size=8, prioritization=ANNEALED, demonstrations=mixing(by_priority=by_priority)
    )
    mixed, one = (sharded(spec, ENVS, shards, demonstrations=given([demo(0, 4), demo(1, 7)])) for shards in (count, 0))
    steps = Steps("prioritised")
    assert play([one, mixed], steps, 30) > 100
    state = one.state_dict()
    assert equal(mixed.state_dict(), state)
    again = sharded(spec, ENVS, 2, seed=9, demonstrations=given([demo(0, 4), demo(1, 7)], seed=9))
    again.load_state_dict(state)
    again.load_segment(mixed.segment(np.zeros(ENVS, np.int64)))
    assert play([one, again], steps, 10) > 30


# ------------------------------------------------------------------------------------------------------------ deaths
class Striking:
    """A checkpoint that is made at some time, and a shard that dies after it, once."""

    def __init__(self, kind: str) -> None:
        self.saved: tuple[Any, Any] | None = None
        self.memory, self.steps, self.kind = maker(kind)(3, kept=self.kept), Steps(kind), kind

    def kept(self) -> Kept | None:
        return self.saved and Kept(self.saved[0], iter([self.saved[1]]))

    def save(self) -> None:
        self.saved = (self.memory.state_dict(), self.memory.segment(np.zeros(ENVS, np.int64)))

    def strike(self, method: str, times: int = 1) -> None:
        left = [times]

        def dies(index: int, asked: str) -> bool:
            hit = index == 1 and asked in (method, "load_state_dict")[: 1 + (times > 1)] and left[0] > 0
            left[0] -= hit
            return hit

        near(self.memory).dies = dies


@pytest.mark.parametrize("kind", ["uniform", "prioritised", "prioritised sequences"])
@pytest.mark.parametrize("method", ["add", "resolve", "prioritize", "interrupt", "state_dict"])
def test_a_shard_that_is_lost_is_made_again_of_the_newest_checkpoint(kind: str, method: str):
    if (kind, method) == ("uniform", "prioritize"):
        return
    case = Striking(kind)
    memory, steps, notices = case.memory, case.steps, near(case.memory).notices
    play([memory], steps, 30)
    case.save()
    saved, own = memory.written, list(near(memory).shares[1])
    play([memory], steps, 5)
    len(memory)  # nothing waits
    case.strike(method)
    while not notices:
        before, experience = memory.written, steps.next()
        memory.add(experience)
        learn(memory)
        memory.interrupt() if method == "interrupt" else memory.state_dict()
        len(memory)  # all have answered
    steps.world.interrupt()  # its episodes were broken off, so all are, to go on from
    memory.interrupt()
    under_way = np.bincount(experience.env, minlength=ENVS)
    assert notices[0].startswith("Shard 1 died: another one has taken its place. Of its environments ")
    assert len(notices) == 1
    if kind in TRANSITIONS:
        was, stays = (before, saved + under_way) if method == "add" else (before + under_way, saved)
        assert equal(memory.written[own], stays[own])
        assert equal(np.delete(memory.written, own), np.delete(before + under_way, own))
        assert f"environments {(was - saved)[own].sum()} steps that came since" in notices[0]
    assert play([memory], steps, 30) > 10


def test_no_window_runs_across_what_was_lost():
    case = Striking("uniform")
    for number in range(8):
        case.memory.add(rows(range(ENVS), number))
    case.save()
    for number in range(8, 10):
        case.memory.add(rows(range(ENVS), number))
    len(case.memory)
    case.strike("add")
    for number in range(10, 13):
        case.memory.add(rows(range(ENVS), number))
    sample = case.memory.sample(400)
    own = near(case.memory).shares[1]
    env, number = sample.batch.obs.T
    inside = (env >= own.start) & (env < own.stop)
    assert set(number[inside]) == {*range(8), 10, 11, 12}
    end = sample.batch.next_obs[:, 1]
    assert (end[inside & (number == 7)] == 7.5).all()
    assert (end[~inside & (number == 7)] == 9.5).all()


def test_a_shard_without_a_checkpoint_begins_empty():
    case = Striking("uniform")
    play([case.memory], case.steps, 20)
    case.strike("add")
    step = case.steps.next()
    case.memory.add(step)
    own = near(case.memory).shares[1]
    assert case.memory.written[list(own)].tolist() == np.bincount(step.env, minlength=ENVS)[list(own)].tolist()


def test_what_cannot_be_made_again_sends_the_run_back():
    case = Striking("uniform")
    play([case.memory], case.steps, 20)
    case.save()
    case.strike("segment")
    with pytest.raises(PartLostError, match="in the middle of a checkpoint, which is not made"):
        case.memory.segment(np.zeros(ENVS, np.int64))
    case.strike("load_segment")
    case.memory.load_state_dict(case.saved[0])
    with pytest.raises(PartLostError, match="Shard 1 died while the memory was read"):
        case.memory.load_segment(case.saved[1])
    case = Striking("uniform")
    play([case.memory], case.steps, 20)
    case.save()
    case.strike("add", times=9)
    case.memory.add(case.steps.next())
    with pytest.raises(PartLostError, match="Shard 1 died again and again while it was made anew"):
        len(case.memory)
