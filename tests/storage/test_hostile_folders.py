"""A malicious run folder: no file outside changes, and invalid contents raise a DuettoError."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile
import numpy as np
import pytest
import yaml
from rich.console import Console

import duetto
from duetto.errors import CheckpointError, DuettoError, UsageError, escaped
from duetto.runs.run import Run
from duetto.tools.plot import curves
from duetto.training.progress_lines import say

posix = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there, and there are no pipes")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile.make(tmp_path_factory.mktemp("whole"), "td3")


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return hostile.copy(whole, tmp_path)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in (".tmp-mine", "mine.txt", ".lock"):
        (folder / name).write_text("precious\n")
    return folder


@posix
def test_environment_file_that_is_a_pipe_is_not_read(run: Path):
    os.mkfifo(run / "p.py")
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["environment"] |= {"id": f"{run / 'p.py'}:X", "sha256": "0" * 64}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(DuettoError):
        Run(run).resume(steps=30)


# ---------------------------------------------------------------------------------------------------- links
@posix
@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "evaluations.csv", "config.yaml"])
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_resume_writes_through_no_file_link(name: str, link: Callable, run: Path, outside: Path):
    target, before = outside / "mine.txt", hostile.contents(outside)
    if name in ("config.yaml", "metrics.jsonl", "evaluations.csv"):
        target.write_bytes((run / name).read_bytes())
        before = hostile.contents(outside)
    (run / name).unlink(missing_ok=True)
    link(target, run / name)
    if (name, link) == ("config.yaml", os.link):  # resume replaces the file
        Run(run).resume(steps=30)
    else:
        with pytest.raises(DuettoError, match="is a link" if link is os.symlink else "hard link"):
            Run(run).resume(steps=30)
        (run / name).unlink()
    after = hostile.contents(outside)
    assert {key: value[1] for key, value in after.items()} == {key: value[1] for key, value in before.items()}


@posix
@pytest.mark.parametrize(
    "name", ["checkpoints", "checkpoints/memory", "checkpoints/best", "tensorboard", "checkpoints/.tmp-x"]
)
def test_resume_changes_no_linked_folder(name: str, run: Path, outside: Path):
    path = run / name
    if path.exists():
        path.rename(outside / "moved")
    path.symlink_to(outside / "moved" if (outside / "moved").exists() else outside)
    before = hostile.contents(outside)
    with pytest.raises(DuettoError, match="is a link"):
        Run(run).resume(steps=30)
    assert hostile.contents(outside) == before


@posix
def test_run_can_be_reached_through_a_link(run: Path, tmp_path: Path):
    (tmp_path / "runs").symlink_to(run.parent)
    assert Run(tmp_path / "runs" / run.name).resume(steps=30).config.run.steps == 30


@posix
@pytest.mark.parametrize(("name", "read"), [("metrics.jsonl", Run.metrics), ("evaluations.csv", Run.evaluations)])
def test_pipes_are_not_read(name: str, read: Callable[[Run], Any], run: Path):
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(DuettoError, match="no plain file"):
        read(Run(run))


# ---------------------------------------------------------------------------------------------------- sizes
def test_yaml_that_expands_to_gigabytes_is_refused(run: Path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (run / "config.yaml").write_text("\n".join(lines))
    for read in (lambda: Run(run), lambda: curves.plot([run], run / "curves.png")):
        with pytest.raises(DuettoError, match="alias"):
            read()


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "evaluations.csv"])
def test_terabyte_file_is_refused(name: str, run: Path):
    with (run / name).open("wb") as file:
        try:
            file.truncate(2**40)  # a sparse file
        except OSError:
            pytest.skip("no such files here")
    readings = {"config.yaml": Run, "metrics.jsonl": Run.metrics, "evaluations.csv": Run.evaluations}
    given: Any = run if name == "config.yaml" else Run(run)
    with pytest.raises(DuettoError, match="bytes, more than"):
        readings[name](given)
    with pytest.raises(DuettoError, match="bytes, more than"):
        Run(run).resume(steps=30)


@pytest.mark.parametrize(("start", "count"), [(0, 80_000_000_000), (0, -1), (-5, 10), (2**62, 1)])
def test_segment_with_impossible_counts_is_refused(start: int, count: int, run: Path):
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays["start"][:], arrays["count"][:] = start, count

    hostile.change_segment(run, change)
    with pytest.raises(CheckpointError, match="segment"):
        Run(run).resume(steps=30)


HUGE = 1 << 37


def _observation(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda state: state["spaces"]["observation"].update(changes)


@pytest.mark.parametrize(
    "change",
    [
        _observation(shape=[HUGE], low=[0.0], high=[1.0]),
        _observation(low=[]),
        _observation(dtype="object"),
        _observation(kind="Discrete", n=HUGE),
        _observation(kind="MultiDiscrete", nvec=[0, 2]),
        _observation(kind="Tuple"),
        _observation(kind="Dict", parts={"a": {"kind": "Dict", "parts": {}}}),
        lambda state: state["spaces"].update(action=None),
        lambda state: state.update(learner=7),
        lambda state: state["normalizer"][""].update(count="many"),
        lambda state: state["normalizer"][""].update(mean=np.zeros(5)),
        lambda state: state["learner"]["parameters"].update(actor=[1, 2]),
    ],
)
def test_load_refuses_invalid_states(change: Callable[[dict[str, Any]], Any], run: Path):
    for folder, name in ((hostile.checkpoint(run), "last"), (hostile.best(run), "best")):
        state = hostile.state_of(folder)
        change(state)
        hostile.put_state(folder, state)
        with pytest.raises((CheckpointError, UsageError)):
            duetto.load(run, name)


def _generator(saved: dict[str, Any]) -> dict[str, Any]:
    """Return the saved state of the environment's random generator at its reset."""
    path = next(path for path in saved["generators"] if path.endswith("/_np_random"))
    return saved["begin"]["generators"].setdefault(path, dict(saved["generators"][path]))


def _environment(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda state: change(state["stepper"]["environments"]["0"])


CHANGED = "was changed|does not belong to this run"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda state: state["trainer"].update(seconds=np.inf),
            "trainer/seconds is inf, not a finite number",
        ),
        (lambda state: state["evaluations"].update(best=np.nan), "evaluations/best is nan, not a finite number"),
        (lambda state: state["collector"].update(noise="loud"), r"state\.json/collector/noise is 'loud', not an array"),
        (lambda state: state["collector"].update(rewards=[]), "collector/rewards is list, not a dict"),
        (lambda state: state.update(stepper=np.zeros(3)), CHANGED),
        (lambda state: state.update(versions=[1]), CHANGED),
        (lambda state: state.update(callbacks={"Patient": "x"}), CHANGED),
        (lambda state: state["run"].update(horizon={"a": np.ones(2)}), CHANGED),
        (lambda state: state["evaluations"].update(lines=np.zeros(3)), CHANGED),
        (
            _environment(lambda saved: _generator(saved).update(bit_generator="test")),
            None,
        ),  # would run NumPy's own tests
        (_environment(lambda saved: _generator(saved).update(bit_generator="MT19937")), None),
        (_environment(lambda saved: _generator(saved).update(state={"state": -1, "inc": 10**60})), None),
        (_environment(lambda saved: saved.update(actions=np.zeros(3, np.uint8))), None),
        (_environment(lambda saved: saved.update(changes=[[0, "step"]])), None),
        (_environment(lambda saved: saved.update(changes=[[0, "x"]], values={"0": {"kind": "nothing"}})), None),
        (_environment(lambda saved: saved.pop("actions")), None),
        (_environment(lambda saved: saved.pop("begin")), None),
    ],
)
def test_resume_refuses_invalid_states(change: Callable[[dict[str, Any]], Any], words: str | None, run: Path):
    folder = hostile.checkpoint(run)
    state = hostile.state_of(folder)
    change(state)
    hostile.put_state(folder, state)
    with pytest.raises(CheckpointError, match=words):
        Run(run).resume(steps=30)


# --------------------------------------------------------------------------------------------------- control characters
CONTROL_CHARACTERS = "\x1b]0;title\x07\x9b2J\u202egnp\u2066\u200f\r\x00\ud800"


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]):
    shown = r"\x1b]0;title\x07\x9b2J\u202egnp\u2066\u200f\r\x00\ud800"
    assert escaped(CONTROL_CHARACTERS) == shown == escaped(shown)
    assert escaped("ein Weg → über [1]\n\tzwei") == "ein Weg → über [1]\n\tzwei"
    assert str(UsageError(f"it is {CONTROL_CHARACTERS}")) == f"it is {shown}"
    assert curves._text(CONTROL_CHARACTERS) == shown
    say(Console(), CONTROL_CHARACTERS)
    assert capsys.readouterr().out == f"{shown}\n"


def test_error_messages_escape_control_characters_of_the_config(run: Path, command: Any):
    values = yaml.safe_load((run / "config.yaml").read_text())
    for where in (("environment", "id"), ("algorithm", "name"), ("run", "backend")):
        changed = {**values, where[0]: values[where[0]] | {where[1]: "x\x1b[2Jy"}}
        (run / "config.yaml").write_text(yaml.safe_dump(changed))
        said = command("evaluate", run)
        assert "\x1b" not in said.out + said.err
        assert r"\x1b[2Jy" in said.err
