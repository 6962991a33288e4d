"""Any damage to any file of demonstrations: never silent once sealed, and never anything but a sentence.

The cases are drawn by hypothesis from a fixed seed, so that CI sees the same ones. `DUETTO_FUZZ` asks for more of them.
"""

from __future__ import annotations

import json
import os
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hostile_demos import foreign, good, good_npz, import_all, read_all
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duetto import demonstrations
from duetto.cli.demos_inspect import inspect
from duetto.demonstrations.sealing import write_seal
from duetto.errors import DuettoError

CASES = int(os.environ.get("DUETTO_FUZZ", "60"))
MOST = 2**27  # bytes that may be needed; `form.ROOM` is half of it
FILES = ("main_data.hdf5", "metadata.json", "manifest.json")

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


class Folders:
    """One folder as Duetto seals it and one as Minari makes it, which are damaged and mended again."""

    def __init__(self, parent: Path) -> None:
        (parent / "other").mkdir()
        self.ours, self.foreign = good(parent), foreign(good(parent / "other"))
        self.npz = good_npz(parent / "npz" / "one.npz")
        self.outside = {path: path.read_bytes() for path in parent.glob("secret.*")}

    @contextmanager
    def damaged(self, path: Path, damage: tuple[str, float, Any]) -> Iterator[bool]:
        """Yields whether the damage changed anything."""
        before = path.read_bytes()
        after = damaged(before, *damage)
        path.write_bytes(after)
        try:
            yield after != before
        finally:
            path.write_bytes(before)
            assert all(other.read_bytes() == data for other, data in self.outside.items())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("fuzzing"))


@fuzzed
@given(name=st.sampled_from(FILES), damage=damages)
def test_no_damage_to_a_sealed_folder_is_silent(folders: Folders, name: str, damage: tuple[str, float, Any]):
    with folders.damaged(folders.ours / name, damage) as changed:
        said = sentence_of(lambda: demonstrations.load(folders.ours))
        assert bool(said) == changed


@fuzzed
@given(name=st.sampled_from(FILES[:2]), damage=damages)
def test_damage_that_was_sealed_is_a_sentence(folders: Folders, name: str, damage: tuple[str, float, Any]):
    """A stranger can seal anything: what is read behind the seal has to stand by itself."""
    seal = (folders.ours / "manifest.json").read_bytes()
    with folders.damaged(folders.ours / name, damage):
        write_seal(folders.ours)
        sentence_of(lambda: read_all(folders.ours))
        sentence_of(lambda: inspect(str(folders.ours), all=True))
    (folders.ours / "manifest.json").write_bytes(seal)


@fuzzed
@given(name=st.sampled_from(FILES[:2]), damage=damages)
def test_damage_to_an_import_is_a_sentence(folders: Folders, name: str, damage: tuple[str, float, Any]):
    with folders.damaged(folders.foreign / name, damage):
        sentence_of(lambda: import_all(folders.foreign))


@fuzzed
@given(damage=damages)
def test_damage_to_an_npz_file_is_a_sentence(folders: Folders, damage: tuple[str, float, Any]):
    with folders.damaged(folders.npz, damage):
        sentence_of(lambda: import_all(folders.npz))
        sentence_of(lambda: import_all(folders.npz.parent))


# ---------------------------------------------------------------------------------------------------- nonsense
nonsense = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
described = st.sampled_from(
    [
        *("format", "environment", "options", "signature", "expert", "versions"),
        *("observation_space", "action_space", "returns", "lengths", "terminated", "seeds", "parts"),
    ]
)
in_space = st.sampled_from(["kind", "shape", "dtype", "low", "high", "n", "nvec", "start", "parts"])


def _replace(folder: Path, change: Callable[[dict[str, Any]], Any]) -> str:
    before = (folder / "metadata.json").read_text()
    metadata = json.loads(before)
    change(metadata)
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return before


@fuzzed
@given(name=described, part=st.none() | in_space, value=nonsense)
def test_nonsense_that_was_sealed_is_a_sentence(folders: Folders, name: str, part: str | None, value: Any):
    def change(metadata: dict[str, Any]) -> None:
        about = metadata["duetto"]
        if part is not None and isinstance(about.get(name), dict):
            about[name][part] = value
        else:
            about[name] = value

    before = _replace(folders.ours, change)
    seal = (folders.ours / "manifest.json").read_bytes()
    try:
        write_seal(folders.ours)
        sentence_of(lambda: read_all(folders.ours))
        sentence_of(lambda: inspect(str(folders.ours), all=True))
    finally:
        (folders.ours / "metadata.json").write_text(before)
        (folders.ours / "manifest.json").write_bytes(seal)


minaris = st.sampled_from(["observation_space", "action_space", "data_format", "jpeg_encoding", "total_episodes"])


@fuzzed
@given(name=minaris, part=in_space | st.sampled_from(["type", "subspaces"]), value=nonsense, whole=st.booleans())
def test_nonsense_in_an_import_is_a_sentence(folders: Folders, name: str, part: str, value: Any, whole: bool):
    def change(metadata: dict[str, Any]) -> None:
        if name.endswith("space") and not whole:
            metadata[name] = json.dumps(json.loads(metadata[name]) | {part: value})
        else:
            metadata[name] = value

    before = _replace(folders.foreign, change)
    try:
        sentence_of(lambda: import_all(folders.foreign))
    finally:
        (folders.foreign / "metadata.json").write_text(before)
