"""MiniGrid and BabyAI: encoded observations can be decoded; everything else equals plain MiniGrid."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import registry

from duetto.environments import VecEnv, env_registry, make, make_eval
from duetto.environments.minigrid import COLORS, DIRECTIONS, OBJECTS, STATES, VOCABULARY, bag_of_words
from duetto.networks.spaces import Box

constants = pytest.importorskip("minigrid.core.constants")
CELL = OBJECTS + COLORS + STATES
WORDS = len(VOCABULARY)
IDS = [
    "MiniGrid-Dynamic-Obstacles-6x6-v0",
    "MiniGrid-MemoryS9-v0",
    "BabyAI-KeyCorridorS3R3-v0",
    "BabyAI-BossLevel-v0",
]


def decode_one_hot(code: np.ndarray) -> int:
    """Return the number that a one-hot code stands for."""
    assert sorted(code.tolist()) == [0] * (len(code) - 1) + [1]
    return int(code.argmax())


def decode_vector(vector: np.ndarray, cells: int = 49) -> tuple[list[int], int, np.ndarray]:
    """Return the image's numbers, the direction and the mission's code of a vector."""
    numbers = []
    for cell in vector[: cells * CELL].reshape(cells, CELL):
        numbers += [decode_one_hot(part) for part in np.split(cell, (OBJECTS, OBJECTS + COLORS))]
    end = cells * CELL + DIRECTIONS
    return numbers, decode_one_hot(vector[cells * CELL : end]), vector[end:]


@pytest.mark.parametrize("environment", IDS)
def test_encoded_observations_equal_plain_minigrid(environment: str) -> None:
    stepper = make(environment)
    plain = gymnasium.make(environment, disable_env_checker=True)
    stepper.reset(3)
    shown, _ = plain.reset(seed=3)

    def check(obs: Any) -> None:
        numbers, direction, words = decode_vector(obs[0])
        assert numbers == shown["image"].reshape(-1).tolist()
        assert direction == shown["direction"]
        assert np.array_equal(words, bag_of_words(shown["mission"]))

    random = np.random.default_rng(0)
    total, length, doors = 0.0, 0, set()
    for _ in range(400):
        check(stepper.obs)
        action = stepper.sample_actions(random)
        row, ended = stepper.step(action)
        shown, reward, terminated, truncated, _ = plain.step(action[0])
        check(row.next_obs)
        doors |= set(shown["image"][shown["image"][..., 0] == constants.OBJECT_TO_IDX["door"]][:, 2].tolist())
        assert (row.reward[0], row.terminated[0], row.truncated[0]) == (np.float32(reward), terminated, truncated)
        total, length = total + float(reward), length + 1
        if terminated or truncated:
            assert ended == [(0, total, length, None)]
            total, length = 0.0, 0
            shown, _ = plain.reset()
    if environment == "BabyAI-KeyCorridorS3R3-v0":
        assert len(doors) >= 2  # doors in different states were seen


@pytest.mark.parametrize(("options", "cells"), [({}, 49), ({"agent_view_size": 3, "max_steps": 9}, 9)])
def test_observation_space_follows_the_view_size(options: dict[str, Any], cells: int) -> None:
    for made in (make, make_eval):
        stepper: VecEnv = made("MiniGrid-DoorKey-6x6-v0", kwargs=options)
        assert stepper.observation_space == Box((cells * 20 + 4 + WORDS,), "uint8", (0.0,), (1.0,))
        stepper.reset(0)
        rows = [stepper.step(np.zeros(1, int))[0] for _ in range(9)]
        assert [bool(row.truncated[0]) for row in rows] == [False] * 8 + ["max_steps" in options]


def words_of(code: np.ndarray) -> set[str]:
    assert code.dtype == np.uint8
    return {VOCABULARY[i] for i in np.flatnonzero(code == 1)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # some ids have newer versions
def test_vocabulary_covers_every_mission() -> None:
    env_registry.register("MiniGrid-Empty-5x5-v0")
    ids = [one for one in registry if one.startswith(("MiniGrid-", "BabyAI-")) and "WFC" not in one]
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 54
    assert len(ids) >= 170
    for environment in ids:
        env = gymnasium.make(environment, disable_env_checker=True)
        for mission in {env.reset(seed=seed)[0]["mission"] for seed in range(20)}:
            assert words_of(bag_of_words(mission)) == set(mission.replace(",", "").split())
