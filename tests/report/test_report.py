"""A report: what is on the page, that nothing is fetched, and that nothing of a stranger's gets out of its place."""

from __future__ import annotations

import base64
import os
import re
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from pretended import pretend

import duetto
from duetto.algorithms import ALGORITHMS
from duetto.errors import DuettoError, UsageError
from duetto.storage import atomic_io
from duetto.tools.plot import curves as curves_module
from duetto.tools.report import metric_docs
from duetto.tools.report import report as writing
from duetto.tools.report.report import report

MP4 = b"\0\0\0\x18ftypisom" + bytes(range(40))
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[2J\u202e"
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
        if tag not in ("meta", "input", "img"):
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
    def charts(self) -> list[str]:
        """The texts of the SVG images."""
        return [base64.b64decode((image["src"] or "").partition(",")[2]).decode() for image in self.all("img")]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short bootstrap."""
    monkeypatch.setattr(curves_module, "_REPETITIONS", 50)


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
    assert seen.texts["h2"][:3] == ["Results", "Curves", "Learning"]
    rows = [re.sub(r"\s+", " ", row) for row in seen.texts["tr"]]
    assert any("td3" in row and "3.5" in row for row in rows), rows  # the mean of the last ones
    cells = seen.texts["td"]
    assert {"1,234", "3.5", "5.5"} <= set(cells)  # the maximum of one, the end and the maximum of the other
    assert "above max(0, r_max) / (1 − γ), which no policy can reach: diverging" in seen.texts["dd"]
    assert (tmp_path / "s0" / "config.yaml").read_text() in seen.texts["pre"]
    assert (
        "duetto train td3 --config config.yaml --seed 0\nduetto train td3 --config config.yaml --seed 1"
        in seen.texts["pre"]
    )
    assert (tmp_path / "out" / "report.html").parent.is_dir()


def test_a_chart_per_environment_and_per_metric(tmp_path: Path):
    metrics = {"learn/q_mean": [1.0, 2.0, 3.0], "learn/q_min": [0.0, 0.5, 1.0], "my/own": [None, 1, 2]}
    runs = [pretend(tmp_path / f"s{s}", [s, 2.0 * s, 7], seed=s, metrics=metrics) for s in range(3)]
    runs.append(pretend(tmp_path / "other", [1, 2, 3], algorithm="ddpg", metrics={"my/own": [1, 2, 3]}))
    seen = made(runs, tmp_path)
    returns, q, own = seen.charts
    assert "td3 (3 seeds, interquartile mean)" in returns
    assert "ddpg (1 seed)" in returns
    assert "ddpg" not in q
    assert "ddpg (1 seed)" in own
    assert [image["alt"] for image in seen.all("img")][1] == "learn/q_mean by steps in Pendulum-v1"
    assert "dotted: learn/q_min" in seen.texts["figcaption"]


def test_numbers_of_any_size_are_drawn_or_left_out(tmp_path: Path):
    values = [1e308, -1e308, float("nan"), float("inf"), 1e-300]
    runs = [
        pretend(tmp_path / f"s{seed}", values, seed=seed, metrics={"learn/x": [1e308, "y", {}, None, 10**400]})
        for seed in range(3)
    ]
    assert made(runs, tmp_path).charts


def test_a_curve_of_many_points_is_thinned_and_its_maximum_is_of_all_points(tmp_path: Path):
    run = pretend(tmp_path / "a", [500 if i == 1_001 else -100 for i in range(2_001)])
    seen = made([run], tmp_path)
    assert seen.texts["td"][6] == "500"  # the last cell of the first row, that of the results
    assert len(seen.charts[0]) < 100_000


def test_it_fetches_nothing_and_runs_no_script(tmp_path: Path):
    run = pretend(tmp_path / "a", [1, 2, 3])
    (run / "videos").mkdir()
    (run / "videos" / "step-000000000020.mp4").write_bytes(MP4)
    seen = made([run], tmp_path)
    loaded = [value for _, given in seen.elements for name, value in given.items() if name in LOADING and value]
    assert {value[:14] for value in loaded if not value.startswith("#")} == {"data:video/mp4", "data:image/svg"}
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & {name for name, _ in seen.elements}
    (style,) = seen.texts["style"]
    assert "url(" not in style
    assert "@import" not in style
    policy = next(meta["content"] for meta in seen.all("meta") if "http-equiv" in meta) or ""
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert (rules["default-src"], "script-src" in rules) == ("'none'", False)
    assert not any(urlsplit(word).netloc for rule in rules.values() for word in rule.split())


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
    allowed = {name for name, _ in made([plain], tmp_path).elements} | {"div", "ul", "li", "strong", "figcaption"}
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
    assert not seen.all("script")
    assert not [name for _, given in seen.elements for name in given if name.startswith("on")]
    assert NASTY[:30] in seen.texts["h1"][0]
    html = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert any("alert" in chart for chart in seen.charts)
    assert not any("<script" in chart or "\x1b" in chart or "\u202e" in chart for chart in seen.charts)


def test_names_and_values_of_any_length(tmp_path: Path):
    long = "x" * 100_000
    run = pretend(tmp_path / "a", [1, 2], environment=long, options={long: long}, metrics={long: [1, 2]}, command=long)
    made([run], tmp_path)
    assert len((tmp_path / "out" / "report.html").read_bytes()) < 200_000


# ---------------------------------------------------------------------------------------------------- videos
def test_the_newest_video_is_inside(tmp_path: Path):
    run = pretend(tmp_path / "a", [1, 2])
    (run / "videos").mkdir()
    for step in (10, 20):
        (run / "videos" / f"step-{step:012}.mp4").write_bytes(MP4 + bytes([step]))
    (run / "videos" / ".step-000000000030.partial.mp4").write_bytes(MP4)
    (video,) = made([run], tmp_path).all("video")
    assert video["src"] == f"data:video/mp4;base64,{base64.b64encode(MP4 + bytes([20])).decode()}"


@pytest.mark.parametrize(("content", "said"), [(MP4 * 9, "more than the 99")])
def test_what_is_no_video_or_a_large_one(
    content: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(writing, "LARGEST_VIDEO", 99)
    run = pretend(tmp_path / "a", [1, 2])
    (run / "videos").mkdir()
    (run / "videos" / "v.mp4").write_bytes(content)
    seen = made([run], tmp_path)
    assert seen.all("video") == []
    assert said in seen.texts["li"][0]
    assert said in capsys.readouterr().err


def test_all_videos_together_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writing, "LARGEST_VIDEOS", 2 * len(MP4))
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


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_without_the_extra(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=r"Reports need Matplotlib and Jinja2\. Install: pip install"):
        report([tmp_path / "nowhere"], tmp_path / "r.html")


def test_an_end_leaves_the_page_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = pretend(tmp_path / "a", [1])
    before = "before. Made by Duetto"
    (tmp_path / "r.html").write_text(before)

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    for place in ((writing, "repeating"), (atomic_io, "write_output")):
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
def test_every_algorithm_explains_returns_and_lengths(name: str):
    earned, length = (metric_docs.meaning(name, f"train/{what}") for what in ("return", "length"))
    assert earned is not None
    assert length is not None
    assert "return" in earned.what
    assert "length" in length.what


def test_what_is_not_written_comes_from_the_nearest_that_is():
    def what(algorithm: str, metric: str) -> str | None:
        row = metric_docs.meaning(algorithm, metric)
        return row and row.what

    assert what("dqfd", "learn/target_mean") == what("dqn", "learn/target_mean")  # a base class
    assert what("discretesac", "learn/temperature") == what("sac", "learn/temperature")  # `like`
    assert what("td3", "learn/critic_gradient_norm") == "norm of the gradient before it is clipped"
    assert what("somebody's", "learn/critic_loss") is None
    assert (metric_docs.stem("learn/q_min"), metric_docs.stem("learn/minimum")) == ("learn/q", "learn/minimum")
