"""Demonstrations on disk: what is loaded is what was saved, Minari reads it too, and nothing is there by halves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import minari
import numpy as np
import pytest
from demo_cases import SPACES, check_same, description, episode

from duetto import demonstrations
from duetto.demonstrations.sealing import write_seal
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
    assert found.description == description(kind)
    assert len(found) == len(found.episodes) == 3
    for one, other in zip(found.episodes, episodes, strict=True):
        check_same(one, other)
    assert found.lengths.tolist() == [3, 4, 5]
    assert found.steps == 12
    assert found.terminated.tolist() == [True, False, True]
    assert found.seeds == [10, 11, 12]
    assert found.parts == [0, 0, 0]
    np.testing.assert_allclose(found.returns, [one.reward.sum(dtype=np.float64) for one in episodes])


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_may_be_filled_again_for_the_next_episode(tmp_path: Path, kind: str):
    """As a converter's are that allocates them once."""
    episodes = [episode(kind, steps=4, seed=i, terminated=True) for i in range(3)]
    arrays = episode(kind, steps=4, seed=9, terminated=True)

    def one_after_the_other() -> Iterator[Any]:
        for one in episodes:
            for target, source in zip(parts(arrays), parts(one), strict=True):
                target[...] = source
            yield arrays

    demonstrations.save(tmp_path / "demos", description(kind), one_after_the_other())
    for found, one in zip(demonstrations.load(tmp_path / "demos").episodes, episodes, strict=True):
        check_same(found, one)


def parts(one: Any) -> list[np.ndarray]:
    obs = list(one.obs.values()) if isinstance(one.obs, dict) else [one.obs]
    return [*obs, one.action, one.reward]


def test_episodes_are_a_sequence(tmp_path: Path):
    episodes = saved(tmp_path / "demos")
    found = demonstrations.load(tmp_path / "demos").episodes
    check_same(found[-1], episodes[2])
    for one, other in zip(found[1:], episodes[1:], strict=True):
        check_same(one, other)
    with pytest.raises(IndexError):
        found[3]


def test_many_episodes_are_written_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(demonstrations.writing, "MANY", 2)
    episodes = saved(tmp_path / "demos", count=7)
    found = demonstrations.load(tmp_path / "demos")
    for one, other in zip(found.episodes, episodes, strict=True):
        check_same(one, other)


def test_seeds_may_be_unknown(tmp_path: Path):
    demonstrations.save(tmp_path / "demos", description(), [episode()])
    assert demonstrations.load(tmp_path / "demos").seeds == [None]


@pytest.mark.parametrize("kind", KINDS)
def test_minari_reads_it(tmp_path: Path, kind: str):
    episodes = saved(tmp_path / "demos", kind)
    dataset = minari.MinariDataset(tmp_path / "demos")
    assert (dataset.total_episodes, dataset.total_steps) == (3, 12)
    found = dataset[1]
    acted = found.actions
    if kind == "several":
        assert [part.shape for part in acted.values()] == [(4, 2), (4,), (4, 2)]
        acted = np.concatenate([part.reshape(4, -1) for part in acted.values()], axis=1)
    np.testing.assert_array_equal(acted, episodes[1].action)
    np.testing.assert_array_equal(found.rewards, episodes[1].reward)
    assert found.truncations.tolist() == [False, False, False, True]
    assert not found.terminations.any()
    each = found.actions
    if kind == "several":
        each = [dict(zip(each, row, strict=True)) for row in zip(*each.values(), strict=True)]
    assert all(action in dataset.action_space for action in each)
    for obs in (one.observations for one in dataset):
        rows = (
            [dict(zip(obs, row, strict=True)) for row in zip(*obs.values(), strict=True)] if kind == "pictures" else obs
        )
        assert all(row in dataset.observation_space for row in rows)
    assert [one["seed"] for one in dataset.storage.get_episode_metadata(range(3))] == [10, 11, 12]


# ---------------------------------------------------------------------------------------------------- whole or not
def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def interrupted(error: type[BaseException]) -> Iterator[Any]:
    """Enough episodes that some of them are on disk, and then the error."""
    yield from (episode(seed=i) for i in range(demonstrations.writing.MANY + 1))
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
        if Path(target) == tmp_path / "demos" and "old" not in str(self):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", once)
    with pytest.raises(DuettoError, match=r"cannot be written: .*Input/output error"):
        demonstrations.save(tmp_path / "demos", description(), [episode(seed=9)], overwrite=True)
    assert left_in(tmp_path) == ["demos"]
    check_same(demonstrations.load(tmp_path / "demos").episodes[0], old[0])


def test_what_came_there_meanwhile_is_kept_and_so_is_what_was_recorded(tmp_path: Path):
    """Two recordings to one folder at a time: the second to end took the first one's away."""
    first: list[Any] = []

    def recorded() -> Iterator[Any]:
        yield episode(seed=9)
        first.extend(saved(tmp_path / "demos"))

    with pytest.raises(UsageError, match=r"demos was made meanwhile.*demos-2\."):
        demonstrations.save(tmp_path / "demos", description(), recorded())
    check_same(demonstrations.load(tmp_path / "demos").episodes[0], first[0])
    check_same(demonstrations.load(tmp_path / "demos-2").episodes[0], episode(seed=9))


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
    (tmp_path / "thesis" / "metadata.json").write_text('{"title": "of years"}')  # a dataset has such a file, too
    with pytest.raises(UsageError, match="is no dataset"):
        demonstrations.save(tmp_path / "thesis", description(), [episode()], overwrite=True)
    assert left_in(tmp_path / "thesis") == ["chapter.tex", "metadata.json"]


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
    "rewards in double precision": (lambda e: e._replace(reward=e.reward.astype(float)), "Give float32"),
}


@pytest.mark.parametrize(("change", "match"), BAD.values(), ids=BAD)
def test_an_episode_that_is_not_as_described_is_refused(tmp_path: Path, change: Callable[[Any], Any], match: str):
    with pytest.raises(UsageError, match=f"Episode 1 does not fit.*{match}"):
        demonstrations.save(tmp_path / "demos", description(), [episode(), change(episode())])
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        (0, 2, "action aim has choices that are not in"),
        (1, 0.5, "choices that are no whole numbers"),
        (2, np.nan, "action is NaN or infinite"),
        (3, 1.5, "action move/1 is outside"),
        (4, 1.5, ""),  # without a bound
    ],
)
def test_each_part_of_an_action_is_checked(tmp_path: Path, column: int, value: float, said: str):
    wrong = episode("several")
    wrong.action[2, column] = value
    if not said:
        demonstrations.save(tmp_path / "demos", description("several"), [wrong])
        return
    with pytest.raises(UsageError, match=said):
        demonstrations.save(tmp_path / "demos", description("several"), [wrong])
    with pytest.raises(UsageError, match=r"action is float64 .* needs float32 \(4, 5\)"):
        demonstrations.save(
            tmp_path / "demos", description("several"), [wrong._replace(action=wrong.action.astype(np.float64))]
        )


def test_actions_outside_of_their_interval_are_refused(tmp_path: Path):
    strong = episode("real")._replace(action=np.full((4, 4), 1.5, np.float32))
    with pytest.raises(UsageError, match=r"outside of \[-1, 1\]"):
        demonstrations.save(tmp_path / "demos", description("real"), [strong])


# ---------------------------------------------------------------------------------------------------- damage
def cut(folder: Path) -> None:
    data = (folder / "main_data.hdf5").read_bytes()
    (folder / "main_data.hdf5").write_bytes(data[: len(data) // 2])
    write_seal(folder)


def write_no_json(folder: Path) -> None:
    (folder / "metadata.json").write_text("{")
    write_seal(folder)


def edit(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """A change that is sealed again, so that the seal is not what finds it."""

    def apply(folder: Path) -> None:
        metadata = json.loads((folder / "metadata.json").read_text())
        change(metadata)
        (folder / "metadata.json").write_text(json.dumps(metadata))
        write_seal(folder)

    return apply


DAMAGE = {
    "cut off": cut,
    "no data": lambda folder: (folder / "main_data.hdf5").unlink(),
    "no JSON": write_no_json,
    "a number too few": edit(lambda metadata: metadata["duetto"]["lengths"].pop()),
    "another length": edit(lambda metadata: metadata["duetto"].update(lengths=[3, 5, 4])),
    "a field is missing": edit(lambda metadata: metadata["duetto"].pop("environment")),
    "no space": edit(lambda metadata: metadata["duetto"].update(action_space={"kind": "Sphere"})),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_a_sentence(tmp_path: Path, damage: Callable[[Path], Any]):
    saved(tmp_path / "demos")
    damage(tmp_path / "demos")
    with pytest.raises(UsageError, match=r"are damaged .*Record them anew"):
        demonstrations.load(tmp_path / "demos")


def test_damage_inside_an_episode_shows_when_it_is_read(tmp_path: Path):
    saved(tmp_path / "demos")
    edit(lambda metadata: metadata["duetto"]["observation_space"].update(shape=[6], low=[0], high=[255]))(
        tmp_path / "demos"
    )
    found = demonstrations.load(tmp_path / "demos")
    with pytest.raises(UsageError, match=r"damaged \(episode 2: .*observation"):
        found.episodes[2]


def test_a_folder_without_demonstrations(tmp_path: Path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="holds no demonstrations"):
            demonstrations.load(path)


def test_minaris_own_datasets_have_to_be_imported(tmp_path: Path):
    saved(tmp_path / "demos")
    edit(lambda metadata: metadata.pop("duetto"))(tmp_path / "demos")
    with pytest.raises(UsageError, match=r"duetto demos import .*demos --environment"):
        demonstrations.load(tmp_path / "demos")


def test_a_format_of_the_future(tmp_path: Path):
    saved(tmp_path / "demos")
    edit(lambda metadata: metadata["duetto"].update(format=3))(tmp_path / "demos")
    with pytest.raises(UsageError, match=r"format 3.*Update Duetto"):
        demonstrations.load(tmp_path / "demos")


def test_a_dataset_can_be_moved(tmp_path: Path):
    episodes = saved(tmp_path / "demos")
    shutil.move(tmp_path / "demos", tmp_path / "elsewhere")
    check_same(demonstrations.load(tmp_path / "elsewhere").episodes[1], episodes[1])


def test_bounds_come_back_as_they_were(tmp_path: Path):
    tight = Box((2,), "float32", (-np.inf, float(np.float32(0.1))), (np.inf, float(np.float32(1) / 3)))
    demos = [episode()._replace(obs=np.zeros((5, 2), np.float32))]
    demonstrations.save(tmp_path / "demos", description(observation_space=tight), demos)
    assert demonstrations.load(tmp_path / "demos").description.observation_space == tight
