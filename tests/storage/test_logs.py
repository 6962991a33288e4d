"""metrics.jsonl and evaluations.csv: written, read, cut back, and damaged."""

import math
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from fake_run import same

from duetto.errors import DuettoError
from duetto.storage.logs import Csv, JsonLines


def test_jsonl_records_are_read_exactly(tmp_path: Path):
    """JSON has no NaN and no infinity, so the file contains them as texts."""
    records = [{"step": 0}, {"step": 1, "loss": 0.1, "é": 1e-320, "none": None}]
    records.append({"step": 1, "n": 2**70, "flag": True, "third": 1 / 3})
    special = {"step": 2, "loss": math.nan, "max": math.inf, "min": np.float32("-inf"), "n": np.int64(3)}
    with closing(JsonLines(tmp_path / "m")) as log:
        for record in [*records, special]:
            log.append(record)
    assert (tmp_path / "m").read_text().endswith('{"step":2,"loss":"nan","max":"inf","min":"-inf","n":3}\n')
    assert same(JsonLines.read(tmp_path / "m"), [*records, special | {"min": -math.inf, "n": 3}])


def test_cut_back_deletes_lines_after_the_checkpoint(tmp_path: Path):
    with closing(JsonLines(tmp_path / "m")) as log:
        log.append({"step": 1})
        lines = log.synced_lines()
        log.append({"step": 2})
    with closing(JsonLines(tmp_path / "m")) as log:
        log.cut_back(lines)
        log.append({"step": 3})
    assert JsonLines.read(tmp_path / "m") == [{"step": 1}, {"step": 3}]


@pytest.mark.parametrize("length", [1, 3, 8])
def test_incomplete_last_line_is_skipped_and_deleted(tmp_path: Path, length: int):
    whole = b'{"step":1}\n'
    (tmp_path / "m").write_bytes(whole + '{"é":2}\n'.encode()[:length].removesuffix(b"\n"))
    assert JsonLines.read(tmp_path / "m") == [{"step": 1}]
    with closing(JsonLines(tmp_path / "m")) as log:
        assert log.synced_lines() == 1
        log.append({"step": 3})
    assert JsonLines.read(tmp_path / "m") == [{"step": 1}, {"step": 3}]


def test_error_names_the_damaged_line(tmp_path: Path):
    for damaged in ('{"a', "{}", '{"step":1e300}', '{"step":-1}', '{"step":1,"a":"x"}', '{"step":1,"a":[1]}'):
        (tmp_path / "m").write_text('{"step":1}\n' + damaged + '\n{"step":3}\n')
        with pytest.raises(DuettoError, match="Line 2"):
            JsonLines.read(tmp_path / "m")


def test_full_disk_leaves_complete_lines(tmp_path: Path):
    class Half:
        """A file on a full disk: each write stores half of its data."""

        def __init__(self, file):
            self.file = file

        def write(self, data: bytes) -> int:
            return self.file.write(data[: len(data) // 2])

        def __getattr__(self, name: str):
            return getattr(self.file, name)

    with closing(JsonLines(tmp_path / "m")) as log:
        log.append({"step": 1})
        file, log._file = log._file, Half(log._file)
        with pytest.raises(DuettoError, match=r"disk is full.*duetto resume"):
            log.append({"step": 2})
        log._file = file
        log.append({"step": 3})
    assert JsonLines.read(tmp_path / "m") == [{"step": 1}, {"step": 3}]


def test_csv_round_trip_preserves_values(tmp_path: Path):
    path = tmp_path / "evaluations.csv"
    with closing(Csv(path, ["step", "return", "success"])) as table:
        table.append({"step": 1, "return": np.float32(0.1), "success": 1})
        table.append({"success": None, "return": 1 / 3, "step": 2})
    rows = Csv.read(path)
    assert rows == [{"step": 1, "return": float(np.float32(0.1)), "success": 1}, {"step": 2, "return": 1 / 3}]
    assert path.read_text().startswith("step,return,success\n1,")


def test_cut_back_csv_keeps_its_header(tmp_path: Path):
    path = tmp_path / "t.csv"
    with closing(Csv(path, ["step"])) as table:
        start = table.synced_lines()
        table.append({"step": 1})
        one = table.synced_lines()
        table.append({"step": 2})
        table.cut_back(one)
        assert Csv.read(path) == [{"step": 1}]
        table.cut_back(start)
        assert Csv.read(path) == []
        table.cut_back(0)
        assert Csv.read(path) == []
        table.append({"step": 3})
    path.write_bytes(path.read_bytes() + b"4")
    assert Csv.read(path) == [{"step": 3}]
    with closing(Csv(path, ["step"])) as table:
        table.append({"step": 5})
    assert Csv.read(path) == [{"step": 3}, {"step": 5}]


def test_log_may_have_fewer_lines_than_its_checkpoint(tmp_path: Path):
    path = tmp_path / "m"
    with closing(JsonLines(path)) as log:
        for step in (1, 2, 3):
            log.append({"step": step})
        lines = log.synced_lines()
    path.write_bytes(path.read_bytes().partition(b"\n")[2])
    with closing(JsonLines(path)) as log:
        log.cut_back(lines)
        log.append({"step": 4})
    assert [row["step"] for row in JsonLines.read(path)] == [2, 3, 4]
