"""Demonstrations on disk: what is loaded is what was saved, every change is noticed, and nothing is there by halves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demo_cases import COCKPIT, SPACES, check_same, description, episode
from hostile_demos import SEGMENT, change_manifest

from duetto import demonstrations
from duetto.errors import DuettoError, UsageError
from duetto.networks.spaces import Box

KINDS = list(SPACES)


def saved(path: Path, kind: str = "vector", count: int = 3) -> list[Any]:
    episodes = [episode(kind, steps=3 + i, seed=i, terminated=i % 2 == 0) for i in range(count)]
    demonstrations.save(path, description(kind), episodes, seeds=range(10, 10 + count))
    return episodes


# ---------------------------------------------------------------------------------------------------- round trip
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_loaded_is_what_was_saved(tmp_path: Path, kind: str):
    episodes = saved(tmp_path / "demos", kind)
    found = demonstrations.load(tmp_path / "demos")
    assert found.metadata == description(kind)
    assert len(found) == len(found.episodes) == 3
    for one, other in zip(found.episodes, episodes, strict=True):
        check_same(one, other)
    assert found.lengths.tolist() == [3, 4, 5]
    assert found.steps == 12
    assert found.terminated.tolist() == [True, False, True]
    assert found.seeds == [10, 11, 12]
    assert found.parts == [0, 0, 0]
    np.testing.assert_allclose(found.returns, [one.reward.sum(dtype=np.float64) for one in episodes])


def test_episodes_are_a_sequence(tmp_path: Path):
    episodes = saved(tmp_path / "demos")
    found = demonstrations.load(tmp_path / "demos").episodes
    check_same(found[-1], episodes[2])
    with pytest.raises(IndexError):
        found[3]


def test_seeds_may_be_unknown(tmp_path: Path):
    demonstrations.save(tmp_path / "demos", description(), [episode()])
    assert demonstrations.load(tmp_path / "demos").seeds == [None]


# ---------------------------------------------------------------------------------------------------- whole or not
def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def interrupted(error: type[BaseException]) -> Iterator[Any]:
    """Enough episodes that some of them are on disk, and then the error."""
    yield from (episode(seed=i) for i in range(3))
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_recording_leaves_nothing(tmp_path: Path, error: type[BaseException]):
    with pytest.raises(error):
        demonstrations.save(tmp_path / "demos", description(), interrupted(error))
    assert left_in(tmp_path) == []


def test_an_interrupted_overwriting_leaves_the_old_ones(tmp_path: Path):
    old = saved(tmp_path / "demos")
    with pytest.raises(KeyboardInterrupt):
        demonstrations.save(tmp_path / "demos", description(), interrupted(KeyboardInterrupt), overwrite=True)
    assert left_in(tmp_path) == ["demos"]
    check_same(demonstrations.load(tmp_path / "demos").episodes[0], old[0])


def test_an_overwriting_that_fails_at_the_last_leaves_the_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Between giving the old folder another name and the new one its own."""
    old, rename = saved(tmp_path / "demos"), Path.rename

    def once(self: Path, target: Path) -> Path:
        if Path(target) == tmp_path / "demos" and not self.name.endswith(".old"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", once)
    with pytest.raises(DuettoError, match=r"cannot be written: Input/output error\. Its content is in ") as raised:
        demonstrations.save(tmp_path / "demos", description(), [episode(seed=9)], overwrite=True)
    check_same(demonstrations.load(tmp_path / "demos").episodes[0], old[0])
    check_same(hidden_in(raised.value), episode(seed=9))
    assert len(left_in(tmp_path)) == 2


def test_what_came_there_meanwhile_is_kept_and_so_is_what_was_recorded(tmp_path: Path):
    """Two recordings to one folder at a time: the second to end took the first one's away."""
    first: list[Any] = []

    def recorded() -> Iterator[Any]:
        yield episode(seed=9)
        first.extend(saved(tmp_path / "demos"))

    with pytest.raises(DuettoError, match="demos cannot be written: Directory not empty") as raised:
        demonstrations.save(tmp_path / "demos", description(), recorded())
    check_same(demonstrations.load(tmp_path / "demos").episodes[0], first[0])
    check_same(hidden_in(raised.value), episode(seed=9))


def hidden_in(error: DuettoError) -> Any:
    """The first episode of the folder that an error names."""
    return demonstrations.load(str(error).rpartition(" is in ")[2].rstrip(".")).episodes[0]


def test_overwriting(tmp_path: Path):
    saved(tmp_path / "demos")
    with pytest.raises(UsageError, match=r"exists already.*--overwrite"):
        demonstrations.save(tmp_path / "demos", description(), [episode(seed=9)])
    assert len(demonstrations.load(tmp_path / "demos")) == 3
    demonstrations.save(tmp_path / "demos", description(), [episode(seed=9)], overwrite=True)
    check_same(demonstrations.load(tmp_path / "demos").episodes[0], episode(seed=9))
    assert left_in(tmp_path) == ["demos"]


def test_something_else_is_never_overwritten(tmp_path: Path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("1")
    with pytest.raises(UsageError, match="is no dataset"):
        demonstrations.save(tmp_path / "thesis", description(), [episode()], overwrite=True)
    assert left_in(tmp_path / "thesis") == ["chapter.tex"]
    (tmp_path / "thesis" / "manifest.json").write_text('{"title": "of years"}')  # a dataset has such a file, too
    with pytest.raises(UsageError, match="is no dataset"):
        demonstrations.save(tmp_path / "thesis", description(), [episode()], overwrite=True)
    assert left_in(tmp_path / "thesis") == ["chapter.tex", "manifest.json"]


def test_no_episode_is_no_dataset(tmp_path: Path):
    with pytest.raises(UsageError, match="nothing to write"):
        demonstrations.save(tmp_path / "demos", description(), [])
    assert left_in(tmp_path) == []


BAD = {
    "observations one short": (lambda e: e._replace(obs=e.obs[1:]), "observation is uint8"),
    "another dtype": (lambda e: e._replace(obs=e.obs.astype(np.float32)), "observation is float32"),
    "no choice": (lambda e: e._replace(action=e.action + 7), "not in Discrete"),
    "actions of another shape": (lambda e: e._replace(action=e.action[:, None]), "action is int64"),
    "no end": (lambda e: e._replace(terminated=False), "neither terminated nor truncated"),
    "no steps": (lambda e: e._replace(reward=e.reward[:0]), "no steps"),
    "a reward that is none": (lambda e: e._replace(reward=e.reward * np.float32(np.nan)), "NaN"),
    "rewards in double precision": (lambda e: e._replace(reward=e.reward.astype(float)), "reward is float64"),
}


@pytest.mark.parametrize(("change", "match"), BAD.values(), ids=BAD)
def test_an_episode_that_is_not_as_described_is_refused(tmp_path: Path, change: Callable[[Any], Any], match: str):
    with pytest.raises(UsageError, match=f"Episode 1 does not fit.*{match}"):
        demonstrations.save(tmp_path / "demos", description(), [episode(), change(episode())])
    assert left_in(tmp_path) == []


def test_several_actions_at_once_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="no algorithm learns from demonstrations with several actions at once"):
        demonstrations.save(tmp_path / "demos", description(action_space=COCKPIT), [])
    assert left_in(tmp_path) == []


def test_actions_outside_of_their_interval_are_refused(tmp_path: Path):
    strong = episode("real")._replace(action=np.full((4, 4), 1.5, np.float32))
    with pytest.raises(UsageError, match=r"outside of \[-1, 1\]"):
        demonstrations.save(tmp_path / "demos", description("real"), [strong])


# ---------------------------------------------------------------------------------------------------- damage
def test_a_missing_segment(tmp_path: Path):
    saved(tmp_path / "demos")
    (tmp_path / "demos" / SEGMENT).unlink()
    with pytest.raises(UsageError, match=r"are damaged .*is missing"):
        demonstrations.load(tmp_path / "demos")


def test_damage_that_came_after_loading_shows_when_an_episode_is_read(tmp_path: Path):
    saved(tmp_path / "demos")
    found = demonstrations.load(tmp_path / "demos")
    (tmp_path / "demos" / SEGMENT).write_bytes(b"")
    found.episodes[1]
    with pytest.raises(UsageError, match="are damaged"):
        found.episodes[0]


def test_a_folder_without_demonstrations(tmp_path: Path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="holds no demonstrations"):
            demonstrations.load(path)


@pytest.mark.parametrize("place", ["metadata.json", "data/metadata.json"])
def test_minaris_own_datasets_have_to_be_imported(tmp_path: Path, place: str):
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("{}")
    with pytest.raises(UsageError, match=r"is a Minari dataset\. Import it: duetto demos import .* --environment"):
        demonstrations.load(tmp_path)


def test_a_format_of_the_future(tmp_path: Path):
    saved(tmp_path / "demos")
    change_manifest(tmp_path / "demos", lambda content: content.update(version=2))
    with pytest.raises(UsageError, match=r"the format 'duetto-demonstrations', version 2"):
        demonstrations.load(tmp_path / "demos")


def test_bounds_come_back_as_they_were(tmp_path: Path):
    tight = Box((2,), "float32", (-np.inf, float(np.float32(0.1))), (np.inf, float(np.float32(1) / 3)))
    demos = [episode()._replace(obs=np.zeros((5, 2), np.float32))]
    demonstrations.save(tmp_path / "demos", description(observation_space=tight), demos)
    assert demonstrations.load(tmp_path / "demos").metadata.observation_space == tight


def test_a_file_that_came_into_a_dataset_meanwhile_is_not_deleted_with_it(tmp_path: Path):
    demonstrations.save(tmp_path / "demos", description(), [episode()])

    def recorded() -> Iterator[Any]:
        yield episode(seed=9)
        (tmp_path / "demos" / "notes.md").write_text("years of work")

    with pytest.raises(UsageError, match="demos is no dataset, so it is not overwritten"):
        demonstrations.save(tmp_path / "demos", description(), recorded(), overwrite=True)
    assert (tmp_path / "demos" / "notes.md").read_text() == "years of work"


def test_a_relative_folder_is_that_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with demonstrations.writer("demos", description()) as writer:
        writer.add(episode(seed=9), seed=9)
        monkeypatch.chdir("/")
    assert demonstrations.load(tmp_path / "demos").returns.shape == (1,)
