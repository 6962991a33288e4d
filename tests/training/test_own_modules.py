"""Modules that environments and algorithms of the user's own import: edited ones are said where a run goes on."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from pathlib import Path

import gymnasium
import pytest
from small_runs import small, train

from duetto import environments, own_files, own_modules
from duetto.errors import UsageError
from duetto.runs.run import Run
from duetto.training.session import Session

ENVIRONMENT = """
import gymnasium
import numpy as np
from {where} import reward


class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {{}}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), reward(), False, self.steps == 5, {{}}
"""
REWARD = "def reward():\n    return 1.0\n"
SAID = "Edited since the checkpoint at step {}, and imported by what the run is made of: {}. If that changes what is"


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch):
    """As in a new process: each test's modules are imported by it, and forgotten."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("beside", "farm", "idle_farm")]:
        del sys.modules[name]
    gymnasium.registry.pop("Farm-v0", None)
    importlib.invalidate_caches()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text(REWARD)
    (tmp_path / "not_imported.py").write_text(REWARD)
    (tmp_path / "mine.py").write_text(ENVIRONMENT.format(where="beside"))
    return tmp_path / "mine.py"


@pytest.fixture
def farm(tmp_path: Path) -> Path:
    """A package that registers an id, whose environment imports another of its modules."""
    package = tmp_path / "farm"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import gymnasium\ngymnasium.register('Farm-v0', entry_point='farm.inner.envs:Mine')\n"
    )
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "physics.py").write_text(REWARD)
    (package / "inner" / "envs.py").write_text(ENVIRONMENT.format(where="farm.inner.physics"))
    sys.path.append(str(tmp_path))
    importlib.invalidate_caches()
    return package


def resumed(run: Run, steps: int) -> list[str]:
    said: list[str] = []
    run.resume(steps=steps, on_start=lambda session: said.extend(session.notices))
    return [notice for notice in said if "imported by" in notice]


def edit(path: Path) -> None:
    path.write_text(path.read_text() + "# another line\n")


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_what_a_file_imports_from_beside_it(tmp_path: Path, file: Path, vectorization: str):
    how = {"environment_options": {}, "vectorization": vectorization, "num_envs": 2}
    run = train(tmp_path, environment=f"{file}:Mine", steps=40, **how)
    edit(file.parent / "not_imported.py")
    assert resumed(run, 44) == []
    edit(file.parent / "beside.py")
    [notice] = resumed(run, 48)
    assert notice.startswith(SAID.format(44, "beside"))
    assert resumed(run, 52) == []  # said once


@pytest.mark.parametrize("forgotten", [False, True])
def test_what_a_package_that_registers_an_id_is_made_of(tmp_path: Path, farm: Path, forgotten: bool):
    run = train(tmp_path, environment="farm:Farm-v0", steps=40, environment_options={})
    if forgotten:
        forget()
    edit(farm / "inner" / "physics.py")
    [notice] = resumed(run, 44)
    assert notice.startswith(SAID.format(40, "farm.inner.physics"))


def test_what_an_algorithms_file_imports(tmp_path: Path, file: Path):
    from duetto.storage import origin

    (tmp_path / "own.py").write_text(
        "from dataclasses import dataclass\nimport duetto\nimport beside\n\n\n"
        "@dataclass(frozen=True)\nclass Own(duetto.TD3):\n    pass\n"
    )
    kind, _ = origin.from_file(tmp_path / "own.py", "Own")
    options = {name: getattr(small(), name) for name in small().options()}
    run = train(tmp_path, kind(**options), steps=40)
    edit(tmp_path / "beside.py")
    [notice] = resumed(Run(run.path, algorithm=kind), 44)
    assert notice.startswith(SAID.format(40, "beside"))


def test_what_is_imported_late(tmp_path: Path, file: Path):
    late = file.read_text().replace("from beside import reward\n", "")
    file.write_text(late.replace("self.steps += 1\n", "self.steps += 1\n        from beside import reward\n"))
    run = train(tmp_path, environment=f"{file}:Mine", steps=40, environment_options={})
    edit(tmp_path / "beside.py")
    [notice] = resumed(run, 44)
    assert notice.startswith(SAID.format(40, "beside"))


class Edits:
    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, session: Session) -> None:
        if session.step == self.step:
            edit(session.folder.parent / "beside.py")


def test_what_was_edited_while_the_run_had_it_imported(tmp_path: Path, file: Path):
    """The checkpoint's record is of what was computed with."""
    run = train(tmp_path, environment=f"{file}:Mine", steps=40, environment_options={}, callbacks=[Edits(20)])
    [notice] = resumed(run, 44)
    assert notice.startswith(SAID.format(40, "beside"))


class Breaks:
    """The environment's own file, in the middle of the run."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self, session: Session) -> None:
        if session.step == 20:
            self.file.write_text("this is no Python")


def test_a_run_goes_on_while_its_file_is_being_written(tmp_path: Path, file: Path):
    how = {"environment_options": {}, "checkpoint_every": 10, "evaluate_every": 0}
    run = train(tmp_path, environment=f"{file}:Mine", steps=40, callbacks=[Breaks(file)], **how)
    assert run.metrics()[-1]["step"] == 40


# ---------------------------------------------------------------------------------------------- two of one name
def test_two_files_with_a_neighbour_of_one_name_do_not_go_together(tmp_path: Path, file: Path):
    """The second would compute with what lies beside the first."""
    train(tmp_path, environment=f"{file}:Mine", steps=40, environment_options={})
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "mine.py"
    other.write_text(file.read_text())
    (tmp_path / "other" / "beside.py").write_text(REWARD.replace("1.0", "2.0"))
    sentence = f"{other} imports beside, and beside it lies {other.parent / 'beside.py'}; but Python has another beside"
    with pytest.raises(UsageError, match=re.escape(sentence) + rf".*{re.escape(str(tmp_path / 'beside.py'))}"):
        train(tmp_path, environment=f"{other}:Mine", steps=40, environment_options={}, name="other")
    forget()  # as a new process: now its own is found, though Python looks into the first one's folder, too
    own_files.run(other, other.read_bytes())
    assert sys.modules["beside"].__file__ == str(other.parent / "beside.py")


def test_what_python_finds_first_is_said(tmp_path: Path, file: Path):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "beside.py").write_text(REWARD)
    sys.path.insert(0, str(tmp_path / "first"))
    with pytest.raises(
        UsageError, match=r"but Python has another beside, .*first/beside\.py\. Give one of them another"
    ):
        own_files.run(file, file.read_bytes())


def test_so_is_what_a_neighbour_imports(tmp_path: Path, file: Path):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "farm.py").write_text("")
    (tmp_path / "farm.py").write_text("")
    (tmp_path / "beside.py").write_text("import os, farm\n" + REWARD)
    sys.path.insert(0, str(tmp_path / "first"))
    with pytest.raises(UsageError, match=r"beside.py imports farm, and beside it lies .*; but Python has another farm"):
        own_files.run(file, file.read_bytes())


def test_nothing_of_the_ids_that_have_a_version():
    with contextlib.closing(environments.make("Pendulum-v1")) as made:
        names = environments.modules_of("Pendulum-v1", made.environments)
    assert "gymnasium.envs.classic_control.pendulum" in names
    assert own_modules.checksums(names, ("gymnasium", "duetto")) == {}


def test_a_module_is_looked_up_without_importing_its_package(tmp_path: Path):
    package = tmp_path / "idle_farm"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "inner.py").write_text("")
    sys.path.append(str(tmp_path))
    importlib.invalidate_caches()
    kept = {name: own_modules.checksum_now(name) for name in ("idle_farm", "idle_farm.inner")}
    assert all(kept.values())
    assert own_modules.edited(kept) == []
    edit(package / "inner.py")
    assert own_modules.edited(kept) == ["idle_farm.inner"]
    (package / "inner.py").unlink()
    importlib.invalidate_caches()
    assert own_modules.edited(kept) == []  # whoever imported it was edited, too
    assert "idle_farm" not in sys.modules


@pytest.mark.parametrize("name", ["", ".", "a..b", "/etc/passwd", "sys", "no_such.module"])
def test_a_name_from_a_damaged_checkpoint_is_no_error(name: str):
    assert own_modules.checksum_now(name) == ""
