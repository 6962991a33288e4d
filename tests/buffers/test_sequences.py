"""Replay of sequences: compared with its definition in plain lists; hidden states, checkpoints, priorities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import PROPORTIONAL
from sequence_cases import World, build, items, joined, no_rows, same_items, spec

from duetto.errors import CheckpointError, NonFiniteError, UsageError
from duetto.storage.tree_codec import decode_arrays, decode_tree, encode_arrays, encode_tree

LINEAR = replace(PROPORTIONAL, exponent=1.0, epsilon=0.01)


def restored(replay: Any, segments: list[Any], again: Any) -> Any:
    """Load the state of `replay`, as a checkpoint stores it, and segments into the empty buffer `again`."""
    again.load_state_dict(decode_tree("state", encode_tree("state", replay.state_dict())))
    for segment in segments:
        again.load_segment(decode_arrays(encode_arrays(segment)))
    return again


# An operation: the next steps of an environment, their end, and whether they have hidden states; environments to
# interrupt; or a checkpoint.
STEPS = st.tuples(
    st.integers(0, 2), st.integers(1, 13), st.sampled_from(["", "terminated", "truncated"]), st.booleans()
)
INTERRUPTED = st.tuples(st.booleans(), st.booleans(), st.booleans())
OPERATIONS = st.lists(st.one_of(STEPS, STEPS, STEPS, INTERRUPTED, st.sampled_from(["save", "reload"])), max_size=30)


@st.composite
def sequence_sizes(draw: Any) -> dict[str, int]:
    burn_in, unroll = draw(st.integers(0, 3)), draw(st.integers(1, 5))
    return {"burn_in": burn_in, "unroll": unroll, "overlap": draw(st.integers(burn_in, burn_in + unroll - 1))}


@settings(max_examples=150)
@given(
    operations=OPERATIONS,
    sizes=sequence_sizes(),
    spare_rows=st.integers(0, 25),
    n_step=st.integers(1, 5),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    kind=st.sampled_from([("vector", 1), ("image", 1), ("image", 3), ("dict", 4)]),
    order=st.randoms(use_true_random=False),
)
def test_sampled_sequences_equal_the_definition(
    operations: Any, sizes: Any, spare_rows: int, n_step: int, flags: Any, kind: Any, order: Any
):
    """Environments take steps independently. Rings wrap, episodes end in all ways, checkpoints load in any order."""
    stored_carry, learn_from_start, discrete = flags
    world = World(3, *kind, discrete)
    rows = sizes["burn_in"] + sizes["unroll"] + max(1, kind[1] - 1) + 1 + spare_rows
    options = sizes | {"capacity": 3 * rows, "n_step": n_step, "learn_from_start": learn_from_start}
    options |= {"stored_carry": stored_carry}
    replay, segments, since = world.build(**options), [], np.zeros(3, np.int64)
    for operation in [*operations, "reload"]:
        if isinstance(operation, str):
            segments.append({name: part.copy() for name, part in replay.segment(since).items()})
            since = replay.written
            if operation == "reload":
                order.shuffle(segments)
                replay = restored(replay, segments, world.build(**options))
        elif len(operation) == 3:
            replay.interrupt(np.array(operation))
            world.interrupt(operation)
        else:
            env, steps, end, carry = operation
            for t in range(steps):
                step = world.step(env, end if t == steps - 1 else "", carry and stored_carry)
                replay.add(step)
                for array in (step.action, step.reward, *step.extras.values()):  # the buffer stores copies
                    array += 1
    assert replay.written.tolist() == world.written
    expected = world.expected(replay, spec(**options))
    assert len(replay) == len(expected)
    if expected:
        same_items(items(replay), expected)


@pytest.mark.parametrize("from_start", [True, False])
@pytest.mark.parametrize(("burn_in", "unroll", "overlap"), [(0, 4, 0), (0, 4, 3), (2, 4, 2), (3, 1, 3), (3, 5, 4)])
def test_every_step_and_the_last_reward_are_learned_from(burn_in: int, unroll: int, overlap: int, from_start: bool):
    """The only reward of an episode is 1, for its last step. Padding and the burn-in are not learned from."""
    options = {"burn_in": burn_in, "unroll": unroll, "overlap": overlap, "learn_from_start": from_start, "n_step": 3}
    for total in range(1, 2 * (burn_in + unroll) + 2):
        world, counts, largest = World(), np.zeros(total + burn_in + unroll, int), 0.0
        replay = world.build(**options)
        for step in range(total):
            last = step == total - 1
            replay.add(world.step(0, "terminated" if last else "")._replace(reward=np.array([last], np.float32)))
        for (_, start), item in items(replay).items() if len(replay) else ():
            counts[start : start + burn_in + unroll] += item["mask"].astype(int)
            largest = max(largest, (item["reward"] * item["mask"]).max())
        first = 0 if from_start else burn_in
        assert (counts[first:total] >= 1).all(), total
        assert not counts[:first].any(), total
        assert not counts[total:].any(), total
        assert largest == (1.0 if total > first else 0.0), total


def test_hidden_states_are_removed_with_their_steps():
    """A segment has hidden states only for the steps at which a sequence starts."""
    world = World()
    replay = world.build(capacity=20, stored_carry=True)
    for _ in range(200):
        replay.add(world.step(0, carry=True))
    segment = replay.segment(np.zeros(1, np.int64))
    assert (180 + np.flatnonzero(segment["kept"])).tolist() == [184, 188, 192, 196]


def test_batches_are_due_after_the_first_sequence():
    """A sequence has six steps. Batches that were due before follow the sixth step."""
    replay, world = build(learning_starts=2, train_every=2, gradient_steps=3), World()
    due = []
    for _ in range(10):
        replay.add(world.step(0))
        due.append(len(list(replay.due())))
    assert due == [0, 0, 0, 0, 0, 6, 0, 3, 0, 3]


def test_each_sequence_is_equally_likely():
    """Three environments have 3, 1 and 0 sequences. 8 batches of 5000: sd of a count is 86.6."""
    replay, world = build(3, batch_size=5000), World(3)
    world.episode(replay, 14, env=0)
    world.episode(replay, 2, env=1)
    world.episode(replay, 2, "", env=2)
    counts = np.bincount(np.concatenate([replay.sample().index for _ in range(8)]))
    assert np.flatnonzero(counts).tolist() == [0, 4, 8, replay.rows]
    assert counts[counts > 0] == pytest.approx([10_000] * 4, abs=4.5 * 87)
    assert replay.sample().batch.weight.tolist() == [1.0] * 5000


def test_capacity_below_one_sequence_is_refused():
    with pytest.raises(UsageError, match="6 steps, but a sequence of 6 steps needs 7"):
        build(2, capacity=12)


# ---------------------------------------------------------------------------------------------------- checkpoints
def test_segment_steps_newer_than_the_state_are_not_loaded():
    """The state has 8 steps in a ring of 12, the segment 14. Its step 12 would overwrite step 0."""
    world, early = World(2), World(2)
    options = {"stored_carry": True, "capacity": 24}
    replay, reference = world.build(**options), early.build(**options)
    for _ in range(8):
        replay.add(joined([world.step(env, carry=True) for env in (0, 1)]))
        reference.add(joined([early.step(env, carry=True) for env in (0, 1)]))
    state = replay.state_dict()
    segment = {name: part.copy() for name, part in replay.segment(no_rows(replay)).items()}
    for _ in range(6):
        replay.add(joined([world.step(env, carry=True) for env in (0, 1)]))
    again = early.build(**options)
    again.load_state_dict(state)
    again.load_segment(segment)
    again.load_segment(replay.segment(np.array([8, 8])))
    for each in (reference, again):
        same_items(items(each), early.expected(each, spec(**options)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"capacity": 50}, "rows 500, here 25"),
        ({"num_envs": 1}, "environments 2, here 1"),
        ({"overlap": 3}, "overlap 2, here 3"),
        ({"burn_in": 1}, "steps of a sequence 6, here 5"),
    ],
)
def test_state_of_other_buffer_sizes_is_refused(change: dict[str, int], words: str):
    with pytest.raises(CheckpointError, match=words):
        build(**({"num_envs": 2} | change)).load_state_dict(build(2).state_dict())


# ---------------------------------------------------------------------------------------------------- priorities
def masses(replay: Any) -> np.ndarray:
    return replay.state_dict()["items"]["mass"]


def test_padding_does_not_affect_a_priority():
    """An episode of three steps in a sequence of six: η·max + (1-η)·mean = .9·.5 + .1·.8/3, plus ε."""
    replay, world = build(prioritization=LINEAR), World()
    world.episode(replay, 3)
    sample = replay.sample()
    assert sample.batch.mask[0].tolist() == [1, 1, 1, 0, 0, 0]
    replay.feedback(sample, np.array([[0.1, 0.5, 0.2, np.nan, 7.0, -1.0]] * 4))
    np.testing.assert_allclose(masses(replay), [0.4866666667], rtol=1e-9)


def test_the_burn_in_does_not_affect_a_priority():
    """The first two steps of the second sequence are its burn-in: .9·8 + .1·16.9/6 and .9·.5 + .1·.9/4, plus ε."""
    replay, world = build(prioritization=LINEAR, batch_size=8), World()
    world.episode(replay, 10)
    replay.feedback(replay.sample(), np.array([[8.0, 8.0, 0.1, 0.5, 0.2, 0.1]] * 8))
    np.testing.assert_allclose(masses(replay), [7.4916666667, 0.4825], rtol=1e-9)


def test_feedback_skips_overwritten_sequences():
    """Four episodes of three steps fill 12 rows. The fifth overwrites two: the second needs the step before it."""
    replay, world = build(prioritization=PROPORTIONAL, batch_size=64, capacity=12), World()
    for _ in range(4):
        world.episode(replay, 3)
    sample = replay.sample()
    assert set(sample.index.tolist()) == {0, 3, 6, 9}
    world.episode(replay, 3)
    assert replay.state_dict()["items"]["index"].tolist() == [0, 6, 9]
    replay.feedback(sample, np.full((64, 6), 3.0))
    assert masses(replay) == pytest.approx([1.00001**0.6, 3.00001**0.6, 3.00001**0.6])
    assert set(replay.sample().index.tolist()) == {0, 6, 9}


def test_nonfinite_priority_error_names_the_step():
    replay, world = build(prioritization=PROPORTIONAL, batch_size=2), World()
    world.episode(replay, 6)
    error = np.ones((2, 6))
    error[1, 2] = np.nan
    with pytest.raises(NonFiniteError, match="Priority 1, step 2 of the batch is nan"):
        replay.feedback(replay.sample(), error)
