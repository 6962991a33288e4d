"""Modules that environments and algorithms of the user's own import: edited ones are said where a run goes on."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path

import gymnasium
import pytest
from small_runs import small, train

from duetto import environments, own_modules
from duetto.runs.run import Run

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
