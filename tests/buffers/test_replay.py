"""Replay of transitions: the ring, n-step windows, checkpoints."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import ACTION, PROPORTIONAL, VECTOR, build, build_all, by_name, equal, fill, names, rows, spec

from duetto import buffers
from duetto.errors import CheckpointError, UsageError
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete


def test_c12_ring():
    """Capacity 3, add 0 .. 4: slots hold [3, 4, 2], and the next write goes to slot 2."""
    replay = build_all(capacity=3)
    for number in range(5):
        replay.add(rows(0, number))
    sample = replay.sample()
    held = {int(index): int(number) for index, (_, number) in zip(sample.index, sample.batch.obs, strict=True)}
    assert held == {0: 3, 1: 4, 2: 2}
    assert len(replay) == 3
    assert replay.written.tolist() == [5]
    assert dict(zip(sample.index.tolist(), sample.stamp.tolist(), strict=True)) == held
    replay.add(rows(0, 5))
    assert sorted(names(replay.sample().batch)) == [(0, 3), (0, 4), (0, 5)]


def test_every_field_comes_back():
    replay = build(batch_size=1)
    replay.add(rows(0, 7, reward=2.5))
    batch = replay.sample().batch
    assert batch.obs.tolist() == [[0.0, 7.0]]
    assert batch.next_obs.tolist() == [[0.0, 7.5]]
    assert batch.action == pytest.approx(0.007)
    assert batch.reward.tolist() == [2.5]
    assert batch.discount == pytest.approx(0.9)
    assert batch.weight.tolist() == [1.0]
    assert {value.dtype for value in batch if value is not None} == {np.dtype(np.float32)}
    assert {len(value.shape) for value in (batch.reward, batch.discount, batch.weight)} == {1}


def test_all_environments_transitions_are_equally_likely():
    """Rings of 4; 6, 1, 0 and 3 written, so 4 + 1 + 0 + 3 = 8 stored. 80,000 draws: sd of a count is 94."""
    replay = build(4, capacity=16, batch_size=8000)
    fill(replay, [6, 1, 0, 3])
    drawn = [name for _ in range(10) for name in names(replay.sample().batch)]
    counts = {name: drawn.count(name) for name in set(drawn)}
    assert counts.keys() == {(0, 2), (0, 3), (0, 4), (0, 5), (1, 0), (3, 0), (3, 1), (3, 2)}
    assert all(abs(count - 10_000) < 4.5 * 94 for count in counts.values())


@pytest.mark.parametrize("prioritization", [None, PROPORTIONAL])
def test_what_was_not_written_is_never_sampled(prioritization):
    replay = build(3, capacity=300, batch_size=2000, n_step=3, prioritization=prioritization)
    fill(replay, [2, 0, 7])
    for _ in range(20):
        batch = replay.sample().batch
        assert all(np.isfinite(value).all() for value in batch if value is not None)
        assert len(set(names(batch))) == 9


def test_stored_and_sampled_arrays_are_copies():
    replay = build(batch_size=1)
    experience = rows(0, 3)
    replay.add(experience)
    for array in (experience.obs, experience.action, experience.reward, experience.next_obs):
        array += 100
    for _ in range(2):
        batch = replay.sample().batch
        assert (batch.obs.tolist(), batch.next_obs.tolist(), batch.reward.tolist()) == ([[0, 3]], [[0, 3.5]], [3])
        for array in (batch.obs, batch.action, batch.reward, batch.next_obs, batch.discount, batch.weight):
            array += 100


IMAGE = Box((2, 3, 3), "uint8", (0,) * 18, (255,) * 18)


def test_dict_observations_keep_their_parts_and_dtypes():
    parts = (("image", IMAGE), ("joints/left", Box((2,), "float64", (-1, -1), (1, 1))), ("mission", Discrete(9)))
    replay = build(observation=Dict(parts), action=MultiDiscrete((3, 4)), batch_size=1, n_step=2)
    image = np.arange(18, dtype=np.uint8).reshape(1, 2, 3, 3) + 230
    obs = {"image": image, "joints/left": np.array([[0.1, 0.2]]), "mission": np.array([4])}
    after = {"image": image + 1, "joints/left": np.array([[0.3, 0.4]]), "mission": np.array([5])}
    one, none = np.ones(1, np.float32), np.zeros(1, bool)
    replay.add(buffers.Experience(np.array([0]), obs, np.array([[2, 3]]), one, after, none, none))
    batch = replay.sample().batch
    assert {key: value.dtype for key, value in batch.obs.items()} == {
        "image": np.dtype(np.uint8),
        "joints/left": np.dtype(np.float32),
        "mission": np.dtype(np.int64),
    }
    for put, sampled in ((obs, batch.obs), (after, batch.next_obs)):
        assert all(np.array_equal(np.asarray(put[key], sampled[key].dtype), sampled[key]) for key in put)
    assert (batch.action.dtype, batch.action.tolist()) == (np.dtype(np.int64), [[2, 3]])


@pytest.mark.parametrize("prioritization", [None, PROPORTIONAL])
def test_a_vector_step_without_transitions_is_no_step(prioritization):
    replay = build(2, prioritization=prioritization)
    replay.add(rows(np.zeros(0, np.int64), np.zeros(0)))
    assert len(replay) == 0


def test_a_capacity_that_does_not_fit_says_how_much_it_needs():
    """10^13 transitions of 2 + 1 + 1 floats and 2 flags, 18 bytes: 167,638.1 GiB."""
    with pytest.raises(UsageError, match=r"needs 167638\.1 GiB.*Lower replay_capacity"):
        build(capacity=10**13)


def test_the_capacity_is_shared_out_rounded_up():
    replay = buffers.build(spec(capacity=10), VECTOR, ACTION, 3, np.random.default_rng(0))
    fill(replay, [9, 9, 9])
    assert len(replay) == 12
    assert replay.rows == 4


def test_uniform_replay_needs_no_priorities():
    replay = build()
    replay.add(rows(0, 0))
    before = replay.state_dict()
    replay.feedback(replay.sample(), None)
    assert not replay.needs_priorities
    assert replay.state_dict().keys() == before.keys()


# ---------------------------------------------------------------------------------------------------- n steps
VALUE = np.array([10.0, 20.0, 30.0, 40.0, 50.0])  # SPEC O2: of the state after step t


def o2_targets(n, capacity=5, terminated_at=None, truncated_at=None, first=0, **changes):
    """SPEC O2's trajectory through a memory: step t has reward t+1 and its next observation carries B_t."""
    replay = build_all(capacity=capacity, n_step=n, **changes)
    for number in range(-first, 0):  # older transitions, so that the trajectory continues at the ring's start
        replay.add(rows(0, number, truncated=number == -1))
    for t in range(5):
        experience = rows(0, t, reward=t + 1, terminated=t == terminated_at, truncated=t == truncated_at)
        replay.add(experience._replace(next_obs=np.array([[0.0, VALUE[t]]], np.float32)))
    found = by_name(replay.sample().batch)
    return [found[0, t][0] + found[0, t][1] * found[0, t][2][1] for t in range(5)]


@pytest.mark.parametrize("first", [0, 3, 4], ids=["from slot 0", "across the end", "across the end, 4"])
@pytest.mark.parametrize(
    ("n", "ends", "expected"),
    [
        (1, {}, [10, 20, 30, 40, 50]),
        (3, {}, [27.1, 37.1, 47.1, 49, 50]),
        (5, {}, [40.951, 44.39, 47.1, 49, 50]),
        (9, {}, [40.951, 44.39, 47.1, 49, 50]),  # longer than the ring: the data ends
        (3, {"terminated_at": 2}, [5.23, 4.7, 3, 49, 50]),
        (3, {"truncated_at": 2}, [27.1, 29, 30, 49, 50]),
        (1, {"terminated_at": 2}, [10, 20, 3, 40, 50]),
        (1, {"truncated_at": 2}, [10, 20, 30, 40, 50]),
        # As if the episode had only been cut there: t=0 is 5.23 + .729·30.
    ],
)
def test_o2(n, ends, expected, first):
    np.testing.assert_allclose(o2_targets(n, first=first, **ends), expected, rtol=1e-6)


def window_of(history, position, n, discount):
    """The definition, one transition at a time: (reward, discount, next_obs)."""
    total, power = 0.0, 1.0
    for transition in history[position : position + n]:
        total += power * float(transition.reward[0])
        power *= discount
        if transition.terminated[0] or transition.truncated[0]:
            break
    future = 0.0 if transition.terminated[0] else power
    return total, future, tuple(transition.next_obs[0].tolist())


STEPS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["", "", "", "terminated", "truncated"])), min_size=1)


@settings(deadline=None, max_examples=150)
@given(steps=STEPS, per_env=st.integers(1, 6), n=st.integers(1, 5))
def test_windows_equal_the_definition(steps, per_env, n):
    """Three environments at their own pace, random ends, rings that wrap."""
    replay = build_all(3, capacity=3 * per_env, n_step=n)
    history = [[], [], []]
    for env, end in steps:
        flags = {end: True} if end else {}
        transition = rows(env, len(history[env]), reward=len(history[env]) ** 2 - 3 * env, **flags)
        history[env].append(transition)
        replay.add(transition)
    expected = {
        (env, number): window_of(history[env], number, n, 0.9)
        for env in range(3)
        for number in range(max(0, len(history[env]) - per_env), len(history[env]))
    }
    found = by_name(replay.sample().batch)
    assert found.keys() == expected.keys()
    for name, (reward, discount, next_obs) in expected.items():
        assert found[name] == (pytest.approx(reward, rel=1e-5), pytest.approx(discount, rel=1e-6), next_obs)


def test_an_interrupted_episode_ends_its_windows_also_after_a_checkpoint():
    """One reward of 1 per step, interrupted after step 1: the window of step 0 holds two rewards, not three."""
    replay = build_all(capacity=5, n_step=3)
    for number in range(2):
        replay.add(rows(0, number, reward=1))
    saved_before = replay.segment(np.zeros(1, np.int64))  # as a checkpoint before the interruption holds it
    replay.interrupt()
    for number in range(2, 4):
        replay.add(rows(0, number, reward=1))
    restored = build_all(capacity=5, n_step=3)
    restored.load_state_dict(replay.state_dict())
    restored.load_segment(replay.segment(np.array([2])))
    restored.load_segment(saved_before)
    for each in (replay, restored):
        found = by_name(each.sample().batch)
        # 1 + .9 = 1.9 with .9² ahead; then 1 with .9 ahead; the next episode's first: 1 + .9 = 1.9
        np.testing.assert_allclose([found[0, t][0] for t in range(4)], [1.9, 1, 1.9, 1], rtol=1e-6)
        np.testing.assert_allclose([found[0, t][1] for t in range(4)], [0.81, 0.9, 0.81, 0.9], rtol=1e-6)


# ---------------------------------------------------------------------------------------------------- checkpoints
def assert_equal_from_now_on(one, other, learn_too=True):
    """Both draw bit-identical batches, and still do after more transitions and feedback."""
    for number in range(6):
        for first, second in zip(one.due(), other.due(), strict=True):
            assert equal(first, second)
            if one.needs_priorities:
                for replay, sample in ((one, first), (other, second)):
                    replay.feedback(sample, np.abs(sample.batch.reward) + number)
        for replay in (one, other):
            replay.add(rows([0, 1], 1000 + number, truncated=number == 3))


def through_json(state):
    """What a checkpoint does to a state: arrays stay, everything else must survive JSON."""
    if isinstance(state, dict):
        assert all(isinstance(key, str) for key in state)
        return {key: through_json(value) for key, value in state.items()}
    return state.copy() if isinstance(state, np.ndarray) else json.loads(json.dumps(state))


# An operation: write `count` rows of an environment, or (None) save a checkpoint.
OPERATIONS = st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 1), st.integers(1, 4))), max_size=25)


@settings(deadline=None, max_examples=80)
@given(
    operations=OPERATIONS,
    per_env=st.integers(1, 7),
    n_step=st.integers(1, 3),
    prioritized=st.booleans(),
    order=st.randoms(use_true_random=False),
)
def test_state_and_segments_give_the_same_memory(operations, per_env, n_step, prioritized, order):
    """Checkpoints at random moments, loaded in random order, continue bit for bit as the memory itself does."""
    options = {"capacity": 2 * per_env, "n_step": n_step, "gradient_steps": 2, "train_every": 3}
    if prioritized:
        options["prioritization"] = replace(PROPORTIONAL, importance_anneal_samples=40)
    replay, segments, since, written = build(2, **options), [], np.zeros(2, np.int64), [0, 0]
    for operation in [(0, 1), *operations, None]:
        if operation is None:
            segments.append(replay.segment(since))
            since = replay.written
            continue
        env, count = operation
        for _ in range(count):
            replay.add(rows(env, written[env]))
            written[env] += 1
        for sample in replay.due():
            replay.feedback(sample, np.abs(sample.batch.reward))
    restored = build(2, seed=99, **options)
    restored.load_state_dict(through_json(replay.state_dict()))
    order.shuffle(segments)
    for segment in segments:
        restored.load_segment(segment)
    assert len(restored) == len(replay)
    assert_equal_from_now_on(replay, restored)


def test_states_are_copies():
    replay = build(2, capacity=2)
    fill(replay, [1, 1])
    state, since = replay.state_dict(), replay.written
    replay.add(rows([0, 1], 1))
    assert (state["envs"]["written"].tolist(), since.tolist()) == ([1, 1], [1, 1])


def test_a_row_newer_than_the_state_is_left_out():
    """The state is of 2 transitions in a ring of 3, the segment of 4: number 3 is in slot 0, where 0 belongs."""
    replay, restored = (build(batch_size=64, capacity=3) for _ in range(2))
    fill(replay, [2])
    state, early = replay.state_dict(), {name: part.copy() for name, part in replay.segment(np.array([0])).items()}
    replay.add(rows(0, 2))
    replay.add(rows(0, 3))
    restored.load_state_dict(state)
    restored.load_segment(early)
    restored.load_segment(replay.segment(np.array([0])))
    assert set(restored.sample().batch.obs[:, 1].tolist()) == {0.0, 1.0}


def test_batches_owed_survive():
    replay = build(2, gradient_steps=5)
    fill(replay, [1, 1])
    next(replay.due())
    restored = build(2, gradient_steps=5)
    restored.load_state_dict(through_json(replay.state_dict()))
    restored.load_segment(replay.segment(np.zeros(2, np.int64)))
    assert len(list(restored.due())) == 9


def test_a_foreign_segment_is_refused():
    replay = build()
    fill(replay, [2])
    segment = replay.segment(np.zeros(1, np.int64))
    with pytest.raises(CheckpointError, match="has no reward"):
        replay.load_segment({name: value for name, value in segment.items() if name != "reward"})
    with pytest.raises(CheckpointError, match=r"obs is an array"):
        replay.load_segment(segment | {"obs": segment["obs"][:, :1]})
