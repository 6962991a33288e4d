"""Demonstrations from a stranger are read or refused with a sentence; nothing outside is read, imported or filled."""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hostile_demos import (
    FOREIGN,
    HDF5,
    HUGE,
    METADATA,
    Trap,
    change_data,
    change_metadata,
    claiming,
    foreign,
    good,
    good_npz,
    import_all,
    read_all,
)

from duetto.errors import UsageError

MOST = 2**25  # bytes; the libraries need some themselves


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST


# ---------------------------------------------------------------------------------------------------- folders
@pytest.mark.parametrize(("change", "said"), HDF5.values(), ids=HDF5)
def test_data_that_is_refused(tmp_path: Path, change: Callable[[h5py.Group, Path], Any], said: str):
    folder = good(tmp_path)
    change_data(folder, change)
    with pytest.raises(UsageError, match=f"are damaged .*{said}"):
        read_all(folder)
    with pytest.raises(UsageError, match=f"cannot be imported .*{said}"):
        import_all(foreign(folder))


def test_the_same_folder_unchanged(tmp_path: Path):
    folder = good(tmp_path)
    assert len(read_all(folder)) == 2
    assert len(import_all(foreign(folder))) == 2


@pytest.mark.parametrize("change", METADATA.values(), ids=METADATA)
def test_descriptions_that_are_refused(tmp_path: Path, change: Callable[[dict[str, Any]], Any]):
    folder = good(tmp_path)
    change_metadata(folder, change)
    with pytest.raises(UsageError, match="are damaged"):
        read_all(folder)


@pytest.mark.parametrize("change", FOREIGN.values(), ids=FOREIGN)
def test_minari_metadata_that_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], Any]):
    folder = foreign(good(tmp_path))
    change_metadata(folder, change)
    with pytest.raises(UsageError, match="cannot be imported"):
        import_all(folder)


def test_nothing_is_imported_for_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Minari makes the environment that a stranger names, where a space is missing."""
    (tmp_path / "evil_minari.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    spec = (
        '{"id": "Evil-v0", "entry_point": "evil_minari:Env", "reward_threshold": null, "nondeterministic": false, '
        '"max_episode_steps": null, "order_enforce": true, "disable_env_checker": true, "kwargs": {}, '
        '"additional_wrappers": [], "vector_entry_point": null}'
    )

    def change(metadata: dict[str, Any]) -> None:
        del metadata["observation_space"]
        metadata["env_spec"] = spec

    folder = foreign(good(tmp_path))
    change_metadata(folder, change)
    with pytest.raises(UsageError, match="has no observation_space"):
        import_all(folder)
    assert "evil_minari" not in sys.modules


@pytest.mark.parametrize("name", ["main_data.hdf5", "metadata.json", "manifest.json"])
@pytest.mark.parametrize("kind", ["a link", "no plain file"])
def test_links_and_pipes_in_a_folder(tmp_path: Path, name: str, kind: str):
    def replace(folder: Path) -> Path:
        (folder / name).rename(folder.parent / name)
        if kind == "a link":
            (folder / name).symlink_to(folder.parent / name)
        else:
            os.mkfifo(folder / name)  # reading it would wait for ever
        return folder

    with pytest.raises(UsageError, match=f"{name} is {kind}"):
        read_all(replace(good(tmp_path)))
    if name != "manifest.json":  # which nobody looks for in Minari's own datasets
        (tmp_path / "other").mkdir()
        with pytest.raises(UsageError, match=f"{name} is {kind}|is no Minari dataset"):
            import_all(replace(foreign(good(tmp_path / "other"))))


def test_nothing_is_written_through_links(tmp_path: Path):
    from duetto import demonstrations

    folder = good(tmp_path)
    before = (tmp_path / "secret.bin").read_bytes()
    (folder / ".tmp-manifest.json").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(UsageError, match="is a link"):
        demonstrations.seal(folder)
    assert (tmp_path / "secret.bin").read_bytes() == before


def test_a_folder_may_be_reached_by_a_link(tmp_path: Path):
    good(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "demos")
    assert len(read_all(tmp_path / "link")) == 2


# ---------------------------------------------------------------------------------------------------- JPEGs
def jpegs(folder: Path, frames: list[bytes]) -> Path:
    """A dataset of Minari's with pictures of 40 by 32 as JPEGs."""
    import gymnasium
    import minari

    space = gymnasium.spaces.Box(0, 255, (40, 32, 3), np.uint8)
    storage = minari.dataset.minari_storage.MinariStorage.new(folder, space, gymnasium.spaces.Discrete(7))
    buffer = minari.data_collector.EpisodeBuffer(
        observations=[np.full((40, 32, 3), 10 * i, np.uint8) for i in range(4)],
        **{"actions": [1, 2, 3], "rewards": [0.0, 1.0, 2.0]},
        **{"terminations": [False, False, True], "truncations": [False] * 3},
    )
    storage.update_episodes([buffer])
    if frames:
        with h5py.File(folder / "main_data.hdf5", "a") as file:
            del file["episode_0/observations"]
            data = [np.frombuffer(frame, np.uint8) for frame in frames]
            made = file["episode_0"].create_dataset("observations", (len(data),), h5py.vlen_dtype(np.uint8))
            for row, frame in enumerate(data):
                made[row] = frame
    return folder


def jpeg(size: tuple[int, int], kind: str = "JPEG") -> bytes:
    import io

    from PIL import Image

    written = io.BytesIO()
    Image.new("RGB", size).save(written, format=kind)
    return written.getvalue()


def import_pictures(folder: Path) -> np.ndarray:
    from duetto.demonstrations import open_source
    from duetto.networks.spaces import Box, Discrete

    space = Box((40, 32, 3), "uint8", (0.0,), (255.0,))
    (demo, _), *_ = open_source(str(folder), space, Discrete(7)).episodes
    assert isinstance(demo.obs, np.ndarray)
    return demo.obs


def test_jpegs_are_read(tmp_path: Path):
    found = import_pictures(jpegs(tmp_path / "one", []))
    assert found[:, 0, 0, 0].tolist() == [0, 10, 20, 30]
    assert not import_pictures(jpegs(tmp_path / "two", [jpeg((32, 40))] * 4)).any()


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        ([jpeg((32, 41))] * 4, "a JPEG has the size"),
        ([jpeg((32, 40), "PNG")] * 4, "cannot identify"),
        ([b"no picture"] * 4, "cannot identify"),
        ([jpeg((32, 40))] * 3, "has 3 JPEGs"),
        # Its header claims 65,535 by 65,535.
        ([jpeg((32, 40)).replace(b"\x00\x28\x00\x20", b"\xff\xff\xff\xff")] * 4, "claims to be too large"),
    ],
)
def test_pictures_that_are_refused(tmp_path: Path, frames: list[bytes], said: str):
    with pytest.raises(UsageError, match=said):
        import_pictures(jpegs(tmp_path / "demos", frames))


# ---------------------------------------------------------------------------------------------------- npz
def test_a_header_of_36_tebibytes(tmp_path: Path):
    with pytest.raises(UsageError, match=r"one\.npz cannot be imported.*rewards\.npy claims"):
        import_all(claiming(tmp_path / "one.npz", (36 * HUGE // 8,)))


@pytest.mark.parametrize(
    ("shape", "dtype"), [((HUGE,), "|V0"), ((0, HUGE), "<f8"), ((1,), f"|S{2**31}"), ((-1,), "<f8")]
)
def test_headers_of_nothing_and_of_too_much(tmp_path: Path, shape: tuple[int, ...], dtype: str):
    with pytest.raises(UsageError, match=r"one\.npz cannot be imported"):
        import_all(claiming(tmp_path / "one.npz", shape, dtype, b"" if 0 in shape or dtype == "|V0" else b"\0" * 24))


def test_a_bomb(tmp_path: Path):
    """A hundred megabytes of zeros in a hundred kilobytes."""
    data = b"\0" * 100_000_000
    path = claiming(tmp_path / "one.npz", (len(data) // 8,), data=data)
    del data
    tracemalloc.reset_peak()
    assert path.stat().st_size < 200_000
    with pytest.raises(UsageError, match="claims to hold 100,"):
        import_all(path)


def test_pickles_are_not_opened(tmp_path: Path):
    traps = np.array([Trap(tmp_path / "trapped")] * 3, object)
    with pytest.raises(UsageError, match="allow_pickle"):
        import_all(good_npz(tmp_path / "one.npz", rewards=traps))
    assert not (tmp_path / "trapped").exists()


def test_other_arrays_are_not_opened(tmp_path: Path):
    path = good_npz(tmp_path / "one.npz", other=np.array([Trap(tmp_path / "trapped")], object))
    assert len(import_all(path)) == 1
    assert not (tmp_path / "trapped").exists()


def test_texts_are_no_numbers(tmp_path: Path):
    with pytest.raises(UsageError, match="'rewards' holds <U1, and no numbers"):
        import_all(good_npz(tmp_path / "one.npz", rewards=np.array(["1", "2", "3"])))


def test_an_array_is_no_npz(tmp_path: Path):
    with (tmp_path / "one.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(UsageError, match="cannot be imported"):
        import_all(tmp_path / "one.npz")


def test_links_in_a_folder_of_npz_files(tmp_path: Path):
    good_npz(tmp_path / "secret" / "a.npz")
    good_npz(tmp_path / "given" / "b.npz")
    (tmp_path / "given" / "a.npz").symlink_to(tmp_path / "secret" / "a.npz")
    with pytest.raises(UsageError, match=r"a\.npz is a link"):
        import_all(tmp_path / "given")
