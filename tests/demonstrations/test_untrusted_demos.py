"""Untrusted demonstrations are loaded or refused, without reading outside files or filling the memory."""

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
    HDF5_CHANGES,
    HUGE_REWARDS,
    MANIFEST_CHANGES,
    METADATA_CHANGES,
    SEGMENT,
    SEGMENT_CHANGES,
    change_data,
    change_manifest,
    change_metadata,
    change_segment,
    export_as_minari,
    import_all,
    import_in_this_process,
    read_all,
    save_good_demos,
)

from duetto import demonstrations
from duetto.errors import DuettoError, UsageError

MAX_MEMORY = 2**25  # bytes; includes what the libraries need


@pytest.fixture
def memory_limit() -> Iterator[None]:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MAX_MEMORY


# ---------------------------------------------------------------------------------------------------- Duetto's format
@pytest.mark.usefixtures("memory_limit")
@pytest.mark.parametrize("change", SEGMENT_CHANGES.values(), ids=SEGMENT_CHANGES)
def test_invalid_segment_is_refused(tmp_path: Path, change: Callable[[dict[str, np.ndarray]], Any]):
    folder = save_good_demos(tmp_path)
    change_segment(folder, change)
    with pytest.raises(UsageError, match="are damaged"):
        demonstrations.load(folder)


@pytest.mark.usefixtures("memory_limit")
@pytest.mark.parametrize("change", MANIFEST_CHANGES.values(), ids=MANIFEST_CHANGES)
def test_invalid_manifest_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], Any]):
    folder = save_good_demos(tmp_path)
    change_manifest(folder, change)
    with pytest.raises(UsageError, match="are damaged"):
        demonstrations.load(folder)


@pytest.mark.parametrize("name", [SEGMENT, "manifest.json"])
@pytest.mark.parametrize("kind", ["a link", "no plain file"])
def test_links_and_pipes_in_demonstrations_are_refused(tmp_path: Path, name: str, kind: str):
    folder = save_good_demos(tmp_path)
    (folder / name).rename(tmp_path / name)
    if kind == "a link":
        (folder / name).symlink_to(tmp_path / name)
    else:
        os.mkfifo(folder / name)  # reading it would block
    with pytest.raises(UsageError, match=f"{name} is {kind}"):
        read_all(folder)


# ---------------------------------------------------------------------------------------------------- Minari
@pytest.mark.parametrize(("change", "said"), HDF5_CHANGES.values(), ids=HDF5_CHANGES)
def test_invalid_minari_data_is_refused(tmp_path: Path, change: Callable[[h5py.Group, Path], Any], said: str):
    folder = export_as_minari(save_good_demos(tmp_path))
    change_data(folder, change)
    with pytest.raises((DuettoError, ValueError, KeyError), match=said):
        import_in_this_process(folder, tmp_path / "imported")
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("change", METADATA_CHANGES.values(), ids=METADATA_CHANGES)
def test_invalid_minari_metadata_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], Any]):
    folder = export_as_minari(save_good_demos(tmp_path))
    change_metadata(folder, change)
    with pytest.raises((DuettoError, ValueError, LookupError, RecursionError, TypeError)):
        import_in_this_process(folder, tmp_path / "imported")
    assert not (tmp_path / "imported").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="macOS and Windows do not limit the address space")
def test_huge_minari_file_ends_only_the_child_process(tmp_path: Path):
    folder = export_as_minari(save_good_demos(tmp_path))
    change_data(folder, HUGE_REWARDS)
    with pytest.raises(UsageError, match=r"cannot be imported .*Unable to allocate 9.00 GiB"):
        import_all(folder)


def test_missing_minari_space_imports_no_environment_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """If a space is missing, Minari itself makes the environment that the dataset names."""
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

    folder = export_as_minari(save_good_demos(tmp_path))
    change_metadata(folder, change)
    with pytest.raises(UsageError, match="has no observation_space"):
        import_all(folder)
    assert not (tmp_path / "imported-module").exists()


def test_import_loads_no_modules_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "minari.py").write_text(f"open({str(tmp_path / 'imported-module')!r}, 'w')")
    (tmp_path / "json.py").write_text(f"open({str(tmp_path / 'imported-module')!r}, 'w')")
    assert len(import_all(export_as_minari(save_good_demos(tmp_path)))) == 2
    assert not (tmp_path / "imported-module").exists()


@pytest.mark.parametrize("kind", ["a link", "no plain file"])
def test_links_and_pipes_in_a_minari_dataset_are_refused(tmp_path: Path, kind: str):
    folder = export_as_minari(save_good_demos(tmp_path))
    (folder / "main_data.hdf5").rename(tmp_path / "main_data.hdf5")
    if kind == "a link":
        (folder / "main_data.hdf5").symlink_to(tmp_path / "main_data.hdf5")
    else:
        os.mkfifo(folder / "main_data.hdf5")
    with pytest.raises(UsageError, match=f"main_data.hdf5 is {kind}"):
        import_all(folder)
