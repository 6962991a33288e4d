"""Minari datasets: imported with the same numbers and actions in [-1, 1], and exported; mistakes are sentences."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest
from demo_cases import SPACES, check_same_sets, description, episode
from minari.data_collector import EpisodeBuffer

from duetto import demonstrations
from duetto.demonstrations import Demonstrations, Metadata, export_minari, import_minari, minari_datasets
from duetto.environments import from_gymnasium
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Discrete, Space

TWO = Box((2,), "float32", (-np.inf,), (np.inf,))
TORQUE = Box((1,), "float32", (-2.0,), (4.0,))
KINDS = list(SPACES)


def about(observation: Space = TWO, action: Space = TORQUE, **changes: Any) -> Metadata:
    return description(**{"observation_space": observation, "action_space": action, "expert": ""} | changes)


def imported(source: str, output: Path, metadata: Metadata | None = None) -> Demonstrations:
    import_minari(source, output, metadata or about(), trust=True)
    return demonstrations.load(output)


def raw(path: Path, observation: Any = None, action: Any = None, **changes: Any) -> Path:
    """A dataset of one episode of three steps, with actions of TORQUE."""
    arrays = {
        "observations": np.arange(8.0).reshape(4, 2),
        "actions": np.array([[-2.0], [1.0], [4.0]]),
        "rewards": np.array([1.0, 5.0, -7.0]),
        "terminations": np.array([False, False, True]),
        "truncations": np.zeros(3, bool),
    }
    spaces = (
        observation or gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64),
        action or gymnasium.spaces.Box(-2, 4, (1,), np.float32),
    )
    storage = minari.dataset.minari_storage.MinariStorage.new(path, *spaces, jpeg_encoding=True)
    storage.update_episodes([EpisodeBuffer(**arrays | changes)])
    return path


def converted(source: Path, metadata: Metadata | None = None) -> Any:
    """The first episode."""
    minari_datasets.convert(source, source.parent / "out", metadata or about())
    return demonstrations.load(source.parent / "out").episodes[0]


# ---------------------------------------------------------------------------------------------------- conversion
def test_an_episode_by_value(tmp_path: Path):
    demo = converted(raw(tmp_path / "one"))
    np.testing.assert_array_equal(demo.obs, np.arange(8, dtype=np.float32).reshape(4, 2))
    np.testing.assert_array_equal(demo.action, np.array([[-1], [0], [1]], np.float32))
    np.testing.assert_array_equal(demo.reward, np.array([1, 5, -7], np.float32))
    assert (demo.terminated, demo.truncated) == (True, False)
    assert [array.dtype for array in (demo.obs, demo.action, demo.reward)] == [np.float32] * 3


def test_parts_of_a_dict(tmp_path: Path):
    spaces = gymnasium.spaces
    observation = spaces.Dict(
        {
            "direction": spaces.Discrete(4, start=1),
            "levers": spaces.MultiDiscrete([2, 3], start=[1, 5]),
            "more": spaces.Tuple([spaces.Box(0, 255, (2,), np.uint8)]),
        }
    )
    action = spaces.MultiDiscrete([2, 3])
    path = raw(
        tmp_path / "one",
        observation,
        action,
        observations={
            "direction": np.array([1, 4, 2]),
            "levers": np.array([[1, 5], [2, 7], [1, 6]]),
            "more": (np.array([[1, 2], [3, 4], [5, 6]], np.uint8),),
        },
        actions=np.array([[0, 2], [1, 0]]),
        rewards=np.zeros(2),
        terminations=np.array([False, False]),
        truncations=np.array([False, True]),
    )
    demo = converted(path, about(from_gymnasium(observation), from_gymnasium(action)))
    np.testing.assert_array_equal(demo.obs["direction"], [0, 3, 1])
    np.testing.assert_array_equal(demo.obs["levers"], [[0, 0], [1, 2], [0, 1]])
    np.testing.assert_array_equal(demo.obs["more/0"], [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(demo.action, [[0, 2], [1, 0]])
    assert (demo.terminated, demo.truncated) == (False, True)


def test_an_episode_without_an_end_was_truncated(tmp_path: Path):
    demo = converted(raw(tmp_path / "one", terminations=np.zeros(3, bool)))
    assert (demo.terminated, demo.truncated) == (False, True)


MISTAKES = {
    "too few rewards": ({"rewards": np.zeros(2)}, "3 actions and another number of rewards"),
    "it continues": ({"terminations": np.array([False, True, False])}, "over before its last step"),
    "a shape": ({"actions": np.zeros((3, 2))}, "cannot reshape"),
    "observations of another length": ({"observations": np.zeros((4, 3))}, r"its space says \(4, 2\)"),
    "a reward that is none": ({"rewards": np.full(3, np.nan)}, "reward is NaN"),
}


@pytest.mark.parametrize(("changes", "match"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_sentences(tmp_path: Path, changes: dict[str, Any], match: str):
    with pytest.raises(ValueError, match=f"episode 0: .*{match}"):
        converted(raw(tmp_path / "one", **changes))
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_rounding_is_no_mistake(tmp_path: Path):
    demo = converted(raw(tmp_path / "one", actions=np.full((3, 1), 4.0 + 1e-6)))
    np.testing.assert_array_equal(demo.action, np.ones((3, 1), np.float32))


def test_choices_are_whole_numbers(tmp_path: Path):
    path = raw(tmp_path / "one", action=gymnasium.spaces.Discrete(2), actions=np.array([0.0, 1.0, 0.7]))
    with pytest.raises(ValueError, match="its actions are no whole numbers"):
        converted(path, about(action=Discrete(2)))


# ---------------------------------------------------------------------------------------------------- import
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
    source = {"id": dataset, "folder": str(folder), "data folder": str(folder / "data")}[way]
    found = imported(source, tmp_path / "demos")
    assert found.metadata == about(expert="a patient person in toy/pushing-v3")
    assert found.seeds == [1, 2]
    one, other = found.episodes
    np.testing.assert_array_equal(one.obs, np.array([[1, 0], [1, 1], [1, 2]], np.float32))
    np.testing.assert_array_equal(one.action, np.array([[-1], [0.5]], np.float32))
    np.testing.assert_array_equal(one.reward, np.array([0, 1], np.float32))
    assert (one.terminated, one.truncated, other.truncated) == (False, True, True)
    with pytest.raises(UsageError, match="exists already"):
        import_minari(source, tmp_path / "demos", about(), trust=True)
    import_minari(source, tmp_path / "demos", about(expert="me"), trust=True, overwrite=True)
    assert demonstrations.load(tmp_path / "demos").metadata.expert == "me"


@pytest.mark.parametrize(
    ("observation", "action", "shown"),
    [
        (Box((3,), "float32", (-np.inf,), (np.inf,)), TORQUE, r"Box\(\(2,\), float32\).*Box\(\(3,\), float32\)"),
        (TWO, Box((1,), "float32", (-1.0,), (1.0,)), r"from -2 to 4\).*from -1 to 1\)"),
        (TWO, Discrete(3), r"from -2 to 4\).*Discrete\(3\)"),
    ],
)
def test_other_spaces_are_shown_beside_ours(tmp_path: Path, observation: Space, action: Space, shown: str):
    with pytest.raises(UsageError, match=shown):
        converted(raw(tmp_path / "one"), about(observation, action))


def test_the_spaces_reach_the_message_of_the_command(tmp_path: Path, dataset: str):
    with pytest.raises(UsageError, match=r"cannot be imported \(its action space is .*from -2 to 4\), and"):
        imported(dataset, tmp_path / "demos", about(action=Discrete(3)))


def test_damage_is_a_sentence(tmp_path: Path, dataset: str):
    path = tmp_path / "minari" / dataset / "data" / "main_data.hdf5"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UsageError, match="cannot be imported"):
        imported(dataset, tmp_path / "demos")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["minari"]


def test_nothing_is_imported_without_trust(tmp_path: Path):
    with pytest.raises(UsageError, match="If you trust its author: --trust"):
        import_minari(str(raw(tmp_path / "one")), tmp_path / "imported", about())
    assert not (tmp_path / "imported").exists()


def test_nothing_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    with pytest.raises(UsageError, match="is no Minari dataset"):
        imported(str(tmp_path / "nowhere"), tmp_path / "demos")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [1.0, 5.0, -7.0]),
        ({"clip_rewards": True}, [1.0, 1.0, -1.0]),
        ({"log_rewards": True}, [np.log(2.0), np.log(6.0), -np.log(8.0)]),
    ],
)
def test_rewards_are_those_that_a_run_with_these_options_learns_from(
    tmp_path: Path, options: dict[str, Any], wanted: list[float]
):
    pytest.importorskip("ale_py")
    atari = {"environment": "ALE/Pong-v5", "options": options}
    found = imported(str(raw(tmp_path / "one")), tmp_path / "demos", about(**atari))
    np.testing.assert_allclose(found.episodes[0].reward, wanted, rtol=1e-6)
    assert found.episodes[0].reward.dtype == np.float32
    with pytest.raises(UsageError, match="do not contain where a life is lost"):
        imported("none", tmp_path / "more", about(**atari | {"options": options | {"episodic_life": True}}))


# ---------------------------------------------------------------------------------------------------- export
@pytest.mark.parametrize("kind", KINDS)
def test_minari_reads_what_is_exported(tmp_path: Path, kind: str):
    episodes = [episode(kind, steps=3 + i, seed=i, terminated=i % 2 == 0) for i in range(3)]
    demonstrations.save(tmp_path / "demos", description(kind), episodes, seeds=range(10, 13))
    export_minari(demonstrations.load(tmp_path / "demos"), tmp_path / "minari")
    dataset = minari.MinariDataset(tmp_path / "minari")
    assert (dataset.total_episodes, dataset.total_steps) == (3, 12)
    found = dataset[1]
    np.testing.assert_array_equal(found.actions, episodes[1].action)
    np.testing.assert_array_equal(found.rewards, episodes[1].reward)
    if kind == "pictures":
        np.testing.assert_array_equal(found.observations["camera%2Fleft"], episodes[1].obs["camera/left"])
    assert found.truncations.tolist() == [False, False, False, True]
    assert not found.terminations.any()
    assert all(action in dataset.action_space for action in found.actions)
    for obs in (one.observations for one in dataset):
        rows = (
            [dict(zip(obs, row, strict=True)) for row in zip(*obs.values(), strict=True)] if kind == "pictures" else obs
        )
        assert all(row in dataset.observation_space for row in rows)
    assert [one["seed"] for one in dataset.storage.get_episode_metadata(range(3))] == [10, 11, 12]


def test_an_export_can_be_imported_again(tmp_path: Path):
    demonstrations.save(tmp_path / "demos", description(), [episode(seed=i) for i in range(2)], seeds=[3, None])
    found = demonstrations.load(tmp_path / "demos")
    export_minari(found, tmp_path / "minari")
    check_same_sets(imported(str(tmp_path / "minari"), tmp_path / "again", description()), found)
    with pytest.raises(UsageError, match="exists already"):
        export_minari(found, tmp_path / "minari")
