"""Episodes from elsewhere: the same numbers, actions in [-1, 1], and sentences about what does not fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest
from demo_cases import SPACES, description, episode
from minari.data_collector import EpisodeBuffer

from duetto import demonstrations
from duetto.demonstrations import Demonstration, as_learned, open_source
from duetto.demonstrations.importing import Source
from duetto.environments import from_gymnasium
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Discrete, Space

TWO = Box((2,), "float32", (-np.inf,), (np.inf,))
TORQUE = Box((1,), "float32", (-2.0,), (4.0,))


def npz(path: Path, **changes: Any) -> Path:
    """An episode of three steps, with actions of TORQUE."""
    arrays = {
        "observations": np.arange(8.0).reshape(4, 2),
        "actions": np.array([[-2.0], [1.0], [4.0]]),
        "rewards": np.array([1.0, 2.0, 3.0]),
        "terminations": np.array([False, False, True]),
        "truncations": np.zeros(3, bool),
    }
    chosen = {name: value for name, value in (arrays | changes).items() if value is not None}
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **chosen)
    return path


def read(source: Path, observation: Space = TWO, action: Space = TORQUE) -> list[Demonstration]:
    return [demo for demo, _ in open_source(str(source), observation, action).episodes]


# ---------------------------------------------------------------------------------------------------- npz
def test_a_file_by_value(tmp_path: Path):
    (demo,) = read(npz(tmp_path / "one.npz"))
    np.testing.assert_array_equal(demo.obs, np.arange(8, dtype=np.float32).reshape(4, 2))
    np.testing.assert_array_equal(demo.action, np.array([[-1], [0], [1]], np.float32))
    np.testing.assert_array_equal(demo.reward, np.array([1, 2, 3], np.float32))
    assert (demo.terminated, demo.truncated) == (True, False)
    assert [array.dtype for array in (demo.obs, demo.action, demo.reward)] == [np.float32] * 3


def test_a_folder_has_an_episode_in_each_file(tmp_path: Path):
    for name, reward in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
        npz(tmp_path / "episodes" / f"{name}.npz", rewards=np.full(3, reward))
    source = open_source(str(tmp_path / "episodes"), TWO, TORQUE)
    assert source.total == 3
    assert [(demo.reward[0], seed) for demo, seed in source.episodes] == [(1.0, None), (2.0, None), (3.0, None)]


def test_parts_of_a_dict(tmp_path: Path):
    observation, action = SPACES["pictures"]  # direction begins at 1, levers at 1 and 5
    picture = np.random.default_rng(0).integers(0, 256, (3, 32, 40, 3), dtype=np.uint8)
    path = npz(
        tmp_path / "one.npz",
        observations=None,
        **{
            "observations/camera/left": picture,
            "observations/direction": np.array([1, 4, 2]),
            "observations/levers": np.array([[1, 5], [2, 7], [1, 6]]),
        },
        actions=np.array([[0, 2], [1, 0]]),
        rewards=np.zeros(2),
        terminations=np.array([False, False]),
        truncations=np.array([False, True]),
    )
    (demo,) = read(path, observation, action)
    assert isinstance(demo.obs, dict)
    np.testing.assert_array_equal(demo.obs["camera/left"], picture)
    np.testing.assert_array_equal(demo.obs["direction"], [0, 3, 1])
    np.testing.assert_array_equal(demo.obs["levers"], [[0, 0], [1, 2], [0, 1]])
    np.testing.assert_array_equal(demo.action, [[0, 2], [1, 0]])
    assert (demo.terminated, demo.truncated) == (False, True)
    demonstrations.save(tmp_path / "demos", description("pictures"), [demo])


def test_an_episode_without_an_end_was_truncated(tmp_path: Path):
    (demo,) = read(npz(tmp_path / "one.npz", terminations=np.zeros(3, bool)))
    assert (demo.terminated, demo.truncated) == (False, True)


MISTAKES = {
    "an array is missing": ({"rewards": None}, r"arrays \['rewards'\] are missing"),
    "too few rewards": ({"rewards": np.zeros(2)}, "3 actions; give as many rewards"),
    "it goes on": ({"terminations": np.array([False, True, False])}, "over before its last step"),
    "out of bounds": ({"actions": np.array([[0.0], [4.1], [0.0]])}, "actions outside of the bounds"),
    "a shape": ({"actions": np.zeros((3, 2))}, "cannot reshape"),
    "objects": ({"rewards": np.array([1, None, {}], object)}, "allow_pickle"),
}


@pytest.mark.parametrize(("changes", "match"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_sentences(tmp_path: Path, changes: dict[str, Any], match: str):
    with pytest.raises(UsageError, match=f"one.npz cannot be imported.*{match}"):
        read(npz(tmp_path / "one.npz", **changes))


def test_rounding_is_no_mistake(tmp_path: Path):
    (demo,) = read(npz(tmp_path / "one.npz", actions=np.full((3, 1), 4.0 + 1e-6)))
    np.testing.assert_array_equal(demo.action, np.ones((3, 1), np.float32))


def test_numbers_that_are_no_bytes_do_not_become_bytes(tmp_path: Path):
    path = npz(tmp_path / "one.npz", observations=np.full((4, 2), 0.5))
    with pytest.raises(UsageError, match="no whole numbers from 0 to 255"):
        read(path, Box((2,), "uint8", (0.0,), (255.0,)))


def test_observations_of_another_length_do_not_fit(tmp_path: Path):
    (demo,) = read(npz(tmp_path / "one.npz", observations=np.zeros((4, 3))))
    about = description(observation_space=TWO, action_space=TORQUE)
    with pytest.raises(UsageError, match=r"observation is float32 \(4, 3\); Box\(2,\) with 4 rows needs"):
        demonstrations.save(tmp_path / "demos", about, [demo])


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: flipped(data)])
def test_a_damaged_file_is_a_sentence(tmp_path: Path, damage: Callable[[bytes], bytes]):
    path = npz(tmp_path / "one.npz")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UsageError, match=r"one\.npz cannot be imported"):
        read(path)


def flipped(data: bytes) -> bytes:
    """One bit of the first array is another."""
    at = 200
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_choices_are_whole_numbers(tmp_path: Path):
    path = npz(tmp_path / "one.npz", actions=np.array([0.0, 1.0, 0.7]))
    with pytest.raises(UsageError, match="Its actions are no whole numbers"):
        read(path, action=Discrete(2))


def test_no_file_of_ours(tmp_path: Path):
    (tmp_path / "one.npz").write_text("no zip")
    with pytest.raises(UsageError, match="cannot be imported"):
        read(tmp_path / "one.npz")


# ---------------------------------------------------------------------------------------------------- Minari
@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A dataset as others make it: in Minari's folder, of lists, with the environment's own actions."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    buffers = [
        EpisodeBuffer(
            seed=seed,
            observations=[np.array([seed, step]) for step in range(3)],
            actions=[np.array([-2.0]), np.array([2.5])],
            rewards=[0.0, float(seed)],
            terminations=[False, False],
            truncations=[False, seed == 1],
        )
        for seed in (1, 2)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like to know its author
        minari.create_dataset_from_buffers(
            "toy/pushing-v3",
            buffers,
            observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64),
            action_space=gymnasium.spaces.Box(-2, 4, (1,), np.float32),
            algorithm_name="a patient person",
        )
    return "toy/pushing-v3"


@pytest.mark.parametrize("way", ["id", "folder", "data folder"])
def test_a_minari_dataset(tmp_path: Path, dataset: str, way: str):
    folder = tmp_path / "minari" / dataset
    source = open_source({"id": dataset, "folder": str(folder), "data folder": str(folder / "data")}[way], TWO, TORQUE)
    assert (source.total, source.expert) == (2, "a patient person in toy/pushing-v3")
    (one, seed), (other, _) = source.episodes
    assert seed == 1
    np.testing.assert_array_equal(one.obs, np.array([[1, 0], [1, 1], [1, 2]], np.float32))
    np.testing.assert_array_equal(one.action, np.array([[-1], [0.5]], np.float32))
    np.testing.assert_array_equal(one.reward, np.array([0, 1], np.float32))
    assert (one.terminated, one.truncated, other.truncated) == (False, True, True)


@pytest.mark.parametrize(
    ("observation", "action", "shown"),
    [
        (Box((3,), "float32", (-np.inf,), (np.inf,)), TORQUE, r"(?s)Box\(\(2,\), float32\).*Box\(\(3,\), float32\)"),
        (TWO, Box((1,), "float32", (-1.0,), (1.0,)), r"(?s)from -2 to 4\).*from -1 to 1\)"),
        (TWO, Discrete(3), r"(?s)from -2 to 4\).*Discrete\(3\)"),
    ],
)
def test_other_spaces_are_shown_beside_ours(dataset: str, observation: Space, action: Space, shown: str):
    with pytest.raises(UsageError, match=shown):
        open_source(dataset, observation, action)


def test_texts_are_shown_too(tmp_path: Path):
    space = gymnasium.spaces.Dict({"mission": gymnasium.spaces.Text(9)})
    minari.dataset.minari_storage.MinariStorage.new(tmp_path, space, gymnasium.spaces.Discrete(2))
    with pytest.raises(UsageError, match=r"(?s)Text.*Box\(\(2,\), float32\)"):
        open_source(str(tmp_path), TWO, Discrete(2))


def test_damage_is_a_sentence(tmp_path: Path, dataset: str):
    path = tmp_path / "minari" / dataset / "data" / "main_data.hdf5"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UsageError, match="cannot be imported"):
        list(open_source(dataset, TWO, TORQUE).episodes)


def test_our_own_need_no_import(tmp_path: Path):
    demonstrations.save(tmp_path / "demos", description(), [episode()])
    with pytest.raises(UsageError, match=r"already. Use it as it is"):
        open_source(str(tmp_path / "demos"), *SPACES["vector"])


def test_several_actions_at_once_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="no algorithm learns from demonstrations of several at once"):
        open_source(str(tmp_path), *SPACES["several"])


def test_nothing_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    with pytest.raises(UsageError, match="no Minari dataset, and no folder with npz files"):
        open_source(str(tmp_path / "nowhere"), TWO, TORQUE)


def test_the_spaces_of_the_cases_are_those_of_gymnasium():
    assert from_gymnasium(gymnasium.spaces.Box(-2, 4, (1,), np.float32)) == TORQUE


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [0.0, 5.0, -7.0]),
        ({"clip_rewards": True}, [0.0, 1.0, -1.0]),
        ({"log_rewards": True}, [0.0, np.log(6.0), -np.log(8.0)]),
    ],
)
def test_rewards_are_those_that_a_run_with_these_options_learns_from(options: dict[str, Any], wanted: list[float]):
    pytest.importorskip("ale_py")
    demo = Demonstration(np.zeros((4, 2)), np.zeros(3, np.int64), np.array([0, 5, -7], np.float32), True, False)
    ((found, seed),) = as_learned(Source("somebody", 1, iter([(demo, 4)])), "ALE/Pong-v5", options).episodes
    np.testing.assert_allclose(found.reward, wanted, rtol=1e-6)
    assert (found.reward.dtype, seed) == (np.float32, 4)
    with pytest.raises(UsageError, match="recordings do not say where a life is lost"):
        as_learned(Source("somebody", 1, iter([])), "ALE/Pong-v5", options | {"episodic_life": True})
