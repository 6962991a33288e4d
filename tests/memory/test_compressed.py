"""Compressed images are the images: the same batches, the same checkpoints, less memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from sequence_cases import World, items, no_rows

from duetto import memory
from duetto.algorithms import DQN
from duetto.memory.compressed import CompressedRows
from duetto.networks.spaces import Box, Discrete

FRAME = Box((1, 20, 20), "uint8", (0,), (255,))


def test_rows_are_what_was_written_last():
    rows = CompressedRows(6, (2, 3), np.dtype(np.uint8))
    values = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    rows[np.array([1, 4, 1])] = values[:3]
    rows[np.array([5])] = values[3:]
    plain = np.zeros((6, 2, 3), np.uint8)
    plain[[1, 4, 5]] = values[[2, 1, 3]]
    np.testing.assert_array_equal(rows[:], plain)
    np.testing.assert_array_equal(rows[2:5], plain[2:5])
    index = np.array([[4, 1, 4], [0, 5, 1]])
    np.testing.assert_array_equal(rows.take(index, axis=0), plain[index])
    assert rows.take(index).dtype == np.uint8


@pytest.mark.parametrize("kind", ["image", "dict"])
def test_sequences_are_the_same_and_so_are_their_checkpoints(kind):
    world = World(2, kind, 3)
    plain, packed = (world.build(burn_in=1, unroll=3, overlap=2, compress=compress) for compress in (False, True))
    for number in range(30):
        for env in range(2):
            experience = world.step(env, "truncated" if number % 7 == 6 else "")
            plain.add(experience)
            packed.add(experience)
    again = world.build(burn_in=1, unroll=3, overlap=2, compress=True)
    again.load_state_dict(packed.state_dict())
    segment = packed.segment(no_rows(packed))
    assert segment is not None
    again.load_segment(segment)
    expected = items(plain)
    assert expected
    for replay in (packed, again):
        found = items(replay)
        assert found.keys() == expected.keys()
        for name, item in expected.items():
            for key, array in item.items():
                np.testing.assert_array_equal(found[name][key], array)


@pytest.mark.parametrize("compress", [False, True])
def test_single_steps_and_the_option(compress):
    spec = DQN(compress_images=compress, replay_capacity=40, batch_size=8).memory()
    replay = memory.build(spec, FRAME, Discrete(3), 1, np.random.default_rng(0))
    assert isinstance(replay, memory.Replay)
    frames = np.random.default_rng(1).integers(0, 255, (41, 1, 20, 20), dtype=np.uint8)
    for step in range(40):
        flags = np.array([False]), np.array([False])
        number = np.array([step], np.float32)
        at, then = frames[step : step + 1], frames[step + 1 : step + 2]
        replay.add(memory.Experience(np.zeros(1, np.int64), at, np.zeros(1, np.int64), number, then, *flags))
    batch = replay.sample().batch
    np.testing.assert_array_equal(batch.obs, frames[batch.reward.astype(int)])
    np.testing.assert_array_equal(batch.next_obs, frames[batch.reward.astype(int) + 1])
    assert isinstance(replay._rings.arrays["obs"], CompressedRows) == compress


def test_what_repeats_takes_little():
    rows = CompressedRows(100, (84, 84), np.dtype(np.uint8))
    rows[np.arange(50)] = np.full((50, 84, 84), 7, np.uint8)
    assert rows.nbytes < 50 * 84 * 84 / 50


def test_a_checkpoint_unpacks_images_once():
    shape, count = (4, 84, 84), 200
    rows = CompressedRows(count, shape, np.dtype(np.uint8))
    tracemalloc.start()
    try:
        taken = rows[:]
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 1.1 * taken.nbytes
