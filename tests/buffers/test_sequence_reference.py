"""The memory of sequences against its definition in plain lists."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sequence_cases import World, items, joined, no_rows, same_items, spec

# An operation: the next `steps` steps of an environment, of which the last may end its episode; None: an interruption.
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
