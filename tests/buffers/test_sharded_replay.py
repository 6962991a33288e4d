"""A memory in shards is one memory: the same items by the same law, in checkpoints that do not know of shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import memory_cases
import numpy as np
import pytest
import sequence_cases
from memory_cases import PROPORTIONAL, equal, rows
from mixed_cases import demo, given, mixing
from sequence_cases import World
from shard_cases import near, sharded

from duetto.buffers import Experience
from duetto.buffers.sampling import ReplaySampler
from duetto.errors import CheckpointError
from duetto.storage.checkpoint import CheckpointStore

ENVS = 5
ANNEALED = replace(PROPORTIONAL, importance_anneal_samples=40)
TRANSITIONS: dict[str, Any] = {
    "uniform": {"n_step": 3},
    "prioritised": {"n_step": 3, "prioritization": ANNEALED, "one_step": True},
}
SEQUENCES: dict[str, Any] = {
    "sequences": {},
    "prioritised sequences": {"prioritization": ANNEALED},
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
        """The first environment becomes rare when states of a network start to come: not all shards have some."""
        self.number += 1
        env = [
            env for env in self.random.permutation(ENVS).tolist() if env > 0 or self.number < 10 or self.number % 7 == 0
        ]
        if not self.sequences:
            return rows(env, self.number, terminated=self.random.random(len(env)) < 0.1)
        end = ["terminated" if self.random.random() < 0.05 else "" for _ in env]
        # Without a state for all: zeros, as random actions bring them.
        made = [self.world.step(one, e, self.number > 9) for one, e in zip(env, end, strict=True)]
        return sequence_cases.joined(made)


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
    """Written by three shards, read by one, by none, and by two; what each continues with is what the first would."""
    make, steps = maker(kind), Steps(kind)
    store, undisturbed, memory = CheckpointStore(tmp_path, num_envs=ENVS), make(0), make(3)
    for number, count in enumerate((1, 0, 2)):
        play([undisturbed, memory], steps, 25, cut=11)
        state, segment = memory.state_dict(), memory.segment(store.covered)
        assert equal(state, undisturbed.state_dict())
        assert equal(segment, undisturbed.segment(store.covered))
        store.save(number, {"memory": state}, segment, memory.written - memory.rows)
        store = CheckpointStore(tmp_path, num_envs=ENVS)
        loaded = store.load_latest()
        memory = make(count, seed=99)
        memory.load_state_dict(loaded.state["memory"])
        for one in loaded.segments:
            memory.load_segment(one)
        assert equal(memory.state_dict()["envs"], state["envs"])
    assert play([undisturbed, memory], steps, 10) > 10


def test_a_point_that_rounding_puts_at_the_very_end_is_the_last_item(monkeypatch: pytest.MonkeyPatch):
    """Not one of a shard behind it, in which nothing is."""
    memory = sharded(memory_cases.spec(capacity=6 * 30, prioritization=PROPORTIONAL), 6, 4, cuts=[0, 1, 3, 5])
    memory.add(rows([0, 3, 4], 7))
    monkeypatch.setattr(ReplaySampler, "draw", lambda self, line, size, random: np.full(size, line.length))
    assert memory.sample().index.tolist() == [4 * 30] * 4


def test_what_needs_no_answer_travels_with_what_does_and_never_becomes_much():
    """Per shard and update: all steps since the last one, with its feedback and the priority of new items; and the
    points.
    """
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
        assert max(map(len, memory._waiting.values()), default=0) < 16
    assert max(len(methods) for _, methods in messages) == 16
    messages.clear()
    while len(samples) < 2:
        memory.add(rows(range(ENVS), steps.number))
        samples += learn(memory)
    own = [methods for index, methods in messages if index == 0]
    assert own == [["raise_largest", "prioritize", *["store"] * 10], ["resolve"]]


def test_errors_are_those_of_one_memory():
    memory = maker("uniform")(2)
    state = maker("uniform")(0).state_dict()
    with pytest.raises(CheckpointError, match=r"environments 4, here 5.*Set replay_capacity"):
        memory.load_state_dict(state | {"shape": state["shape"] | {"environments": 4}})
    with pytest.raises(CheckpointError, match="has no priorities"):
        maker("prioritised")(2).load_state_dict(state)
    recurrent = maker("sequences")(2)
    state = recurrent.state_dict()
    with pytest.raises(CheckpointError, match=r"environments 4, here 5"):
        recurrent.load_state_dict(state | {"shape": state["shape"] | {"environments": 4}})
    with pytest.raises(CheckpointError, match="index is None, not an array"):
        recurrent.load_state_dict(state | {"items": {"index": None}})


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
