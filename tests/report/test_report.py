"""A report: what is on the page, that nothing is fetched, and that nothing of a stranger's gets out of its place."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import os
import re
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import yaml
from pretended import pretend

import duetto
from duetto.algorithms import ALGORITHMS
from duetto.errors import DuettoError, UsageError
from duetto.storage import atomic_io
from duetto.tools.plot import curves as curves_module
from duetto.tools.plot.curves import curves, interquartile
from duetto.tools.report import charts, metric_docs, report, sections

writing = importlib.import_module("duetto.tools.report.report")  # the package has the function under this name
MP4 = b"\0\0\0\x18ftypisom" + bytes(range(40))
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[2J\u202e"
WHOLE = ("test_it_fetches_nothing_and_runs_its_own_two_scripts_alone", "test_without_the_extra")
LOADING = {"src", "href", "srcset", "poster", "data", "action", "xlink:href"}


class Seen(HTMLParser):
    """A page's elements with their attributes, and the text of each element by its name and id."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def charts(self) -> list[dict]:
        """Plotly's figures, as the page's script reads them."""
        return json.loads(self.texts["script"][0])

    def curves(self, chart: int) -> list[dict]:
        """The traces on top of a chart: one for each curve, with the edges of its band as `low` and `high`."""
        found = []
        for number in dict.fromkeys(trace["legendgroup"] for trace in self.charts[chart]["data"]):
            traces = [trace for trace in self.charts[chart]["data"] if trace["legendgroup"] == number]
            edges = [trace for trace in traces if trace["line"]["width"] == 0]
            assert [edge.get("fill") for edge in edges] in ([], [None, "tonexty"])
            band = {name: edge["y"] for name, edge in zip(("low", "high"), edges, strict=False)}
            seeds = [trace for trace in traces if trace.get("meta") == "seed"]
            parts = [trace for trace in traces if trace["line"]["dash"] == "dot"]
            found.append(traces[-1] | band | {"seeds": seeds, "parts": parts})
        return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A short bootstrap, and in the place of plotly's five million bytes a few."""
    monkeypatch.setattr(curves_module, "_REPETITIONS", 50)
    if request.node.originalname not in WHOLE:
        monkeypatch.setattr(writing, "plotly", lambda: "var Plotly = {};")


def made(runs: Sequence[Path], folder: Path, metric: str = "mean_return") -> Seen:
    return Seen(report(runs, folder / "out" / "report.html", metric).read_text("utf-8"))


# ---------------------------------------------------------------------------------------------------- what is on it
def test_it_says_what_the_runs_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    metrics = {"learn/q_mean": [1.0, 2.0, 3.0], "learn/q_min": [0.0, 0.0, 1.0], "learn/q_max": [2.0, 3.0, 9.0]}
    runs = [pretend(tmp_path / f"s{s}", [1.0, 5 + s, 3 + s], seed=s, metrics=metrics) for s in range(2)]
    runs.append(pretend(tmp_path / "other", [1234.5, 2, 3], algorithm="dqn", environment="CartPole-v1"))
    seen = made(runs, tmp_path)
    assert capsys.readouterr() == ("", "")
    assert seen.texts["h1"] == ["td3, dqn on Pendulum-v1, CartPole-v1"]
    assert seen.texts["h2"][:3] == ["Results", "Curves", "Evaluations"]
    rows = [re.sub(r"\s+", " ", row) for row in seen.texts["tr"]]
    assert any("td3" in row and "3.5" in row for row in rows), rows  # the mean of the last ones
    cells = seen.texts["td"]
    assert {"1,234", "10", "6", "1.5 min", "s1"} <= set(cells)  # greatest, its step, most, time, a folder
    assert "above max(0, r_max) / (1 − γ), which no policy can reach: diverging" in seen.texts["dd"]
    assert (tmp_path / "s0" / "config.yaml").read_text() in seen.texts["pre"]
    assert (
        "duetto train td3 --config config.yaml --seed 0\nduetto train td3 --config config.yaml --seed 1"
        in seen.texts["pre"]
    )
    assert "0123456789ab" in cells
    assert (tmp_path / "out" / "report.html").parent.is_dir()


def test_runs_without_evaluations_show_the_returns_of_training(tmp_path: Path):
    run = pretend(tmp_path / "a", [1, 2, 3], metrics={"train/return": [None, 5.0, 7.0]})
    header = (run / "evaluations.csv").read_text().splitlines(keepends=True)[0]
    (run / "evaluations.csv").write_text(header)  # evaluate_every=0
    assert made([run], tmp_path).curves(0)[0]["y"] == [5.0, 7.0]


def test_the_charts_have_the_numbers(tmp_path: Path):
    """Returns with the band of duetto plot; the others with the least and the greatest seed, and their parts."""
    metrics = {"learn/q_mean": [1.0, 2.0, 3.0], "learn/q_min": [0.0, 0.5, 1.0], "my/own": [None, 1, 2]}
    runs = [
        pretend(tmp_path / f"s{s}", [s, 2.0 * s, 7], seed=s, metrics=metrics | {"learn/critic_loss": [s, 1, 2]})
        for s in range(3)
    ]
    seen = made(runs, tmp_path)
    (curve,), *others = (seen.curves(chart) for chart in range(4))
    middle, (low, high) = interquartile(curves(runs)[0].values)
    assert (curve["name"], curve["x"]) == ("td3 (3 seeds)", [0, 10, 20])
    np.testing.assert_allclose([curve["y"], curve["low"], curve["high"]], [middle, low, high], rtol=1e-5)
    assert [(seed["name"], seed["y"]) for seed in curve["seeds"]] == [
        ("s0", [0, 0, 7]),
        ("s1", [1, 2, 7]),
        ("s2", [2, 4, 7]),
    ]
    assert not any(seed["visible"] for seed in curve["seeds"])
    (menu,) = seen.charts[0]["layout"]["updatemenus"]
    hidden = [place for place, trace in enumerate(seen.charts[0]["data"]) if trace.get("meta") == "seed"]
    assert menu["buttons"][0]["args"] == [{"visible": True}, hidden]
    by_name = {name: chart[0] for name, chart in zip(("loss", "q", "own"), others, strict=True)}
    assert [by_name["loss"][key] for key in ("y", "low", "high")] == [[1, 1, 2], [0, 1, 2], [2, 1, 2]]
    assert by_name["q"]["y"] == [1, 2, 3]
    (part,) = by_name["q"]["parts"]
    assert (part["name"], part["x"], part["y"]) == ("learn/q_min", [0, 10, 20], [0, 0.5, 1])
    assert (by_name["own"]["x"], by_name["own"]["y"]) == ([10, 20], [1, 2])


def test_a_chart_says_what_is_drawn_and_what_it_means(tmp_path: Path):
    values = {"learn/critic_loss": [1.0]}
    runs = [
        pretend(tmp_path / f"{name}{seed}", [1.0], algorithm=name, seed=seed, metrics=values)
        for name, seeds in (("td3", 3), ("ddpg", 2), ("dqn", 1))
        for seed in range(seeds)
    ]
    seen = made(runs, tmp_path)
    assert seen.texts["figcaption"] == [
        "td3: 3 seeds, interquartile mean and 95 % interval; ddpg: 2 seeds, each of them and their mean; dqn: 1 seed."
    ]
    assert [curve["mode"] for curve in seen.curves(0)] == ["markers"] * 3  # a single evaluation
    assert [seed["visible"] for curve in seen.curves(0) for seed in curve["seeds"]] == [False] * 3 + [True] * 2
    assert "td3: squared errors of both critics, added" in seen.texts["dd"]
    assert "q_max" in seen.texts["code"]  # `q_max` in the text


@pytest.mark.parametrize(
    ("returns", "step"), [([3, 3, 3], 10), ([3, 2, 3], 20), ([1, 3, 3], 10), ([3, 2, 1], 0), ([3], 0)]
)
def test_the_greatest_is_where_best_is(tmp_path: Path, returns: list[float], step: int):
    row = made([pretend(tmp_path / "a", returns)], tmp_path).texts["td"]
    assert row[row.index("1.5 min") - 2 : row.index("1.5 min")] == ["3", str(step)]


def test_the_time_is_that_of_whatever_was_written_last(tmp_path: Path):
    folder = pretend(tmp_path / "a", [1, 2])
    table = (folder / "evaluations.csv").read_text().splitlines()
    seconds = ("seconds", "1.0", "150.0")
    (folder / "evaluations.csv").write_text("".join(f"{row},{s}\n" for row, s in zip(table, seconds, strict=True)))
    assert "2.5 min" in made([folder], tmp_path).texts["td"]


def test_what_differs_is_shown_and_what_only_one_has_is_not(tmp_path: Path):
    runs = [pretend(tmp_path / "a", [1]), pretend(tmp_path / "b", [1], algorithm="ppo", options={"g": 9})]
    seen = made(runs, tmp_path)
    assert {"name", "g"} & set(seen.texts["code"]) == {"name"}


@pytest.mark.parametrize(
    ("changed", "command", "sentence"),
    [
        (
            {"from": {"run": "/runs/first", "checkpoint": "last", "optimizers": False, "memory": False, "step": 5}},
            "duetto train td3 --config config.yaml --seed 0",
            "First networks: step 5 of the run first; give it with --from RUN --from-checkpoint 5.",
        ),
        (
            {"algorithm": {"name": "own", "from": {"class": "Own", "file": "/home/me/own.py"}}},
            "duetto train /home/me/own.py:Own --config config.yaml --seed 0",
            "Algorithm: the class Own in own.py.",
        ),
        (
            {"algorithm": {"name": "own", "from": {"class": "mine.Own"}}},
            "duetto train FILE.py:Own --config config.yaml --seed 0",
            "Algorithm: the class Own in a file, FILE.py.",
        ),
        (
            {"environment": {"id": "G", "options": {}, "remakeable": False}},
            "duetto train td3 --config config.yaml ENVIRONMENT --seed 0",
            "Environment: G was a Python object; ENVIRONMENT is its id or FILE.py:CLASS.",
        ),
        (
            {"environment": {"id": "/home/me/g.py:G", "options": {}, "remakeable": True}},
            "duetto train td3 --config config.yaml --seed 0",
            "Environment: g.py:G.",
        ),
        (
            {"algorithm": {"name": "bc", "demonstrations": "demos/a"}},
            "duetto train bc --config config.yaml --seed 0",
            "Demonstrations: a; give them with --demonstrations.",
        ),
        (
            {"other_seeds": [2, 1]},
            "duetto train td3 --config config.yaml --seed 0",
            "Seeds: 0,1,2 were trained in one program. --seeds 0,1,2 repeats its numbers exactly, --seed up to "
            "rounding.",
        ),
        (
            {"history": {"changed": [{"step": 1200, "what": "algorithm.tau was 0.1, is now 0.2"}]}},
            "duetto train td3 --config config.yaml --seed 0",
            "Changed during the run: step 1,200: algorithm.tau was 0.1, is now 0.2. config.yaml has the new values; to "
            "repeat the run, train with the old ones until there and resume with the new ones.",
        ),
        (
            {"algorithm": {"name": "td3", "network": {"custom": {"torch": "a.Net"}}}},
            "",
            "Networks: network are Python classes; pass them to duetto.train.",
        ),
    ],
)
def test_it_says_what_is_needed_beside_the_configuration(
    tmp_path: Path, changed: dict[str, Any], command: str, sentence: str
):
    run = pretend(tmp_path / "run", [1.0, 2.0])
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | changed))
    seen = made([run], tmp_path)
    assert sentence in seen.texts["p"]
    lines = [text for text in seen.texts["pre"] if text.startswith("duetto train") and "--config" in text]
    assert lines == ([command] if command else [])


def test_damage_is_on_the_page_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = pretend(tmp_path / "a", [1, 2])
    with (run / "evaluations.csv").open("a") as file:
        file.write("half a line\n")
    (said,) = made([run], tmp_path).texts["li"]
    assert said == f"1 of the lines of {run / 'evaluations.csv'} cannot be read and are left out."
    assert capsys.readouterr().err == f"{said}\n"


# ---------------------------------------------------------------------------------------------------- what it fetches
def test_it_fetches_nothing_and_runs_its_own_two_scripts_alone(tmp_path: Path):
    run = pretend(tmp_path / "a", [1, 2, 3])
    (run / "videos").mkdir()
    (run / "videos" / "step-000000000020.mp4").write_bytes(MP4)
    seen = made([run], tmp_path)
    loaded = [value for _, given in seen.elements for name, value in given.items() if name in LOADING and value]
    assert [value[:20] for value in loaded if not value.startswith("#")] == ["data:video/mp4;base6"]
    assert not {"link", "iframe", "object", "embed", "base", "form", "img"} & {name for name, _ in seen.elements}
    (style,) = seen.texts["style"]
    assert "url(" not in style
    assert "@import" not in style
    policy = next(meta["content"] for meta in seen.all("meta") if "http-equiv" in meta) or ""
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert not any(urlsplit(word).netloc for rule in rules.values() for word in rule.split())
    numbers, *scripts = seen.texts["script"]
    assert seen.all("script")[0]["type"] == "application/json"
    assert json.loads(numbers)
    sums = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    assert rules["script-src"].split() == [f"'sha256-{one}'" for one in sums]
    assert "plotly.js" in scripts[0][:200]
    assert 'showSendToCloud: false, plotlyServerURL: ""' in scripts[1]  # plotly's own default is a button that uploads


def test_signatures_stay_here(tmp_path: Path):
    """A page is made to be mailed."""
    run = pretend(tmp_path / "a", [1, 2, 3])
    config = run / "config.yaml"
    values = yaml.safe_load(config.read_text("utf-8"))
    values["signature"] = "11" * 32
    values["algorithm"]["from"] = {"class": "Mine", "file": "/x/mine.py", "sha256": "2" * 64}
    config.write_text(yaml.safe_dump(values), "utf-8")
    text = report([run], tmp_path / "report.html").read_text("utf-8")
    assert "2" * 64 in text
    assert not re.search("signature|(11){32}", text)


# ---------------------------------------------------------------------------------------------------- strangers
def test_nothing_of_a_strangers_gets_out_of_its_place(tmp_path: Path):
    """Whatever is in its names, its values, its numbers' names, its commands, its versions and its damage."""
    plain = pretend(tmp_path / "plain", [1, 2, 3], metrics={"learn/x": [1, 2, 3]})
    allowed = {name for name, _ in made([plain], tmp_path).elements} | {"div", "ul", "li", "strong"}
    name = re.sub(r"[/\0]", "", NASTY)
    runs = [
        pretend(
            tmp_path / f"{name}{seed}",
            [1, 2, 3],
            seed=seed,
            algorithm=NASTY,
            environment=NASTY,
            metrics={NASTY: [1, 2, 3], f"{NASTY}_mean": [1, 2, 3], f"{NASTY}_min": [0, 0, 0]},
            options={NASTY: NASTY, "a": seed // 2},
            command=NASTY,
            versions={NASTY: NASTY},
        )
        for seed in range(3)
    ]
    with (runs[0] / "metrics.jsonl").open("a") as file:
        file.write("damaged")
    seen = made([*runs, plain], tmp_path)
    assert {name for name, _ in seen.elements} <= allowed | {"details", "summary"}
    assert len(seen.all("script")) == 3
    assert not [name for _, given in seen.elements for name in given if name.startswith("on")]
    assert NASTY[:30] in seen.texts["h1"][0]
    html = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert "alert" not in "".join(seen.texts["script"][1:])
    names = json.dumps([trace["name"] for chart in seen.charts for trace in chart["data"]])
    assert "alert" in names
    assert not set("".join(json.loads(names))) & {"\x1b", "\u202e"}  # which the page's own JSON writes as \\u001b
    assert "<" not in json.dumps(seen.charts).replace("<extra></extra>", "")  # plotly would take it for markup


def test_data_does_not_end_the_element_that_it_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(charts, "plain_text", str)  # without the escape for plotly
    name = "</script><!--&'"
    seen = made([pretend(tmp_path / "a", [1, 2], algorithm=name, metrics={name: [1, 2]})], tmp_path)
    assert len(seen.all("script")) == 3
    assert not set("<>&'") & set(seen.texts["script"][0])
    assert seen.curves(0)[0]["name"] == f"{name} (1 seed)"


def test_names_and_values_of_any_length(tmp_path: Path):
    long = "x" * 100_000
    run = pretend(tmp_path / "a", [1, 2], environment=long, options={long: long}, metrics={long: [1, 2]}, command=long)
    made([run], tmp_path)
    assert len((tmp_path / "out" / "report.html").read_bytes()) < 200_000


def test_numbers_of_any_size(tmp_path: Path):
    """What JSON cannot hold is a gap."""
    values = [1e308, -1e308, float("nan"), float("inf"), 1e-300]
    runs = [
        pretend(tmp_path / f"s{seed}", values, seed=seed, metrics={"learn/x": [1e308, "y", {}, None, 10**400]})
        for seed in range(3)
    ]
    seen = made(runs, tmp_path)
    assert seen.curves(0)[0]["x"] == [0, 10, 40]
    assert not re.search("NaN|Infinity", seen.texts["script"][0])  # no JSON of a browser


@pytest.mark.parametrize(("value", "expected"), [(0.5, [0.25, 0.75]), (-4, [-6, -2]), (0, None), (1.7e308, None)])
def test_a_constant_gets_an_axis_of_its_own_size(value: float, expected: list[float] | None, tmp_path: Path):
    run = pretend(tmp_path / "a", [1, 2], metrics={"learn/rate": [value, value]})
    assert made([run], tmp_path).charts[1]["layout"]["yaxis"].get("range") == expected


def test_more_numbers_than_a_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(charts, "MOST_CHARTS", 4)
    seen = made([pretend(tmp_path / "a", [1], metrics={f"n{i}": [i] for i in range(9)})], tmp_path)
    assert len(seen.charts) == 1 + 4
    assert seen.texts["li"] == ["5 more numbers of the runs are not shown."]


def test_a_curve_of_many_points_is_thinned_to_its_ends(tmp_path: Path):
    run = pretend(tmp_path / "a", list(range(2_001)), metrics={"x": list(range(2_001))})
    seen = made([run], tmp_path)
    above, below = (seen.curves(chart)[0] for chart in range(2))
    assert (len(above["x"]), len(below["x"])) == (1_000, 300)
    assert [one["x"][i] for one in (above, below) for i in (0, -1)] == [0, 20_000] * 2
    assert above["y"] == [x // 10 for x in above["x"]]


def test_the_greatest_is_that_of_all_points(tmp_path: Path):
    """Also where it is not among those that are drawn."""
    run = pretend(tmp_path / "a", [500 if i == 1_000 else -100 for i in range(2_001)])
    assert made([run], tmp_path).texts["td"][6] == "500.0"  # the last cell of the first row, that of the results
    assert 500 not in made([run], tmp_path).curves(0)[0]["y"]


# ---------------------------------------------------------------------------------------------------- videos
def test_the_newest_video_is_inside(tmp_path: Path):
    run = pretend(tmp_path / "a", [1, 2])
    (run / "videos").mkdir()
    for step in (10, 20):
        (run / "videos" / f"step-{step:012}.mp4").write_bytes(MP4 + bytes([step]))
    (run / "videos" / ".step-000000000030.partial.mp4").write_bytes(MP4)
    (video,) = made([run], tmp_path).all("video")
    assert video["src"] == f"data:video/mp4;base64,{base64.b64encode(MP4 + bytes([20])).decode()}"


@pytest.mark.parametrize(
    ("content", "said"), [(b"<html>", "is no mp4, and is left out"), (MP4 * 9, "more than the 99")]
)
def test_what_is_no_video_or_a_large_one(
    content: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sections, "LARGEST_VIDEO", 99)
    run = pretend(tmp_path / "a", [1, 2])
    (run / "videos").mkdir()
    (run / "videos" / "v.mp4").write_bytes(content)
    seen = made([run], tmp_path)
    assert seen.all("video") == []
    assert said in seen.texts["li"][0]
    assert said in capsys.readouterr().err


def test_all_videos_together_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sections, "LARGEST_VIDEOS", 2 * len(MP4))
    runs = [pretend(tmp_path / f"{i}", [1], environment=f"Env-v{i}") for i in range(3)]
    for run in runs:
        (run / "videos").mkdir()
        (run / "videos" / "v.mp4").write_bytes(MP4)
    assert len(made(runs, tmp_path).all("video")) < 3


@pytest.mark.skipif(not hasattr(os, "symlink") or os.name == "nt", reason="links")
@pytest.mark.parametrize("linked", ["videos", "videos/v.mp4"])
def test_a_link_out_of_the_folder_is_not_followed(linked: str, tmp_path: Path):
    run = pretend(tmp_path / "a", [1])
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "v.mp4").write_bytes(MP4)
    target = tmp_path / "secret" / ("v.mp4" if linked.endswith(".mp4") else "")
    (run / linked).parent.mkdir(exist_ok=True)
    (run / linked).symlink_to(target)
    assert made([run], tmp_path).all("video") == []


# ---------------------------------------------------------------------------------------------------- mistakes
def test_what_cannot_be_reported(tmp_path: Path):
    run = pretend(tmp_path / "a", [1])
    with pytest.raises(UsageError, match="No run is named"):
        report([], tmp_path / "r.html")
    with pytest.raises(UsageError, match=r"r\.pdf is no name for a report: end it in \.html"):
        report([run], "r.pdf")
    with pytest.raises(UsageError, match=r"a has no 'x'\. It has: "):
        report([run], tmp_path / "r.html", "x")
    (tmp_path / "file").write_text("")
    with pytest.raises(DuettoError, match="cannot be written"):
        report([run], tmp_path / "file" / "r.html")
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"environment": {"id": {}, "options": {}}}))
    with pytest.raises(DuettoError, match=r"config\.yaml cannot be read .* changed by hand"):
        report([run], tmp_path / "r.html")


@pytest.mark.parametrize("missing", ["plotly.offline", "jinja2"])
def test_without_the_extra(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=r"Reports need plotly and Jinja2\. Install: pip install"):
        report([tmp_path / "nowhere"], tmp_path / "r.html")


def test_an_end_leaves_the_page_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = pretend(tmp_path / "a", [1])
    before = "before. Made by Duetto"
    (tmp_path / "r.html").write_text(before)

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    for place in ((sections, "versions"), (atomic_io, "write_output")):
        with monkeypatch.context() as changed:
            changed.setattr(*place, end)
            with pytest.raises(KeyboardInterrupt):
                report([run], tmp_path / "r.html")
        assert (tmp_path / "r.html").read_text() == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "r.html"]


def test_a_page_of_somebody_elses_is_not_written_over(tmp_path: Path):
    run, path = pretend(tmp_path / "a", [1]), tmp_path / "index.html"
    path.write_text("<p>mine</p>")
    with pytest.raises(UsageError, match=r"index\.html is there and no report that Duetto wrote: it would be lost"):
        report([run], path)
    assert path.read_text() == "<p>mine</p>"
    assert report([run], report([run], tmp_path / "r.html")).is_file()  # an earlier one is


def test_it_is_the_same_page_twice(tmp_path: Path):
    runs = [pretend(tmp_path / f"s{seed}", [seed, 2, 3], seed=seed) for seed in range(3)]
    pages = [duetto.report(runs, tmp_path / f"{name}.html").read_bytes() for name in "ab"]
    assert pages[0] == pages[1]


# ---------------------------------------------------------------------------------------------------- meanings
def test_each_meaning_is_of_an_algorithm_that_is_there():
    for name in metric_docs._all():
        assert name in (*ALGORITHMS, "any")
        assert all(row.what and (row.step is None or row.step > 0) for row in metric_docs.meanings(name))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_something_written_about_its_returns(name: str):
    row = metric_docs.meaning(name, "train/return")
    assert row is not None
    assert row.what


@pytest.mark.parametrize("name", ALGORITHMS)
def test_how_long_episodes_are_is_not_explained_as_what_they_earn(name: str):
    row = metric_docs.meaning(name, "train/length")
    assert row is not None
    assert "length" in row.what


def test_what_is_not_written_comes_from_the_nearest_that_is():
    def what(algorithm: str, metric: str) -> str | None:
        row = metric_docs.meaning(algorithm, metric)
        return row and row.what

    assert what("dqfd", "learn/target_mean") == what("dqn", "learn/target_mean")  # a base class
    assert what("discretesac", "learn/temperature") == what("sac", "learn/temperature")  # `like`
    assert what("td3", "learn/critic_gradient_norm") == "norm of the gradient before it is clipped"
    assert what("somebody's", "learn/critic_loss") is None
    assert (metric_docs.stem("learn/q_min"), metric_docs.stem("learn/minimum")) == ("learn/q", "learn/minimum")
