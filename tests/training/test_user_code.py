"""User files that environments come from, and the modules beside them that they import."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from small_runs import train

from duetto.storage import user_code
from duetto.training.trainer import Trainer

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


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch):
    """As in a new process: each test's modules are imported by it, and forgotten."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("beside", "farm", "idle_farm")]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text(REWARD)
    (tmp_path / "not_imported.py").write_text(REWARD)
    (tmp_path / "mine.py").write_text(ENVIRONMENT.format(where="beside"))
    return tmp_path / "mine.py"


class Breaks:
    """The environment's own file, in the middle of the run."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self, trainer: Trainer) -> None:
        if trainer.step == 20:
            self.file.write_text("this is no Python")


def test_a_run_goes_on_while_its_file_is_being_written(tmp_path: Path, file: Path):
    how = {"environment_options": {}, "checkpoint_every": 10, "evaluate_every": 0}
    run = train(tmp_path, environment=f"{file}:Mine", steps=40, callbacks=[Breaks(file)], **how)
    assert run.metrics()[-1]["step"] == 40


# ---------------------------------------------------------------------------------------------- two of one name
def test_a_module_of_the_files_folder_comes_before_any_other(tmp_path: Path, file: Path):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "beside.py").write_text(REWARD)
    sys.path.insert(0, str(tmp_path / "first"))
    user_code.run(file, file.read_bytes())
    assert sys.modules["beside"].__file__ == str(tmp_path / "beside.py")


def test_the_file_that_was_run_last_comes_first(tmp_path: Path, file: Path):
    user_code.run(file, file.read_bytes())
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "mine.py"
    other.write_text(file.read_text())
    (tmp_path / "other" / "beside.py").write_text(REWARD)
    for run_again in (other, file, other):
        forget()  # as in a new process
        user_code.run(run_again, run_again.read_bytes())
        assert sys.modules["beside"].__file__ == str(run_again.parent / "beside.py")
