"""Every file of a run that is read, changed at random: whatever it says, a sentence comes out or what it says holds.

DUETTO_FUZZ=2000 pytest -n 0 tests/storage/test_fuzzed_folders.py     # a long look; CI takes a short one
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import hostile
import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import duetto
from duetto.errors import DuettoError
from duetto.runs import trainer_setup
from duetto.runs.run import Run
from duetto.storage.lock import FolderLock
from duetto.tools.plot.curves import curves

EXAMPLES = int(os.environ.get("DUETTO_FUZZ", "10"))
fuzzed = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 10,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # to shrink takes minutes: each look reads a run
    suppress_health_check=list(HealthCheck),
)

small = [
    None,
    True,
    False,
    0,
    -1,
    1,
    7,
    0.5,
    -1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\x1b[2J\u202e",
    "../../outside",
]
large = [2**31, 2**53 + 1, 2**62, 2**63, -(2**70), 10**400, 80_000_000_000]


def trees(leaves: list[Any]) -> st.SearchStrategy[Any]:
    one = st.sampled_from(leaves)
    return st.recursive(
        one, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner), max_leaves=4
    )


modest = trees(small)  # for the config: resume makes as many environments as it says
nonsense = trees(small + large)
arrays = st.builds(
    lambda shape, dtype, value: np.full(shape, value).astype(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(["?", "u1", "i8", "f4", "f8"]),
    st.sampled_from([0, 1, -1, 2**40]),
)


def paths(tree: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested dicts and lists; of long lists the first few."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree[:5]) if isinstance(tree, list) else ()
    return [place for key, value in items for place in [(*prefix, key), *paths(value, (*prefix, key))]]


def mutated(data: st.DataObject, tree: Any, leaves: st.SearchStrategy[Any] = nonsense) -> Any:
    """A copy of a tree with one to three places replaced, removed or doubled."""
    tree = copy.deepcopy(tree)
    for _ in range(data.draw(st.integers(1, 3))):
        if not (places := paths(tree)):
            break
        *above, last = data.draw(st.sampled_from(places))
        holder = tree
        for key in above:
            holder = holder[key]
        if data.draw(st.integers(0, 3)):
            holder[last] = data.draw(leaves)
        else:
            del holder[last]
            if isinstance(holder, dict) and data.draw(st.booleans()):
                holder["other"] = data.draw(leaves)
    return tree


def scrambled(data: st.DataObject, content: bytes) -> bytes:
    """The bytes cut, with some changed, or with some put in between."""
    place = data.draw(st.integers(0, len(content)))
    some = data.draw(st.binary(max_size=12) | st.sampled_from([b"\0" * 8, b"\xff" * 8, b"[" * 20_000, b"{" * 20_000]))
    keep = data.draw(st.sampled_from([0, len(some), 1, len(content)]))
    return content[:place] + some + content[place + keep :]


def numbered(data: st.DataObject, tree: dict[str, np.ndarray]) -> None:
    """Some of a segment's arrays changed, in place."""
    name = data.draw(st.sampled_from(sorted(tree)))
    match data.draw(st.integers(0, 3)):
        case 0:
            del tree[name]
        case 1:
            tree[name] = data.draw(arrays)
        case 2:
            tree[name] = tree[name][:-1]
        case _:
            tree[name] = np.full_like(tree[name], data.draw(st.sampled_from([0, 1, 100])))


# ---------------------------------------------------------------------------------------------------- what is changed
def change_config(data: st.DataObject, run: Path) -> None:
    values = mutated(data, yaml.safe_load((run / "config.yaml").read_text("utf-8")), modest)
    (run / "config.yaml").write_text(yaml.safe_dump(values, allow_unicode=True), "utf-8")


def change_state(data: st.DataObject, run: Path) -> None:
    folder = data.draw(st.sampled_from([hostile.checkpoint(run), hostile.best(run)]))
    with suppress(TypeError):  # what no state can hold
        hostile.put_state(folder, mutated(data, hostile.state_of(folder), nonsense | arrays))


def change_manifest(data: st.DataObject, run: Path) -> None:
    folder = data.draw(st.sampled_from([hostile.checkpoint(run), hostile.best(run)]))
    written = json.loads((folder / "manifest.json").read_bytes())["content"]
    hostile.reseal(folder, change=lambda content: content.clear() or content.update(mutated(data, written)))


def change_segment(data: st.DataObject, run: Path) -> None:
    if any((run / "checkpoints").glob("memory/segment-*")):
        hostile.change_segment(run, lambda tree: numbered(data, tree))


def change_bytes(data: st.DataObject, run: Path) -> None:
    files = sorted(path for path in run.rglob("*") if path.is_file() and "tensorboard" not in path.parts)
    path = data.draw(st.sampled_from(files))
    path.write_bytes(scrambled(data, path.read_bytes()))
    if data.draw(st.booleans()) and path.name != "manifest.json":
        for folder in (hostile.checkpoint(run), hostile.best(run)):
            hostile.reseal(folder)


def change_logs(data: st.DataObject, run: Path) -> None:
    line = json.dumps(data.draw(nonsense)).encode()
    path = run / data.draw(st.sampled_from(["metrics.jsonl", "evaluations.csv"]))
    lines = path.read_bytes().split(b"\n")
    lines[data.draw(st.integers(0, len(lines) - 1))] = line
    path.write_bytes(b"\n".join(lines))


# ---------------------------------------------------------------------------------------------------- who reads it
def restore(run: Run) -> None:
    """What resume does before the first step."""
    with (
        FolderLock(run.path),
        closing(trainer_setup.existing_trainer(run.config, run.path, run._environment(), accept_changes=True)),
    ):
        pass


READERS: list[Callable[[Path], Any]] = [
    Run,
    duetto.load,
    lambda path: duetto.load(path, "best"),
    lambda path: restore(Run(path)),
    lambda path: Run(path).stepper(1).close(),
    lambda path: Run(path).metrics(),
    lambda path: Run(path).evaluations(),
    lambda path: curves([path]),
    lambda path: curves([path], "learn/updates"),
]


@pytest.fixture(scope="module", params=list(hostile.ALGORITHMS))
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a whole run, and files beside it."""
    parent = tmp_path_factory.mktemp("fuzzed")
    hostile.make(parent, request.param).rename(parent / "whole")
    (parent / "outside").mkdir()
    (parent / "outside" / "mine").write_text("precious")
    return parent


def beside(place: Path) -> dict[str, tuple[int, bytes]]:
    return {name: kept for name, kept in hostile.contents(place).items() if not name.startswith("run")}


@pytest.fixture
def little_memory() -> Iterator[None]:
    """So that to ask for more than a folder of kilobytes can need is an error, and no swapping."""
    if sys.platform != "linux":
        yield
        return
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "change", [change_config, change_state, change_manifest, change_segment, change_bytes, change_logs]
)
def test_a_sentence_comes_out(change: Callable[[st.DataObject, Path], None], place: Path):
    before = beside(place)

    @fuzzed
    @given(st.data())
    def look(data: st.DataObject) -> None:
        run = hostile.copy(place / "whole", place)
        change(data, run)
        for read in READERS:
            with suppress(DuettoError):
                read(run)
        assert beside(place) == before

    look()
