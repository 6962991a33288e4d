"""Demonstrations on disk: round trip, atomic writes, damage, and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demo_cases import DICT_ACTIONS, SPACES, assert_same_episode, description, episode
from hostile_demos import SEGMENT, change_manifest

from duetto import demonstrations
from duetto.errors import DuettoError, UsageError
from duetto.networks.spaces import Box

KINDS = list(SPACES)


def save_demos(path: Path, kind: str = "vector", count: int = 3) -> list[Any]:
    episodes = [episode(kind, steps=3 + i, seed=i, terminated=i % 2 == 0) for i in range(count)]
    demonstrations.save(path, description(kind), episodes, seeds=range(10, 10 + count))
    return episodes


# ---------------------------------------------------------------------------------------------------- round trip
@pytest.mark.parametrize("kind", KINDS)
def test_loaded_demonstrations_equal_the_saved_ones(tmp_path: Path, kind: str):
    episodes = save_demos(tmp_path / "demos", kind)
    found = demonstrations.load(tmp_path / "demos")
    assert found.metadata == description(kind)
    assert len(found) == len(found.episodes) == 3
    for one, other in zip(found.episodes, episodes, strict=True):
        assert_same_episode(one, other)
    assert found.lengths.tolist() == [3, 4, 5]
    assert found.steps == 12
    assert found.terminated.tolist() == [True, False, True]
    assert found.seeds == [10, 11, 12]
    assert found.parts == [0, 0, 0]
    np.testing.assert_allclose(found.returns, [one.reward.sum(dtype=np.float64) for one in episodes])


# ---------------------------------------------------------------------------------------------------- atomic writes
def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def interrupted_episodes(error: type[BaseException]) -> Iterator[Any]:
    """Yield three episodes, of which some are on disk, and raise the error."""
    yield from (episode(seed=i) for i in range(3))
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_interrupted_save_leaves_no_files(tmp_path: Path, error: type[BaseException]):
    with pytest.raises(error):
        demonstrations.save(tmp_path / "demos", description(), interrupted_episodes(error))
    assert names_in(tmp_path) == []


def test_interrupted_overwrite_keeps_the_old_demonstrations(tmp_path: Path):
    old = save_demos(tmp_path / "demos")
    with pytest.raises(KeyboardInterrupt):
        demonstrations.save(tmp_path / "demos", description(), interrupted_episodes(KeyboardInterrupt), overwrite=True)
    assert names_in(tmp_path) == ["demos"]
    assert_same_episode(demonstrations.load(tmp_path / "demos").episodes[0], old[0])


def test_overwrite_failing_at_its_last_rename_keeps_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The old folder has been renamed, but renaming the new folder fails."""
    old, rename = save_demos(tmp_path / "demos"), Path.rename

    def failing_rename(self: Path, target: Path) -> Path:
        if Path(target) == tmp_path / "demos" and not self.name.endswith(".old"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing_rename)
    with pytest.raises(DuettoError, match=r"cannot be written: Input/output error\. Its content is in ") as raised:
        demonstrations.save(tmp_path / "demos", description(), [episode(seed=9)], overwrite=True)
    assert_same_episode(demonstrations.load(tmp_path / "demos").episodes[0], old[0])
    assert_same_episode(first_episode_named_in(raised.value), episode(seed=9))
    assert len(names_in(tmp_path)) == 2


def first_episode_named_in(error: DuettoError) -> Any:
    """Return the first episode of the folder that an error names."""
    return demonstrations.load(str(error).rpartition(" is in ")[2].rstrip(".")).episodes[0]


def test_existing_demonstrations_require_overwrite(tmp_path: Path):
    save_demos(tmp_path / "demos")
    with pytest.raises(UsageError, match=r"exists already.*--overwrite"):
        demonstrations.save(tmp_path / "demos", description(), [episode(seed=9)])
    assert len(demonstrations.load(tmp_path / "demos")) == 3
    demonstrations.save(tmp_path / "demos", description(), [episode(seed=9)], overwrite=True)
    assert_same_episode(demonstrations.load(tmp_path / "demos").episodes[0], episode(seed=9))
    assert names_in(tmp_path) == ["demos"]


def test_overwrite_refuses_folders_of_other_files(tmp_path: Path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("1")
    with pytest.raises(UsageError, match="is no dataset"):
        demonstrations.save(tmp_path / "thesis", description(), [episode()], overwrite=True)
    assert names_in(tmp_path / "thesis") == ["chapter.tex"]
    (tmp_path / "thesis" / "manifest.json").write_text('{"title": "of years"}')  # a dataset also has this file
    with pytest.raises(UsageError, match="is no dataset"):
        demonstrations.save(tmp_path / "thesis", description(), [episode()], overwrite=True)
    assert names_in(tmp_path / "thesis") == ["chapter.tex", "manifest.json"]


def test_overwrite_keeps_a_file_that_appears_while_recording(tmp_path: Path):
    def episodes() -> Iterator[Any]:
        yield episode()
        (tmp_path / "demos").write_text("mine")

    with pytest.raises(DuettoError, match=r"demos cannot be written: .* Its content is in ") as raised:
        demonstrations.save(tmp_path / "demos", description(), episodes(), overwrite=True)
    assert (tmp_path / "demos").read_text() == "mine"
    assert_same_episode(first_episode_named_in(raised.value), episode())


def test_saving_no_episodes_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="nothing to write"):
        demonstrations.save(tmp_path / "demos", description(), [])
    assert names_in(tmp_path) == []


INVALID_EPISODES = {
    "missing observation": (lambda e: e._replace(obs=e.obs[1:]), "observation is uint8"),
    "wrong dtype": (lambda e: e._replace(obs=e.obs.astype(np.float32)), "observation is float32"),
    "action out of range": (lambda e: e._replace(action=e.action + 7), "not in Discrete"),
    "wrong action shape": (lambda e: e._replace(action=e.action[:, None]), "action is int64"),
    "neither terminated nor truncated": (lambda e: e._replace(terminated=False), "neither terminated nor truncated"),
    "no steps": (lambda e: e._replace(reward=e.reward[:0]), "no steps"),
    "NaN reward": (lambda e: e._replace(reward=e.reward * np.float32(np.nan)), "NaN"),
}


@pytest.mark.parametrize(("change", "match"), INVALID_EPISODES.values(), ids=INVALID_EPISODES)
def test_episode_that_does_not_fit_its_metadata_is_refused(tmp_path: Path, change: Callable[[Any], Any], match: str):
    with pytest.raises(UsageError, match=f"Episode 1 does not fit.*{match}"):
        demonstrations.save(tmp_path / "demos", description(), [episode(), change(episode())])
    assert names_in(tmp_path) == []


def test_dict_actions_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="no algorithm learns from demonstrations with Dict actions"):
        demonstrations.save(tmp_path / "demos", description(action_space=DICT_ACTIONS), [])
    assert names_in(tmp_path) == []


def test_out_of_range_actions_are_refused(tmp_path: Path):
    strong = episode("real")._replace(action=np.full((4, 4), 1.5, np.float32))
    with pytest.raises(UsageError, match=r"outside of \[-1, 1\]"):
        demonstrations.save(tmp_path / "demos", description("real"), [strong])


def test_actions_with_one_infinite_bound_have_their_own_bounds(tmp_path: Path):
    space = Box((4,), "float32", (-5.0,) * 4, (np.inf,) * 4)
    strong = episode("real")._replace(action=np.full((4, 4), -3, np.float32))
    demonstrations.save(tmp_path / "demos", description("real", action_space=space), [strong])
    with pytest.raises(UsageError, match="outside"):
        demonstrations.save(
            tmp_path / "more", description("real", action_space=space), [strong._replace(action=2 * strong.action)]
        )


# ---------------------------------------------------------------------------------------------------- damage
def test_damage_after_loading_is_detected_when_reading(tmp_path: Path):
    save_demos(tmp_path / "demos")
    found = demonstrations.load(tmp_path / "demos")
    (tmp_path / "demos" / SEGMENT).write_bytes(b"")
    found.episodes[1]
    with pytest.raises(UsageError, match="are damaged"):
        found.episodes[0]


def test_folder_without_demonstrations_is_refused(tmp_path: Path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="contains no demonstrations"):
            demonstrations.load(path)


@pytest.mark.parametrize("place", ["metadata.json", "data/metadata.json"])
def test_loading_a_minari_dataset_suggests_import(tmp_path: Path, place: str):
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("{}")
    with pytest.raises(UsageError, match=r"is a Minari dataset\. Import it: duetto demos import .* --environment"):
        demonstrations.load(tmp_path)


def test_newer_format_version_is_refused(tmp_path: Path):
    save_demos(tmp_path / "demos")
    change_manifest(tmp_path / "demos", lambda content: content.update(version=2))
    with pytest.raises(UsageError, match=r"the format 'duetto-demonstrations', version 2"):
        demonstrations.load(tmp_path / "demos")
