"""`duetto plot`: which runs make one curve, what it is called, and what is refused."""

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
from duetto.storage.safe_yaml import read_yaml, to_yaml
from duetto.tools.plot.curves import (
    Curve,
    curves,
    draw,
    finish,
    height_of,
    interquartile,
    new_figure,
    picture,
    plot,
)

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A run's folder with evaluations at `steps`; other options go to the algorithm."""

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


def test_seeds_make_one_curve_whatever_they_were_looked_at_by(make: Make):
    first = make("a", [1, 2, 3])
    second = make("b", [3, 4, 5], seed=1, run={"log_every": 5})
    (curve,) = curves([first, second, first])
    assert curve.label == "td3"
    assert curve.environment == "Pendulum-v1"
    np.testing.assert_array_equal(curve.steps, [0, 10, 20])
    np.testing.assert_array_equal(curve.values, [[1, 2, 3], [3, 4, 5]])


def test_a_curve_ends_with_its_shortest_seed_and_other_steps_are_interpolated(make: Make):
    (curve,) = curves([make("a", [1, 2, 3]), make("b", [0, 30], steps=(0, 15), seed=1)])
    assert curve.remark == ", as far as b is"
    np.testing.assert_array_equal(curve.steps, [0, 15])  # b's
    np.testing.assert_allclose(curve.values, [[1, 2.5], [0, 30]])


SHORT = {"environment_options": {"max_episode_steps": 50}}
LABELS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "by what differs": (
        [{}, {"discount": 0.9}, {"run": {"backend": "torch"}}],
        [
            "td3, discount 0.99, backend jax",
            "td3, discount 0.9, backend jax",
            "td3, discount 0.99, backend torch",
        ],
    ),
    "another algorithm's and another environment's options do not count": (
        [{}, {"name": "ddpg", "discount": 0.5}, {"environment": "Hopper-v5", "tau": 0.5}],
        ["td3", "ddpg", "td3"],
    ),
    "another task of the same name is in the label, of every algorithm": (
        [SHORT, {"name": "sac"}, SHORT | {"name": "ddpg"}],
        ["td3, max_episode_steps 50", "sac, max_episode_steps default", "ddpg, max_episode_steps 50"],
    ),
    "an environment's options are not an algorithm's": (
        [{}, {"environment_options": {"name": "foo", "discount": 3}}],
        ["td3, discount default, name default", "td3, discount 3, name foo"],
    ),
    "by their folders if they differ in much": (
        [{}, {"discount": 0.9, "tau": 1.0, "n_step": 3, "hidden": [8]}],
        ["run0", "run1"],
    ),
}


@pytest.mark.parametrize(("options", "labels"), LABELS.values(), ids=LABELS)
def test_other_options_are_other_curves_and_how_they_are_named(
    make: Make, options: list[dict[str, Any]], labels: list[str]
):
    found = curves([make(f"run{number}", [1, 2, 3], **own) for number, own in enumerate(options)])
    assert [curve.label for curve in found] == labels
    assert [curve.environment for curve in found] == [own.get("environment", "Pendulum-v1") for own in options]


def test_a_seed_counts_once(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, again = make("x-s0", [1, 2, 3]), make("x-s0-2", [1, 2, 9])
    make("x-s1", [1, 2, 5], seed=1)
    monkeypatch.chdir(tmp_path)
    found = curves([first, "x-s0", "x-s1", tmp_path / "x-s1" / ".." / "x-s0", again])
    assert [(curve.label, curve.values[:, -1].tolist()) for curve in found] == [("x", [3.0, 5.0]), ("x-s0-2", [9.0])]


def test_an_option_that_is_left_out_has_its_default(make: Make):
    """A key that nobody reads is no difference."""
    short = make("old-s0", [1, 2, 3], name="bc", discount=0.5)
    whole = make("old-s1", [1, 2, 3], name="bc", seed=1, demonstration_share=1.0)
    assert len(curves([short, whole])) == 1
    assert len(curves([short, make("other", [1, 2, 3], name="bc", seed=2, demonstration_share=0.5)])) == 2


def test_of_two_values_of_one_step_the_last_counts(make: Make):
    """Before and after pre-training, both at step 0."""
    both = make("a", [-3, 4, 5], steps=(0, 0, 10))
    (joined,) = curves([make("b", [1, 2], steps=(0, 10), seed=1), both])
    assert joined.values.tolist() == [[1.0, 2.0], [4.0, 5.0]]


def test_what_is_not_finite_is_left_out_and_nothing_is_made_up(make: Make):
    (curve,) = curves([make("a", [1, 2, 3]), make("b", [float("nan"), 20, 30], seed=1)])
    assert (curve.steps.tolist(), curve.values.tolist()) == ([10.0, 20.0], [[2.0, 3.0], [20.0, 30.0]])
    with pytest.raises(UsageError, match=r"c has no finite number in 'mean_return'\. It has: mean_return\."):
        curves([make("c", [float("nan")] * 3)])


def rewrite(folder: Path, **sections: dict[str, Any]) -> Path:
    """The run's folder, with more in these parts of its `config.yaml`."""
    path = folder / "config.yaml"
    values = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(values | {key: values.get(key, {}) | more for key, more in sections.items()}))
    return folder


def began(run: str, **more: Any) -> dict[str, Any]:
    return {"run": run, "checkpoint": "last", "step": 300} | more


def test_runs_that_began_from_another_one_are_seeds_of_those_that_began_from_the_same(make: Make):
    folders = [make(name, [1, 2, 3], seed=seed) for seed, name in enumerate("abcdef")]
    rewrite(folders[1], **{"from": began("/runs/x-s0")})
    rewrite(folders[2], **{"from": began("/runs/x-s0")})
    rewrite(folders[3], **{"from": began("/runs/y-s0", checkpoint="best")})
    assert [(curve.label, len(curve.values)) for curve in curves(folders)] == [
        ("td3, from scratch", 3),
        ("td3, from /runs/x-s0 (last, step 300)", 2),
        ("td3, from /runs/y-s0 (best, step 300)", 1),
    ]
    rewrite(folders[4], **{"from": began("/elsewhere/x-s0")})
    assert [len(curve.values) for curve in curves(folders)] == [2, 2, 1, 1]


OWN = {"class": "TD3", "file": "/home/me/own.py", "sha256": "1a2b3c4d" + "0" * 56}


def test_an_algorithm_of_a_file_is_not_the_one_whose_name_it_has(make: Make):
    """Nor is what the file held before it was edited; its folder does not count."""
    options = {name: list(own) if isinstance(own, tuple) else own for name, own in asdict(TD3()).items()}
    folders = [make(name, [1, 2, 3], seed=seed, **options) for seed, name in enumerate("abcd")]
    rewrite(folders[1], algorithm={"from": OWN})
    rewrite(folders[2], algorithm={"from": OWN | {"file": "/moved/own.py"}})
    rewrite(folders[3], algorithm={"from": OWN | {"sha256": "5" * 64}})
    assert [(curve.label, len(curve.values)) for curve in curves(folders)] == [
        ("td3, from Duetto", 1),
        ("td3, from own.py:TD3 (sha256 1a2b3c4d)", 2),
        ("td3, from own.py:TD3 (sha256 55555555)", 1),
    ]


def test_an_environment_of_a_file_that_was_edited_and_a_clusters_options_are_others(make: Make):
    folders = [make(name, [1, 2, 3], seed=seed, environment="/here/hill.py:Hill") for seed, name in enumerate("abc")]
    rewrite(folders[0], environment={"sha256": "1" * 64})
    rewrite(folders[1], environment={"sha256": "2" * 64})
    rewrite(folders[2], environment={"sha256": "1" * 64}, cluster={"actors": 2})
    assert [curve.label for curve in curves(folders)] == [
        "td3, id /here/hill.py:Hill (sha256 11111111), actors default",
        "td3, id /here/hill.py:Hill (sha256 22222222), actors default",
        "td3, id /here/hill.py:Hill (sha256 11111111), actors 2",
    ]


@pytest.mark.parametrize("wrong", ["x", ["x"], {"run": ["x"]}, {"class": "A", "file": 3}])
def test_a_source_that_is_none_gets_a_sentence(make: Make, wrong: Any):
    for part in ("algorithm", "whole"):
        folder = make(part, [1, 2, 3])
        rewrite(folder, **({"algorithm": {"from": wrong}} if part == "algorithm" else {}))
        if part == "whole":
            text = (folder / "config.yaml").read_text()
            (folder / "config.yaml").write_text(text + yaml.safe_dump({"from": wrong}))
        with pytest.raises(DuettoError, match=r"config\.yaml cannot be read .* changed by hand"):
            curves([folder])


MUCH: dict[str, Any] = {"tau": 1.0, "n_step": 3, "hidden": [8]}


def test_no_two_curves_have_one_label(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Their folders tell them apart."""
    monkeypatch.chdir(tmp_path)
    folders = []
    for place in ("A", "B"):
        (tmp_path / place / "runs").mkdir(parents=True)
        folders.append(make(f"{place}/runs/x-s0", [1, 2, 3]))
    first, second = curves(folders)
    assert (first.label, second.label) == ("A/runs/x-s0", "B/runs/x-s0")
    assert first.notices == ()
    one = [make(f"x-s{seed}", [1, 2, 3], seed=seed, discount=0.9, **MUCH) for seed in (0, 1)]
    other = [make(f"x-s{seed}", [1, 2, 3], seed=seed, discount=0.5) for seed in (2, 3)]
    assert [curve.label for curve in curves([*one, *other])] == ["x-s0", "x-s2"]


def test_a_label_is_not_endless(make: Make, tmp_path: Path):
    folders = [make(name, [1, 2, 3], environment_options={"name": 250 * name}) for name in "ab"]
    folders.append(make("c", [1, 2, 3], environment_options={"name": 251 * "b"}))
    assert [curve.label for curve in curves(folders)] == [
        f"td3, name {'a' * 189}…",
        str(tmp_path / "b"),
        str(tmp_path / "c"),
    ]


def test_what_is_not_finite_is_counted(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = make("a", [1, 2, 3])
    lines = [{"step": 10, "mine/x": "nan"}, {"step": 20, "mine/x": 0.5}, {"step": 30, "mine/x": "inf"}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (curve,) = curves([folder], "mine/x")
    said = f"2 of the values of 'mine/x' in {folder}/metrics.jsonl are not finite and are left out."
    assert curve.notices == (said,)
    plot([folder], tmp_path / "a.png", "mine/x")
    assert capsys.readouterr().err == f"{said}\n"


def test_numbers_of_the_metrics(make: Make):
    folder = make("a", [1, 2, 3])
    lines = [{"step": 10, "learn/critic_loss": None}, {"step": 20, "learn/critic_loss": 0.5}, {"step": 30, "x": 1}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (curve,) = curves([folder], "learn/critic_loss")
    assert (curve.steps.tolist(), curve.values.tolist()) == ([20.0], [[0.5]])
    with pytest.raises(UsageError, match=r"a has no 'loss'\. It has: learn/critic_loss, mean_return, x\."):
        curves([folder], "loss")


def test_the_band_is_the_interquartile_mean_and_leaves_the_random_numbers_alone():
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


def test_the_picture_repeats_to_the_byte_and_shows_each_curve(make: Make, tmp_path: Path):
    folders = [make(f"s{seed}", [seed, 2.0, 3.0], seed=seed) for seed in range(3)]
    first = plot(folders, tmp_path / "new" / "a.png").read_bytes()
    assert first.startswith(b"\x89PNG")
    assert plot(folders, tmp_path / "b.png").read_bytes() == first
    assert plot([*folders, make("x", [1, 2, 3], discount=0.5)], tmp_path / "b.png").read_bytes() != first
    drawn = plot([*folders, tmp_path / "x"], tmp_path / "c.svg").read_text()
    assert all(f"<!-- {text} -->" in drawn for text in ("td3, discount 0.99 (3 seeds, interquartile mean)", "steps"))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["b.png", "c.svg"]


@pytest.mark.parametrize(("label", "shown"), [("_a", " _a (2 seeds)"), ("$b$", r"\$b\$ (2 seeds)")])
def test_labels_are_shown_as_they_are(label: str, shown: str):
    axes = new_figure(4, 3).subplots()
    draw(axes, label, np.arange(2), np.eye(2), style=0)
    finish(axes, "title", "return")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [shown]


def test_one_evaluation_is_a_point():
    axes = new_figure(4, 3).subplots()
    draw(axes, "point", np.array([0.0]), np.array([[7.0]]), style=0)
    draw(axes, "line", np.array([0.0, 1.0]), np.array([[7.0, 8.0]]), style=0)
    assert [line.get_marker() for line in axes.lines] == ["o", "o", "", ""]


def test_many_curves_differ_in_colour_or_line_and_their_legend_hides_none():
    axes = new_figure(8, 6).subplots()
    for style in range(25):
        draw(axes, str(style), np.arange(2), np.eye(1, 2), style)
    finish(axes, "title", "return")
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 25
    axes.figure.draw_without_rendering()
    assert axes.get_legend().get_window_extent().y1 <= axes.get_window_extent().y0


def test_lines_that_cannot_be_read_are_counted_and_the_others_drawn(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder, other = make("a", [1, 2, 3]), make("b", [4, 5, 6], seed=1)
    table = folder / "evaluations.csv"
    table.write_bytes(b"step,mean_return\n0,1\n10,x\n15\n\xff,2\n20,3\n25,4")
    (curve,) = curves([folder, other])
    assert (curve.steps.tolist(), curve.values.tolist()) == ([0, 20], [[1, 3], [4, 6]])
    assert curve.notices == (f"3 of the lines of {table} cannot be read and are left out.",)
    plot([folder, other], tmp_path / "a.png")
    assert capsys.readouterr() == ("", f"{curve.notices[0]}\n")
    plot([other], tmp_path / "a.png")
    assert capsys.readouterr() == ("", "")
    (folder / "metrics.jsonl").write_text('{"step": 1, "x": 1}\n{"st\n{"step": 3, "x": 5}\n')
    (curve,) = curves([folder], "x")
    assert curve.values.tolist() == [[1, 5]]
    assert curve.notices == (f"1 of the lines of {folder}/metrics.jsonl cannot be read and are left out.",)
    with pytest.raises(UsageError, match=r"has no 'y'. It has: mean_return, x\. 2 of the lines of .*csv .* 1 of the"):
        curves([folder], "y")
    table.write_bytes(b"\xffstep,mean_return\n0,1\n")
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(UsageError, match=r"no evaluations and no metrics yet\. Leave it out\. 1 of the lines of"):
        curves([folder])


def test_what_cannot_be_plotted(make: Make, tmp_path: Path):
    folder = make("a", [1, 2, 3])
    with pytest.raises(UsageError, match="No run is named"):
        plot([])
    assert [len(one.values) for one in curves(path for path in [folder])] == [1]
    assert [len(one.values) for one in curves(str(folder))] == [1]
    with pytest.raises(UsageError, match=r"nowhere is no run folder: it has no config\.yaml"):
        plot([folder, tmp_path / "nowhere"])
    with pytest.raises(UsageError, match=r"curves\.jpeg is no name for a picture: end it in \.png, \.svg or \.pdf"):
        plot([folder], "curves.jpeg")
    (tmp_path / "file").write_text("")
    with pytest.raises(DuettoError, match=r"cannot be written"):
        plot([folder], tmp_path / "file" / "curves.png")
    with pytest.raises(UsageError, match=r"/a and .*/late share no steps\. Plot them one by one"):
        plot([folder, make("late", [1], steps=(100,), seed=1)])
    (folder / "evaluations.csv").write_text("step,mean_return\n0,x\n")
    with pytest.raises(DuettoError, match=r"evaluations\.csv has no numbers by step in 'mean_return' \(ValueError"):
        plot([folder])
    (folder / "evaluations.csv").write_text("mean_return\n0\n")
    with pytest.raises(DuettoError, match=r"evaluations\.csv has no numbers by step in 'mean_return' \(KeyError"):
        plot([folder])
    (folder / "evaluations.csv").unlink()
    with pytest.raises(UsageError, match=r"a has no evaluations and no metrics yet\. Leave it out\."):
        plot([folder])
    later = read_yaml(folder / "config.yaml") | {"format": 99}
    (folder / "config.yaml").write_text(to_yaml(later))
    with pytest.raises(DuettoError, match=r"a/config\.yaml: it has format 99"):
        plot([folder])
    (folder / "config.yaml").write_text("algorithm: []")
    with pytest.raises(DuettoError, match=r"config\.yaml cannot be read .* changed by hand"):
        plot([folder])


def test_a_picture_is_not_written_through_a_link_that_is_there_already(make: Make, tmp_path: Path):
    """In a stranger's folder; until it is complete, a picture is in a folder whose name nobody knows."""
    folder, thesis = make("a", [1, 2, 3]), tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    for name in (".curves.partial.png", "curves.png"):
        (folder / name).symlink_to(thesis)
    plot([folder], folder / "curves.png")
    assert thesis.read_text() == "years of work"
    assert not (folder / "curves.png").is_symlink()


def test_seeds_whose_configs_leave_out_different_options_make_one_curve():
    learned = Path(__file__).parents[2] / "benchmarks" / "results" / "learning"
    [curve] = curves(sorted(learned.glob("ppo-halfcheetah-s*")))
    assert len(curve.values) == 10


def test_what_is_no_run_is_left_out_and_said(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """As `runs/*` names a sweep's logs, a run that has just started, and one that is damaged, beside good ones."""
    good, fresh, damaged, logs = (
        make("good", [1, 2, 3]),
        make("fresh", [1, 2, 3]),
        make("bad", [1, 2, 3]),
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
    plot([logs, good], tmp_path / "a.png")
    assert capsys.readouterr().err == f"Left out: {logs} is no run folder: it has no config.yaml.\n"
    with pytest.raises(UsageError, match=f"^{fresh} has no evaluations and no metrics yet"):
        curves([logs, fresh])
    with pytest.raises(UsageError, match=f"^{logs} is no run folder"):
        curves([logs])
    with pytest.raises(UsageError, match="nowhere is no run folder"):  # a name that nothing has is a mistake
        curves([good, tmp_path / "nowhere"])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_last_point_is_there_in_whatever_order_the_seeds_are(make: Make, order: tuple[int, int]):
    """Where environments reset themselves in a step of their own, seeds are looked at in slightly other steps."""
    returns: list[float] = [0, 0, 0, 100]
    folders = [make("a", returns, steps=(0, 1003, 2005, 3001)), make("b", returns, steps=(0, 1000, 2001, 3000), seed=1)]
    (curve,) = curves([folders[place] for place in order])
    assert curve.steps.tolist() == [0, 1000, 2001, 3000]
    assert curve.values[:, -1] == pytest.approx([100, 100], abs=0.2)


def test_a_long_label_takes_no_width_from_the_curves():
    widths = []
    for label in ("short", "td3, " + "/very/long/folder" * 10):
        axes = new_figure(7, height_of([label])).subplots()
        draw(axes, label, np.arange(2), np.eye(2), style=0)
        finish(axes, "title", "return")
        axes.figure.draw_without_rendering()
        widths.append(axes.get_window_extent().width)
    assert widths[1] == pytest.approx(widths[0], rel=0.02)


def test_a_long_legend_is_in_the_picture(tmp_path: Path):
    from matplotlib.image import imread

    labels = [
        f"variant {number} with a long description of the options that differ, {'x ' * 50}" for number in range(9)
    ]
    drawn = [Curve(label, "E-v0", np.array([0.0, 9.0]), np.eye(2), "", ()) for label in labels]
    image = imread(picture(drawn, tmp_path / "long.png", "mean_return"))
    assert (image[-3:] == 1).all()  # the legend's frame does not reach the border
