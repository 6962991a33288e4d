import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import PROPORTIONAL, VECTOR, build, fill, rows

from duetto import buffers
from duetto.errors import CheckpointError
from duetto.networks.spaces import Box, Dict


def arrays_of(sample):
    return [*sample.batch, sample.index, sample.stamp]


def assert_equal_from_now_on(one, other, learn_too=True):
    """Both draw bit-identical batches, and still do after more transitions and feedback."""
    for number in range(6):
        for first, second in zip(one.due(), other.due(), strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(arrays_of(first), arrays_of(second), strict=True))
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


def test_a_segment_holds_what_is_new():
    replay = build(2, capacity=8)
    fill(replay, [3, 1])
    first = replay.segment(np.zeros(2, np.int64))
    assert (first["start"].tolist(), first["count"].tolist()) == ([0, 0], [3, 1])
    assert first["frame_count"].tolist() == [6, 2]  # of each step, since none is what the step before led to
    assert first["obs"].tolist() == [[0, 0], [0, 0.5], [0, 1], [0, 1.5], [0, 2], [0, 2.5], [1, 0], [1, 0.5]]
    assert first["reward"].tolist() == [0, 1, 2, 0]
    since = replay.written
    assert replay.segment(since)["count"].tolist() == [0, 0]
    for number in (3, 4, 5):
        replay.add(rows(0, number))
    second = replay.segment(since)
    assert (second["start"].tolist(), second["count"].tolist()) == ([3, 1], [3, 0])
    assert second["obs"][::2].tolist() == [[0, 3], [0, 4], [0, 5]]
    everything = replay.segment(np.zeros(2, np.int64))
    assert (everything["start"].tolist(), everything["count"].tolist()) == ([2, 0], [4, 1])


def test_states_are_copies():
    replay = build(2, capacity=2)
    fill(replay, [1, 1])
    state, since = replay.state_dict(), replay.written
    replay.add(rows([0, 1], 1))
    assert (state["envs"]["written"].tolist(), since.tolist()) == ([1, 1], [1, 1])


def test_a_row_newer_than_the_state_is_left_out():
    """The state is of 2 transitions in a ring of 3, the segment of 4: number 3 lies in slot 0, where 0 belongs."""
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


def test_dict_observations_and_dtypes():
    space = Dict((("image", Box((1, 2, 2), "uint8", (0,) * 4, (255,) * 4)), ("speed", VECTOR)))
    replay, restored = (build(observation=space, batch_size=1, seed=seed) for seed in (0, 1))
    image = np.full((1, 1, 2, 2), 200, np.uint8)
    plain = rows(0, 3)
    obs, next_obs = {"image": image, "speed": plain.obs}, {"image": image + 1, "speed": plain.next_obs}
    replay.add(
        buffers.Experience(plain.env, obs, plain.action, plain.reward, next_obs, plain.truncated, ~plain.truncated)
    )
    segment = replay.segment(np.zeros(1, np.int64))
    assert segment["obs/image"].dtype == np.uint8
    restored.load_state_dict(replay.state_dict())
    restored.load_segment(segment)
    one, other = replay.sample().batch, restored.sample().batch
    for key in ("image", "speed"):
        assert one.obs[key].dtype == other.obs[key].dtype
        assert np.array_equal(one.obs[key], other.obs[key])
        assert np.array_equal(one.next_obs[key], other.next_obs[key])


@pytest.mark.parametrize("change", [{"capacity": 50}, {"num_envs": 1}])
def test_another_memorys_state_is_refused(change):
    with pytest.raises(CheckpointError, match="replay_capacity"):
        build(**({"num_envs": 2} | change)).load_state_dict(build(2).state_dict())


def test_a_foreign_segment_is_refused():
    replay = build()
    fill(replay, [2])
    segment = replay.segment(np.zeros(1, np.int64))
    with pytest.raises(CheckpointError, match="has no reward"):
        replay.load_segment({name: value for name, value in segment.items() if name != "reward"})
    with pytest.raises(CheckpointError, match=r"obs is an array"):
        replay.load_segment(segment | {"obs": segment["obs"][:, :1]})


def test_counts_from_the_future_are_refused():
    with pytest.raises(ValueError, match="written"):
        build().segment(np.array([1]))
