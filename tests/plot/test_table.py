"""Tidy tables: what is written, what is read, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import called
from pretended import pretend

from duetto.errors import UsageError
from duetto.tools.plot.table import table

HEAD = "exp_name,env_name,seed,metric,env_step,value\n"


# ---------------------------------------------------------------------------------------------------- written
def test_a_row_for_each_number_of_each_seed(tmp_path: Path):
    runs = [pretend(tmp_path / f"s{seed}", [1.5, 2 + seed], seed=seed) for seed in (0, 7)]
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


def test_of_two_values_of_one_step_the_last_is_in_the_table(tmp_path: Path):
    """Before and after pre-training, both at step 0."""
    run = pretend(tmp_path / "a", [1.0])
    with (run / "evaluations.csv").open("a") as file:
        file.write("0,5.0,1.5,3,7,7\n10,6.0,1.5,3,7,7\n")
    assert [(row.env_step, row.value) for row in table([run], tmp_path / "t.csv")] == [(0, 5), (10, 6)]


def test_what_is_read_and_a_runs_own_files_are_not_written_over(tmp_path: Path):
    run = pretend(tmp_path / "a", [1, 2])
    own = (run / "evaluations.csv").read_text()
    with pytest.raises(UsageError, match=r"evaluations\.csv is there and no table that Duetto wrote: .* Give another"):
        table([run], run / "evaluations.csv")
    assert (run / "evaluations.csv").read_text() == own
    for value in (1, 2):  # a table that was put there is no file of the run's
        assert len(table([run], run / "mine.csv")) == 2, value


def test_a_run_is_called_the_same_in_every_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Where another one has no number of the second, nothing told it apart any more."""
    long = pretend(tmp_path / "long", [1, 2], metrics={"train/return": [3, 4]}, options={"a": 1})
    short = pretend(tmp_path / "short", [5, 6], options={"a": 2})
    rows = table([long, short], None, ["mean_return", "train/return"])
    names = {(row.metric, row.exp_name) for row in rows}
    assert names == {("avg_return", "td3, a 1"), ("avg_return", "td3, a 2"), ("train/return", "td3, a 1")}
    assert capsys.readouterr().err.startswith(f"Left out: {short} has no 'train/return'. It has: ")
    seeds = [pretend(tmp_path / f"s{seed}", [1], seed=seed, metrics={"x": [2]} if seed else {}) for seed in (0, 1)]
    assert [row.seed for row in table(seeds, None, ["mean_return", "x"])] == [0, 1, 1]
    assert f"Left out: {seeds[0]} has no 'x'. It has: " in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"long has no 'y'\. It has: "):
        table([long, short], None, ["mean_return", "y"])


def test_what_steers_a_terminal_is_written_as_an_escape(tmp_path: Path):
    table([pretend(tmp_path / "a", [1], environment="Pen\x1b[2Jdulum")], tmp_path / "t.csv")
    assert "td3,Pen\\x1b[2Jdulum,0," in (tmp_path / "t.csv").read_text()


def test_a_name_that_is_none_is_refused_before_anything_is_read(tmp_path: Path):
    with pytest.raises(UsageError, match=r"t\.txt is no name for a table: end it in \.csv"):
        table([tmp_path / "nowhere"], "t.txt")
    with pytest.raises(UsageError, match="metrics is 'mean_return'; it must be one name or more"):
        table([tmp_path / "nowhere"], None, "mean_return")


# ---------------------------------------------------------------------------------------------------- the command
def test_table_is_printed_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    command = called(capsys)
    run = pretend(tmp_path / "a", [1, 2], metrics={"learn/x": [3, 4]})
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


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process at SIGTERM, without a handler")
def test_a_command_that_is_ended_leaves_no_partial_file(tmp_path: Path):
    """Ended while it writes: the last of its temporary folder goes with it."""
    run = pretend(tmp_path / "a", [1, 2])
    slow = (
        "import sys, time; from pathlib import Path; from duetto.tools.cli import main; whole = Path.write_bytes\n"
        "def half(path, data):\n"
        "    whole(path, data[:5]); print('half', flush=True); time.sleep(60)\n"
        "Path.write_bytes = half; main(sys.argv[1:])"
    )
    arguments = ["table", str(run), "--output", str(tmp_path / "t.csv")]
    process = subprocess.Popen([sys.executable, "-c", slow, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        began = time.monotonic()
        assert process.stdout.readline() == "half\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        assert time.monotonic() - began < 60
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
