import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import PROPORTIONAL
from sequence_cases import World, build, flat, image, joined, no_rows

from duetto.errors import CheckpointError, UsageError
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.tree_codec import decode_arrays, decode_tree, encode_arrays, encode_tree


def same_from_now_on(one, other, world):
    """Both draw bit-identical batches, and still do after more steps and feedback."""
    for number in range(12):
        for first, second in zip(one.due(), other.due(), strict=True):
            same_samples(first, second)
            for replay, sample in ((one, first), (other, second)):
                replay.feedback(sample, np.abs(sample.batch.reward) + number)
        steps = joined([world.step(env, "terminated" if number == 5 else "", carry=True) for env in (1, 0)])
        for replay in (one, other):
            replay.add(steps)
    assert one.written.tolist() == other.written.tolist() == world.written
    assert len(one) == len(other)


def same_samples(one, other):
    arrays, others = flat(one.batch), flat(other.batch)
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        assert array.dtype == others[name].dtype
        np.testing.assert_array_equal(array, others[name], err_msg=name)
    assert one.index.tolist() == other.index.tolist()
    assert one.stamp.tolist() == other.stamp.tolist()


def restored(replay, segments, **options):
    """Another memory from what a checkpoint makes of the state, and from segments in the order given."""
    again = build(seed=99, **options)
    again.load_state_dict(decode_tree("state", encode_tree("state", replay.state_dict())))
    for segment in segments:
        again.load_segment(segment)
    return again


# An operation: the next steps of an environment, and how the last one ends; "save" or "interrupt".
PART = st.tuples(st.integers(0, 1), st.integers(1, 12), st.sampled_from(["", "", "terminated", "truncated"]))
OPERATIONS = st.lists(st.one_of(PART, PART, PART, st.sampled_from(["save", "interrupt"])), max_size=25)


@settings(deadline=None, max_examples=80)
@given(
    operations=OPERATIONS,
    spare_rows=st.integers(0, 20),
    prioritized=st.booleans(),
    kind=st.sampled_from([("vector", 1), ("dict", 3)]),
    order=st.randoms(use_true_random=False),
)
def test_state_and_segments_give_the_same_memory(operations, spare_rows, prioritized, kind, order):
    """Checkpoints at random moments, loaded in random order, continue bit for bit as the memory itself does."""
    world = World(2, *kind)
    options = {
        "num_envs": 2,
        "observation": world.space,
        "action": world.action,
        "stacked": kind[1],
        "capacity": 2 * (10 + spare_rows),
        "train_every": 3,
        "gradient_steps": 2,
        "stored_carry": True,
        "prioritization": PROPORTIONAL if prioritized else None,
    }
    replay, segments, since = build(**options), [], np.zeros(2, np.int64)
    for operation in [(0, 3, ""), *operations, "save"]:
        if operation == "save":
            segment = replay.segment(since)
            segments += [] if segment is None else [decode_arrays(encode_arrays(segment))]
            since = replay.written
        elif operation == "interrupt":
            replay.interrupt()
            world.interrupt()
        else:
            env, steps, end = operation
            for t in range(steps):
                replay.add(world.step(env, end if t == steps - 1 else "", carry=True))
                for sample in replay.due():
                    replay.feedback(sample, np.abs(sample.batch.reward))
    order.shuffle(segments)
    same_from_now_on(replay, restored(replay, segments, **options), world)


def test_through_the_checkpoints_of_a_run(tmp_path):
    """A checkpoint every seven steps of a run that ends in the middle of an episode, in rings that wrap."""
    world = World(2, "image", 4)
    options = {
        "num_envs": 2,
        "observation": world.space,
        "action": world.action,
        "stacked": 4,
        "capacity": 80,
        "stored_carry": True,
        "prioritization": PROPORTIONAL,
    }
    replay, store = build(**options), CheckpointStore(tmp_path, num_envs=2)
    for step in range(1, 120):
        replay.add(joined([world.step(env, "truncated" if step % 25 == 9 * env else "", carry=True) for env in (0, 1)]))
        if step % 7 == 0:
            oldest = replay.written - replay.rows
            store.save(step, {"memory": replay.state_dict()}, replay.segment(store.covered), oldest)
            saved = step
    assert min(world.written) > 2 * replay.rows
    loaded = CheckpointStore(tmp_path, num_envs=2).load_latest()
    assert loaded.step == saved == 119
    again = build(seed=5, **options)
    again.load_state_dict(loaded.state["memory"])
    for segment in loaded.segments:
        again.load_segment(segment)
    same_from_now_on(replay, again, world)


def test_a_segment_holds_what_is_new():
    world = World()
    replay = world.build(stored_carry=True)
    for _ in range(3):
        replay.add(world.step(0, carry=True))
    first = replay.segment(no_rows(replay))
    assert first is not None
    assert (first["start"].tolist(), first["count"].tolist()) == ([0], [3])
    assert first["obs"][:, 1].tolist() == [1000, 1001, 1002, 1003]
    since = replay.written
    assert replay.segment(since)["count"].tolist() == [0]
    for end in ("", "terminated", ""):
        replay.add(world.step(0, end, carry=True))
    second = replay.segment(since)
    assert second is not None
    assert second["obs"][:, 1].tolist() == [1003, 1004, 1005, 2000, 2001]
    assert np.flatnonzero(first["kept"]).tolist() == [0]
    assert np.flatnonzero(second["kept"]).tolist() == [1, 2]  # steps 4 and 0 of their episodes


def test_states_are_copies():
    world = World()
    replay = world.build(stored_carry=True)
    world.episode(replay, 12, "")
    state = replay.state_dict()
    before = encode_tree("state", state)
    world.episode(replay, 12, "terminated")
    replay.feedback(replay.sample(), np.ones((400, 6)))
    assert encode_tree("state", state) == before


def test_rows_newer_than_the_state_are_left_out():
    """The state is of 8 rows in rings of 12, the segment of 14: number 12 and its network state lie where 0 belongs."""
    world = World(2)
    options = {"num_envs": 2, "stored_carry": True, "capacity": 24}
    replay = build(**options)
    for _ in range(8):
        replay.add(joined([world.step(env, carry=True) for env in (0, 1)]))
    again, late = build(seed=99, **options), World(2)
    state = replay.state_dict()
    early = decode_arrays(encode_arrays(replay.segment(no_rows(replay)) or {}))
    for _ in range(6):
        replay.add(joined([world.step(env, carry=True) for env in (0, 1)]))
    again.load_state_dict(state)
    again.load_segment(early)
    again.load_segment(replay.segment(np.array([8, 8])) or {})
    reference = build(**options)
    for _ in range(8):
        reference.add(joined([late.step(env, carry=True) for env in (0, 1)]))
    reference.load_state_dict(state)
    reference.load_segment(early)
    same_from_now_on(reference, again, late)


def test_that_there_were_states_once_is_not_forgotten():
    """The only one that was ever given is gone with its row; zeros stand for those that were not given."""
    world, options = World(), {"capacity": 12, "stored_carry": True}
    replay = build(**options)
    for step in range(30):
        replay.add(world.step(0, carry=step == 0))
    again = restored(replay, [replay.segment(no_rows(replay)) or {}], **options)
    assert replay.sample().batch.obs.carry["h"].tolist() == [[[0, 0, 0]]] * 4
    assert again.sample().batch.obs.carry["h"].tolist() == [[[0, 0, 0]]] * 4


def test_a_memory_that_is_not_empty_can_be_loaded_into():
    world, other = World(2), World(2)
    options = {"num_envs": 2, "prioritization": PROPORTIONAL, "capacity": 60}
    replay, again = build(**options), build(**options)
    world.episode(replay, 13, "")
    world.episode(replay, 13, "", env=1)
    other.episode(again, 17, "terminated")
    other.episode(again, 17, "", env=1)
    again.load_state_dict(replay.state_dict())
    again.load_segment(replay.segment(no_rows(replay)) or {})
    assert encode_tree("state", again.state_dict()) == encode_tree("state", replay.state_dict())
    same_from_now_on(replay, again, world)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"capacity": 50}, "rows 500, here 25"),
        ({"num_envs": 1}, "environments 2, here 1"),
        ({"overlap": 3}, "overlap 2, here 3"),
        ({"burn_in": 1}, "steps of a sequence 6, here 5"),
    ],
)
def test_another_memorys_state_is_refused(change, words):
    with pytest.raises(CheckpointError, match=words):
        build(**({"num_envs": 2} | change)).load_state_dict(build(2).state_dict())


def test_a_foreign_segment_is_refused():
    world = World()
    replay = world.build()
    world.episode(replay, 3)
    segment = replay.segment(no_rows(replay)) or {}
    with pytest.raises(CheckpointError, match="has no reward"):
        replay.load_segment({name: value for name, value in segment.items() if name != "reward"})
    with pytest.raises(CheckpointError, match=r"obs is an array"):
        replay.load_segment(segment | {"obs": segment["obs"][:, :1]})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"capacity": 13, "num_envs": 2, "overlap": 2, "unroll": 5}, "7 steps, but a sequence of 7 steps needs 8"),
        ({"capacity": 6, "stacked": 4, "observation": image(4)}, "6 steps, but a sequence of 6 steps needs 7"),
        ({"capacity": 10**13}, r"needs .* GiB.*Lower replay_capacity"),
    ],
)
def test_numbers_that_make_no_memory_are_refused(changes, words):
    with pytest.raises(UsageError, match=words):
        build(**changes)
