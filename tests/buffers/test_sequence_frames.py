import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from sequence_cases import World, build, build_all, items, no_rows

from duetto import buffers
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Discrete

COLOUR = Box((6, 8, 9), "uint8", (0,), (255,))  # two frames of three channels


def image_of(array):
    """Box for images like `array` (C, H, W)."""
    return Box(array.shape, "uint8", (0,), (255,))


def step(obs, next_obs, end=""):
    return buffers.Experience(
        env=np.zeros(1, np.int64),
        obs=obs[None],
        action=np.zeros(1, np.int64),
        reward=np.zeros(1, np.float32),
        next_obs=next_obs[None],
        terminated=np.array([end == "terminated"]),
        truncated=np.array([end == "truncated"]),
    )


@pytest.mark.parametrize("end", ["terminated", "truncated", "interrupted"])
@pytest.mark.parametrize("kind", ["image", "dict"])
def test_stacks_come_back_as_they_were(kind, end):
    """Against a memory that stores each stack whole. World's episodes start with whatever frames."""
    world = World(1, kind, 4)
    replay = world.build(burn_in=1, unroll=3, overlap=2)
    plain = build_all(observation=world.space, action=world.action, burn_in=1, unroll=3, overlap=2)
    for number in range(40):
        experience = world.step(0, end if number % 9 == 8 and end != "interrupted" else "")
        for each in (replay, plain):
            each.add(experience)
        if number % 9 == 8 and end == "interrupted":
            for each in (replay, plain, world):
                each.interrupt()
    one, other = ([item for _, item in sorted(items(each).items())] for each in (replay, plain))
    name = "obs/image" if kind == "dict" else "obs"
    assert len(one) == len(other) > 15
    for ours, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(ours[name], theirs[name])
        np.testing.assert_array_equal(ours["previous_action"], theirs["previous_action"])


def test_a_segment_holds_each_frame_once():
    """An episode of 3 steps, then one that runs; stacks of 3 frames."""
    world = World(1, "image", 3)
    replay = world.build()
    world.episode(replay, 3)
    world.episode(replay, 2, "")
    segment = replay.segment(no_rows(replay))
    assert segment is not None
    one, two = world.episodes[0]
    frames = [*one.obs[0], *[obs[-1] for obs in one.obs[1:]], *two.obs[0], *[obs[-1] for obs in two.obs[1:]]]
    np.testing.assert_array_equal(segment["obs"][:, 0], frames)
    assert segment["action"].tolist() == [*one.action, *two.action]
    assert segment["terminated"].tolist() == [False, False, True, False, False]
    assert segment["frame"].tolist() == [2, 3, 4, 8, 9]


def test_each_frame_is_stored_once():
    """1000 steps of (4, 84, 84) in 4 episodes: 1000 frames, and 3 before and 1 after each episode."""
    random = np.random.default_rng(0)
    obs = random.integers(0, 256, (4, 84, 84), dtype=np.uint8)
    replay = build(observation=image_of(obs), stacked=4, capacity=1100)
    for number in range(1000):
        next_obs = np.concatenate([obs[1:], random.integers(0, 256, (1, 84, 84), dtype=np.uint8)])
        replay.add(step(obs, next_obs, "terminated" if number % 250 == 249 else ""))
        obs = next_obs
    segment = replay.segment(no_rows(replay))
    assert segment is not None
    assert segment["obs"].shape == (1016, 1, 84, 84)
    assert sum(array.nbytes for array in segment.values()) < 1016 * (84 * 84 + 8 + 8 + 4 + 1 + 1 + 1 + 1) + 100


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


def test_frames_with_several_channels():
    random = np.random.default_rng(0)
    replay = build(observation=COLOUR, stacked=2, burn_in=0, unroll=4, overlap=0, batch_size=1)
    stacks = [random.integers(0, 256, (6, 8, 9), dtype=np.uint8)]
    for _ in range(4):
        stacks.append(np.concatenate([stacks[-1][3:], random.integers(0, 256, (3, 8, 9), dtype=np.uint8)]))
        replay.add(step(stacks[-2], stacks[-1]))
    np.testing.assert_array_equal(replay.sample().batch.obs.obs[0], stacks)
    segment = replay.segment(no_rows(replay))
    assert segment is not None
    assert segment["obs"].shape == (6, 3, 8, 9)


def test_an_episode_may_begin_with_frames_of_the_one_before():
    """A lost life ends an episode while the game, and its stack, continues."""
    world = World(1, "image", 3)
    replay = world.build(burn_in=0, unroll=3, overlap=0)
    world.episode(replay, 3)
    going_on = world.episodes[0][-1].obs[-1]
    later = np.concatenate([going_on[1:], going_on[:1]])
    replay.add(step(going_on, later))
    replay.add(step(later, np.concatenate([later[1:], later[:1]]), "terminated"))
    found = items(replay)[0, 3]
    np.testing.assert_array_equal(found["obs"][0], going_on)
    np.testing.assert_array_equal(found["obs"][1], later)


@pytest.mark.parametrize("end", ["", "terminated"])
def test_what_is_no_stack_is_refused_and_changes_nothing(end):
    world = World(2, "dict", 4)
    replay = world.build()
    wrong = world.step(1, end)
    wrong.next_obs["image"][0, 0, 0, 0] ^= 1
    with pytest.raises(UsageError, match=r"'obs/image' of environment 1 is no stack of 4 frames.*set it to 1"):
        replay.add(wrong)
    assert replay.written.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("space", "stacked", "words"),
    [
        (Box((2,), "float32", (-1.0,) * 2, (1.0,) * 2), 4, r"Box\(2,\) cannot be stacks of 4 frames: only images"),
        (Dict((("a", Discrete(3)),)), 2, "only images"),
        (Box((4, 8, 9), "uint8", (0,), (255,)), 3, r"Box\(4, 8, 9\) cannot be stacks of 3 frames"),
        (Box((8, 9, 4), "uint8", (0,), (255,)), 4, r"only images \(channels, height, width\) can"),
    ],
)
def test_spaces_that_cannot_be_stacks_are_refused(space, stacked, words):
    with pytest.raises(UsageError, match=words):
        build(observation=space, stacked=stacked)


def test_images_that_are_no_stacks_may_lie_in_any_order():
    space = replace(COLOUR, shape=(7, 7, 3))
    replay = build(observation=space, burn_in=0, unroll=1, overlap=0, batch_size=1)
    images = np.random.default_rng(0).integers(0, 256, (2, 7, 7, 3), dtype=np.uint8)
    replay.add(step(*images))
    np.testing.assert_array_equal(replay.sample().batch.obs.obs[0], images)
