"""Every file of a run that is read, changed at random: whatever it says, a sentence comes out or what it says holds.

DUETTO_FUZZ=2000 pytest -n 0 tests/storage/test_fuzzed_folders.py     # a long look; CI takes a short one
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "attack"))

import damage
import hostile
import numpy as np
import pytest
import strangers
from strangers import LEAVES, Random

import duetto
from duetto.errors import DuettoError
from duetto.runs import trainer_setup
from duetto.runs.run import Run
from duetto.storage.run_folder import folder_lock
from duetto.tools.plot.curves import curves

EXAMPLES = int(os.environ.get("DUETTO_FUZZ", "10"))


def some_bytes(run: Path, random: Random) -> str:
    """A file damaged; half of the time its manifest vouches for it."""
    path, told = damage.harm(run, random)
    if random.random() < 0.5 and path.name != "manifest.json":
        with suppress(OSError):
            for folder in (hostile.checkpoint(run), hostile.best(run)):
                hostile.reseal(folder)
    return f"{path.relative_to(run)}: {told}"


def a_line(run: Path, random: Random) -> str:
    """A line of a log replaced by another JSON value."""
    path = run / ["metrics.jsonl", "evaluations.csv"][random.integers(2)]
    lines = path.read_bytes().split(b"\n")
    value, place = json.dumps(LEAVES[random.integers(len(LEAVES))]), int(random.integers(len(lines)))
    lines[place] = value.encode()
    path.write_bytes(b"\n".join(lines))
    return f"{path.name}: line {place} is {value[:20]}"


def restore(run: Run) -> None:
    """What resume does before the first step."""
    with (
        folder_lock(run.path),
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


CHANGES = [strangers.config, strangers.state, strangers.manifest, strangers.segment, strangers.header]


@pytest.mark.usefixtures("little_memory")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", [*CHANGES, some_bytes, a_line], ids=lambda change: change.__name__)
def test_a_sentence_comes_out(change: Callable[[Path, Random], str], place: Path):
    before = beside(place)
    for seed in range(EXAMPLES):
        run = hostile.copy(place / "whole", place)
        print(seed, ascii(change(run, np.random.default_rng(seed))))
        for read in READERS:
            with suppress(DuettoError):
                read(run)
        assert beside(place) == before
