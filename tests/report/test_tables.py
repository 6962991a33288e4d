"""Tidy tables: what is written, what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pretended import pretend

from duetto.errors import DuettoError, UsageError
from duetto.storage import atomic_io
from duetto.tools.plot import grouping
from duetto.tools.plot.curves import curves
from duetto.tools.plot.figure import plot
from duetto.tools.plot.table import table

HEAD = "exp_name,env_name,seed,metric,env_step,value\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def lines(experiment: str, environment: str, *, seeds: int = 1, metric: str = "avg_return") -> str:
    return "".join(f"{experiment},{environment},{s},{metric},{t},{s + t}\n" for s in range(seeds) for t in (0, 10, 20))


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


def test_read_again_it_makes_the_same_curves(tmp_path: Path):
    """By several metrics; and curves are named by what differs, as the runs' are."""
    metrics = {"learn/x": [0.1, 0.2, 1 / 3]}
    runs = [pretend(tmp_path / f"a{s}", [s, 0.1, 1e-300], seed=s, metrics=metrics) for s in range(2)]
    runs.append(pretend(tmp_path / "b", [7, 8, 9], metrics=metrics, options={"a": "b, c"}))
    table(runs, tmp_path / "t.csv", ["mean_return", "learn/x"])
    for metric in ("mean_return", "avg_return", "learn/x"):
        ours = curves(runs, metric if metric != "avg_return" else "mean_return")
        theirs = curves([tmp_path / "t.csv"], metric)
        assert [one.label for one in theirs] == [one.label for one in ours] == ["td3, a default", "td3, a b, c"]
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one.steps, other.steps)
            np.testing.assert_array_equal(one.values, other.values)


def test_runs_of_one_name_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    runs = [pretend(tmp_path / place / "runs" / "x-s0", [value]) for place, value in (("A", 1), ("B", 2))]
    rows = table(runs, tmp_path / "t.csv")
    assert [(row.exp_name, row.seed, row.value) for row in rows] == [("A/runs/x-s0", 0, 1), ("B/runs/x-s0", 0, 2)]
    assert capsys.readouterr().err == (
        f"{runs[1]} has the options of {runs[0]} and a seed that is there already: it makes its own curve.\n"
    )
    assert len(curves([tmp_path / "t.csv"])) == 2


def test_a_label_that_is_long_is_read_again(tmp_path: Path):
    options = [{"a": "x" * 300}, {"a": "x" * 301}]
    runs = [pretend(tmp_path / f"r{i}", [i], options=own) for i, own in enumerate(options)]
    table(runs, tmp_path / "t.csv")
    assert [curve.label for curve in curves([tmp_path / "t.csv"])] == [curve.label for curve in curves(runs)]


def test_of_two_values_of_one_step_the_last_is_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Before and after pre-training, both at step 0."""
    run = pretend(tmp_path / "a", [1.0])
    with (run / "evaluations.csv").open("a") as file:
        file.write("0,5.0,1.5,3,7,7\n10,6.0,1.5,3,7,7\n")
    assert [(row.env_step, row.value) for row in table([run], tmp_path / "t.csv")] == [(0, 5), (10, 6)]
    said = f"1 of the values of 'mean_return' of {run} have a later one at their step: left out.\n"
    assert capsys.readouterr().err == said
    assert len(curves([tmp_path / "t.csv"])) == 1


def test_a_metric_by_both_its_names_is_written_once(tmp_path: Path):
    path = write(tmp_path / "t.csv", HEAD + lines("a", "b"))
    assert len(table([path], None, ["mean_return", "avg_return"])) == 3


def test_what_is_read_and_a_runs_own_files_are_not_written_over(tmp_path: Path):
    run = pretend(tmp_path / "a", [1, 2])
    own = (run / "evaluations.csv").read_text()
    with pytest.raises(UsageError, match=r"evaluations\.csv is there and no table that Duetto wrote: .* Give another"):
        table([run], run / "evaluations.csv")
    assert (run / "evaluations.csv").read_text() == own
    path = write(tmp_path / "t.csv", HEAD + lines("a", "Hopper-v5"))
    with pytest.raises(UsageError, match=r"t\.csv is one of the tables to read, and would be replaced\. Give"):
        table([path, run], tmp_path / "a" / ".." / "t.csv")
    assert "Hopper-v5" in path.read_text()
    for value in (1, 2):  # a table that was put there is no file of the run's
        assert len(table([run], run / "mine.csv")) == 2, value
    assert len(table([run], path)) == 2


def test_nor_is_what_is_no_such_table(tmp_path: Path):
    run, path = pretend(tmp_path / "a", [1, 2]), write(tmp_path / "mine.csv", "a,b\n1,2\n")
    with pytest.raises(UsageError, match=r"mine\.csv is there and no table that Duetto wrote: it would be lost"):
        table([run], path)
    assert path.read_text() == "a,b\n1,2\n"


def test_only_a_file_of_ours_is_replaced(tmp_path: Path):
    path = write(tmp_path / "page", "ours")
    atomic_io.check_replaceable(path, lambda file: file.read_text() == "ours", "page")
    atomic_io.check_replaceable(tmp_path / "new", lambda _: False, "page")
    with pytest.raises(UsageError) as refusal:
        atomic_io.check_replaceable(path, lambda _: False, "page")
    assert str(refusal.value) == (
        f"{path} is there and no page that Duetto wrote: it would be lost. Give another --output."
    )


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


def test_folders_have_a_metric_by_both_its_names(tmp_path: Path):
    run, path = pretend(tmp_path / "a", [1, 2]), write(tmp_path / "t.csv", HEAD + lines("a", "Pendulum-v1"))
    assert len(curves([run, path], "avg_return")) == len(curves([run, path], "mean_return")) == 2


def test_what_steers_a_terminal_is_written_as_an_escape(tmp_path: Path):
    table([pretend(tmp_path / "a", [1], environment="Pen\x1b[2Jdulum")], tmp_path / "t.csv")
    assert "td3,Pen\\x1b[2Jdulum,0," in (tmp_path / "t.csv").read_text()


def test_a_name_that_is_none_is_refused_before_anything_is_read(tmp_path: Path):
    with pytest.raises(UsageError, match=r"t\.txt is no name for a table: end it in \.csv"):
        table([tmp_path / "nowhere"], "t.txt")
    with pytest.raises(UsageError, match="metrics is 'mean_return'; it must be one name or more"):
        table([tmp_path / "nowhere"], None, "mean_return")


def test_an_end_while_it_is_written_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path / "t.csv", "before")

    def write_half(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(KeyboardInterrupt):
        atomic_io.write_output(path, "a whole table")
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["t.csv"]


def test_where_it_cannot_be_written(tmp_path: Path):
    write(tmp_path / "file", "")
    with pytest.raises(DuettoError, match=r"t\.csv cannot be written: .*Give another --output"):
        atomic_io.write_output(tmp_path / "file" / "t.csv", "")


# ---------------------------------------------------------------------------------------------------- read
def test_what_others_publish(tmp_path: Path):
    """With a column of numbers in front, as pandas writes it, a mark of the encoding, Windows' ends of lines."""
    text = "\ufeff,env_name,exp_name,seed,metric,env_step,value,more\r\n" + "".join(
        f"{i},humanoid-walk,SimbaV2,{seed}.0,{metric},{step}.0,{seed + step}e0,x\r\n"
        for i, (seed, metric, step) in enumerate(
            (seed, metric, step) for metric in ("avg_return", "avg_length") for seed in range(2) for step in (20, 10)
        )
    )
    path = tmp_path / "theirs.CSV"
    path.write_bytes(text.encode())
    (curve,) = curves([path, tmp_path / "." / "theirs.CSV"])
    assert (curve.label, curve.environment) == ("SimbaV2", "humanoid-walk")
    assert (curve.steps.tolist(), curve.values.tolist()) == ([10, 20], [[10, 20], [11, 21]])
    assert curve.notices == ()


def test_a_mark_of_the_encoding_in_front_of_the_first_column_is_no_part_of_its_name(tmp_path: Path):
    (curve,) = curves([write(tmp_path / "t.csv", f"\ufeff{HEAD}{lines('a', 'b')}")])
    assert curve.label == "a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"t.csv lacks the columns exp_name, .*, value: its first line is ''"),
        ("step,mean_return\n0,1\n", r"lacks the columns exp_name, .*: its first line is 'step,mean_return'"),
        (HEAD, "t.csv has no rows below its header"),
        (f"{HEAD}a,b,0,avg_return,0,nan\n", "t.csv has no finite number below its header"),
        (f"{HEAD}a,b,0,avg_return,0,1\na,b,0,avg_return,10,good\n", "Line 3 of .*t.csv has value 'good'; it must be a"),
        (f"{HEAD}a,b,0,avg_return,,1\n", "Line 2 of .* has env_step ''; it must be a number"),
        (f"{HEAD}a,b,1.5,avg_return,0,1\n", "has seed '1.5'; it must be a whole number"),
        (f"{HEAD}a,b,inf,avg_return,0,1\n", "has seed 'inf'; it must be a whole number"),
        (f"{HEAD}a,b,0\n", "Line 2 of .* has metric with 0 characters"),
        (
            f"{HEAD}{lines('a', 'b')}a,b,0,avg_return,10.0,7\n",
            "Line 5 of .* has a second value of avg_return at step 10 for seed 0 of a in b. Remove one of them",
        ),
        (f"{HEAD},b,0,avg_return,0,1\n", "has exp_name with 0 characters; it must have 1 to 200"),
        (f"{HEAD}{'a' * 201},b,0,avg_return,0,1\n", "has exp_name with 201 characters"),
        (f"{HEAD}{'a' * 200_000},b,0,avg_return,0,1\n", "is no table \\(field larger than"),
        (f"{HEAD}a,b,0,avg_success,0,1\n", r"t.csv has no 'mean_return'. It has: avg_success\."),
    ],
)
def test_what_is_no_such_table(text: str, said: str, tmp_path: Path):
    with pytest.raises(UsageError, match=said):
        curves([write(tmp_path / "t.csv", text)])


def test_what_is_no_text_or_no_file(tmp_path: Path):
    with pytest.raises(UsageError, match=r"t\.csv cannot be read: No such file"):
        curves([tmp_path / "t.csv"])
    (tmp_path / "t.csv").write_bytes(HEAD.encode() + b"a,\xff,0,avg_return,0,1\n")
    with pytest.raises(UsageError, match=r"t\.csv is no table \('utf-8' codec"):
        curves([tmp_path / "t.csv"])


def test_more_curves_than_a_picture_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grouping, "MOST", 3)
    path = write(tmp_path / "t.csv", HEAD + "".join(lines(f"e{i}", "Pendulum-v1") for i in range(4)))
    with pytest.raises(UsageError, match=r"These would be 4 curves, more than 3\. Name fewer, or cut the table"):
        curves([path])


def test_what_is_not_finite_is_left_out_and_counted(tmp_path: Path):
    path = write(tmp_path / "t.csv", f"{HEAD}{lines('a', 'b')}a,b,0,avg_return,30,nan\na,b,0,avg_return,inf,1\n")
    (curve,) = curves([path])
    assert curve.steps.tolist() == [0, 10, 20]
    assert curve.notices == (f"2 of the values of {path} are not finite and are left out.",)


# ---------------------------------------------------------------------------------------------------- beside runs
def test_beside_runs_it_counts_in_their_environments(tmp_path: Path):
    run = pretend(tmp_path / "a", [1, 2, 3])
    text = HEAD + lines("td3", "Pendulum-v1", seeds=2) + lines("x", "Hopper-v5") + lines("x", "Walker2d-v5")
    text += lines("y", "Pendulum-v1", metric="avg_length")
    path = write(tmp_path / "t.csv", text)
    ours, theirs = curves([path, run])
    assert (ours.label, theirs.label) == ("td3", f"td3 ({path})")
    assert theirs.values.tolist() == [[0, 10, 20], [1, 11, 21]]
    assert theirs.notices == (
        f"2 of the environments of {path} are those of no run and are left out.",
        f"1 of the seeds of {path} have no 'mean_return' and are left out.",
    )
    write(path, HEAD + lines("x", "Pendulum-v0"))
    with pytest.raises(UsageError, match=r"none of the runs' environments \(Pendulum-v1\)\. It has: Pendulum-v0\. If"):
        curves([run, path])
    (alone,) = curves([path])
    assert alone.environment == "Pendulum-v0"


def test_plot_draws_them_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = pretend(tmp_path / "a", [1, 2, 3])
    path = write(tmp_path / "t.csv", HEAD + lines("SimbaV2", "Pendulum-v1", seeds=2) + lines("x", "Hopper-v5"))
    drawn = plot([run, path], tmp_path / "c.svg").read_text()
    assert all(f"<!-- {text} -->" in drawn for text in ("td3 (1 seed)", "SimbaV2 (2 seeds)"))
    assert capsys.readouterr().err == f"1 of the environments of {path} are those of no run and are left out.\n"


def test_seeds_of_a_table_that_share_no_steps_are_named(tmp_path: Path):
    text = f"{HEAD}a,b,0,avg_return,0,1\na,b,1,avg_return,9,1\n"
    path = write(tmp_path / "t.csv", text)
    with pytest.raises(UsageError, match=r"seed 0 of a in .*t\.csv and seed 1 of a in .*t\.csv share no steps"):
        curves([path])
