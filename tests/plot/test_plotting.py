"""`duetto plot`: grouping of runs into curves, labels, and error messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from duetto.algorithms.td3 import TD3
from duetto.errors import DuettoError, UsageError
from duetto.tools.plot.curves import curves, interquartile, plot

MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Write a run folder with evaluations at `steps`; other options go to the algorithm."""

    def call(
        folder_name: str,
        returns: list[float],
        /,
        *,
        steps: tuple[int, ...] = (0, 10, 20),
        seed: int = 0,
        environment: str = "Pendulum-v1",
        run: dict[str, Any] | None = None,
        environment_options: dict[str, Any] | None = None,
        **algorithm: Any,
    ) -> Path:
        folder = tmp_path / folder_name
        folder.mkdir()
        config = {
            "algorithm": {"name": "td3", "discount": 0.99, "tau": 0.005, "hidden": [256, 256], "n_step": 1} | algorithm,
            "environment": {"id": environment, "options": environment_options or {}, "remakeable": True},
            "run": {"steps": 20, "seed": seed, "backend": "jax", "log_every": 10} | (run or {}),
            "preset": "default",
            "command": f"duetto train td3 --seed {seed}",
            "versions": {},
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        rows = [f"{step},{value}\n" for step, value in zip(steps, returns, strict=True)]
        (folder / "evaluations.csv").write_text("step,mean_return\n" + "".join(rows))
        return folder

    return call


def test_seeds_form_one_curve_despite_other_log_intervals(make_run: MakeRun):
    first = make_run("a", [1, 2, 3])
    second = make_run("b", [3, 4, 5], seed=1, run={"log_every": 5})
    (curve,) = curves([first, second, first])
    assert curve.label == "td3"
    assert curve.environment == "Pendulum-v1"
    np.testing.assert_array_equal(curve.steps, [0, 10, 20])
    np.testing.assert_array_equal(curve.values, [[1, 2, 3], [3, 4, 5]])


def test_curve_ends_at_shortest_seed_with_interpolated_steps(make_run: MakeRun):
    (curve,) = curves([make_run("a", [1, 2, 3]), make_run("b", [0, 30], steps=(0, 15), seed=1)])
    assert curve.remark == ", as far as b is"
    np.testing.assert_array_equal(curve.steps, [0, 15])  # b's
    np.testing.assert_allclose(curve.values, [[1, 2.5], [0, 30]])


SHORT = {"environment_options": {"max_episode_steps": 50}}
LABELS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "differing options": (
        [{}, {"discount": 0.9}, {"run": {"backend": "torch"}}],
        [
            "td3, discount 0.99, backend jax",
            "td3, discount 0.9, backend jax",
            "td3, discount 0.99, backend torch",
        ],
    ),
    "options of other algorithms and environments": (
        [{}, {"name": "ddpg", "discount": 0.5}, {"environment": "Hopper-v5", "tau": 0.5}],
        ["td3", "ddpg", "td3"],
    ),
    "environment options": (
        [SHORT, {"name": "sac"}, SHORT | {"name": "ddpg"}],
        ["td3, max_episode_steps 50", "sac, max_episode_steps default", "ddpg, max_episode_steps 50"],
    ),
    "environment options named like hyperparameters": (
        [{}, {"environment_options": {"name": "foo", "discount": 3}}],
        ["td3, discount default, name default", "td3, discount 3, name foo"],
    ),
    "many differing options": (
        [{}, {"discount": 0.9, "tau": 1.0, "n_step": 3, "hidden": [8]}],
        ["run0", "run1"],
    ),
}


@pytest.mark.parametrize(("options", "labels"), LABELS.values(), ids=LABELS)
def test_runs_with_other_options_are_separate_labeled_curves(
    make_run: MakeRun, options: list[dict[str, Any]], labels: list[str]
):
    found = curves([make_run(f"run{number}", [1, 2, 3], **own) for number, own in enumerate(options)])
    assert [curve.label for curve in found] == labels
    assert [curve.environment for curve in found] == [own.get("environment", "Pendulum-v1") for own in options]


def test_repeated_seed_counts_once(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, again = make_run("x-s0", [1, 2, 3]), make_run("x-s0-2", [1, 2, 9])
    make_run("x-s1", [1, 2, 5], seed=1)
    monkeypatch.chdir(tmp_path)
    found = curves([first, "x-s0", "x-s1", tmp_path / "x-s1" / ".." / "x-s0", again])
    assert [(curve.label, curve.values[:, -1].tolist()) for curve in found] == [("x", [3.0, 5.0]), ("x-s0-2", [9.0])]


def test_missing_option_has_its_default(make_run: MakeRun):
    """A key that no longer has an effect makes no difference."""
    short = make_run("old-s0", [1, 2, 3], name="bc", discount=0.5)
    whole = make_run("old-s1", [1, 2, 3], name="bc", seed=1, demonstration_share=1.0)
    assert len(curves([short, whole])) == 1
    assert len(curves([short, make_run("other", [1, 2, 3], name="bc", seed=2, demonstration_share=0.5)])) == 2


def test_last_value_of_a_repeated_step_counts(make_run: MakeRun):
    """Evaluations before and after pretraining are both at step 0."""
    both = make_run("a", [-3, 4, 5], steps=(0, 0, 10))
    (joined,) = curves([make_run("b", [1, 2], steps=(0, 10), seed=1), both])
    assert joined.values.tolist() == [[1.0, 2.0], [4.0, 5.0]]


def test_non_finite_values_are_skipped_without_extrapolation(make_run: MakeRun):
    (curve,) = curves([make_run("a", [1, 2, 3]), make_run("b", [float("nan"), 20, 30], seed=1)])
    assert (curve.steps.tolist(), curve.values.tolist()) == ([10.0, 20.0], [[2.0, 3.0], [20.0, 30.0]])
    with pytest.raises(UsageError, match=r"c has no finite number in 'mean_return'\. It has: mean_return\."):
        curves([make_run("c", [float("nan")] * 3)])


def update_config(folder: Path, **sections: dict[str, Any]) -> Path:
    """Add values to sections of a run's config.yaml; return the run's folder."""
    path = folder / "config.yaml"
    values = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(values | {key: values.get(key, {}) | more for key, more in sections.items()}))
    return folder


def start_record(run: str, **more: Any) -> dict[str, Any]:
    return {"run": run, "checkpoint": "last", "step": 300} | more


def test_runs_started_from_the_same_run_share_curve(make_run: MakeRun):
    folders = [make_run(name, [1, 2, 3], seed=seed) for seed, name in enumerate("abcdef")]
    update_config(folders[1], **{"from": start_record("/runs/x-s0")})
    update_config(folders[2], **{"from": start_record("/runs/x-s0")})
    update_config(folders[3], **{"from": start_record("/runs/y-s0", checkpoint="best")})
    assert [(curve.label, len(curve.values)) for curve in curves(folders)] == [
        ("td3, from scratch", 3),
        ("td3, from /runs/x-s0 (last, step 300)", 2),
        ("td3, from /runs/y-s0 (best, step 300)", 1),
    ]
    update_config(folders[4], **{"from": start_record("/elsewhere/x-s0")})
    assert [len(curve.values) for curve in curves(folders)] == [2, 2, 1, 1]


USER_FILE = {"class": "TD3", "file": "/home/me/own.py", "sha256": "1a2b3c4d" + "0" * 56}


def test_custom_and_built_in_algorithm_are_separate_curves(make_run: MakeRun):
    """So are an earlier and a later version of the file; its folder does not count."""
    options = {name: list(own) if isinstance(own, tuple) else own for name, own in asdict(TD3()).items()}
    folders = [make_run(name, [1, 2, 3], seed=seed, **options) for seed, name in enumerate("abcd")]
    update_config(folders[1], algorithm={"from": USER_FILE})
    update_config(folders[2], algorithm={"from": USER_FILE | {"file": "/moved/own.py"}})
    update_config(folders[3], algorithm={"from": USER_FILE | {"sha256": "5" * 64}})
    assert [(curve.label, len(curve.values)) for curve in curves(folders)] == [
        ("td3, from Duetto", 1),
        ("td3, from own.py:TD3 (sha256 1a2b3c4d)", 2),
        ("td3, from own.py:TD3 (sha256 55555555)", 1),
    ]


def test_curve_labels_are_unique(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs with equal options and seeds are named by their folders."""
    monkeypatch.chdir(tmp_path)
    folders = []
    for place in ("A", "B"):
        (tmp_path / place / "runs").mkdir(parents=True)
        folders.append(make_run(f"{place}/runs/x-s0", [1, 2, 3]))
    first, second = curves(folders)
    assert (first.label, second.label) == ("A/runs/x-s0", "B/runs/x-s0")
    assert first.notices == ()


def test_curve_of_a_metric_from_metrics_file(make_run: MakeRun):
    folder = make_run("a", [1, 2, 3])
    lines = [{"step": 10, "learn/critic_loss": None}, {"step": 20, "learn/critic_loss": 0.5}, {"step": 30, "x": 1}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (curve,) = curves([folder], "learn/critic_loss")
    assert (curve.steps.tolist(), curve.values.tolist()) == ([20.0], [[0.5]])
    with pytest.raises(UsageError, match=r"a has no 'loss'\. It has: learn/critic_loss, mean_return, x\."):
        curves([folder], "loss")


def test_interquartile_band_keeps_the_global_random_state():
    values = np.array([[0.0, 10.0], [1.0, 10.0], [3.0, 10.0], [100.0, 10.0]])
    np.random.seed(5)
    middle, (low, high) = interquartile(values)
    assert np.random.random() == np.random.RandomState(5).random()
    np.testing.assert_allclose(middle, [2.0, 10.0])
    assert 0 <= low[0] < 2 < high[0] <= 100
    np.testing.assert_allclose([low[1], high[1]], 10.0)
    several = np.random.normal(size=(9, 3))
    once = interquartile(several)[1]
    np.random.seed(6)
    np.testing.assert_array_equal(interquartile(several)[1], once)


def test_plot_is_reproducible_and_shows_each_curve(make_run: MakeRun, tmp_path: Path):
    folders = [make_run(f"s{seed}", [seed, 2.0, 3.0], seed=seed) for seed in range(3)]
    first = plot(folders, tmp_path / "new" / "a.png").read_bytes()
    assert first.startswith(b"\x89PNG")
    assert plot(folders, tmp_path / "b.png").read_bytes() == first
    assert plot([*folders, make_run("x", [1, 2, 3], discount=0.5)], tmp_path / "b.png").read_bytes() != first
    drawn = plot([*folders, tmp_path / "x"], tmp_path / "c.svg").read_text()
    assert all(f"<!-- {text} -->" in drawn for text in ("td3, discount 0.99 (3 seeds, interquartile mean)", "steps"))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["b.png", "c.svg"]


def test_unreadable_lines_are_counted_and_skipped(
    make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder, other = make_run("a", [1, 2, 3]), make_run("b", [4, 5, 6], seed=1)
    table = folder / "evaluations.csv"
    table.write_bytes(b"step,mean_return\n0,1\n10,x\n15\n\xff,2\n20,3\n25,4")
    (curve,) = curves([folder, other])
    assert (curve.steps.tolist(), curve.values.tolist()) == ([0, 20], [[1, 3], [4, 6]])
    assert curve.notices == (f"3 of the lines of {table} cannot be read and are left out.",)
    plot([folder, other], tmp_path / "a.png")
    assert capsys.readouterr() == ("", f"{curve.notices[0]}\n")
    (folder / "metrics.jsonl").write_text('{"step": 1, "x": 1}\n{"st\n{"step": 3, "x": 5}\n')
    (curve,) = curves([folder], "x")
    assert curve.values.tolist() == [[1, 5]]
    assert curve.notices == (f"1 of the lines of {folder}/metrics.jsonl cannot be read and are left out.",)


def test_invalid_plot_calls_are_refused(make_run: MakeRun, tmp_path: Path):
    folder = make_run("a", [1, 2, 3])
    with pytest.raises(UsageError, match="No run is named"):
        plot([])
    assert [len(one.values) for one in curves(str(folder))] == [1]
    with pytest.raises(UsageError, match=r"nowhere is no run folder: it has no config\.yaml"):
        plot([folder, tmp_path / "nowhere"])
    with pytest.raises(UsageError, match=r"curves\.jpeg is no name for a picture: end it in \.png, \.svg or \.pdf"):
        plot([folder], "curves.jpeg")
    (tmp_path / "file").write_text("")
    with pytest.raises(DuettoError, match=r"cannot be written"):
        plot([folder], tmp_path / "file" / "curves.png")
    with pytest.raises(UsageError, match=r"/a and .*/late share no steps\. Plot them one by one"):
        plot([folder, make_run("late", [1], steps=(100,), seed=1)])
    (folder / "evaluations.csv").write_text("step,mean_return\n0,x\n")
    with pytest.raises(DuettoError, match=r"/a has no evaluations and no metrics\. Leave it out\. 1 of the lines of"):
        plot([folder])
    (folder / "evaluations.csv").unlink()
    with pytest.raises(UsageError, match=r"a has no evaluations and no metrics\. Leave it out\."):
        plot([folder])
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text("algorithm: []")
    with pytest.raises(DuettoError, match=r"config\.yaml cannot be read .* changed by hand"):
        plot([folder])
    (folder / "config.yaml").write_text(config.replace("name: td3", "name: [1]\n  from: {class: X}"))
    with pytest.raises(DuettoError, match=r"config\.yaml cannot be read .* changed by hand"):
        plot([folder])


def test_plot_is_not_written_through_links(make_run: MakeRun, tmp_path: Path):
    """A malicious run folder can contain links with the name of the plot or of its partial file."""
    folder, thesis = make_run("a", [1, 2, 3]), tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    for name in (".curves.partial.png", "curves.png"):
        (folder / name).symlink_to(thesis)
    plot([folder], folder / "curves.png")
    assert thesis.read_text() == "years of work"
    assert not (folder / "curves.png").is_symlink()


def test_folders_without_runs_are_skipped_with_notice(make_run: MakeRun, tmp_path: Path):
    """`runs/*` can include a log folder, a run without evaluations and a damaged run."""
    good, fresh, damaged, logs = (
        make_run("good", [1, 2, 3]),
        make_run("fresh", [1, 2, 3]),
        make_run("bad", [1, 2, 3]),
        tmp_path / "l",
    )
    logs.mkdir()
    (fresh / "evaluations.csv").unlink()
    (damaged / "config.yaml").write_text("algorithm: []")
    (curve,) = curves([logs, fresh, good, damaged])
    assert curve.values.tolist() == [[1, 2, 3]]
    sentences = [
        f"Left out: {logs} is no run",
        f"Left out: {fresh} has no evaluations",
        f"Left out: {damaged}/config.yaml",
    ]
    assert [notice.startswith(start) for notice, start in zip(curve.notices, sentences, strict=True)] == [True] * 3
    with pytest.raises(UsageError, match=f"^{fresh} has no evaluations and no metrics"):
        curves([logs, fresh])
    with pytest.raises(UsageError, match="nowhere is no run folder"):  # a path that does not exist is an error
        curves([good, tmp_path / "nowhere"])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_last_point_is_kept_in_any_seed_order(make_run: MakeRun, order: tuple[int, int]):
    """In next-step autoreset mode, seeds are evaluated at slightly different steps."""
    returns: list[float] = [0, 0, 0, 100]
    folders = [
        make_run("a", returns, steps=(0, 1003, 2005, 3001)),
        make_run("b", returns, steps=(0, 1000, 2001, 3000), seed=1),
    ]
    (curve,) = curves([folders[place] for place in order])
    assert curve.steps.tolist() == [0, 1000, 2001, 3000]
    assert curve.values[:, -1] == pytest.approx([100, 100], abs=0.2)
