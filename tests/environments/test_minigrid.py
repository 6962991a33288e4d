"""MiniGrid and BabyAI: what is seen can be read back, and nothing else differs from plain MiniGrid."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from duetto.environments import MiniGridOptions, VecEnv, make, make_eval, minigrid_missions
from duetto.environments.minigrid import COLORS, DIRECTIONS, OBJECTS, STATES
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Discrete

constants = pytest.importorskip("minigrid.core.constants")
CELL = OBJECTS + COLORS + STATES
WORDS = len(minigrid_missions.VOCABULARY)
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


def read_image(seen: dict[str, np.ndarray]) -> tuple[list[int], int, np.ndarray]:
    image = seen["image"][0]
    spread = np.array([25, 51, 127])
    assert (image % spread == 0).all()
    return (image // spread).reshape(-1).tolist(), int(seen["direction"][0]), seen["mission"][0]


@pytest.mark.parametrize("environment", IDS)
@pytest.mark.parametrize(("view", "mission"), [("vector", "bag"), ("image", "ordered")])
def test_what_is_seen_is_what_minigrid_shows(environment: str, view: str, mission: str) -> None:
    stepper = make(environment, kwargs={"view": view, "mission": mission})
    plain = gymnasium.make(environment, disable_env_checker=True)
    stepper.reset(3)
    shown, _ = plain.reset(seed=3)
    encode: Any = getattr(minigrid_missions, mission)

    def check(obs: Any) -> None:
        numbers, direction, words = read_image(obs) if isinstance(obs, dict) else read_vector(obs[0])
        assert numbers == shown["image"].reshape(-1).tolist()
        assert direction == shown["direction"]
        assert np.array_equal(words, encode(shown["mission"]))

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


def test_success_is_a_positive_total_reward() -> None:
    stepper = make("MiniGrid-Empty-Random-5x5-v0", num_envs=4)
    stepper.reset(0)
    random, episodes = np.random.default_rng(0), []
    for _ in range(400):
        row, ended = stepper.step(stepper.sample_actions(random))
        episodes += [(episode, bool(row.terminated[episode.env])) for episode in ended]
    for episode, success in episodes:  # here an episode is terminated by success only
        # 1 - 0.9 * steps / max_steps, of which there are 4 * 5 * 5
        assert episode.total_reward == (1 - 0.9 * (episode.length / 100) if success else 0)
    assert {success for _, success in episodes} == {True, False}


@pytest.mark.parametrize(
    ("options", "space"),
    [
        ({}, Box((980 + 4 + WORDS,), "uint8", (0.0,), (1.0,))),
        ({"direction": False}, Box((980 + WORDS,), "uint8", (0.0,), (1.0,))),
        ({"mission": "off"}, Box((980 + 4,), "uint8", (0.0,), (1.0,))),
        ({"mission": "ordered"}, Box((980 + 4 + 8 * WORDS,), "uint8", (0.0,), (1.0,))),
        ({"mission": False, "direction": False}, Box((980,), "uint8", (0.0,), (1.0,))),  # YAML's "off"
        ({"agent_view_size": 3, "max_steps": 9}, Box((9 * 20 + 4 + WORDS,), "uint8", (0.0,), (1.0,))),
        (
            {"view": "image"},
            Dict(
                (
                    ("direction", Discrete(4)),
                    ("image", Box((7, 7, 3), "uint8", (0.0,), (255.0,))),
                    ("mission", Box((WORDS,), "uint8", (0.0,), (1.0,))),
                )
            ),
        ),
        (
            {"view": "image", "direction": False, "mission": "off"},
            Dict((("image", Box((7, 7, 3), "uint8", (0.0,), (255.0,))),)),
        ),
    ],
)
def test_the_options_make_the_space(options: dict[str, Any], space: Any) -> None:
    for made in (make, make_eval):
        stepper: VecEnv = made("MiniGrid-DoorKey-6x6-v0", kwargs=options)
        assert stepper.observation_space == space
        stepper.reset(0)
        obs = stepper.obs if isinstance(stepper.obs, dict) else {"": stepper.obs}
        parts = dict(space.parts) if isinstance(space, Dict) else {"": space}
        assert {name: part.shape[1:] for name, part in obs.items()} == {
            name: () if isinstance(part, Discrete) else part.shape for name, part in parts.items()
        }
        row, ended = stepper.step(np.zeros(1, int))
        if "max_steps" in options:
            for _ in range(8):
                assert not ended
                row, ended = stepper.step(np.zeros(1, int))
            assert row.truncated
        # An option that is left out leaves nothing behind: no part is always zero.
        if not isinstance(stepper.obs, dict) and options.get("mission") is False:
            read = np.split(stepper.obs[0].reshape(49, 20), (11, 17), axis=1)
            assert all((part.sum(axis=1) == 1).all() for part in read)


def test_steps_are_nobody_elses() -> None:
    stepper = make("MiniGrid-MemoryS9-v0")
    stepper.reset(0)
    first = stepper.obs.copy()
    row, _ = stepper.step(np.ones(1, int))
    assert np.array_equal(row.obs, first)
    assert not np.array_equal(row.next_obs, first)


def test_frames_for_videos() -> None:
    stepper = make("BabyAI-GoToObj-v0", render_mode="rgb_array")
    stepper.reset(0)
    frame = stepper.render()
    assert frame.shape == (8 * 32, 8 * 32, 3)
    assert frame.dtype == np.uint8
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 5
    assert stepper.render_fps == 10


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"view": "vektor"},
            r"MiniGrid's view='vektor' is not known\. Did you mean vector\? It is one of vector, image",
        ),
        ({"view": 3}, r"MiniGrid's view=3 is not known\. It is one of"),
        ({"mission": "order"}, r"MiniGrid's mission='order' is not known\. Did you mean ordered\?"),
        ({"direction": 1}, r"MiniGrid's direction is 1\. Give true or false"),
        ({"veiw": "image"}, r"unexpected keyword.*Did you mean view\? .* it has: view, direction, mission\."),
        ({"mask_velocity": True}, r"MiniGrid-Empty-5x5-v0 has no option mask_velocity\. These have it: CartPole"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make("MiniGrid-Empty-5x5-v0", kwargs=options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MiniGrid-DorKey-8x8-v0", "Did you mean MiniGrid-DoorKey-8x8-v0"),
        ("BabyAI-KeyCoridorS3R3-v0", "Did you mean BabyAI-KeyCorridorS3R3-v0"),
        ("MiniGrid-Empty-5x5-v7", "no version 7 of MiniGrid-Empty-5x5. Known are: MiniGrid-Empty-5x5-v0"),
    ],
)
def test_unknown_ids(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(name)


def test_options_are_checked_where_they_are_made() -> None:
    assert MiniGridOptions.take({"view": "image", "size": 9}) == (MiniGridOptions(view="image"), {"size": 9})
    with pytest.raises(UsageError, match="mission='none'"):
        MiniGridOptions(mission="none")
