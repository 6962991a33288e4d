"""Images that a batch names by their rows: as arrays they are what a batch holds that does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from memory_cases import build, spec
from sequence_cases import World, flat, image, no_rows

from duetto import memory
from duetto.memory.whole import LeftOut
from duetto.networks.pictures import Picked, Table, held
from duetto.networks.spaces import Box, Dict, Discrete

IMAGE = image(2)


def step(random: np.random.Generator, envs: int = 2) -> memory.Experience:
    obs, next_obs = (random.integers(256, size=(envs, *IMAGE.shape), dtype=np.uint8) for _ in range(2))
    return memory.Experience(
        env=np.arange(envs),
        obs=obs,
        action=random.integers(3, size=envs),
        reward=random.normal(size=envs).astype(np.float32),
        next_obs=next_obs,
        terminated=random.random(envs) < 0.1,
        truncated=np.zeros(envs, bool),
    )


def images(replay: Any) -> Table:
    return next(iter(replay.image_tables().values()))


def test_of_transitions():
    """With n steps and single ones beside them; the rings have gone round."""
    pair = [build(2, observation=IMAGE, action=Discrete(3), capacity=30, n_step=3, one_step=True) for _ in range(2)]
    assert set(pair[1].image_tables()) == {"obs", "next_obs"}
    random = np.random.default_rng(0)
    for _ in range(40):
        one = step(random)
        for replay in pair:
            replay.add(one)
    plain, named = (replay.sample(16).batch for replay in pair)
    for ours, theirs in ((named.obs, plain.obs), (named.next_obs, plain.next_obs)):
        assert isinstance(ours, Picked)
        assert (ours.shape, ours.dtype, len(ours)) == (theirs.shape, theirs.dtype, 16)
        np.testing.assert_array_equal(np.asarray(ours), theirs)
        np.testing.assert_array_equal(ours[3:5], theirs[3:5])
    np.testing.assert_array_equal(np.asarray(named.one_step.ahead), plain.one_step.ahead)
    np.testing.assert_array_equal(named.reward, plain.reward)


@pytest.mark.parametrize("kind", ["image", "dict"])
@pytest.mark.parametrize("stacked", [1, 4])
def test_of_sequences(kind: str, stacked: int):
    """Stacks of frames, too, while episodes end and run on, and the newest observation waits for its action."""
    worlds = [World(2, kind, stacked) for _ in range(2)]
    pair = [world.build(capacity=60, batch_size=32) for world in worlds]
    table = images(pair[1])
    assert table.array.shape == (60, 1, 5, 5)
    for number in range(60):
        for world, replay in zip(worlds, pair, strict=True):
            for env in range(2):
                replay.add(world.step(env, "terminated" if number % 9 == 8 + env else ""))
        if len(pair[0]):
            plain, named = (flat(replay.sample().batch) for replay in pair)
            assert plain.keys() == named.keys()
            for name, value in plain.items():
                assert isinstance(named[name], Picked) == (value.dtype == np.uint8)
                np.testing.assert_array_equal(np.asarray(named[name]), value, err_msg=name)


def test_every_row_that_is_written_is_news():
    """A copy that only ever heard the news is the table: with the row that waits, an interruption and loaded ones."""
    world = World(2, "image", 3)
    replay = world.build(capacity=60)
    table = images(replay)
    copy = table.array.copy()

    def look() -> int:
        rows = table.news()
        copy[rows] = table[rows]
        np.testing.assert_array_equal(copy, table.array)
        assert not len(table.news())
        return len(rows)

    for number in range(70):
        for env in range(2):
            replay.add(world.step(env, "truncated" if number % 11 == 10 else ""))
        if number % 4 == 0:
            assert look()
    replay.interrupt()
    look()
    segment, state = replay.segment(no_rows(replay)), replay.state_dict()
    assert segment is not None
    other = world.build(capacity=60)
    table = images(other)
    copy = table.array.copy()
    other.load_state_dict(state)
    other.load_segment(segment)
    assert look() == 60
    np.testing.assert_array_equal(copy, images(replay).array)


def test_a_memory_that_has_rows_already():
    replay, random = build(2, observation=IMAGE, action=Discrete(3)), np.random.default_rng(0)
    replay.add(step(random))
    table = images(replay)
    assert {0, replay.rows} <= set(table.news().tolist())
    assert replay.image_tables()["obs"] is table
    replay.add(step(random))
    assert table.news().tolist() == [1, replay.rows + 1]


def test_they_are_those_of_now_only():
    replay, random = build(2, observation=IMAGE, action=Discrete(3)), np.random.default_rng(0)
    replay.image_tables()
    replay.add(step(random))
    batch = replay.sample(2).batch
    held(batch.obs)
    replay.add(step(random))
    with pytest.raises(RuntimeError, match="learn from a batch before adding"):
        held(batch.obs)


def test_whole_episodes_hold_theirs():
    for kind in ("image", "dict"):
        world = World(1, kind, 3)
        replay = world.build()
        replay.image_tables()
        for _ in range(3):
            world.episode(replay, 6)
        for episode in replay.episodes(LeftOut()):
            parts = episode.obs.values() if isinstance(episode.obs, dict) else [episode.obs]
            assert all(isinstance(part, np.ndarray) for part in parts)
    replay, random = build(1, observation=IMAGE, action=Discrete(3)), np.random.default_rng(0)
    replay.image_tables()
    for _ in range(40):
        one = step(random, 1)
        replay.add(one._replace(next_obs=one.obs, terminated=np.ones(1, bool)))
    found = list(replay.episodes(LeftOut()))
    assert len(found) == 40
    assert all(isinstance(episode.obs, np.ndarray) for episode in found)


def test_who_names_none():
    """What has no images, compressed ones, and memories of which a part is elsewhere or stays."""
    places = Dict((("place", Box((2,), "float32", (-1.0,) * 2, (1.0,) * 2)), ("tile", Discrete(4))))
    assert build(observation=places).image_tables() == {}
    assert World(1, "image", 3).build(compress=True).image_tables() == {}
    assert memory.Mixed.image_tables is memory.Sharded.image_tables is memory.Rollout.image_tables
    assert memory.build(spec(), IMAGE, Discrete(3), 1, np.random.default_rng(0)).image_tables().keys() == {
        "obs",
        "next_obs",
    }
