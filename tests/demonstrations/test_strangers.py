"""A stranger's demonstrations are loaded or refused with a message; nothing outside is read, no memory is filled."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_demos import (
    MANIFESTS,
    SEGMENT,
    SEGMENTS,
    change_manifest,
    change_segment,
    good,
    read_all,
)

from duetto import demonstrations
from duetto.errors import UsageError

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


def test_the_same_folder_unchanged(tmp_path: Path):
    folder = good(tmp_path)
    assert len(read_all(folder)) == 2


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
