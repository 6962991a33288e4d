"""The documentation builds without warnings, loads nothing from other hosts, and names only things that exist."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import build_pages
import command_options
import numpy as np
import pytest
import yaml

from duetto import errors
from duetto.algorithms import ALGORITHMS
from duetto.presets import presets
from duetto.storage import reproducibility

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
OWN_PAGES = [path for path in PAGES if path.name not in ("changelog.md", "contributing.md")]

# Elements with which a page loads files, and their attributes.
LOADED = {
    "script": ["src"],
    "link": ["href"],
    "img": ["src", "srcset"],
    "source": ["src", "srcset"],
    "video": ["src", "poster"],
    "iframe": ["src"],
    "object": ["data"],
    "image": ["href", "xlink:href"],
    "use": ["href", "xlink:href"],
}


class Addresses(HTMLParser):
    """The addresses that a page loads and links to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loaded += [value for name in LOADED.get(tag, []) if (value := given.get(name))]
        if tag == "a" and (link := given.get("href")):
            self.links.append(link)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site with the command of CONTRIBUTING.md, into a temporary folder."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", str(DOCS), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def pages(site: Path) -> Iterator[tuple[Path, Addresses]]:
    for path in sorted(site.rglob("*.html")):
        yield path, Addresses(path.read_text("utf-8"))


def test_pages_load_nothing_from_other_hosts(site: Path):
    for path, found in pages(site):
        outside = [
            address for address in found.loaded if urlsplit(address).scheme not in ("", "data") or "//" in address[:2]
        ]
        assert not outside, f"{path.name} loads {outside}"
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", path.read_text("utf-8")), path.name
    for path in site.rglob("*.css"):
        style = path.read_text("utf-8")
        assert not re.search(r"(url\(\s*[\"']?|@import\s+[\"'])(https?:)?//", style), path.name
    for path in (*site.glob("_static/*.js"), *site.glob("_static/scripts/*.js")):
        script = re.sub(r"/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)
        assert not re.search(r"(import|fetch|src)\b[^;\n]{0,30}[\"']https?://", script), path.name


def test_internal_files_and_links_exist(site: Path):
    for path, found in pages(site):
        for address in found.loaded + found.links:
            parts = urlsplit(address)
            if parts.scheme or not parts.path:
                continue
            assert (path.parent / unquote(parts.path)).exists(), f"{path.relative_to(site)} names {address}"


def test_every_page_is_in_the_table_of_contents(site: Path):
    """Following "next" from the first page reaches every page."""
    path, seen = site / "index.html", []
    while path not in seen:
        seen.append(path)
        following = re.search(r'<a class="next-page" href="([^"#]+)"', path.read_text("utf-8"))
        if following:
            path = (path.parent / following[1]).resolve()
    assert {page.relative_to(DOCS).with_suffix(".html") for page in PAGES} == {one.relative_to(site) for one in seen}


def test_results_page_lists_every_committed_run(site: Path):
    """Every job is listed by its command, with the right number of seeds."""
    cells = [
        unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", (site / "results.html").read_text("utf-8"), re.S)
    ]
    text = [re.sub(r"<[^>]+>", "", cell).strip() for cell in cells]
    commands = {cell.removesuffix(" †") for cell in text}
    jobs = yaml.safe_load((ROOT / "benchmarks" / "jobs.yaml").read_text("utf-8"))["jobs"]
    runs = list((ROOT / "benchmarks" / "results" / "learning").glob("*-s*/config.yaml"))
    for run in runs:
        job = jobs[run.parent.name.rpartition("-s")[0]]
        assert f"duetto train {' '.join(job['train'].split())}" in commands, run
    starts = [i for i, cell in enumerate(text) if cell.startswith("duetto train ")]
    assert sum(int(text[i + 2]) for i in starts) == len(runs)


def test_errors_page_lists_every_message(site: Path):
    """The page has the first words of each message, and each error class with its exit code."""
    page = (site / "reference" / "errors.html").read_text("utf-8")
    said = " ".join(unescape(re.sub(r"<[^>]+>", "", page)).split())
    kinds = {name: kind for name, kind in vars(errors).items() if name.endswith("Error")}
    for name, kind in kinds.items():
        assert name == "DuettoError" or re.search(rf"{name} [^.]*? {kind.exit_code}\b", said), name
    raised = re.compile(rf'raise (?:{"|".join(kinds)})\(\s*f?"([^"{{\\]{{12,}})')
    begun = {words for path in (ROOT / "src").rglob("*.py") for words in raised.findall(path.read_text("utf-8"))}
    assert len(begun) > 100
    assert {words for words in begun if " ".join(words.split()) not in said} == set()


def test_equation_fonts_exist(site: Path):
    style = (site / "_static" / "katex" / "katex.min.css").read_text("utf-8")
    fonts = re.findall(r"url\(([^)]+)\)", style)
    assert len(fonts) >= 20
    assert all((site / "_static" / "katex" / font).is_file() for font in fonts)


refreshed = functools.cache(build_pages.refreshed)


@pytest.mark.parametrize("page", [*PAGES, build_pages.RUNS], ids=lambda page: str(page.relative_to(ROOT)))
def test_generated_parts_of_page_are_up_to_date(page: Path):
    """If it fails after a change of source, figures or results, run `python docs/build_pages.py`."""
    text, figures = refreshed(page)
    assert text == page.read_text("utf-8")
    for path, drawn in figures.items():
        (words, numbers), (old_words, old_numbers) = parts(drawn), parts(path.read_text("utf-8"))
        assert words == old_words, path.name
        np.testing.assert_allclose(numbers, old_numbers, atol=0.02, err_msg=path.name)


def test_every_figure_file_is_used():
    shown = {path for page in PAGES for path in refreshed(page)[1]}
    assert set(build_pages.FIGURES.glob("*.svg")) == shown


def parts(svg: str) -> tuple[list[str], list[float]]:
    """Split a drawing into text and numbers, whose last digit may differ on another processor."""
    number = r"-?\d+(?:\.\d+)?"
    return re.split(number, svg), [float(found) for found in re.findall(number, svg)]


# ------------------------------------------------------------------------------------------ names and commands on pages
@pytest.mark.parametrize("page", OWN_PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_names_on_page_exist(page: Path):
    """Checks tests, files, presets, and the options in `duetto` commands."""
    text = page.read_text("utf-8")
    for name in re.findall(r"`(test_\w+)`", text):
        assert any(f"def {name}(" in path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")), name
    for path in re.findall(r"`((?:src|tests|benchmarks|docs|examples)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    for name in re.findall(r"--preset ([a-z][\w-]+)", text):
        assert any(name in presets(algorithm) for algorithm in ALGORITHMS), name
    known = {"help", "help-all", *(flag[2:] for flag in command_options.every_flag())}
    known |= {"members", "pessimism"}  # options of extending.md's example
    if page.stem == "coming-from":  # the first column has other libraries' options
        text = re.sub(r"^\| [^|]*\|", "|", text, flags=re.MULTILINE)
    for code in re.findall(r"`(--[^`]*|duetto [^`]*)`|^duetto (.*)$", text, re.MULTILINE):
        for option in re.findall(r"(?<!\S)--(\w[\w-]*\w)(?!-)", "".join(code)):
            assert option in known, f"{option} in {code}"


def calls(text: str) -> Iterator[list[str]]:
    """Yield the words after `duetto` of each call or usage line in code; skip names of commands alone."""
    for code in re.findall(r"`duetto ([^`]*)`|(?:^|&& |\$ )duetto ([^`&\n]*)", text, re.MULTILINE):
        words = shlex.split("".join(code), comments=True)
        if len(words) > 1 and words != ["demos", words[1]] and not words[0].startswith("--"):
            yield ["1" if word in ("N", "K", "S") else word for word in words]


def flags_of(words: list[str]) -> set[str]:
    """Return the options of the command in a call: of the named algorithms, or of all."""
    if words[0] not in command_options.OF_ALGORITHMS:
        return {"--help", *command_options.flags(*words[: 2 if words[0] == "demos" else 1])}
    named = [name for name in words[1].split(",") if name in ALGORITHMS] or ALGORITHMS
    return {"--help", "--help-all"}.union(*(command_options.flags(words[0], name) for name in named))


PAGES_WITH_COMMANDS = [ROOT / "README.md", *OWN_PAGES]


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_page_are_valid(page: Path):
    """Options exist, and required arguments are given. Usage lines are checked for options only."""
    for words in calls(page.read_text("utf-8")):
        assert set(re.findall(r"(?<!\S)\[?(--[\w-]+\w)", " ".join(words))) <= flags_of(words), words
        if words[0] in command_options.OF_ALGORITHMS or "--help" in words:
            continue
        if any(set(word) & set("[]|…") or word == "..." for word in words):
            continue
        count = 2 if words[0] == "demos" else 1
        parser = command_options.parser(*words[:count])
        given = parser.parse(words[count:])
        if "help" not in given:
            parser.check_complete(given)


def test_resume_docs_list_options_free_to_change():
    from duetto.tools.cli.commands import resume

    said = {"evaluate_every": "intervals of evaluations", "checkpoint_every": "checkpoints", "log_every": "metrics"}
    page = (DOCS / "reference" / "cli.md").read_text("utf-8").partition("## duetto resume")[2].partition("\n## ")[0]
    for text in (resume.__doc__ or "", page):
        words = " ".join(text.replace("`", "").split()).lower().partition("may be changed")[0]
        assert [
            name for name in reproducibility.FREE if not re.search(rf"(?<![\w-]){said.get(name, name)}\b", words)
        ] == []


# ---------------------------------------------------------------------------------------------------- algorithms
SECTIONS = [
    "Usage",
    "Quick facts",
    "Options",
    "Idea",
    "What goes wrong without the idea",
    "The mathematics",
    "Pseudocode",
    "Worked example",
    "Metrics",
    "Results",
    "Exercises",
    "Details",
    "Papers",
]
ALGORITHM_PAGES = sorted(path.stem for path in (DOCS / "algorithms").glob("*.md"))


def test_every_algorithm_and_command_is_documented():
    from duetto.tools.cli import COMMANDS

    assert sorted(ALGORITHMS) == ALGORITHM_PAGES
    text = (DOCS / "reference" / "cli.md").read_text("utf-8")
    assert all(re.search(rf"^## duetto {name}\b", text, re.MULTILINE) for name in set(COMMANDS) - {"list"})


@pytest.mark.parametrize("name", ALGORITHM_PAGES)
def test_algorithm_page_has_every_section(name: str):
    """Figures are required only if docs/figures has a file with the algorithm's name."""
    text = (DOCS / "algorithms" / f"{name}.md").read_text("utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    found = [next((i for i, heading in enumerate(headings) if heading.startswith(part)), None) for part in SECTIONS]
    assert None not in found, [part for part, place in zip(SECTIONS, found, strict=True) if place is None]
    assert found == sorted(found, key=lambda place: place or 0)
    numbers = [int(number) for number in re.findall(r"^### (\d+) · ", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 3
    steps = re.findall(r"^### \d.*?(?=^##)", text, re.MULTILINE | re.DOTALL)
    assert len(steps) == len(numbers)
    assert all("$$" in step and "<!-- source:" in step for step in steps)
    if (DOCS / "figures" / f"{name}.py").is_file():
        assert all("_static/figures/" in step for step in steps)
    others = text.partition("## Papers\n")[2].partition("Other implementations, and how they differ:\n\n")[2]
    assert re.search(r"^- \[", others, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(set(ALGORITHM_PAGES) - {"bc", "dqfd", "r2d3"}))  # those need demonstrations
def test_python_under_usage_runs(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The example runs in a small environment for a few steps."""
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "algorithms" / f"{name}.md").read_text("utf-8")
    block = re.findall(r"```python\n(.*?)```", text.partition("## Usage")[2], re.DOTALL)[0]
    block, replaced = re.subn(
        r'duetto\.train\("(\w+)", "([^"]+)"[^)]*\)',
        lambda call: (
            f'duetto.train("{call[1]}", "{small_environment(call[2])}", steps=30, backend="torch", evaluate_every=0)'
        ),
        block,
    )
    assert replaced == 1
    exec(block.replace("episodes=10", "episodes=1"), {})


def small_environment(environment: str) -> str:
    return "CartPole-v1" if environment.startswith(("CartPole", "MiniGrid")) else "Pendulum-v1"
