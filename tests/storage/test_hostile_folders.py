"""A run's folder from a stranger: nothing outside it is touched, and whatever it says ends in a sentence."""

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
from duetto.training.components import Components
from duetto.training.progress_lines import say

posix = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there, and there are no pipes")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    parent = tmp_path_factory.mktemp("whole")
    return {name: hostile.make(parent, name) for name in hostile.ALGORITHMS}


@pytest.fixture
def run(whole: dict[str, Path], tmp_path: Path) -> Path:
    return hostile.copy(whole["td3"], tmp_path)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in (".tmp-mine", "mine.txt", ".lock"):
        (folder / name).write_text("precious\n")
    return folder


# ---------------------------------------------------------------------------------------------------- data loss


# ---------------------------------------------------------------------------------------------------- numbers
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize(("part", "name"), [("trainer", "seconds"), ("evaluations", "best")])
def test_a_number_of_the_state_is_finite(run: Path, part: str, name: str, value: float):
    state = hostile.state_of(hostile.checkpoint(run))
    state[part][name] = value
    hostile.put_state(hostile.checkpoint(run), state)
    with pytest.raises(CheckpointError, match=rf"state\.json.*{part}/{name} is {value}, not a finite number"):
        Run(run).resume(steps=30)


@pytest.mark.parametrize(
    ("name", "value", "fault"), [("noise", "loud", "is 'loud', not an array"), ("rewards", [], "is list, not a dict")]
)
def test_the_collectors_state_is_checked_before_anything_is_loaded(
    run: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, fault: str
):
    monkeypatch.setattr(Components, "load_state_dict", lambda *_: pytest.fail("loaded"))
    state = hostile.state_of(hostile.checkpoint(run))
    state["collector"][name] = value
    hostile.put_state(hostile.checkpoint(run), state)
    with pytest.raises(CheckpointError, match=rf"state\.json/collector/{name} {fault}"):
        Run(run).resume(steps=30)


# ---------------------------------------------------------------------------------------------------- links
@posix
@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "evaluations.csv", "config.yaml"])
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_no_link_to_a_file_is_written_through(name: str, link: Callable, run: Path, outside: Path):
    target, before = outside / "mine.txt", hostile.contents(outside)
    if name in ("config.yaml", "metrics.jsonl", "evaluations.csv"):
        target.write_bytes((run / name).read_bytes())
        before = hostile.contents(outside)
    (run / name).unlink(missing_ok=True)
    link(target, run / name)
    if (name, link) == ("config.yaml", os.link):  # it is never written over, but replaced
        Run(run).resume(steps=30)
    else:
        with pytest.raises(DuettoError, match="is a link" if link is os.symlink else "hard link"):
            Run(run).resume(steps=30)
        (run / name).unlink()
    after = hostile.contents(outside)
    assert {key: value[1] for key, value in after.items()} == {key: value[1] for key, value in before.items()}


@posix
@pytest.mark.parametrize(
    "name",
    [
        "checkpoints",
        "checkpoints/memory",
        "checkpoints/best",
        "tensorboard",
        "tensorboard/events",
        "checkpoints/.tmp-x",
    ],
)
def test_no_linked_folder_is_written_or_cleaned(name: str, run: Path, outside: Path):
    path = run / name
    if path.exists():
        path.rename(outside / "moved")
    path.symlink_to(outside / "moved" if (outside / "moved").exists() else outside)
    before = hostile.contents(outside)
    with pytest.raises(DuettoError, match="is a link"):
        Run(run).resume(steps=30)
    assert hostile.contents(outside) == before


@posix
def test_the_run_itself_may_be_reached_by_a_link(run: Path, tmp_path: Path):
    (tmp_path / "runs").symlink_to(run.parent)
    assert Run(tmp_path / "runs" / run.name).resume(steps=30).config.run.steps == 30


@posix
@pytest.mark.parametrize(("name", "read"), [("metrics.jsonl", Run.metrics), ("evaluations.csv", Run.evaluations)])
def test_a_pipe_is_not_read(name: str, read: Callable[[Run], Any], run: Path):
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(DuettoError, match="no plain file"):
        read(Run(run))


# ---------------------------------------------------------------------------------------------------- sizes
def test_yaml_that_stands_for_gigabytes(run: Path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (run / "config.yaml").write_text("\n".join(lines))
    for read in (lambda: Run(run), lambda: curves.plot([run], run / "curves.png")):
        with pytest.raises(DuettoError, match="alias"):
            read()


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "evaluations.csv"])
def test_a_file_of_a_terabyte(name: str, run: Path):
    with (run / name).open("wb") as file:
        try:
            file.truncate(2**40)  # a hole: it takes no room
        except OSError:
            pytest.skip("no such files here")
    readings = {"config.yaml": Run, "metrics.jsonl": Run.metrics, "evaluations.csv": Run.evaluations}
    given: Any = run if name == "config.yaml" else Run(run)
    with pytest.raises(DuettoError, match="bytes, more than"):
        readings[name](given)
    with pytest.raises(DuettoError, match="bytes, more than"):
        Run(run).resume(steps=30)


def _counts(start: int, count: int) -> Callable[[dict[str, np.ndarray]], None]:
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays["start"][:], arrays["count"][:] = start, count

    return change


@pytest.mark.parametrize(
    "change",
    [
        _counts(0, 80_000_000_000),
        _counts(0, -1),
        _counts(-5, 10),
        _counts(2**62, 1),
        lambda arrays: arrays.pop("reward"),
    ],
)
def test_a_segment_that_claims_rows_which_it_has_not(change: Callable, run: Path):
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
        _observation(shape=[20_000_000], low=[0.0], high=[1.0]),
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
def test_acting_checks_what_it_reads(change: Callable[[dict[str, Any]], Any], run: Path):
    for folder, name in ((hostile.checkpoint(run), "last"), (hostile.best(run), "best")):
        state = hostile.state_of(folder)
        change(state)
        hostile.put_state(folder, state)
        with pytest.raises((CheckpointError, UsageError)):
            duetto.load(run, name)


# ---------------------------------------------------------------------------------------------------- environments
def _generator(saved: dict[str, Any]) -> dict[str, Any]:
    """The environment's own generator at its reset; the first one makes it, so there is none before."""
    path = next(path for path in saved["generators"] if path.endswith("/_np_random"))
    return saved["begin"]["generators"].setdefault(path, dict(saved["generators"][path]))


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: _generator(saved).update(bit_generator="test"),  # runs NumPy's own tests
        lambda saved: _generator(saved).update(bit_generator="MT19937"),
        lambda saved: _generator(saved).update(state={"state": -1, "inc": 10**60}),
        lambda saved: saved.update(actions=np.zeros(3, np.uint8)),
        lambda saved: saved.update(actions=np.zeros(8)),
        lambda saved: saved.update(changes=[[0, "step"]]),
        lambda saved: saved.update(changes=[[0, "x"]], values={"0": {"kind": "nothing"}}),
        lambda saved: saved.pop("actions"),
        lambda saved: saved.pop("changes"),
        lambda saved: saved.pop("begin"),
    ],
)
def test_a_state_that_environments_cannot_have(change: Callable[[dict[str, Any]], Any], run: Path):
    folder = hostile.checkpoint(run)
    state = hostile.state_of(folder)
    change(state["stepper"]["environments"]["0"])
    hostile.put_state(folder, state)
    with pytest.raises(CheckpointError):
        Run(run).resume(steps=30)


@pytest.mark.parametrize("nonsense", [np.zeros(3), "x", [1], {"a": np.ones(2)}], ids=["array", "text", "list", "dict"])
@pytest.mark.parametrize(
    "put",
    [
        lambda state, it: state.update(stepper=it),
        lambda state, it: state.update(versions=it),
        lambda state, it: state.update(callbacks={"Patient": it if isinstance(it, str | list) else 3}),
        lambda state, it: state["run"].update(horizon=it),
        lambda state, it: state["evaluations"].update(lines=it),
    ],
    ids=["stepper", "versions", "callbacks", "horizon", "lines"],
)
def test_a_state_of_what_nobody_wrote(put: Callable[[dict[str, Any], Any], None], nonsense: Any, run: Path):
    folder = hostile.checkpoint(run)
    state = hostile.state_of(folder)
    put(state, nonsense)
    hostile.put_state(folder, state)
    with pytest.raises(CheckpointError, match=r"was changed|is not one of this run"):
        Run(run).resume(steps=30)


# ---------------------------------------------------------------------------------------------------- what is shown
NASTY = "\x1b]0;title\x07\x9b2J\u202egnp\u2066\u200f\r\x00\ud800"


def test_what_would_steer_the_terminal_is_shown(capsys: pytest.CaptureFixture[str]):
    shown = r"\x1b]0;title\x07\x9b2J\u202egnp\u2066\u200f\r\x00\ud800"
    assert escaped(NASTY) == shown == escaped(shown)
    assert escaped("ein Weg → über [1]\n\tzwei") == "ein Weg → über [1]\n\tzwei"
    assert str(UsageError(f"it is {NASTY}")) == f"it is {shown}"
    assert curves._text(NASTY) == shown
    say(Console(), NASTY)
    assert capsys.readouterr().out == f"{shown}\n"


def test_what_the_folder_says_is_shown_on_the_terminal(run: Path, capsys: pytest.CaptureFixture[str]):
    values = yaml.safe_load((run / "config.yaml").read_text())
    for where in (("environment", "id"), ("algorithm", "name"), ("run", "backend")):
        changed = {**values, where[0]: values[where[0]] | {where[1]: "x\x1b[2Jy"}}
        (run / "config.yaml").write_text(yaml.safe_dump(changed))
        with pytest.raises(SystemExit):
            duetto_main(["evaluate", str(run)])
        said = capsys.readouterr()
        assert "\x1b" not in said.out + said.err
        assert r"\x1b[2Jy" in said.err


def duetto_main(arguments: list[str]) -> None:
    from duetto.tools.cli import main

    main(arguments)
