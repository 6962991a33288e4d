"""Damaged demonstrations: all damage is detected, and only Duetto's own errors are raised.

Hypothesis draws the cases from a fixed seed, so CI has the same cases. `DUETTO_FUZZ` sets their number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hostile_demos import SEGMENT, change_manifest, read_all, save_good_demos, write_segment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duetto import demonstrations
from duetto.errors import DuettoError
from duetto.tools.cli.demos import inspect

CASES = int(os.environ.get("DUETTO_FUZZ", "25"))
fuzzed = settings(
    max_examples=CASES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
# The position in a file, the number of bytes removed there, and the bytes written instead.
damages = st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 40) | st.just(10**9), st.binary(max_size=16))


def damaged(data: bytes, where: float, taken: int, written: bytes) -> bytes:
    i = int(where * len(data))
    return data[:i] + written + data[i + taken :]


def error_message(call: Callable[[], Any]) -> str | None:
    """Return the message of Duetto's error, if the call raises one. Other errors fail the test."""
    try:
        call()
    except DuettoError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_good_demos(tmp_path_factory.mktemp("fuzzing"))


@contextmanager
def restored(folder: Path) -> Iterator[None]:
    """Restore every file at the end."""
    files = {path: path.read_bytes() for path in folder.iterdir()}
    try:
        yield
    finally:
        for path, data in files.items():
            path.write_bytes(data)


def read_and_inspect(folder: Path) -> None:
    error_message(lambda: read_all(folder))
    error_message(lambda: inspect(str(folder), json=True))


@fuzzed
@given(name=st.sampled_from((SEGMENT, "manifest.json")), damage=damages)
def test_damage_to_any_file_is_detected(folder: Path, name: str, damage: tuple[float, int, bytes]):
    with restored(folder):
        before = (folder / name).read_bytes()
        after = damaged(before, *damage)
        (folder / name).write_bytes(after)
        assert bool(error_message(lambda: demonstrations.load(folder))) == (after != before)


@fuzzed
@given(damage=damages)
def test_damage_with_valid_checksum_raises_only_duetto_errors(folder: Path, damage: tuple[float, int, bytes]):
    """Anyone can write a valid checksum, so the content is also validated."""
    with restored(folder):
        write_segment(folder, damaged((folder / SEGMENT).read_bytes(), *damage))
        read_and_inspect(folder)


# ---------------------------------------------------------------------------------------------------- nonsense
nonsense = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = ["format", "version", "environment", "options", "expert", "versions", "observation_space", "action_space"]
parts = ["kind", "shape", "dtype", "low", "high", "n", "name", "size", "sha256"]


@fuzzed
@given(name=st.sampled_from([*names, "episodes"]), part=st.none() | st.sampled_from(parts), value=nonsense)
def test_nonsense_with_valid_checksum_raises_only_duetto_errors(folder: Path, name: str, part: str | None, value: Any):
    def change(content: dict[str, Any]) -> None:
        target = content["episodes"][0] if name == "episodes" else content[name]
        if part is not None and isinstance(target, dict):
            target[part] = value
        else:
            content[name] = value

    with restored(folder):
        change_manifest(folder, change)
        read_and_inspect(folder)
