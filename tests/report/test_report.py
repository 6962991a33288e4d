"""The HTML report: its content; it loads nothing, and a malicious run cannot insert markup."""

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
from synthetic_runs import write_synthetic_run

from duetto.algorithms import ALGORITHMS
from duetto.errors import DuettoError, UsageError
from duetto.tools.plot import curves as curves_module
from duetto.tools.report import metric_docs
from duetto.tools.report.report import report

MP4 = b"\0\0\0\x18ftypisom" + bytes(range(40))
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[2J\u202e"
LOADING = {"src", "href", "srcset", "poster", "data", "action", "xlink:href"}


class ParsedPage(HTMLParser):
    """The elements of a page with their attributes, and the texts of the elements by tag."""

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
        """The sources of the SVG images."""
        return [base64.b64decode((image["src"] or "").partition(",")[2]).decode() for image in self.all("img")]


@pytest.fixture(autouse=True)
def short_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use few bootstrap repetitions."""
    monkeypatch.setattr(curves_module, "_REPETITIONS", 50)


def report_page(runs: Sequence[Path], folder: Path, metric: str = "mean_return") -> ParsedPage:
    return ParsedPage(report(runs, folder / "out" / "report.html", metric).read_text("utf-8"))


# ---------------------------------------------------------------------------------------------------- content
def test_report_shows_results_configs_and_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    metrics = {"learn/q_mean": [1.0, 2.0, 3.0], "learn/q_min": [0.0, 0.0, 1.0], "learn/q_max": [2.0, 3.0, 9.0]}
    runs = [write_synthetic_run(tmp_path / f"s{s}", [1.0, 5 + s, 3 + s], seed=s, metrics=metrics) for s in range(2)]
    runs.append(write_synthetic_run(tmp_path / "other", [1234.5, 2, 3], algorithm="dqn", environment="CartPole-v1"))
    seen = report_page(runs, tmp_path)
    assert capsys.readouterr() == ("", "")
    assert seen.texts["h1"] == ["td3; dqn on Pendulum-v1, CartPole-v1"]
    assert seen.texts["h2"][:3] == ["Results", "Curves", "Learning"]
    rows = [re.sub(r"\s+", " ", row) for row in seen.texts["tr"]]
    assert any("td3" in row and "3.5" in row for row in rows), rows  # the mean of the last values
    cells = seen.texts["td"]
    assert {"1,234", "3.5", "5.5"} <= set(cells)  # the maximum of dqn; the last value and the maximum of td3
    assert "above max(0, r_max) / (1 − γ), which no policy can reach: diverging" in seen.texts["dd"]
    assert (tmp_path / "s0" / "config.yaml").read_text() in seen.texts["pre"]
    assert (
        "duetto train td3 --config config.yaml --seed 0\nduetto train td3 --config config.yaml --seed 1"
        in seen.texts["pre"]
    )
    assert (tmp_path / "out" / "report.html").parent.is_dir()


def test_report_has_a_chart_per_environment_and_metric(tmp_path: Path):
    metrics = {"learn/q_mean": [1.0, 2.0, 3.0], "learn/q_min": [0.0, 0.5, 1.0], "my/own": [None, 1, 2]}
    runs = [write_synthetic_run(tmp_path / f"s{s}", [s, 2.0 * s, 7], seed=s, metrics=metrics) for s in range(3)]
    runs.append(write_synthetic_run(tmp_path / "other", [1, 2, 3], algorithm="ddpg", metrics={"my/own": [1, 2, 3]}))
    seen = report_page(runs, tmp_path)
    returns, q, own = seen.charts
    assert "td3 (3 seeds, interquartile mean)" in returns
    assert "ddpg (1 seed)" in returns
    assert "ddpg" not in q
    assert "ddpg (1 seed)" in own
    assert [image["alt"] for image in seen.all("img")][1] == "learn/q_mean by steps in Pendulum-v1"
    assert "dotted: learn/q_min" in seen.texts["figcaption"]


def test_maximum_of_thinned_curve_is_of_all_points(tmp_path: Path):
    run = write_synthetic_run(tmp_path / "a", [500 if i == 1_001 else -100 for i in range(2_001)])
    seen = report_page([run], tmp_path)
    assert seen.texts["td"][6] == "500"  # the last cell of the first row of results
    assert len(seen.charts[0]) < 100_000


def test_report_loads_nothing_and_runs_no_script(tmp_path: Path):
    run = write_synthetic_run(tmp_path / "a", [1, 2, 3])
    (run / "videos").mkdir()
    (run / "videos" / "step-000000000020.mp4").write_bytes(MP4)
    seen = report_page([run], tmp_path)
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


@pytest.mark.parametrize(
    ("changed", "command", "sentence"),
    [
        (
            {"algorithm": {"name": "own", "from": {"class": "Own", "file": "/home/me/own.py"}}},
            "duetto train /home/me/own.py:Own --config config.yaml --seed 0",
            "Algorithm: the class Own in own.py.",
        ),
        (
            {"environment": {"id": "G", "options": {}, "remakeable": False}},
            "duetto train td3 --config config.yaml ENVIRONMENT --seed 0",
            "Environment: G was a Python object; ENVIRONMENT is its id or FILE.py:NAME.",
        ),
        (
            {"other_seeds": [2, 1]},
            "duetto train td3 --config config.yaml --seed 0",
            "Seeds: 0,1,2 were trained in one program. --seeds 0,1,2 repeats its numbers exactly; --seed "
            "repeats them up to rounding.",
        ),
        (
            {"history": {"changed": [{"step": 1200, "what": "algorithm.tau was 0.1, is now 0.2"}]}},
            "duetto train td3 --config config.yaml --seed 0",
            "Changed during the run: step 1,200: algorithm.tau was 0.1, is now 0.2. config.yaml has the new values; to "
            "repeat the run, train with the old values until that step, then resume with the new ones.",
        ),
        (
            {"algorithm": {"name": "bc", "demonstrations": "demos/a"}},
            "duetto train bc --config config.yaml --seed 0",
            "Demonstrations: a; give them with --demonstrations.",
        ),
        (
            {"algorithm": {"name": "td3", "network": {"custom": {"torch": "a.Net"}}}},
            "",
            "Networks: network are Python classes; pass them to duetto.train.",
        ),
        (
            {"cluster": {"mode": "sync", "actors": 4}},
            "duetto train td3 --config config.yaml --cluster --seed 0",
            "Cluster: it ran on Ray actors, which affect its numbers.",
        ),
    ],
)
def test_report_names_what_the_config_does_not_contain(
    tmp_path: Path, changed: dict[str, Any], command: str, sentence: str
):
    run = write_synthetic_run(tmp_path / "run", [1.0, 2.0])
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | changed))
    seen = report_page([run], tmp_path)
    assert sentence in seen.texts["p"]
    lines = [text for text in seen.texts["pre"] if text.startswith("duetto train") and "--config" in text]
    assert lines == ([command] if command else [])


def test_report_names_damaged_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = write_synthetic_run(tmp_path / "a", [1, 2])
    with (run / "evaluations.csv").open("a") as file:
        file.write("half a line\n")
    (said,) = report_page([run], tmp_path).texts["li"]
    assert said == f"1 of the lines of {run / 'evaluations.csv'} cannot be read and are left out."
    assert capsys.readouterr().err == f"{said}\n"


# ---------------------------------------------------------------------------------------------------- privacy
def test_report_omits_signatures(tmp_path: Path):
    """Reports are made to be shared."""
    run = write_synthetic_run(tmp_path / "a", [1, 2, 3])
    config = run / "config.yaml"
    values = yaml.safe_load(config.read_text("utf-8"))
    values["signature"] = "11" * 32
    values["algorithm"]["from"] = {"class": "Mine", "file": "/x/mine.py", "sha256": "2" * 64}
    config.write_text(yaml.safe_dump(values), "utf-8")
    text = report([run], tmp_path / "report.html").read_text("utf-8")
    assert "2" * 64 in text
    assert not re.search("signature|(11){32}", text)


# ---------------------------------------------------------------------------------------------------- malicious runs
def test_report_escapes_markup_from_run_files(tmp_path: Path):
    """Names, options, metrics, commands and versions contain markup; a log line is damaged."""
    plain = write_synthetic_run(tmp_path / "plain", [1, 2, 3], metrics={"learn/x": [1, 2, 3]})
    allowed = {name for name, _ in report_page([plain], tmp_path).elements} | {
        "div",
        "ul",
        "li",
        "strong",
        "figcaption",
    }
    name = re.sub(r"[/\0]", "", NASTY)
    runs = [
        write_synthetic_run(
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
    seen = report_page([*runs, plain], tmp_path)
    assert {name for name, _ in seen.elements} <= allowed | {"details", "summary"}
    assert not seen.all("script")
    assert not [name for _, given in seen.elements for name in given if name.startswith("on")]
    assert NASTY[:30] in seen.texts["h1"][0]
    html = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert any("alert" in chart for chart in seen.charts)
    assert not any("<script" in chart or "\x1b" in chart or "\u202e" in chart for chart in seen.charts)


# ---------------------------------------------------------------------------------------------------- videos
def test_report_embeds_the_newest_video(tmp_path: Path):
    run = write_synthetic_run(tmp_path / "a", [1, 2])
    (run / "videos").mkdir()
    for step in (10, 20):
        (run / "videos" / f"step-{step:012}.mp4").write_bytes(MP4 + bytes([step]))
    (run / "videos" / ".step-000000000030.partial.mp4").write_bytes(MP4)
    (video,) = report_page([run], tmp_path).all("video")
    assert video["src"] == f"data:video/mp4;base64,{base64.b64encode(MP4 + bytes([20])).decode()}"


@pytest.mark.skipif(not hasattr(os, "symlink") or os.name == "nt", reason="links")
@pytest.mark.parametrize("linked", ["videos", "videos/v.mp4"])
def test_report_follows_no_links(linked: str, tmp_path: Path):
    run = write_synthetic_run(tmp_path / "a", [1])
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "v.mp4").write_bytes(MP4)
    target = tmp_path / "secret" / ("v.mp4" if linked.endswith(".mp4") else "")
    (run / linked).parent.mkdir(exist_ok=True)
    (run / linked).symlink_to(target)
    assert report_page([run], tmp_path).all("video") == []


# ---------------------------------------------------------------------------------------------------- mistakes
def test_invalid_report_calls_are_refused(tmp_path: Path):
    run = write_synthetic_run(tmp_path / "a", [1])
    with pytest.raises(UsageError, match="No run is named"):
        report([], tmp_path / "r.html")
    with pytest.raises(UsageError, match=r"r\.pdf cannot be the name of a report: end it in \.html"):
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
def test_missing_report_packages_name_install_command(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=r"Reports need Matplotlib and Jinja2\. Install: pip install"):
        report([tmp_path / "nowhere"], tmp_path / "r.html")


def test_report_does_not_overwrite_other_pages(tmp_path: Path):
    run, path = write_synthetic_run(tmp_path / "a", [1]), tmp_path / "index.html"
    path.write_text("<p>mine</p>")
    with pytest.raises(UsageError, match=r"index\.html exists and is no report that Duetto wrote"):
        report([run], path)
    assert path.read_text() == "<p>mine</p>"
    assert report([run], report([run], tmp_path / "r.html")).is_file()  # an earlier report is replaced


# -------------------------------------------------------------------------------------------------- metric descriptions
def test_every_algorithm_documents_return_and_length_metrics():
    for name in ALGORITHMS:
        for what in ("return", "length"):
            row = metric_docs.meaning(name, f"train/{what}")
            assert row is not None, name
            assert what in row.what, name
