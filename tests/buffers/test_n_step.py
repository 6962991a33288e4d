import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import PROPORTIONAL, build, build_all, by_name, rows

VALUE = np.array([10.0, 20.0, 30.0, 40.0, 50.0])  # SPEC O2: of the state after step t


def o2_targets(n, capacity=5, terminated_at=None, truncated_at=None, first=0, **changes):
    """SPEC O2's trajectory through a memory: step t has reward t+1 and its next observation carries B_t."""
    replay = build_all(capacity=capacity, n_step=n, **changes)
    for number in range(-first, 0):  # older transitions, so that the trajectory lies across the ring's end
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


def test_truncation_as_termination_would_be_wrong():
    wrong = [5.23, 4.7, 3]
    assert all(abs(a - b) > 1 for a, b in zip(o2_targets(3, truncated_at=2)[:3], wrong, strict=True))


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


@pytest.mark.parametrize("prioritization", [None, PROPORTIONAL])
def test_prioritised_windows_are_the_same(prioritization):
    replay = build(capacity=8, batch_size=200, n_step=3, prioritization=prioritization)
    for number in range(11):
        replay.add(rows(0, number, reward=1, terminated=number == 6))
    rewards = {number: value[0] for (_, number), value in by_name(replay.sample().batch).items()}
    expected = {3: 2.71, 4: 2.71, 5: 1.9, 6: 1, 7: 2.71, 8: 2.71, 9: 1.9, 10: 1}
    assert rewards == {number: pytest.approx(value) for number, value in expected.items()}


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize(("end", "expected"), [("terminated", [2.71, 1.9, 1.0]), ("truncated", [10.0, 10.0, 10.0])])
def test_o18_value_of_a_chain(n, end, expected):
    """Three unit rewards. Cut from outside, the chain would continue for ever: its last step leads back "
    "to the first."""
    replay = build_all(capacity=30, n_step=n)
    for step in range(29):
        state = step % 3
        experience = rows(0, step, reward=1, **{end: state == 2})
        states = [np.array([[0.0, s]], np.float32) for s in (state, (state + 1) % 3)]
        replay.add(experience._replace(obs=states[0], next_obs=states[1]))
    value = np.zeros(3)
    for _ in range(200):
        batch = replay.sample().batch
        target = batch.reward + batch.discount * value[batch.next_obs[:, 1].astype(int)]
        value = np.array([target[batch.obs[:, 1] == state].mean() for state in range(3)])
    np.testing.assert_allclose(value, expected, rtol=1e-6)


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


def test_one_environment_alone_is_interrupted():
    replay = build_all(num_envs=3, capacity=15, n_step=3)
    for number in range(2):
        for env in range(2):
            replay.add(rows(env, number, reward=1))
    replay.interrupt(np.array([True, False, True]))
    for env in range(2):
        replay.add(rows(env, 2, reward=1))
    found = by_name(replay.sample().batch)
    np.testing.assert_allclose([found[0, t][0] for t in range(3)], [1.9, 1, 1], rtol=1e-6)
    np.testing.assert_allclose([found[1, t][0] for t in range(3)], [2.71, 1.9, 1], rtol=1e-6)
