import math
from contextlib import closing
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from fake_run import same
from hypothesis import given

from duetto.errors import DuettoError
from duetto.storage.logs import Csv, JsonLines

RECORDS = st.lists(
    st.dictionaries(
        st.text(max_size=5),
        st.none() | st.booleans() | st.integers() | st.floats(),
        max_size=4,
    ),
    max_size=5,
)


@given(RECORDS)
def test_json_lines_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, records: list[dict]):
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    with closing(JsonLines(path)) as log:
        for record in records:
            log.append(record)
    assert same(JsonLines.read(path), records)


def test_numbers_that_json_lacks_are_text_in_the_file(tmp_path: Path):
    with closing(JsonLines(tmp_path / "m")) as log:
        log.append({"loss": math.nan, "max": math.inf, "min": np.float32("-inf"), "n": np.int64(3)})
    assert (tmp_path / "m").read_text() == '{"loss":"nan","max":"inf","min":"-inf","n":3}\n'
    [record] = JsonLines.read(tmp_path / "m")
    assert math.isnan(record["loss"])
    assert (record["max"], record["min"], record["n"]) == (math.inf, -math.inf, 3)


def test_a_return_drops_what_came_after_the_checkpoint(tmp_path: Path):
    with closing(JsonLines(tmp_path / "m")) as log:
        log.append({"step": 1})
        lines = log.synced_lines()
        log.append({"step": 2})
    with closing(JsonLines(tmp_path / "m")) as log:
        log.cut_back(lines)
        log.append({"step": 3})
    assert JsonLines.read(tmp_path / "m") == [{"step": 1}, {"step": 3}]


@pytest.mark.parametrize("length", range(1, 12))
def test_a_half_written_last_line_is_passed_over_and_then_dropped(tmp_path: Path, length: int):
    whole = b'{"step":1}\n'
    (tmp_path / "m").write_bytes(whole + '{"é":2}\n'.encode()[:length].removesuffix(b"\n"))
    assert JsonLines.read(tmp_path / "m") == [{"step": 1}]
    with closing(JsonLines(tmp_path / "m")) as log:
        assert log.synced_lines() == 1
        log.append({"step": 3})
    assert JsonLines.read(tmp_path / "m") == [{"step": 1}, {"step": 3}]


def test_damage_in_the_middle_is_named(tmp_path: Path):
    (tmp_path / "m").write_text('{"a":1}\n{"a\n{"a":3}\n')
    with pytest.raises(DuettoError, match="Line 2"):
        JsonLines.read(tmp_path / "m")


def test_a_full_disk_leaves_whole_lines(tmp_path: Path):
    class Half:
        """A file on a disk that takes half of what it is given."""

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


def test_a_table_comes_back(tmp_path: Path):
    path = tmp_path / "evaluations.csv"
    with closing(Csv(path, ["step", "return", "success"])) as table:
        table.append({"step": 1, "return": np.float32(0.1), "success": 1})
        table.append({"success": None, "return": 1 / 3, "step": 2})
    rows = Csv.read(path)
    assert [row["success"] for row in rows] == ["1", ""]
    assert [float(row["return"]) for row in rows] == [float(np.float32(0.1)), 1 / 3]
    assert path.read_text().startswith("step,return,success\n1,")


def test_a_table_is_cut_back_but_keeps_its_header(tmp_path: Path):
    path = tmp_path / "t.csv"
    with closing(Csv(path, ["step"])) as table:
        start = table.synced_lines()
        table.append({"step": 1})
        one = table.synced_lines()
        table.append({"step": 2})
        table.cut_back(one)
        assert Csv.read(path) == [{"step": "1"}]
        table.cut_back(start)
        assert Csv.read(path) == []
        table.cut_back(0)
        assert Csv.read(path) == []
        table.append({"step": 3})
    path.write_bytes(path.read_bytes() + b"4")
    assert Csv.read(path) == [{"step": "3"}]
    with closing(Csv(path, ["step"])) as table:
        table.append({"step": 5})
    assert Csv.read(path) == [{"step": "3"}, {"step": "5"}]


def test_lines_that_were_removed_by_hand_are_not_missed(tmp_path: Path):
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
