"""`duetto report` and `duetto table`, as they are typed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pretended import pretend

from duetto.tools.cli import main


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def test_table_is_printed_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = pretend(tmp_path / "a", [1, 2], metrics={"learn/x": [3, 4]})
    code, out, err = call(capsys, "table", run, "--metric", "mean_return", "learn/x")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "exp_name,env_name,seed,metric,env_step,value",
        "td3,Pendulum-v1,0,avg_return,0,1.0",
        "td3,Pendulum-v1,0,avg_return,10,2.0",
        "td3,Pendulum-v1,0,learn/x,0,3.0",
        "td3,Pendulum-v1,0,learn/x,10,4.0",
    ]
    path = tmp_path / "t.csv"
    assert call(capsys, "table", run, "--metric", "mean_return", "learn/x", "--output", path) == (0, f"{path}\n", "")
    assert path.read_text() == out


def test_report_says_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = call(capsys, "report", pretend(tmp_path / "a", [1, 2]))
    assert (code, out) == (0, "report.html\n")
    assert (tmp_path / "report.html").read_bytes().startswith(b"<!doctype html>")


@pytest.mark.parametrize("command", ["report", "table"])
def test_mistakes(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert call(capsys, command) == (2, "", f"duetto: duetto {command} needs RUN. See duetto {command} --help.\n")
    code, _, err = call(capsys, command, tmp_path / "nowhere")
    assert (code, "nowhere is no run folder" in err) == (2, True)


@pytest.mark.skipif(os.name == "nt", reason="signals")
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
