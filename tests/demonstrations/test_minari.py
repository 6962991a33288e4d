"""Minari datasets: import with actions scaled to [-1, 1], export, and errors."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest
from demo_cases import SPACES, assert_same_demonstrations, description, episode
from minari.data_collector import EpisodeBuffer

from duetto import demonstrations
from duetto.demonstrations import Demonstrations, Metadata, export_minari, import_minari, minari_datasets
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Discrete, Space

OBSERVATION = Box((2,), "float32", (-np.inf,), (np.inf,))
TORQUE = Box((1,), "float32", (-2.0,), (4.0,))
KINDS = list(SPACES)


def metadata_of(observation: Space = OBSERVATION, action: Space = TORQUE, **changes: Any) -> Metadata:
    return description(**{"observation_space": observation, "action_space": action, "expert": ""} | changes)


def import_and_load(source: str, output: Path, metadata: Metadata | None = None) -> Demonstrations:
    import_minari(source, output, metadata or metadata_of(), trust=True)
    return demonstrations.load(output)


def write_minari_dataset(path: Path, **changes: Any) -> Path:
    """Write a dataset of one episode of three steps, with actions of TORQUE."""
    arrays = {
        "observations": np.arange(8.0).reshape(4, 2),
        "actions": np.array([[-2.0], [1.0], [4.0]]),
        "rewards": np.array([1.0, 5.0, -7.0]),
        "terminations": np.array([False, False, True]),
        "truncations": np.zeros(3, bool),
    }
    spaces = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64), gymnasium.spaces.Box(-2, 4, (1,), np.float32)
    storage = minari.dataset.minari_storage.MinariStorage.new(path, *spaces, jpeg_encoding=True)
    storage.update_episodes([EpisodeBuffer(**arrays | changes)])
    return path


def convert_first_episode(source: Path, metadata: Metadata | None = None) -> Any:
    """Convert a dataset, and return its first episode."""
    minari_datasets.convert(source, source.parent / "out", metadata or metadata_of())
    return demonstrations.load(source.parent / "out").episodes[0]


# ---------------------------------------------------------------------------------------------------- conversion
def test_minari_episode_without_an_end_is_truncated(tmp_path: Path):
    demo = convert_first_episode(write_minari_dataset(tmp_path / "one", terminations=np.zeros(3, bool)))
    assert (demo.terminated, demo.truncated) == (False, True)


INVALID_EPISODES = {
    "too few rewards": ({"rewards": np.zeros(2)}, "3 actions, but another number of rewards"),
    "end before the last step": ({"terminations": np.array([False, True, False])}, "ends before its last step"),
    "wrong action shape": ({"actions": np.zeros((3, 2))}, "cannot reshape"),
    "wrong observation shape": ({"observations": np.zeros((4, 3))}, r"its space says \(4, 2\)"),
    "NaN reward": ({"rewards": np.full(3, np.nan)}, "reward is NaN"),
}


@pytest.mark.parametrize(("changes", "match"), INVALID_EPISODES.values(), ids=INVALID_EPISODES)
def test_invalid_minari_episode_is_refused(tmp_path: Path, changes: dict[str, Any], match: str):
    with pytest.raises(ValueError, match=f"episode 0: .*{match}"):
        convert_first_episode(write_minari_dataset(tmp_path / "one", **changes))
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


# ---------------------------------------------------------------------------------------------------- import
@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the id of a typical dataset: in Minari's folder, made of lists, with unscaled actions."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    buffers = [
        EpisodeBuffer(
            seed=2**63 + seed,  # Minari draws 64 bits
            observations=[np.array([seed, step]) for step in range(3)],
            actions=[np.array([-2.0]), np.array([2.5])],
            rewards=[0.0, float(seed)],
            terminations=[False, False],
            truncations=[False, seed == 1],
        )
        for seed in (1, 2)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari warns that no author is given
        minari.create_dataset_from_buffers(
            "toy/pushing-v3",
            buffers,
            observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64),
            action_space=gymnasium.spaces.Box(-2, 4, (1,), np.float32),
            algorithm_name="a patient person",
        )
    return "toy/pushing-v3"


def test_import_minari_dataset_by_id_and_by_folder(tmp_path: Path, dataset: str):
    found = import_and_load(dataset, tmp_path / "demos")
    assert found.metadata == metadata_of(expert="a patient person in toy/pushing-v3")
    assert found.seeds == [2**63 + 1, 2**63 + 2]
    one, other = found.episodes
    np.testing.assert_array_equal(one.obs, np.array([[1, 0], [1, 1], [1, 2]], np.float32))
    np.testing.assert_array_equal(one.action, np.array([[-1], [0.5]], np.float32))
    np.testing.assert_array_equal(one.reward, np.array([0, 1], np.float32))
    assert (one.terminated, one.truncated, other.truncated) == (False, True, True)
    with pytest.raises(UsageError, match="exists already"):
        import_minari(dataset, tmp_path / "demos", metadata_of(), trust=True)
    for source in (tmp_path / "minari" / dataset, tmp_path / "minari" / dataset / "data"):
        import_minari(str(source), tmp_path / "demos", metadata_of(expert=source.name), trust=True, overwrite=True)
        assert demonstrations.load(tmp_path / "demos").metadata.expert == source.name


def test_space_mismatch_error_shows_both_spaces(tmp_path: Path, dataset: str):
    shown = r"cannot be imported \(its action space is .*from -2 to 4\), and .*Discrete\(3\)"
    with pytest.raises(UsageError, match=shown):
        import_and_load(dataset, tmp_path / "demos", metadata_of(action=Discrete(3)))


def test_damaged_minari_file_is_refused(tmp_path: Path, dataset: str):
    path = tmp_path / "minari" / dataset / "data" / "main_data.hdf5"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UsageError, match="cannot be imported"):
        import_and_load(dataset, tmp_path / "demos")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["minari"]


def test_import_requires_trust(tmp_path: Path):
    with pytest.raises(UsageError, match="If you trust its author, add --trust"):
        import_minari(str(write_minari_dataset(tmp_path / "one")), tmp_path / "imported", metadata_of())
    assert not (tmp_path / "imported").exists()


def test_missing_minari_dataset_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    with pytest.raises(UsageError, match="is no Minari dataset"):
        import_and_load(str(tmp_path / "nowhere"), tmp_path / "demos")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [1.0, 5.0, -7.0]),
        ({"clip_rewards": True}, [1.0, 1.0, -1.0]),
        ({"log_rewards": True}, [np.log(2.0), np.log(6.0), -np.log(8.0)]),
    ],
)
def test_imported_rewards_are_transformed_as_in_training(tmp_path: Path, options: dict[str, Any], wanted: list[float]):
    pytest.importorskip("ale_py")
    atari = {"environment": "ALE/Pong-v5", "options": options}
    found = import_and_load(str(write_minari_dataset(tmp_path / "one")), tmp_path / "demos", metadata_of(**atari))
    np.testing.assert_allclose(found.episodes[0].reward, wanted, rtol=1e-6)
    assert found.episodes[0].reward.dtype == np.float32
    with pytest.raises(UsageError, match="do not record lost lives"):
        import_and_load(
            "none", tmp_path / "more", metadata_of(**atari | {"options": options | {"episodic_life": True}})
        )


# ---------------------------------------------------------------------------------------------------- export
@pytest.mark.parametrize("kind", KINDS)
def test_minari_reads_exported_demonstrations(tmp_path: Path, kind: str):
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


def test_exported_demonstrations_import_unchanged(tmp_path: Path):
    demonstrations.save(tmp_path / "demos", description(), [episode(seed=i) for i in range(2)], seeds=[3, None])
    found = demonstrations.load(tmp_path / "demos")
    export_minari(found, tmp_path / "minari")
    assert_same_demonstrations(import_and_load(str(tmp_path / "minari"), tmp_path / "again", description()), found)
    with pytest.raises(UsageError, match="exists already"):
        export_minari(found, tmp_path / "minari")
