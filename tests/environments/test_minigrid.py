"""MiniGrid and BabyAI: what is seen can be read back, and nothing else differs from plain MiniGrid."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import registry
from resuming import check_continues, record

from duetto.environments import VecEnv, env_registry, make, make_eval
from duetto.environments.minigrid import COLORS, DIRECTIONS, OBJECTS, STATES, VOCABULARY, bag_of_words
from duetto.errors import UsageError
from duetto.networks.spaces import Box

constants = pytest.importorskip("minigrid.core.constants")
CELL = OBJECTS + COLORS + STATES
WORDS = len(VOCABULARY)
IDS = [
    "MiniGrid-Empty-5x5-v0",
    "MiniGrid-DoorKey-6x6-v0",
    "MiniGrid-Dynamic-Obstacles-6x6-v0",
    "MiniGrid-MemoryS9-v0",
    "MiniGrid-ObstructedMaze-1Dlhb-v0",
    "BabyAI-KeyCorridorS3R3-v0",
    "BabyAI-PutNextS5N2Carrying-v0",
    "BabyAI-BossLevel-v0",
]


def test_there_are_as_many_numbers_as_minigrid_has() -> None:
    sizes = [constants.OBJECT_TO_IDX, constants.COLOR_TO_IDX, constants.STATE_TO_IDX, constants.DIR_TO_VEC]
    assert [len(size) for size in sizes] == [OBJECTS, COLORS, STATES, DIRECTIONS]


def number(code: np.ndarray) -> int:
    """That a one-hot code stands for."""
    assert sorted(code.tolist()) == [0] * (len(code) - 1) + [1]
    return int(code.argmax())


def read_vector(vector: np.ndarray, cells: int = 49) -> tuple[list[int], int, np.ndarray]:
    """The image's numbers, the direction and the mission's code in a vector."""
    numbers = []
    for cell in vector[: cells * CELL].reshape(cells, CELL):
        numbers += [number(part) for part in np.split(cell, (OBJECTS, OBJECTS + COLORS))]
    end = cells * CELL + DIRECTIONS
    return numbers, number(vector[cells * CELL : end]), vector[end:]


@pytest.mark.parametrize("environment", IDS)
def test_what_is_seen_is_what_minigrid_shows(environment: str) -> None:
    stepper = make(environment)
    plain = gymnasium.make(environment, disable_env_checker=True)
    stepper.reset(3)
    shown, _ = plain.reset(seed=3)

    def check(obs: Any) -> None:
        numbers, direction, words = read_vector(obs[0])
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
        assert len(doors) >= 2  # the states differ


@pytest.mark.parametrize(("options", "cells"), [({}, 49), ({"agent_view_size": 3, "max_steps": 9}, 9)])
def test_the_view_makes_the_space(options: dict[str, Any], cells: int) -> None:
    for made in (make, make_eval):
        stepper: VecEnv = made("MiniGrid-DoorKey-6x6-v0", kwargs=options)
        assert stepper.observation_space == Box((cells * 20 + 4 + WORDS,), "uint8", (0.0,), (1.0,))
        stepper.reset(0)
        rows = [stepper.step(np.zeros(1, int))[0] for _ in range(9)]
        assert [bool(row.truncated[0]) for row in rows] == [False] * 8 + ["max_steps" in options]


def words_of(code: np.ndarray) -> set[str]:
    assert code.dtype == np.uint8
    return {VOCABULARY[i] for i in np.flatnonzero(code == 1)}


def test_unknown_words_are_named() -> None:
    with pytest.raises(UsageError, match=r'The mission "go to the greem ball" has greem, in no mission of minigrid'):
        bag_of_words("go to the greem ball")


def test_nobody_can_change_what_is_remembered() -> None:
    with pytest.raises(ValueError, match="read-only"):
        bag_of_words("go to the goal")[0] = 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # older versions of some ids
def test_every_word_of_every_environment_is_known() -> None:
    env_registry.register("MiniGrid-Empty-5x5-v0")
    ids = [one for one in registry if one.startswith(("MiniGrid-", "BabyAI-")) and "WFC" not in one]
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 54
    assert len(ids) >= 170
    for environment in ids:
        env = gymnasium.make(environment, disable_env_checker=True)
        for mission in {env.reset(seed=seed)[0]["mission"] for seed in range(20)}:
            assert words_of(bag_of_words(mission)) == set(mission.replace(",", "").split())


def test_babyai_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    stepper = make("BabyAI-PutNextLocal-v0")
    for seed in range(30):
        stepper.reset(seed)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("environment", ["minigrid:MiniGrid-Empty-5x5-v0", "BabyAI-GoToObj-v0"])
def test_a_first_import_is_quiet_with_the_module_in_the_id_too(environment: str) -> None:
    code = f"from duetto.environments import make; assert make('{environment}').observation_space.size == {984 + WORDS}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


# ------------------------------------------------------------------------------------------- saved and resumed
SHORT = {"max_steps": 60}


def test_saved_with_a_seed_without_a_step_and_after_a_reset_of_one() -> None:
    saving = make("BabyAI-GoToSeq-v0", num_envs=4, kwargs=SHORT)
    saving.reset(11)
    saving.reset_env(1, 5)
    saving.engine.envs[2].reset()  # without a seed, as after an episode
    random = np.random.default_rng(0)
    record(saving, random, 25)
    saving.reset_env(3, 8)
    resumed, again = (make("BabyAI-GoToSeq-v0", num_envs=4, kwargs=SHORT) for _ in range(2))
    state, _ = check_continues(saving, resumed, random, 130)
    again.load_state_dict(state)
    assert str(again.state_dict()) == str(state)


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
@pytest.mark.parametrize("spoil", ["action", "numbers"])
def test_another_episode_is_no_exact_resume(spoil: str, vectorization: Any) -> None:
    """Only that environment starts a new one."""

    def fresh() -> Any:
        return make("MiniGrid-DoorKey-5x5-v0", num_envs=2, vectorization=vectorization)

    saving, resumed, begun = fresh(), fresh(), fresh()
    saving.reset(0)
    record(saving, np.random.default_rng(0), 8)
    state = saving.state_dict()
    own = state["environments"]["1"]
    if spoil == "action":
        own["actions"] = own["actions"].copy()
        own["actions"][-8] = (own["actions"][-8] + 1) % 2
    else:
        own["begin"]["seed"] += 1
    resumed.load_state_dict(state)
    begun.load_state_dict(state | {"environments": None})
    assert resumed.restored.tolist() == [True, False]
    assert resumed.starts.tolist() == [False, True]
    assert resumed.steps == 8
    assert np.array_equal(resumed.obs[0], saving.obs[0])
    assert np.array_equal(resumed.obs[1], begun.obs[1])
    for stepper in (saving, resumed, begun):
        stepper.close()


@pytest.mark.parametrize("first", [True, False])
def test_what_was_set_before_and_within_an_episode_comes_back(first: bool) -> None:
    """Each episode of this one starts with as many obstacles as `n_obstacles` says, at first the constructor's."""
    saving, resumed = (make("MiniGrid-Dynamic-Obstacles-8x8-v0", kwargs=SHORT) for _ in range(2))
    random = np.random.default_rng(0)
    saving.reset(0)
    if not first:
        saving.set_attr("n_obstacles", 2)
    record(saving, random, 70)
    while saving.starts.any():  # within an episode
        record(saving, random, 1)
    saving.set_attr("n_obstacles", 1)
    check_continues(saving, resumed, random, 130)
    assert resumed.engine.envs[0].unwrapped.n_obstacles == 1
