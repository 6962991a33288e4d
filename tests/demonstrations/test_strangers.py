"""A stranger's demonstrations are loaded or refused with a message; nothing outside is read, no memory is filled."""

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
    FILLING,
    FOREIGN,
    HDF5,
    MANIFESTS,
    SEGMENT,
    SEGMENTS,
    change_data,
    change_manifest,
    change_metadata,
    change_segment,
    foreign,
    good,
    import_all,
    import_here,
    read_all,
)

from duetto import demonstrations
from duetto.errors import DuettoError, UsageError

MOST = 2**25  # bytes; the libraries need some themselves


@pytest.fixture
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST


# ---------------------------------------------------------------------------------------------------- our format
@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("change", SEGMENTS.values(), ids=SEGMENTS)
def test_segments_that_are_refused(tmp_path: Path, change: Callable[[dict[str, np.ndarray]], Any]):
    folder = good(tmp_path)
    change_segment(folder, change)
    with pytest.raises(UsageError, match="are damaged"):
        demonstrations.load(folder)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("change", MANIFESTS.values(), ids=MANIFESTS)
def test_manifests_that_are_refused(tmp_path: Path, change: Callable[[dict[str, Any]], Any]):
    folder = good(tmp_path)
    change_manifest(folder, change)
    with pytest.raises(UsageError, match="are damaged"):
        demonstrations.load(folder)


@pytest.mark.parametrize("name", [SEGMENT, "manifest.json"])
@pytest.mark.parametrize("kind", ["a link", "no plain file"])
def test_links_and_pipes_in_a_folder(tmp_path: Path, name: str, kind: str):
    folder = good(tmp_path)
    (folder / name).rename(tmp_path / name)
    if kind == "a link":
        (folder / name).symlink_to(tmp_path / name)
    else:
        os.mkfifo(folder / name)  # reading it would wait for ever
    with pytest.raises(UsageError, match=f"{name} is {kind}"):
        read_all(folder)


def test_a_folder_may_be_reached_by_a_link(tmp_path: Path):
    good(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "demos")
    assert len(read_all(tmp_path / "link")) == 2


# ---------------------------------------------------------------------------------------------------- Minari
@pytest.mark.parametrize(("change", "said"), HDF5.values(), ids=HDF5)
def test_data_that_is_refused(tmp_path: Path, change: Callable[[h5py.Group, Path], Any], said: str):
    folder = foreign(good(tmp_path))
    change_data(folder, change)
    with pytest.raises((DuettoError, ValueError, KeyError), match=said):
        import_here(folder, tmp_path / "imported")
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("change", FOREIGN.values(), ids=FOREIGN)
def test_minari_metadata_that_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], Any]):
    folder = foreign(good(tmp_path))
    change_metadata(folder, change)
    with pytest.raises((DuettoError, ValueError, LookupError, RecursionError, TypeError)):
        import_here(folder, tmp_path / "imported")
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("change", [HDF5["an external link"][0], HDF5["texts"][0]])
def test_a_refusal_of_the_child_process_is_a_sentence(tmp_path: Path, change: Callable[[h5py.Group, Path], Any]):
    folder = foreign(good(tmp_path))
    change_data(folder, change)
    with pytest.raises(UsageError, match=r"minari cannot be imported \(\w"):
        import_all(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demos", "minari", "secret.bin", "secret.hdf5"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no limit of address space")
def test_a_file_that_would_fill_the_memory_ends_the_child_process(tmp_path: Path):
    folder = foreign(good(tmp_path))
    change_data(folder, FILLING)
    with pytest.raises(UsageError, match=r"cannot be imported .*Unable to allocate 9.00 GiB"):
        import_all(folder)


def test_nothing_is_imported_for_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Minari makes the environment that a stranger names, where a space is missing."""
    (tmp_path / "evil_minari.py").write_text(f"open({str(tmp_path / 'imported-module')!r}, 'w')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
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
    assert not (tmp_path / "imported-module").exists()


def test_the_current_folder_is_not_a_place_of_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "minari.py").write_text(f"open({str(tmp_path / 'imported-module')!r}, 'w')")
    (tmp_path / "json.py").write_text(f"open({str(tmp_path / 'imported-module')!r}, 'w')")
    assert len(import_all(foreign(good(tmp_path)))) == 2
    assert not (tmp_path / "imported-module").exists()


@pytest.mark.parametrize("kind", ["a link", "no plain file"])
def test_links_and_pipes_in_a_minari_dataset(tmp_path: Path, kind: str):
    folder = foreign(good(tmp_path))
    (folder / "main_data.hdf5").rename(tmp_path / "main_data.hdf5")
    if kind == "a link":
        (folder / "main_data.hdf5").symlink_to(tmp_path / "main_data.hdf5")
    else:
        os.mkfifo(folder / "main_data.hdf5")
    with pytest.raises(UsageError, match=f"main_data.hdf5 is {kind}"):
        import_all(folder)
