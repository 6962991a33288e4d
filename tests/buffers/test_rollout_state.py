"""What a rollout saves, it continues from exactly; and what it does where an episode is interrupted."""

from __future__ import annotations

import numpy as np
import pytest
from rollout_cases import build, o5_steps, one, step

from duetto.buffers import Experience
from duetto.errors import CheckpointError
from duetto.networks.spaces import Box, Dict, Discrete
from duetto.storage.tree_codec import decode_tree, encode_tree


def through_a_checkpoint(state):
    """As it comes back from disk."""
    return decode_tree("state", encode_tree("state", state))


def check_goes_on(make, steps, after):
    """A rollout that is saved after some steps, and the one that continues from what was saved, end alike."""
    ours, again = make(), make()
    for experience in steps[:after]:
        ours.add(experience)
        list(ours.due())
    again.load_state_dict(through_a_checkpoint(ours.state_dict()))
    assert len(again) == len(ours)
    ends = []
    for rollout in (ours, again):
        batches = []
        for experience in steps[after:]:
            rollout.add(experience)
            batches += [sample.batch for sample in rollout.due()]
        ends.append((batches, encode_tree("state", rollout.state_dict())))
    assert ends[0][1] == ends[1][1]
    for one_batch, other in zip(ends[0][0], ends[1][0], strict=True):
        for part, its in zip(one_batch, other, strict=True):
            np.testing.assert_equal(part, its)
    return ends[0][0]


@pytest.mark.parametrize("after", range(8))
def test_it_goes_on_from_anywhere(after):
    """Also before the first step, between two rollouts, and right behind a truncated end."""
    batches = check_goes_on(build, [*o5_steps(), *o5_steps()], after)
    np.testing.assert_allclose(batches[-1].advantage, [2.12, 1, 3.75, 4.7], rtol=1e-6)


PICTURE = Box((2, 3, 3), "uint8", (0,), (255,))
PARTS = Dict((("image", PICTURE), ("joints", Box((2,), "float32", (-1, -1), (1, 1))), ("mission", Discrete(9))))


def seen(random):
    return {
        "image": random.integers(256, size=(2, 2, 3, 3), dtype=np.uint8),
        "joints": random.normal(size=(2, 2)).astype(np.float32),
        "mission": random.integers(9, size=2),
    }


def some_steps(observe, action, count):
    random = np.random.default_rng(0)
    observed = [observe(random) for _ in range(count + 1)]
    return [
        Experience(
            env=np.arange(2),
            obs=observed[time],
            action=action(random),
            reward=random.normal(size=2).astype(np.float32),
            next_obs=observed[time + 1],
            terminated=random.random(2) < 0.2,
            truncated=random.random(2) < 0.5,
            extras={name: random.normal(size=2).astype(np.float32) for name in ("log_prob", "value")},
        )
        for time in range(count)
    ]


@pytest.mark.parametrize("after", [1, 3, 5])
def test_parts_and_what_truncated_episodes_ended_with(after):
    def value(obs):
        return obs["joints"].sum(axis=1) + obs["mission"] + obs["image"].mean(axis=(1, 2, 3)).astype(np.float32)

    action = Box((3,), "float32", (-1,) * 3, (1,) * 3)
    steps = some_steps(seen, lambda random: random.normal(size=(2, 3)).astype(np.float32), 6)
    assert any((experience.truncated & ~experience.terminated).any() for experience in steps[:1])
    check_goes_on(lambda: build(2, value, PARTS, action, steps=6), steps, after)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_integers_that_truncated_episodes_ended_with(after):
    """A single integer is an array too, which a checkpoint can hold."""
    steps = some_steps(lambda random: random.integers(5, size=2), lambda random: random.integers(4, size=2), 4)
    check_goes_on(lambda: build(2, lambda obs: obs.astype(np.float32), Discrete(5)), steps, after)


def test_saved_state_is_a_copy():
    rollout = build()
    steps = o5_steps()
    for experience in steps[:3]:
        rollout.add(experience)
    state, kept = rollout.state_dict(), encode_tree("state", rollout.state_dict())
    rollout.add(steps[3])
    list(rollout.due())
    rollout.add(step(100, 200))
    assert encode_tree("state", state) == kept


@pytest.mark.parametrize(("num_envs", "steps"), [(2, 3), (3, 4)])
def test_another_size_is_refused(num_envs, steps):
    with pytest.raises(CheckpointError) as refusal:
        build(num_envs, steps=steps).load_state_dict(build(2).state_dict())
    assert str(refusal.value) == (
        f"The checkpoint's rollout has 4 steps of 2 environments, this run's {steps} of {num_envs}. "
        "Set rollout_steps and num_envs back."
    )


def test_a_replays_segments_are_refused():
    with pytest.raises(CheckpointError, match="holds a replay memory, but this run learns from rollouts"):
        build().load_segment({})


def test_nothing_of_it_goes_into_segments():
    rollout = build(3)
    rollout.add(step([0, 0, 0], [1, 1, 1]))
    assert (rollout.rows, rollout.segment(np.zeros(3, np.int64))) == (0, None)


# ---------------------------------------------------------------------------------------------------- interrupted
def test_an_interrupted_episode_is_a_truncated_one():
    """The run could not continue where the environment stood: a new episode starts. Environment 1 had "
    "ended by itself."""
    rollout = build(2)
    rollout.add(step([0, 0], [1, 1]))
    rollout.add(step([1, 1], [2, 2], terminated=[False, True]))
    rollout.interrupt()
    rollout.add(step([7, 7], [8, 8]))
    rollout.add(step([8, 8], [9, 9]))
    found = one(rollout).advantage.reshape(4, 2)
    last = 0.9 * 8 - 7 + 0.72 * (0.9 * 9 - 8)
    np.testing.assert_allclose(found[:, 0], [0.9 + 0.72 * 0.8, 0.8, last, 0.1], rtol=1e-5)  # .9 · 2 - 1 = .8
    np.testing.assert_allclose(found[:, 1], [0.9 - 0.72, -1, last, 0.1], rtol=1e-5)


def test_between_two_rollouts_there_is_nothing_to_interrupt():
    rollout = build()
    for experience in o5_steps():
        rollout.add(experience)
    list(rollout.due())
    rollout.interrupt()
    for experience in o5_steps():
        rollout.add(experience)
    np.testing.assert_allclose(one(rollout).advantage, [2.12, 1, 3.75, 4.7], rtol=1e-6)


def test_it_is_interrupted_once():
    """A second time, before anything was added, changes nothing."""
    rollout = build(steps=2)
    rollout.add(step(0, 1))
    rollout.interrupt()
    state = encode_tree("state", rollout.state_dict())
    rollout.interrupt()
    assert encode_tree("state", rollout.state_dict()) == state


def test_one_environment_alone_is_interrupted():
    found = []
    for which in (None, np.array([True, False]), np.array([False, False])):
        rollout = build(2)
        rollout.add(step([0, 0], [1, 1]))
        rollout.interrupt(which)
        for time in (7, 8, 9):
            rollout.add(step([time, time], [time + 1, time + 1]))
        found.append(one(rollout).advantage.reshape(4, 2))
    both, first, none = found
    assert not np.array_equal(both, none)
    np.testing.assert_array_equal(first[:, 0], both[:, 0])
    np.testing.assert_array_equal(first[:, 1], none[:, 1])
