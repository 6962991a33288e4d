import numpy as np
import pytest
from memory_cases import ACTION, PROPORTIONAL, VECTOR, build, build_all, fill, names, rows, spec

from duetto import buffers
from duetto.errors import UsageError
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


def test_the_newest_are_left():
    replay = build_all(capacity=3)
    fill(replay, [8])
    sample = replay.sample()
    assert sorted(names(sample.batch)) == [(0, 5), (0, 6), (0, 7)]
    assert (sample.index == sample.stamp % 3).all()


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


def test_full_rings_are_equally_likely():
    replay = build(2, capacity=6, batch_size=60_000)
    fill(replay, [5, 3])
    counts = np.bincount(replay.sample().index, minlength=6)
    assert (abs(counts - 10_000) < 4.5 * 92).all()


def test_with_replacement_a_batch_is_full_from_the_first_transition():
    replay = build(batch_size=5)
    replay.add(rows(0, 0))
    assert names(replay.sample().batch) == [(0, 0)] * 5


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
    for given, sampled in ((obs, batch.obs), (after, batch.next_obs)):
        assert all(np.array_equal(np.asarray(given[key], sampled[key].dtype), sampled[key]) for key in given)
    assert (batch.action.dtype, batch.action.tolist()) == (np.dtype(np.int64), [[2, 3]])


@pytest.mark.parametrize("prioritization", [None, PROPORTIONAL])
def test_stacked_frames_give_the_same_batches_as_whole_observations(prioritization):
    """Two environments, rings that wrap around, all ends, and an interruption."""
    space, random = Box((4, 5, 5), "uint8", (0,), (255,)), np.random.default_rng(0)
    options = spec(capacity=60, batch_size=32, n_step=3, prioritization=prioritization)
    frames, whole = (
        buffers.build(options, space, ACTION, 2, np.random.default_rng(0), stacked=stacked) for stacked in (4, 1)
    )
    obs = random.integers(0, 256, (2, 4, 5, 5), dtype=np.uint8)
    for number in range(130):
        after = np.concatenate([obs[:, 1:], random.integers(0, 256, (2, 1, 5, 5), dtype=np.uint8)], axis=1)
        ends = [np.array([number % 7 == 3, False]), np.array([False, number % 13 == 5])]
        one = np.ones(2, np.float32)
        step = buffers.Experience(np.arange(2), obs, one[:, None] / (number + 1), one * number, after, *ends)
        done = ends[0] | ends[1] | (number == 50)
        obs = np.where(done[:, None, None, None], random.integers(0, 256, (2, 4, 5, 5), dtype=np.uint8), after)
        for replay in (frames, whole):
            replay.add(step)
            if number == 50:
                replay.interrupt()
        samples = [replay.sample() for replay in (frames, whole)]
        for ours, theirs in zip(*(sample.batch for sample in samples), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for replay, sample in zip((frames, whole), samples, strict=True):
            replay.feedback(sample, np.abs(sample.batch.reward))
    assert frames._storage._pool["obs"].nbytes < whole._storage._pool["obs"].nbytes / 2


def test_images_stay_uint8_and_discrete_actions_are_scalars():
    replay = build(observation=IMAGE, action=Discrete(4), batch_size=3)
    image = np.full((1, 2, 3, 3), 255, np.uint8)
    one, none = np.ones(1, np.float32), np.zeros(1, bool)
    replay.add(buffers.Experience(np.array([0]), image, np.array([3]), one, image - 1, none, none))
    batch = replay.sample().batch
    assert (batch.obs.dtype, batch.obs.max(), batch.next_obs.max()) == (np.dtype(np.uint8), 255, 254)
    assert (batch.action.dtype, batch.action.shape, batch.action[0]) == (np.dtype(np.int64), (3,), 3)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"reward": np.ones((2, 1), np.float32)}, ValueError, r"reward has shape \(2, 1\)"),
        ({"obs": np.ones((1, 2), np.float32)}, ValueError, "obs has shape"),
        ({"next_obs": np.ones((2, 1), np.float32)}, ValueError, "next_obs has shape"),
        ({"obs": {"image": np.ones((2, 2), np.float32)}}, KeyError, "obs"),
        ({"terminated": np.ones(2, np.float32)}, TypeError, "terminated has dtype float32"),
        ({"env": np.array([0, 2])}, ValueError, "environments 0 to 1"),
        ({"env": np.array([-1, 0])}, ValueError, "environments 0 to 1"),
        ({"env": np.array([1, 1])}, ValueError, "at most one step of each"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(changes, error, words):
    replay = build(2)
    with pytest.raises(error, match=words):
        replay.add(rows([0, 1], 0)._replace(**changes))
    assert len(replay) == 0
    assert list(replay.due()) == []


def test_floats_are_no_image():
    replay = build(observation=IMAGE)
    image = np.ones((1, 2, 3, 3), np.float32)
    with pytest.raises(TypeError, match="obs has dtype float32, the memory stores uint8"):
        replay.add(rows(0, 0)._replace(obs=image, next_obs=image))


@pytest.mark.parametrize("prioritization", [None, PROPORTIONAL])
def test_a_vector_step_without_transitions_is_no_step(prioritization):
    replay = build(2, prioritization=prioritization)
    replay.add(rows(np.zeros(0, np.int64), np.zeros(0)))
    assert len(replay) == 0
    with pytest.raises(ValueError, match="empty"):
        replay.sample()


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
