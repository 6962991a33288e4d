"""Replay of sequences: against its definition in plain lists, the docstring's pictures, hidden states, checkpoints."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import PROPORTIONAL, equal
from sequence_cases import World, build, build_all, image, items, joined, no_rows, same_items, spec

from duetto.buffers import sequences
from duetto.buffers.sequences import cut
from duetto.errors import CheckpointError, UsageError
from duetto.networks.spaces import Box, MultiDiscrete
from duetto.storage.tree_codec import decode_arrays, decode_tree, encode_arrays, encode_tree

# An operation: the next `steps` steps of an environment; the last one may end its episode. None: an interruption.
PART = st.tuples(st.integers(0, 2), st.integers(1, 13), st.sampled_from(["", "terminated", "truncated"]))
OPERATIONS = st.lists(st.one_of(PART, PART, PART, st.none()), min_size=1, max_size=30)


@st.composite
def cuttings(draw):
    burn_in, unroll = draw(st.integers(0, 3)), draw(st.integers(1, 5))
    return {"burn_in": burn_in, "unroll": unroll, "overlap": draw(st.integers(burn_in, burn_in + unroll - 1))}


@settings(deadline=None, max_examples=150)
@given(
    operations=OPERATIONS,
    cutting=cuttings(),
    spare_rows=st.integers(0, 25),
    n_step=st.integers(1, 5),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    kind=st.sampled_from([("vector", 1), ("image", 1), ("image", 3), ("dict", 4)]),
)
def test_every_field_of_every_sequence_equals_the_definition(operations, cutting, spare_rows, n_step, flags, kind):
    """Three environments at their own pace, rings that wrap, all ends."""
    stored_carry, learn_from_start, discrete = flags
    world = World(3, *kind, discrete)
    rows = cutting["burn_in"] + cutting["unroll"] + max(1, kind[1] - 1) + 1 + spare_rows
    options = cutting | {
        "capacity": 3 * rows,
        "n_step": n_step,
        "stored_carry": stored_carry,
        "learn_from_start": learn_from_start,
    }
    replay = world.build(**options)
    for operation in operations:
        if operation is None:
            replay.interrupt()
            world.interrupt()
            continue
        env, steps, end = operation
        for t in range(steps):
            replay.add(world.step(env, end if t == steps - 1 else "", stored_carry))
    assert replay.written.tolist() == world.written
    expected = world.expected(replay, spec(**options), stored_carry)
    assert len(replay) == len(expected)
    if expected:
        same_items(items(replay), expected)


def test_environments_in_one_vector_step():
    """Each vector step holds some environments, in any order."""
    world, random = World(4, "dict", 4), np.random.default_rng(1)
    replay = world.build(capacity=4 * 60)
    for _ in range(250):
        env = random.permutation(4)[: random.integers(1, 5)]
        ends = random.choice(["", "", "", "", "terminated", "truncated"], len(env))
        replay.add(joined([world.step(int(e), str(end)) for e, end in zip(env, ends, strict=True)]))
    assert min(world.written) > 2 * replay.rows
    same_items(items(replay), world.expected(replay, spec(capacity=4 * 60)))
    assert replay.segment(no_rows(replay)) is not None


def picture(item, first, last, total):
    """A stretch as the docstring of `sequences` draws it. Its last real step is `last`, the episode has `total`."""
    positions = range(7)
    powers = {0.81: "2", 0.9: "1", 0.0: "."}
    rows = {
        "step": [f"{first + p}" if first + p <= last else "-" if p < 6 else "." for p in positions[:6]] + ["."],
        "position": [str(p) for p in positions],
        "observation": [f"o{int(x) % 1000}" for x in item["obs"][:, 1]],
        "previous action": ["." if x == -1 else f"a{x}" for x in item["previous_action"]],
        "starts": ["x" if x else "." for x in item["starts"]],
        "mask": ["1" if x else "." for x in item["mask"]],
        "looks ahead to": [str(x) for x in item["ahead"]],
        "discount": [
            "e" if first + item["ahead"][t] == total and t + first <= last else powers[round(float(x), 4)]
            for t, x in enumerate(item["discount"])
        ],
    }
    return {name: (f"{name:<20}" + " ".join(f"{cell:>2}" for cell in cells)).rstrip() for name, cells in rows.items()}


def test_the_pictures_are_true():
    world = World()
    replay = world.build()
    world.episode(replay, 20)
    world.episode(replay, 4, "truncated")
    found = items(replay)
    left = picture(found[0, 4], 4, 9, 20)
    right = picture(found[0, 20], 0, 3, 4)
    assert sequences.__doc__ is not None
    drawn = [line[4:] for line in sequences.__doc__.splitlines()]
    for name in left:
        line = next(line for line in drawn if line.startswith(name))
        assert line[:49].rstrip() == left[name]
        assert line[49:].startswith(right[name]), name
    np.testing.assert_allclose(found[0, 20]["discount"], [0.81, 0.81, 0.81, 0.9, 0, 0])  # e: n' is 2, 2 and then 1


def test_no_previous_action_is_minus_one_for_whole_numbers_and_zeros_for_others():
    """Also for several numbers at once, and only at an episode's first observation."""
    several, box = MultiDiscrete((5, 3)), Box((2,), "float32", (-1.0,) * 2, (1.0,) * 2)
    for space, nothing, action in ((several, [-1, -1], [4, 2]), (box, [0, 0], [0.5, -0.25])):
        world = World()
        replay = build_all(action=space)
        for step in range(10):
            given = np.array([action], np.int64 if space is several else np.float32)
            replay.add(world.step(0, "truncated" if step == 9 else "")._replace(action=given))
        found = items(replay)
        assert found[0, 0]["previous_action"].tolist() == [nothing] + [action] * 6
        assert found[0, 4]["previous_action"].tolist() == [action] * 7
        assert found[0, 0]["previous_action"].dtype == found[0, 0]["action"].dtype


def test_states_that_were_not_given_are_zeros_or_none_at_all():
    """As for the random actions at the start of a run."""
    world = World()
    replay = world.build(stored_carry=True, overlap=2)
    world.episode(replay, 6)
    assert replay.sample().batch.obs.carry == {}
    for step in range(6):
        replay.add(world.step(0, "truncated" if step == 5 else "", carry=True))
    found = items(replay)
    assert found[0, 0]["carry/h"].tolist() == [[0, 0, 0]]
    assert found[0, 6]["carry/h"].tolist() == [[200.5] * 3]


def test_states_disappear_with_their_rows():
    world = World()
    replay = world.build(capacity=20, stored_carry=True)
    for _ in range(200):
        replay.add(world.step(0, carry=True))
    segment = replay.segment(np.zeros(1, np.int64))
    assert segment is not None
    assert (180 + np.flatnonzero(segment["kept"])).tolist() == [
        184,
        188,
        192,
        196,
    ]  # 180 .. 199 are there; 196's sequence is not yet


def test_what_was_given_may_be_changed_afterwards():
    world, other = World(), World()
    replay, untouched = world.build(stored_carry=True), other.build(stored_carry=True)
    for _ in range(6):
        experience = world.step(0, carry=True)
        copies = [array.copy() for array in (experience.obs, experience.next_obs)]
        replay.add(experience._replace(obs=copies[0], next_obs=copies[1]))
        untouched.add(other.step(0, carry=True))
        for array in (*copies, experience.action, experience.reward, experience.extras["carry/h"]):
            array += 7
    one, two = items(replay)[0, 0], items(untouched)[0, 0]
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_a_vector_step_without_steps_is_no_step():
    world = World()
    replay = world.build()
    step = world.step(0)
    replay.add(step._replace(**{name: value[:0] for name, value in step._asdict().items() if name != "extras"}))
    assert replay.written.tolist() == [0]
    assert list(replay.due()) == []


# ---------------------------------------------------------------------------------------------------- checkpoints
def same_from_now_on(one, other, world):
    """Both draw bit-identical batches, and still do after more steps and feedback."""
    for number in range(12):
        for first, second in zip(one.due(), other.due(), strict=True):
            assert equal(first, second)
            for replay, sample in ((one, first), (other, second)):
                replay.feedback(sample, np.abs(sample.batch.reward) + number)
        steps = joined([world.step(env, "terminated" if number == 5 else "", carry=True) for env in (1, 0)])
        for replay in (one, other):
            replay.add(steps)
    assert one.written.tolist() == other.written.tolist() == world.written
    assert len(one) == len(other)


def restored(replay, segments, **options):
    """Another memory, loaded from a state that a checkpoint has stored and from segments in the order given."""
    again = build(seed=99, **options)
    again.load_state_dict(decode_tree("state", encode_tree("state", replay.state_dict())))
    for segment in segments:
        again.load_segment(segment)
    return again


# An operation: the next steps of an environment, and how the last one ends; "save" or "interrupt".
TURN = st.tuples(st.integers(0, 1), st.integers(1, 12), st.sampled_from(["", "", "terminated", "truncated"]))
TURNS = st.lists(st.one_of(TURN, TURN, TURN, st.sampled_from(["save", "interrupt"])), max_size=25)


@settings(deadline=None, max_examples=80)
@given(
    operations=TURNS,
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


def test_the_papers_memory_takes_less_than_six_and_a_half_gigabytes():
    """20,000 sequences, 40 steps apart, in 800,000 rows; later 4 KiB of recurrent state for each."""
    space = Box((4, 84, 84), "uint8", (0,), (255,))
    tracemalloc.start()
    try:
        replay = build(4, observation=space, stacked=4, burn_in=40, unroll=40, overlap=40, capacity=800_000)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert replay.rows == 200_000
    assert 800_000 * 84 * 84 < size < 6.5e9 - 20_000 * 4096


# -------------------------------------------------------------------------------- where sequences start and end
def bounds(steps, length, overlap):
    """(start, real length, step at which it is complete) of an episode of so many steps, found step by step."""
    found = []
    for step in range(1, steps + 1):
        complete, start, real = cut(np.array([step]), np.array([step == steps]), length, overlap)
        if complete[0]:
            found.append((int(start[0]), int(real[0]), step))
    return found


R12 = {
    3: [(0, 3)],
    8: [(0, 8)],
    9: [(0, 8), (4, 5)],
    12: [(0, 8), (4, 8)],
    13: [(0, 8), (4, 8), (8, 5)],
    20: [(0, 8), (4, 8), (8, 8), (12, 8)],
}


@pytest.mark.parametrize(("steps", "expected"), R12.items())
def test_r12_starts_and_lengths(steps, expected):
    assert [(start, real) for start, real, _ in bounds(steps, 8, 4)] == expected


@pytest.mark.parametrize(("steps", "count"), [(80, 1), (81, 2), (100, 2), (120, 2), (121, 3), (1000, 24)])
def test_r12_at_the_papers_size(steps, count):
    assert len(bounds(steps, 80, 40)) == count


def columns():
    """The drawings in the docstring of `cut`: (L, overlap) and the drawn lines of each."""
    assert cut.__doc__ is not None
    lines = cut.__doc__.splitlines()
    head = next(number for number, line in enumerate(lines) if line.strip().startswith("L 8, overlap 4"))
    block = lines[head : lines.index("", head)]
    starts = [number for number in range(len(block[0])) if block[0].startswith("L ", number)]
    for start, end in zip(starts, [*starts[1:], 999], strict=True):
        title, *drawing = (line[start:end].rstrip() for line in block)
        length, overlap = (int(word) for word in title.replace("L ", "").split(", overlap "))
        yield length, overlap, "\n".join(drawing).rstrip()


def drawn(length, overlap, totals):
    lines = []
    for total in totals:
        for number, (start, real, _) in enumerate(bounds(total, length, overlap)):
            label = f"T = {total}" if number == 0 else ""
            lines.append(f"{label:<10}" + " " * start + "abc"[number] * real)
    return "\n".join(lines)


def test_the_drawings_are_true():
    found = {(length, overlap): text for length, overlap, text in columns()}
    assert found == {
        (8, 4): drawn(8, 4, [3, 8, 9, 13]),
        (4, 3): drawn(4, 3, [2, 4, 6]),
        (6, 0): drawn(6, 0, [5, 6, 7, 13]),
    }


def test_the_timetable_is_true():
    marks = {step: "abc"[number] for number, (_, _, step) in enumerate(bounds(7, 4, 2))}
    line = "complete      " + "  ".join(marks.get(step, ".") for step in range(1, 8))
    assert cut.__doc__ is not None
    assert line in cut.__doc__


CUTTINGS = [(0, 1, 0), (0, 4, 0), (0, 4, 3), (2, 4, 2), (2, 4, 5), (3, 1, 3), (3, 5, 4), (4, 4, 4)]


def trained(burn_in, unroll, overlap, total, from_start):
    """How often each step of an episode is learned from, and the largest summed reward among such steps; the
    episode's only reward is 1, for its last step.
    """
    world, counts, largest = World(), np.zeros(total + burn_in + unroll, int), 0.0
    replay = world.build(burn_in=burn_in, unroll=unroll, overlap=overlap, n_step=3, learn_from_start=from_start)
    for step in range(total):
        last = step == total - 1
        replay.add(world.step(0, "terminated" if last else "")._replace(reward=np.array([last], np.float32)))
    for (_, start), item in items(replay).items() if len(replay) else ():
        counts[start : start + burn_in + unroll] += item["mask"].astype(int)
        largest = max(largest, (item["reward"] * item["mask"]).max())
    return counts, largest


@pytest.mark.parametrize("from_start", [True, False])
@pytest.mark.parametrize(("burn_in", "unroll", "overlap"), CUTTINGS)
def test_r14_every_step_and_the_last_reward_are_learned_from(burn_in, unroll, overlap, from_start):
    for total in range(1, 3 * (burn_in + unroll) + 1):
        counts, largest = trained(burn_in, unroll, overlap, total, from_start)
        first = 0 if from_start else burn_in
        assert (counts[first:total] >= 1).all(), total
        assert (counts[:first] == 0).all(), total
        assert (counts[total:] == 0).all(), total  # padding
        assert largest == (1.0 if total > first else 0.0), total


def test_the_oldest_disappear_first():
    """L 6, overlap 2, 20 rows. After 31 steps the numbers 11 .. 30 are left. The next step takes number 11, and with it
    the previous action of the sequence that starts at 12.
    """
    world = World()
    replay = world.build(capacity=20)
    held = {}
    for steps in range(1, 33):
        replay.add(world.step(0))
        held[steps] = [first for _, first in sorted(items(replay))] if len(replay) else []
    assert [held[steps] for steps in (5, 6, 9, 10)] == [[], [0], [0], [0, 4]]
    assert [held[steps] for steps in (20, 21, 24)] == [[0, 4, 8, 12], [4, 8, 12], [8, 12, 16]]
    assert [held[steps] for steps in (31, 32)] == [[12, 16, 20, 24], [16, 20, 24]]


def test_due_waits_for_the_first_sequence_and_pays_later():
    """L 6: the first sequence is complete with the sixth step."""
    replay, world = build(learning_starts=2, train_every=2, gradient_steps=3), World()
    due = []
    for _ in range(10):
        replay.add(world.step(0))
        due.append(len(list(replay.due())))
    assert due == [0, 0, 0, 0, 0, 6, 0, 3, 0, 3]


def test_one_environment_alone_is_interrupted():
    world = World(3)
    replay = world.build(burn_in=0, unroll=4, overlap=2)
    world.episode(replay, 5, "", env=0)
    world.episode(replay, 5, "", env=2)
    replay.interrupt(np.array([True, True, False]))
    assert sorted(items(replay)) == [(0, 0), (0, 2), (2, 0)]
