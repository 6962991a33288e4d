"""Any damage to any file of demonstrations: never silent, and never anything but a sentence.

The cases are drawn by hypothesis from a fixed seed, so that CI sees the same ones. `DUETTO_FUZZ` asks for more of them.
"""

from __future__ import annotations

import os
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hostile_demos import SEGMENT, change_manifest, good, read_all, write_segment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duetto import demonstrations
from duetto.errors import DuettoError
from duetto.tools.cli.demos import inspect

CASES = int(os.environ.get("DUETTO_FUZZ", "60"))
MOST = 2**26  # bytes that may be needed
FILES = (SEGMENT, "manifest.json")

fuzzed = settings(
    max_examples=CASES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)

at = st.floats(0, 1, exclude_max=True)  # where in a file
damages = st.one_of(
    st.tuples(st.just("flip"), at, st.integers(0, 7)),
    st.tuples(st.just("cut"), at, st.just(0)),
    st.tuples(st.just("write"), at, st.binary(min_size=1, max_size=12)),
    st.tuples(st.just("drop"), at, st.integers(1, 40)),
    st.tuples(st.just("replace"), st.just(0.0), st.binary(max_size=200)),
    st.tuples(st.just("ones"), at, st.integers(1, 16)),
)


def damaged(data: bytes, kind: str, where: float, how: Any) -> bytes:
    i = int(where * len(data))
    match kind:
        case "flip":
            return data[:i] + bytes([data[i] ^ 1 << how]) + data[i + 1 :]
        case "cut":
            return data[:i]
        case "write":
            return data[:i] + how + data[i + len(how) :]
        case "drop":
            return data[:i] + data[i + how :]
        case "ones":
            return data[:i] + b"\xff" * how + data[i + how :]
    return how


@contextmanager
def little_memory() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracemalloc.start()
        try:
            yield
            assert tracemalloc.get_traced_memory()[1] < MOST
        finally:
            tracemalloc.stop()


def sentence_of(call: Callable[[], Any]) -> str | None:
    """What the call says if it fails; any other error than Duetto's own is the test's."""
    with little_memory():
        try:
            call()
        except DuettoError as error:
            return str(error)
    return None


class Folder:
    """A folder of demonstrations that is damaged and restored again."""

    def __init__(self, parent: Path) -> None:
        self.path = good(parent)
        self._files = {path: path.read_bytes() for path in (*self.path.iterdir(), *parent.glob("secret.*"))}
        self._outside = list(parent.glob("secret.*"))

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore every file at the end, and check that those outside were left alone."""
        try:
            yield
        finally:
            assert all(path.read_bytes() == self._files[path] for path in self._outside)
            for path, data in self._files.items():
                path.write_bytes(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("fuzzing"))


@fuzzed
@given(name=st.sampled_from(FILES), damage=damages)
def test_no_damage_is_silent(folder: Folder, name: str, damage: tuple[str, float, Any]):
    with folder.restored():
        before = (folder.path / name).read_bytes()
        after = damaged(before, *damage)
        (folder.path / name).write_bytes(after)
        assert bool(sentence_of(lambda: demonstrations.load(folder.path))) == (after != before)


@fuzzed
@given(damage=damages)
def test_damage_with_a_correct_checksum_is_a_sentence(folder: Folder, damage: tuple[str, float, Any]):
    """A stranger can write any checksum: what is behind it is checked, too."""
    with folder.restored():
        write_segment(folder.path, damaged((folder.path / SEGMENT).read_bytes(), *damage))
        sentence_of(lambda: read_all(folder.path))
        sentence_of(lambda: inspect(str(folder.path), json=True))


# ---------------------------------------------------------------------------------------------------- nonsense
nonsense = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
described = st.sampled_from(
    [
        *("format", "version", "environment", "options", "signature", "expert", "versions"),
        *("observation_space", "action_space", "segments"),
    ]
)
in_space = st.sampled_from(["kind", "shape", "dtype", "low", "high", "n", "nvec", "start", "parts"])


@fuzzed
@given(name=described, part=st.none() | in_space | st.sampled_from(["name", "size", "sha256"]), value=nonsense)
def test_nonsense_with_a_correct_checksum_is_a_sentence(folder: Folder, name: str, part: str | None, value: Any):
    def change(content: dict[str, Any]) -> None:
        inner = content.get(name)
        target = inner[0] if name == "segments" and isinstance(inner, list) else inner
        if part is not None and isinstance(target, dict):
            target[part] = value
        else:
            content[name] = value

    with folder.restored():
        change_manifest(folder.path, change)
        sentence_of(lambda: read_all(folder.path))
        sentence_of(lambda: inspect(str(folder.path), json=True))
