"""A replay buffer in shards draws what a single buffer draws, and its checkpoints do not depend on the shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import memory_cases
import numpy as np
import pytest
import sequence_cases
from memory_cases import PROPORTIONAL, equal, rows
from mixed_cases import demo, episodes_of, mixing_spec
from sequence_cases import World
from shard_cases import near, sharded

from duetto.buffers import Experience
from duetto.buffers.sampling import ReplaySampler
from duetto.errors import CheckpointError
from duetto.storage.checkpoint import CheckpointStore

ENVS = 5
ANNEALED = replace(PROPORTIONAL, importance_anneal_samples=40)
OPTIONS: dict[str, dict[str, Any]] = {
    "uniform": {"n_step": 3},
    "prioritized": {"n_step": 3, "prioritization": ANNEALED, "one_step": True},
    "sequences": {},
    "prioritized sequences": {"prioritization": ANNEALED},
}
DUE = {"train_every": 3, "gradient_steps": 2, "batch_size": 6, "learning_starts": 20}


class Steps:
    """The steps of five environments, some of them in each vector step."""

    def __init__(self, kind: str) -> None:
        self.sequences = "sequences" in kind
        self.world = World(ENVS, "dict", stacked=3)
        self.random = np.random.default_rng(3)
        self.number = 0

    def next(self) -> Experience:
        """From step 10 on, which have hidden states, environment 0 is rare, so some shards store no hidden state."""
        self.number += 1
        env = [e for e in self.random.permutation(ENVS).tolist() if e > 0 or self.number < 10 or self.number % 7 == 0]
        if not self.sequences:
            return rows(env, self.number, terminated=self.random.random(len(env)) < 0.1)
        end = ["terminated" if self.random.random() < 0.05 else "" for _ in env]
        made = [self.world.step(one, e, self.number > 9) for one, e in zip(env, end, strict=True)]
        return sequence_cases.joined(made)


def buffer_factory(kind: str) -> Callable[..., Any]:
    """Return a function that makes a buffer in some number of shards."""
    if "sequences" not in kind:
        spec = memory_cases.spec(capacity=ENVS * 16, **OPTIONS[kind] | DUE)
        return lambda count, **more: sharded(spec, ENVS, count, **more)
    world = World(ENVS, "dict", stacked=3)
    spec = sequence_cases.spec(capacity=ENVS * 26, stored_carry=True, **OPTIONS[kind] | DUE)
    how = {"observation": world.space, "action": world.action, "stacked": 3}
    return lambda count, **more: sharded(spec, ENVS, count, **how | more)


def draw_due_batches(memory: Any) -> list[Any]:
    """Return all batches that are due, and feed back errors."""
    samples = []
    for sample in memory.due():
        samples.append(sample)
        if memory.needs_priorities:
            reward = sample.batch.reward
            memory.feedback(sample, np.abs(reward) + sample.index.reshape(-1, *[1] * (reward.ndim - 1)) % 5)
    return samples


def play_and_compare(memories: list[Any], steps: Steps, count: int, cut: int = -1) -> int:
    """Store the same steps in all buffers, compare their batches, and return the number of batches."""
    drawn = 0
    for step in range(count):
        experience = steps.next()
        for memory in memories:
            memory.add(experience)
            if step == cut:
                memory.interrupt(np.arange(ENVS) % 2 == 0)
                memory.interrupt()
        if step == cut:
            steps.world.interrupt()
        first, *others = [draw_due_batches(memory) for memory in memories]
        assert all(equal(first, other) for other in others), f"step {step}"
        drawn += len(first)
    return drawn


@pytest.mark.parametrize("kind", OPTIONS)
def test_sharded_batches_equal_a_single_buffer(kind: str):
    make = buffer_factory(kind)
    memories = [make(count) for count in (0, 1, 2, 5)]
    assert play_and_compare(memories, Steps(kind), 40, cut=20) > 60
    assert len({len(memory) for memory in memories}) == 1
    for memory in memories[1:]:
        assert equal(memory.written, memories[0].written)
    assert [len(near(memory).shards) for memory in memories[1:]] == [1, 2, 5]


@pytest.mark.parametrize("kind", OPTIONS)
def test_checkpoint_does_not_depend_on_the_shards(kind: str, tmp_path: Any):
    """Three shards write it; one shard, a single buffer and two shards read it, and continue as if undisturbed."""
    make, steps = buffer_factory(kind), Steps(kind)
    store, undisturbed, memory = CheckpointStore(tmp_path, num_envs=ENVS), make(0), make(3)
    for number, count in enumerate((1, 0, 2)):
        play_and_compare([undisturbed, memory], steps, 20, cut=11)
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
    assert play_and_compare([undisturbed, memory], steps, 10) > 10


def test_sampling_point_at_the_end_finds_the_last_item(monkeypatch: pytest.MonkeyPatch):
    """The last shard is empty."""
    memory = sharded(memory_cases.spec(capacity=6 * 30, prioritization=PROPORTIONAL), 6, 4, cuts=[0, 1, 3, 5])
    memory.add(rows([0, 3, 4], 7))
    monkeypatch.setattr(ReplaySampler, "draw", lambda self, line, size, random: np.full(size, line.length))
    assert memory.sample().index.tolist() == [4 * 30] * 4


def test_shard_gets_two_messages_per_update():
    """The first has all steps since the last update, and its feedback; the second has the points. Queues are short."""
    rare = {"learning_starts": ENVS * 100, "train_every": ENVS * 10}
    memory = sharded(memory_cases.spec(capacity=ENVS * 100, prioritization=ANNEALED, **rare), ENVS, 2)
    messages, samples = near(memory).messages, []
    for number in range(130):
        memory.add(rows(range(ENVS), number))
        samples += (new := draw_due_batches(memory))
        if len(samples) == 1 and new:
            assert max(len(methods) for _, methods in messages) == 16
            messages.clear()
        if len(samples) == 2:
            break
    own = [methods for index, methods in messages if index == 0]
    assert own == [["raise_largest", "prioritize", *["store"] * 10], ["resolve"]]


def test_sharded_buffer_refuses_states_of_other_buffers():
    for kind in ("uniform", "sequences"):
        memory = buffer_factory(kind)(2)
        state = memory.state_dict()
        with pytest.raises(CheckpointError, match=r"environments 4, here 5.*Set .*replay_capacity"):
            memory.load_state_dict(state | {"shape": state["shape"] | {"environments": 4}})
    with pytest.raises(CheckpointError, match="has no priorities"):
        buffer_factory("prioritized")(2).load_state_dict(buffer_factory("uniform")(0).state_dict())


@pytest.mark.parametrize("by_priority", [False, True])
def test_sharded_demonstrations_equal_a_single_buffer(by_priority: bool):
    demonstrations = mixing_spec(by_priority=by_priority)
    spec = memory_cases.spec(capacity=80, batch_size=8, prioritization=ANNEALED, demonstrations=demonstrations)
    mixed, one = (
        sharded(spec, ENVS, shards, demonstrations=episodes_of([demo(0, 4), demo(1, 7)])) for shards in (3, 0)
    )
    steps = Steps("prioritized")
    assert play_and_compare([one, mixed], steps, 20) > 60
    state = one.state_dict()
    assert equal(mixed.state_dict(), state)
    again = sharded(spec, ENVS, 2, seed=9, demonstrations=episodes_of([demo(0, 4), demo(1, 7)], seed=9))
    again.load_state_dict(state)
    again.load_segment(mixed.segment(np.zeros(ENVS, np.int64)))
    assert play_and_compare([one, again], steps, 10) > 30
