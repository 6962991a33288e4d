import numpy as np
import pytest
from sequence_cases import World, build, build_all, flat, items

from duetto.algorithms.base import SequenceBatch
from duetto.buffers import sequences
from duetto.networks.spaces import Box, MultiDiscrete

VALUE = np.array([10.0, 20.0, 30.0, 40.0, 50.0])  # SPEC O2: of the state after step t


def o2_targets(n, end="", **changes):
    """SPEC O2: step t has reward t+1 and leads to a state of value B_t; the episode ends after step 2, if at all."""
    world = World()
    replay = world.build(burn_in=0, unroll=5, overlap=4, n_step=n, **changes)
    for t in range(5):
        replay.add(world.step(0, end if t == 2 else "")._replace(reward=np.array([t + 1], np.float32)))
    replay.interrupt()
    targets = np.zeros(5)
    for (_, first), item in items(replay).items():
        start = first
        for t in np.flatnonzero(item["mask"]):
            targets[start + t] = item["reward"][t] + item["discount"][t] * VALUE[start + item["ahead"][t] - 1]
    return targets


@pytest.mark.parametrize(
    ("n", "changes", "expected"),
    [
        (1, {}, [10, 20, 30, 40, 50]),
        (3, {}, [27.1, 37.1, 47.1, 49, 50]),
        (5, {}, [40.951, 44.39, 47.1, 49, 50]),
        (9, {}, [40.951, 44.39, 47.1, 49, 50]),
        (3, {"end": "terminated"}, [5.23, 4.7, 3, 49, 50]),
        (3, {"end": "truncated"}, [27.1, 29, 30, 49, 50]),
        (1, {"end": "terminated"}, [10, 20, 3, 40, 50]),
    ],
)
def test_o2(n, changes, expected):
    np.testing.assert_allclose(o2_targets(n, **changes), expected, rtol=1e-6)


def test_truncation_as_termination_would_be_wrong():
    assert all(abs(o2_targets(3, "truncated")[:3] - [5.23, 4.7, 3]) > 1)


def test_o2_discounts_of_an_unfinished_sequence():
    """Where DI-engine has .9 and 1 in the last places (SPEC B4)."""
    world = World()
    replay = world.build(burn_in=0, unroll=6, overlap=0, n_step=3)
    world.episode(replay, 6, "")
    np.testing.assert_allclose(items(replay)[0, 0]["discount"], [0.729, 0.729, 0.729, 0.729, 0.81, 0.9])


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


def test_shapes_and_dtypes():
    world = World(1, "dict", 4, discrete=False)
    replay = build(
        batch_size=3, observation=world.space, action=world.action, stacked=4, stored_carry=True, burn_in=2, unroll=4
    )
    for step in range(9):
        replay.add(world.step(0, "truncated" if step == 8 else "", carry=True))
    batch = replay.sample().batch
    assert {name: (array.shape, array.dtype.name) for name, array in flat(batch).items()} == {
        "obs/image": ((3, 7, 4, 5, 5), "uint8"),
        "obs/place": ((3, 7, 2), "float32"),
        "previous_action": ((3, 7, 2), "float32"),
        "previous_reward": ((3, 7), "float32"),
        "starts": ((3, 7), "bool"),
        "carry/h": ((3, 1, 3), "float32"),
        "is_first": ((3,), "bool"),
        "query_steps": ((3, 6), "int64"),
        "action": ((3, 6, 2), "float32"),
        "reward": ((3, 6), "float32"),
        "discount": ((3, 6), "float32"),
        "ahead": ((3, 6), "int64"),
        "weight": ((3,), "float32"),
        "mask": ((3, 6), "float32"),
    }
    assert isinstance(batch, SequenceBatch)
    assert batch.next_obs.obs is batch.obs.obs
    assert batch.next_obs.query_steps is batch.ahead


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


def test_the_state_is_that_before_the_sequences_first_step():
    """Overlap 2 of 6: states of the steps 0, 4, 8 are kept, each equal to the step's number plus a half."""
    world = World(2)
    replay = world.build(stored_carry=True)
    for step in range(11):
        for env in range(2):
            replay.add(world.step(env, "terminated" if step == 10 else "", carry=True))
    states = {name: item["carry/h"][0, 0] for name, item in items(replay).items()}
    assert states == {(env, start): env * 1000 + 100.5 + start for env in range(2) for start in (0, 4, 8)}
    segment = replay.segment(np.zeros(2, np.int64))
    assert segment is not None
    assert np.flatnonzero(segment["kept"]).tolist() == [0, 4, 8, 11, 15, 19]


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


def test_states_have_the_dtype_of_the_first():
    world = World()
    replay = world.build(stored_carry=True)
    for step in range(10):
        experience = world.step(0, carry=True)
        dtype = np.float32 if step == 0 else np.float64
        replay.add(experience._replace(extras={"carry/h": experience.extras["carry/h"].astype(dtype)}))
    assert {item["carry/h"].dtype for item in items(replay).values()} == {np.dtype(np.float32)}


def test_states_are_not_kept_unless_asked_for():
    world = World()
    replay = world.build()
    for _ in range(6):
        replay.add(world.step(0, carry=True))
    assert replay.sample().batch.obs.carry == {}


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


def test_what_was_sampled_may_be_changed():
    world = World(1, "dict", 3)
    replay = world.build(stored_carry=True)
    for _ in range(6):
        replay.add(world.step(0, carry=True))
    before = {name: array.copy() for name, array in items(replay)[0, 0].items()}
    for array in flat(replay.sample().batch).values():
        array[...] = 1
    after = items(replay)[0, 0]
    assert all(np.array_equal(before[name], after[name]) for name in before)


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


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"reward": np.ones((1, 1), np.float32)}, ValueError, r"reward has shape \(1, 1\)"),
        ({"obs": np.ones((1, 3), np.float32)}, ValueError, "obs has shape"),
        ({"next_obs": np.ones((2, 2), np.float32)}, ValueError, "next_obs has shape"),
        ({"obs": {"image": np.ones((1, 2), np.float32)}}, KeyError, "obs"),
        ({"terminated": np.ones(1, np.float32)}, TypeError, "terminated has dtype float32"),
        ({"action": np.ones(1, np.float32)}, TypeError, "action has dtype float32"),
        ({"env": np.array([1])}, ValueError, "environments 0 to 0"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(changes, error, words):
    world, other = World(), World()
    replay, untouched = world.build(stored_carry=True), other.build(stored_carry=True)
    for _ in range(5):
        replay.add(world.step(0, carry=True))
        untouched.add(other.step(0, carry=True))
    step = world.step(0, carry=True)
    with pytest.raises(error, match=words):
        replay.add(step._replace(**changes))
    replay.add(step)
    untouched.add(other.step(0, carry=True))
    one, two = items(replay)[0, 0], items(untouched)[0, 0]
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert len(list(replay.due())) == 6


def test_nan_follows_nan():
    """Whether an observation is finite is not the memory's to judge."""
    replay = build()
    step = World().step(0)
    nothing = np.full((1, 2), np.nan, np.float32)
    for _ in range(2):
        replay.add(step._replace(obs=nothing, next_obs=nothing))
    assert replay.written.tolist() == [2]


def test_a_vector_step_without_steps_is_no_step():
    world = World()
    replay = world.build()
    step = world.step(0)
    replay.add(step._replace(**{name: value[:0] for name, value in step._asdict().items() if name != "extras"}))
    assert replay.written.tolist() == [0]
    assert list(replay.due()) == []
