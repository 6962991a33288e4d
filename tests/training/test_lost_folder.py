"""A run's folder that is moved, deleted or replaced while the run works in it: noticed, said, never made again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from line_environment import Line
from small_runs import StopAt, assert_same, checkpoints, train

from duetto.errors import FolderLostError, NonFiniteError
from duetto.runs.run import Run
from duetto.storage.lock import FolderLock
from duetto.training.trainer import Trainer

Harm = Callable[[Path], object]
EVALUATE = Trainer.evaluate


class At:
    """A callback that does something to the run's folder after a step."""

    def __init__(self, step: int, harm: Harm) -> None:
        self.step, self.harm = step, harm

    def __call__(self, trainer: Trainer) -> None:
        if trainer.step == self.step:
            self.harm(trainer.folder)


def move(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def lost(tmp_path: Path, step: int, harm: Harm, **options: Any) -> str:
    """What a run says whose folder was harmed after a step."""
    with pytest.raises(FolderLostError) as failure:
        train(tmp_path, name="run", callbacks=[At(step, harm)], **options)
    assert failure.value.exit_code == 1
    return str(failure.value)


@pytest.mark.parametrize(
    ("step", "options", "noticed", "saved"),
    [
        (90, {}, 100, 80),  # by a line of metrics
        (90, {"log_every": 1000, "evaluate_every": 0}, 120, 80),  # by a checkpoint
        (90, {"log_every": 1000, "checkpoint_every": 0}, 120, None),  # by an evaluation
        (
            90,
            {"log_every": 1000, "evaluate_every": 0, "checkpoint_every": 0},
            200,
            None,
        ),  # by the checkpoint at the end
        (200, {}, 200, 200),  # after the last thing that is written
    ],
)
def test_a_folder_that_is_moved(tmp_path: Path, step: int, options: dict[str, Any], noticed: int, saved: int | None):
    message = lost(tmp_path, step, move, **options)
    assert f"{tmp_path}/run was moved, deleted or replaced while the run worked in it" in message
    assert f"stopped at step {noticed}" in message
    kept = "before its first checkpoint" if saved is None else f"its last checkpoint is that of step {saved}"
    assert kept in message
    assert message.endswith("resume the run in its new place: duetto resume FOLDER.")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["moved"]
    assert_same(train(tmp_path, name="whole", **options), Run(tmp_path / "moved").resume())


@pytest.mark.parametrize("log_every", [25, 1000])
def test_a_folder_that_is_deleted(tmp_path: Path, log_every: int):
    message = lost(tmp_path, 90, shutil.rmtree, log_every=log_every)
    assert "its last checkpoint is that of step 80" in message
    assert not list(tmp_path.iterdir())


def test_a_folder_in_whose_place_another_is(tmp_path: Path):
    def replace(folder: Path) -> None:
        shutil.copytree(folder, tmp_path / "copy")
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "copy", folder)

    message = lost(tmp_path, 90, replace)
    assert f"{tmp_path}/run was moved, deleted or replaced" in message
    assert checkpoints(Run(tmp_path / "run")).steps() == [40, 80]


def test_a_run_that_was_gone_on_with_elsewhere_is_left_alone(tmp_path: Path):
    def take_over(folder: Path) -> None:
        (folder / ".lock").unlink()
        Run(folder).resume(callbacks=[StopAt(85)])

    lost(tmp_path, 90, take_over)
    assert checkpoints(Run(tmp_path / "run")).steps() == [80, 85]


@pytest.mark.parametrize("log_every", [25, 1000])
def test_before_the_first_line_no_folder_is_made_again_for_tensorboard_or_the_best(tmp_path: Path, log_every: int):
    message = lost(tmp_path, 5, shutil.rmtree, log_every=log_every, checkpoint_every=0)
    assert "before its first checkpoint" in message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["log_every", "evaluate_every", "checkpoint_every"])
def test_a_folder_that_goes_while_something_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str):
    """The check before is passed; what the disk refuses then is explained by the folder."""
    is_in_place = FolderLock.is_in_place

    def harm(folder: Path) -> None:
        shutil.rmtree(folder)
        answers = iter([True])  # to the next check only
        monkeypatch.setattr(FolderLock, "is_in_place", lambda lock: next(answers, False) or is_in_place(lock))

    options = {"evaluate_every": 0, "checkpoint_every": 0, "log_every": 1000} | {what: 40}
    if what == "evaluate_every":  # not the one at step 0, which makes the folders
        monkeypatch.setattr(Trainer, "evaluate", lambda trainer: trainer.step and EVALUATE(trainer))
    message = lost(tmp_path, 39, harm, **options)
    assert "was moved, deleted or replaced" in message
    assert "stopped at step 40" in message
    assert not list(tmp_path.iterdir())


def test_a_divergence_names_the_place_where_the_checkpoint_is(tmp_path: Path):
    def poison(trainer: Trainer) -> None:
        if trainer.step == 95:
            move(trainer.folder)
            parameters = trainer.learner.parameters()
            parameters["actor"]["layers.0.bias"][:] = np.nan
            trainer.learner.load_parameters(parameters)

    with pytest.raises(NonFiniteError) as failure:
        train(tmp_path, environment=Line, name="run", callbacks=[poison])
    assert "checkpoint of step 80 is kept" in str(failure.value)
    assert f"{tmp_path}/run" not in str(failure.value).replace(f"no longer {tmp_path}/run", "")
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------------------------------- the witness
def test_the_place_of_a_lock(tmp_path: Path):
    folder = tmp_path / "run"
    folder.mkdir()
    lock = FolderLock(folder)
    assert lock.is_in_place()  # not held: nothing is known to be wrong
    with lock:
        assert lock.is_in_place()
        folder.rename(tmp_path / "moved")
        assert not lock.is_in_place()
        folder.mkdir()
        (folder / ".lock").touch()
        assert not lock.is_in_place()
        shutil.rmtree(folder)
        (tmp_path / "moved").rename(folder)
        assert lock.is_in_place()


@pytest.mark.parametrize("seeds", [None, [0, 1]])
def test_an_environment_that_changes_the_directory_as_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: list[int] | None
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    class Moving(Line):
        def __init__(self) -> None:
            super().__init__()
            os.chdir(tmp_path / "elsewhere")

    more: dict[str, Any] = {"seeds": seeds} if seeds else {}
    train(Path("runs"), environment=Moving, name="run", steps=20, evaluate_every=0, **more)
    assert not list((tmp_path / "elsewhere").iterdir())
    assert len(list((tmp_path / "runs").iterdir())) == (len(seeds) if seeds else 1)


def test_a_relative_folder_after_a_change_of_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The run continues in its folder; it stopped, as if that had been moved."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    run = train(Path("runs"), name="run", callbacks=[At(30, lambda _: os.chdir("elsewhere"))])
    assert run.path == tmp_path / "runs" / "run"
    assert run.evaluations()[-1]["step"] == 200
    assert not list((tmp_path / "elsewhere").iterdir())
