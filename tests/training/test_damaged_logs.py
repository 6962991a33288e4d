"""Logs that are not what they were at the checkpoint: said, kept, and continued with where they can be read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_run import flip_bit
from small_runs import StopAt, assert_same, checkpoints, train

from duetto.errors import DuettoError, UsageError
from duetto.runs.run import Run
from duetto.storage.logs import Csv, JsonLines

LOGS = ("metrics.jsonl", "evaluations.csv")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run, and one that was stopped at step 130, without what is behind that checkpoint: "
    "continuing drops it."""
    folder = tmp_path_factory.mktemp("made")
    train(folder, name="whole")
    state = checkpoints(train(folder, name="stopped", callbacks=[StopAt(130)])).load_latest().state
    for name, mark in (
        ("metrics.jsonl", state["log"]["position"]),
        ("evaluations.csv", state["evaluations"]["position"]),
    ):
        os.truncate(folder / "stopped" / name, mark["length"])
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Run:
    return Run(shutil.copytree(made / "stopped", tmp_path / "run"))


def resumed(run: Run) -> list[str]:
    """What resuming it says."""
    said: list[str] = []
    run.resume(on_start=lambda trainer: said.extend(trainer.notices))
    return said


def steps(run: Run, name: str) -> list[int]:
    rows: list[dict[str, Any]] = run.metrics() if name == "metrics.jsonl" else run.evaluations()
    return [int(row["step"]) for row in rows]


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def garble(path: Path) -> None:
    path.write_bytes(bytes(range(128, 256)) * 9)


def without_a_line(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *lines[2:]]))


def spoil_a_line(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = b"\xff" * (len(lines[1]) - 1) + b"\n"
    path.write_bytes(b"".join(lines))


def change_a_digit(path: Path) -> None:
    """Of a number with as many: the length stays, and every line can be read."""
    data = path.read_bytes()
    at = data.rindex(b".") + 1
    path.write_bytes(data[:at] + (b"1" if data[at : at + 1] != b"1" else b"2") + data[at + 1 :])


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (empty, "bytes are missing. Nothing of it was there; it continues with the 0 readable lines"),
        (Path.unlink, "bytes are missing. Nothing of it was there; it continues with the 0 readable lines"),
        (cut, " 20 of its "),
        (without_a_line, "bytes are missing. As it was found it is in"),
        (spoil_a_line, "its lines were changed. As it was found it is in"),
        (change_a_digit, "its lines were changed. As it was found it is in"),
        (garble, "As it was found it is in"),
    ],
)
@pytest.mark.parametrize("name", LOGS)
def test_a_log_that_was_changed(run: Run, name: str, harm: Callable[[Path], None], says: str):
    before = steps(run, name)
    harm(run.path / name)
    found = (run.path / name).read_bytes() if (run.path / name).exists() else b""
    (notice,) = resumed(run)
    assert notice.startswith(f"{run.path / name} is not what it was at the checkpoint of step 130: ")
    assert says in notice
    aside = run.path / "before"
    assert ({path.name: path.read_bytes() for path in aside.iterdir()} if aside.exists() else {}) == (
        {name: found} if found else {}
    )
    after = steps(run, name)
    assert after == sorted(set(after))
    assert after[-1] > 130
    kept = [step for step in after if step <= 130]
    if harm is change_a_digit:
        assert kept == before
    else:
        assert set(kept) < set(before)
    assert f"it continues with the {len(kept)} readable lines" in notice
    assert Run(run.path).resume().notices == []  # it is whole again
    assert resumed(run) == []


def test_a_table_with_another_header_is_refused_until_it_is_moved_away(run: Run):
    path = run.path / "evaluations.csv"
    flip_bit(path, 2)
    found = path.read_bytes()
    with pytest.raises(UsageError, match=r"evaluations\.csv has the columns .* Move it away to start a new table"):
        run.resume()
    assert path.read_bytes() == found
    path.rename(run.path / "mine.csv")
    assert "Nothing of it was there" in resumed(run)[0]


def test_both_are_kept_together_and_nothing_that_was_kept_is_written_over(run: Run):
    (run.path / "before").mkdir()
    for name in LOGS:
        spoil_a_line(run.path / name)
    assert len(resumed(run)) == 2
    kept = [[path.name for path in (run.path / folder).iterdir()] for folder in ("before", "before-2", "before-3")]
    assert kept == [[], ["metrics.jsonl"], ["evaluations.csv"]]


def test_what_was_logged_after_the_checkpoint_is_no_damage(made: Path, run: Run):
    for name in LOGS:
        with (run.path / name).open("a") as file:
            file.write("anything\nat all")
    assert resumed(run) == []
    assert_same(Run(made / "whole"), run)


def test_the_damage_of_logs_does_not_touch_the_numbers(made: Path, run: Run):
    cut(run.path / "metrics.jsonl")
    assert len(resumed(run)) == 1
    assert run.metrics()[-1]["learn/critic_loss"] == Run(made / "whole").metrics()[-1]["learn/critic_loss"]


def test_a_disk_that_does_not_take_what_is_kept(run: Run, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    spoil_a_line(run.path / "metrics.jsonl")
    found = (run.path / "metrics.jsonl").read_bytes()
    monkeypatch.setattr("duetto.storage.logs.atomic_io.publish_file", full)
    with pytest.raises(DuettoError, match=r"before/metrics\.jsonl cannot be written: No space left on device"):
        run.resume()
    assert (run.path / "metrics.jsonl").read_bytes() == found


# ---------------------------------------------------------------------------------------------------- the marks
@pytest.mark.parametrize("position", range(20))
def test_any_changed_byte_before_the_mark_is_noticed(tmp_path: Path, position: int):
    with JsonLines(tmp_path / "m") as log:
        log.append({"step": 1})
        log.append({"step": 20})
        mark = log.mark
        log.append({"step": 3})
    flip_bit(tmp_path / "m", position)
    with JsonLines(tmp_path / "m") as log:
        assert "its lines were changed" in log.return_to(mark, 20)


def test_a_mark_is_that_of_what_is_there_however_it_came(tmp_path: Path):
    with JsonLines(tmp_path / "m") as log:
        log.append({"step": 1})
        log.append({"step": 2})
        mark = log.mark
        log.append({"step": 3})
        assert log.return_to(mark, 2) == ""
        assert log.mark == mark
        log.append({"step": 3})
        three = log.mark
    with JsonLines(tmp_path / "m") as log:
        assert log.mark == three
        log.append({"step": 4})
        assert log.return_to(three, 3) == ""


def test_a_table_without_its_header_has_none_of_its_rows_lost(tmp_path: Path):
    path = tmp_path / "t.csv"
    with Csv(path, ["step", "x"]) as table:
        table.append({"step": 1, "x": 2})
        mark = table.mark
    path.write_bytes(b"st")
    with Csv(path, ["step", "x"]) as table:
        notice = table.return_to(mark, 1)
    assert f"9 of its 11 bytes are missing. As it was found it is in {tmp_path}/before" in notice
    assert (tmp_path / "before" / "t.csv").read_bytes() == b"st"
    assert Csv.read(path) == []


def test_half_a_header_is_written_anew(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"st")
    with Csv(path, ["step", "x"]) as table:
        table.append({"step": 1, "x": 2})
    assert path.read_bytes() == b"step,x\n1,2\n"


# ---------------------------------------------------------------------------------------------------- reading
@pytest.mark.parametrize("line", ["1", "1,2,3", '1,"2', "\xff,1", ""])
def test_a_row_that_is_damaged_is_named(tmp_path: Path, line: str):
    path = tmp_path / "t.csv"
    path.write_bytes(f"step,x\n1,2\n{line}\n3,4\n".encode("latin-1"))
    assert Csv.scan(path) == ([{"step": "1", "x": "2"}, {"step": "3", "x": "4"}], [3], False)
    with pytest.raises(DuettoError, match=r"Line 3 of .*t\.csv is damaged"):
        Csv.read(path)


@pytest.mark.parametrize("line", ["{", "[1]", "3", '{"a": 1}}', "\xff", "[" * 100_000])
def test_a_record_that_is_damaged_is_named(tmp_path: Path, line: str):
    path = tmp_path / "m"
    path.write_bytes(f'{{"a":1}}\n{line}\n{{"a":3}}\n{{"a'.encode("latin-1"))
    assert JsonLines.scan(path) == ([{"a": 1}, {"a": 3}], [2], True)
    with pytest.raises(DuettoError, match=r"Line 2 of .*m is damaged"):
        JsonLines.read(path)


def test_evaluations_that_are_no_numbers(run: Run):
    path = run.path / "evaluations.csv"
    path.write_text(path.read_text() + "1,2,3,x,5,6,7,8,\n")
    with pytest.raises(DuettoError, match=r"evaluations\.csv is damaged: could not convert string to float: 'x'"):
        run.evaluations()
