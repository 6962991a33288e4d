"""Tidy tables: their rows, reading them again, and error messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import write_synthetic_run

from duetto.errors import UsageError
from duetto.tools.plot.table import table

HEAD = "exp_name,env_name,seed,metric,env_step,value\n"


# ---------------------------------------------------------------------------------------------------- written
def test_table_has_a_row_per_seed_and_step(tmp_path: Path):
    runs = [write_synthetic_run(tmp_path / f"s{seed}", [1.5, 2 + seed], seed=seed) for seed in (0, 7)]
    rows = table(runs, tmp_path / "new" / "t.csv")
    assert [tuple(row) for row in rows] == [
        ("td3", "Pendulum-v1", 0, "avg_return", 0, 1.5),
        ("td3", "Pendulum-v1", 0, "avg_return", 10, 2),
        ("td3", "Pendulum-v1", 7, "avg_return", 0, 1.5),
        ("td3", "Pendulum-v1", 7, "avg_return", 10, 9),
    ]
    assert (tmp_path / "new" / "t.csv").read_text() == (
        HEAD + "td3,Pendulum-v1,0,avg_return,0,1.5\ntd3,Pendulum-v1,0,avg_return,10,2.0\n"
        "td3,Pendulum-v1,7,avg_return,0,1.5\ntd3,Pendulum-v1,7,avg_return,10,9.0\n"
    )
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["t.csv"]


def test_table_does_not_overwrite_run_files(tmp_path: Path):
    run = write_synthetic_run(tmp_path / "a", [1, 2])
    own = (run / "evaluations.csv").read_text()
    with pytest.raises(UsageError, match=r"evaluations\.csv exists and is no table that Duetto wrote\. Give another"):
        table([run], run / "evaluations.csv")
    assert (run / "evaluations.csv").read_text() == own
    for value in (1, 2):  # a table in the run folder may be replaced
        assert len(table([run], run / "mine.csv")) == 2, value


def test_run_has_the_same_name_in_every_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Also if only one of two runs has values of the second metric."""
    long = write_synthetic_run(tmp_path / "long", [1, 2], metrics={"train/return": [3, 4]}, options={"a": 1})
    short = write_synthetic_run(tmp_path / "short", [5, 6], options={"a": 2})
    rows = table([long, short], None, ["mean_return", "train/return"])
    names = {(row.metric, row.exp_name) for row in rows}
    assert names == {("avg_return", "td3, a 1"), ("avg_return", "td3, a 2"), ("train/return", "td3, a 1")}
    assert capsys.readouterr().err.startswith(f"Left out: {short} has no 'train/return'. It has: ")
    seeds = [
        write_synthetic_run(tmp_path / f"s{seed}", [1], seed=seed, metrics={"x": [2]} if seed else {})
        for seed in (0, 1)
    ]
    assert [row.seed for row in table(seeds, None, ["mean_return", "x"])] == [0, 1, 1]
    assert f"Left out: {seeds[0]} has no 'x'. It has: " in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"long has no 'y'\. It has: "):
        table([long, short], None, ["mean_return", "y"])


def test_table_escapes_control_characters(tmp_path: Path):
    table([write_synthetic_run(tmp_path / "a", [1], environment="Pen\x1b[2Jdulum")], tmp_path / "t.csv")
    assert "td3,Pen\\x1b[2Jdulum,0," in (tmp_path / "t.csv").read_text()


def test_invalid_table_name_is_refused_before_reading(tmp_path: Path):
    with pytest.raises(UsageError, match=r"t\.txt cannot be the name of a table: end it in \.csv"):
        table([tmp_path / "nowhere"], "t.txt")
    with pytest.raises(UsageError, match="metrics is 'mean_return'; it must be one name or more"):
        table([tmp_path / "nowhere"], None, "mean_return")


# ---------------------------------------------------------------------------------------------------- the command
def test_table_command_prints_or_writes_csv(tmp_path: Path, command: Any):
    run = write_synthetic_run(tmp_path / "a", [1, 2], metrics={"learn/x": [3, 4]})
    code, out, err = command("table", run, "--metric", "mean_return", "learn/x")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "exp_name,env_name,seed,metric,env_step,value",
        "td3,Pendulum-v1,0,avg_return,0,1.0",
        "td3,Pendulum-v1,0,avg_return,10,2.0",
        "td3,Pendulum-v1,0,learn/x,0,3.0",
        "td3,Pendulum-v1,0,learn/x,10,4.0",
    ]
    path = tmp_path / "t.csv"
    assert command("table", run, "--metric", "mean_return", "learn/x", "--output", path) == (0, f"{path}\n", "")
    assert path.read_text() == out
