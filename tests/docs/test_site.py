"""The documentation: it builds without a warning, needs nothing from elsewhere, and names only what exists."""

from __future__ import annotations

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
import compared
import numpy as np
import pytest
import yaml

from duetto import errors
from duetto.algorithms import ALGORITHMS
from duetto.presets import presets
from duetto.storage import reproducibility, run_folder

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
OWN = [path for path in PAGES if path.name not in ("changelog.md", "contributing.md")]

# What a page loads by itself, and by which attributes.
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
    """What a page loads, what it links to, and the places on it that can be linked to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.names |= {value for name in ("id", "name") if (value := given.get(name))}
        self.loaded += [value for name in LOADED.get(tag, []) if (value := given.get(name))]
        if tag == "a" and (link := given.get("href")):
            self.links.append(link)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. As the command in CONTRIBUTING.md, but into a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", str(DOCS), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def pages(site: Path) -> Iterator[tuple[Path, Addresses]]:
    for path in sorted(site.rglob("*.html")):
        yield path, Addresses(path.read_text("utf-8"))


def test_every_page_is_built(site: Path):
    assert {path.relative_to(DOCS).with_suffix(".html") for path in PAGES} <= {
        path.relative_to(site) for path in site.rglob("*.html")
    }


def test_nothing_is_loaded_from_elsewhere(site: Path):
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


def test_what_is_loaded_or_linked_inside_is_there(site: Path):
    for path, found in pages(site):
        for address in found.loaded + found.links:
            parts = urlsplit(address)
            if parts.scheme or not parts.path:
                continue
            assert (path.parent / unquote(parts.path)).exists(), f"{path.relative_to(site)} names {address}"


def test_a_place_on_a_page_that_is_linked_to_is_there(site: Path):
    """Of our own pages and Sphinx's; a link to the top has no name."""
    found = dict(pages(site))
    places = {path.resolve(): page.names for path, page in found.items()}
    for path, page in found.items():
        for link in page.links:
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            if parts.scheme or not parts.fragment or target not in places:
                continue
            assert unquote(parts.fragment) in places[target], f"{path.relative_to(site)} names {link}"


def test_every_page_is_reached_by_the_contents(site: Path):
    """From the first page on by "next", in the order of the contents; so each has a place in the tree."""
    path, seen = site / "index.html", []
    while path not in seen:
        seen.append(path)
        following = re.search(r'<a class="next-page" href="([^"#]+)"', path.read_text("utf-8"))
        if following:
            path = (path.parent / following[1]).resolve()
    assert {page.relative_to(DOCS).with_suffix(".html") for page in PAGES} == {one.relative_to(site) for one in seen}


def test_every_committed_run_is_on_the_page_of_results(site: Path):
    """By its job's command; and as many seeds as there are folders."""
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


def test_every_errors_sentence_is_on_its_page(site: Path):
    """By its first words, where it starts with any; and each kind with its exit code."""
    page = (site / "reference" / "errors.html").read_text("utf-8")
    said = " ".join(unescape(re.sub(r"<[^>]+>", "", page)).split())
    kinds = {name: kind for name, kind in vars(errors).items() if name.endswith("Error")}
    for name, kind in kinds.items():
        assert name == "DuettoError" or re.search(rf"{name} [^.]*? {kind.exit_code}\b", said), name
    raised = re.compile(rf'raise (?:{"|".join(kinds)})\(\s*f?"([^"{{\\]{{12,}})')
    begun = {words for path in (ROOT / "src").rglob("*.py") for words in raised.findall(path.read_text("utf-8"))}
    assert len(begun) > 100
    assert {words for words in begun if " ".join(words.split()) not in said} == set()


def test_two_dashes_of_an_option_and_marks_of_code_are_not_taken_for_prose(site: Path):
    errors = (site / "reference" / "errors.html").read_text("utf-8")
    assert re.search(r"\s--accept-changes\b", unescape(errors))
    headings = re.findall(r'<p class="rubric">(.*?)</p>', errors)
    assert headings
    assert not [heading for heading in headings if "`" in heading]


def test_an_empty_default_and_defaults_made_anew_are_written_as_one_reads_them(site: Path):
    for name in ("dqfd", "r2d3", "bc"):
        assert "``" not in (site / "algorithms" / f"{name}.html").read_text("utf-8")
    python = re.sub(r"<[^>]+>", "", (site / "reference" / "python.html").read_text("utf-8"))
    assert not re.search(r"~[a-z]+\.|&lt;factory|&lt;function", python)


def test_the_page_of_search_has_a_title_and_a_field(site: Path):
    article = (site / "search.html").read_text("utf-8").split("<article", 1)[1]
    assert "<h1>Search</h1>" in article
    assert re.search(r'<input type="search" name="q"', article)


def test_options_stand_one_below_the_other_where_a_page_is_narrow(site: Path):
    style = (DOCS / "_static" / "site.css").read_text("utf-8")
    assert "table.explained tr { display: grid" in style
    assert re.search(r'<table class="[^"]*\bexplained\b', (site / "algorithms" / "td3.html").read_text("utf-8"))
    assert re.search(r'<td class="[^"]*\blong\b', (site / "built" / "resume.html").read_text("utf-8"))


def test_fonts_of_the_equations_are_there(site: Path):
    style = (site / "_static" / "katex" / "katex.min.css").read_text("utf-8")
    fonts = re.findall(r"url\(([^)]+)\)", style)
    assert len(fonts) >= 20
    assert all((site / "_static" / "katex" / font).is_file() for font in fonts)


@pytest.mark.parametrize("page", [*PAGES, build_pages.RUNS], ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_code_and_tables_are_as_generated(page: Path):
    """After a change of the source, of a figure or of results: `python docs/build_pages.py`."""
    text, figures = build_pages.refreshed(page)
    assert text == page.read_text("utf-8")
    for path, drawn in figures.items():
        (words, numbers), (old_words, old_numbers) = parts(drawn), parts(path.read_text("utf-8"))
        assert words == old_words, path.name
        np.testing.assert_allclose(numbers, old_numbers, atol=0.02, err_msg=path.name)


def parts(svg: str) -> tuple[list[str], list[float]]:
    """Split a drawing into text and numbers, whose last digit may differ on another processor."""
    number = r"-?\d+(?:\.\d+)?"
    return re.split(number, svg), [float(found) for found in re.findall(number, svg)]


def test_no_figure_is_left_over():
    shown = {path for page in PAGES for path in build_pages.refreshed(page)[1]}
    assert set(build_pages.FIGURES.glob("*.svg")) == shown


# ---------------------------------------------------------------------------------------------------- what pages name
@pytest.mark.parametrize("page", OWN, ids=lambda page: str(page.relative_to(DOCS)))
def test_names_on_a_page_exist(page: Path):
    text = page.read_text("utf-8")
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in tests, name
    for path in re.findall(r"`((?:src|tests|benchmarks|docs|examples)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path


def options() -> set[str]:
    """Every option of every command, as written."""
    return {"help", "help-all", *(flag[2:] for flag in command_options.every_flag())}


@pytest.mark.parametrize("page", OWN, ids=lambda page: str(page.relative_to(DOCS)))
def test_options_on_a_page_exist(page: Path):
    """In code, where a duetto command or an option alone stands."""
    known = options() | {"members", "pessimism"}  # those of extending.md's example
    text = page.read_text("utf-8")
    if page.stem == "coming-from":  # the first column has other libraries' options
        text = re.sub(r"^\| [^|]*\|", "|", text, flags=re.MULTILINE)
    for code in re.findall(r"`(--[^`]*|duetto [^`]*)`|^duetto (.*)$", text, re.MULTILINE):
        for option in re.findall(r"(?<!\S)--(\w[\w-]*\w)(?!-)", "".join(code)):
            assert option in known, f"{option} in {code}"


def calls(text: str) -> Iterator[list[str]]:
    """The words behind `duetto` of each call in code, of syntax too; without what only mentions a command."""
    for code in re.findall(r"`duetto ([^`]*)`|(?:^|&& |\$ )duetto ([^`&\n]*)", text, re.MULTILINE):
        words = shlex.split("".join(code), comments=True)
        if len(words) > 1 and words != ["demos", words[1]] and not words[0].startswith("--"):
            yield ["1" if word in ("N", "K", "S") else word for word in words]


def flags_of(words: list[str]) -> set[str]:
    """The options that the call's own command has, whichever algorithm a call leaves open."""
    if words[0] not in command_options.OF_ALGORITHMS:
        return {"--help", *command_options.flags(*words[: 2 if words[0] == "demos" else 1])}
    named = [name for name in words[1].split(",") if name in ALGORITHMS] or ALGORITHMS
    return {"--help", "--help-all"}.union(*(command_options.flags(words[0], name) for name in named))


CALLED = [ROOT / "README.md", *OWN]


@pytest.mark.parametrize("page", CALLED, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_call_on_a_page_has_options_of_its_own_command(page: Path):
    for words in calls(page.read_text("utf-8")):
        given = set(re.findall(r"(?<!\S)\[?(--[\w-]+\w)", " ".join(words)))
        assert given <= flags_of(words), words


@pytest.mark.parametrize("page", CALLED, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_call_on_a_page_is_one_that_its_command_takes(page: Path):
    """With all that it requires; training's calls start with presets, and syntax is no call."""
    for words in calls(page.read_text("utf-8")):
        if words[0] in command_options.OF_ALGORITHMS or "--help" in words:
            continue
        if any(set(word) & set("[]|…") or word == "..." for word in words):
            continue
        count = 2 if words[0] == "demos" else 1
        parser = command_options.parser(*words[:count])
        given = parser.parse(words[count:])
        if "help" not in given:
            parser.check_complete(given)


def test_calls_are_found():
    text = "`duetto plot` and\n$ duetto train td3 X --steps 5  # so\na && duetto video R && duetto resume R --steps N\n"
    assert list(calls(text)) == [["train", "td3", "X", "--steps", "5"], ["video", "R"], ["resume", "R", "--steps", "1"]]


def test_what_resume_takes_without_accept_changes_is_said():
    from duetto.tools.cli.commands import resume

    said = {"evaluate_every": "intervals of evaluations", "checkpoint_every": "checkpoints", "log_every": "metrics"}
    page = (DOCS / "reference" / "cli.md").read_text("utf-8").partition("## duetto resume")[2].partition("\n## ")[0]
    for text in (resume.__doc__ or "", page):
        words = " ".join(text.replace("`", "").split()).lower().partition("may be changed")[0]
        assert [
            name for name in reproducibility.FREE if not re.search(rf"(?<![\w-]){said.get(name, name)}\b", words)
        ] == []


def test_what_may_lie_in_a_runs_folder_beside_its_own_files_is_named():
    from duetto.tools.export import writing

    page = (DOCS / "reference" / "files.md").read_text("utf-8")
    assert f"`{run_folder.BEFORE}/`" in page
    for ending, *_ in writing.FORMATS.values():
        assert f"`agent{ending}`" in page


def test_every_script_and_result_of_the_benchmarks_is_in_their_table():
    """Every script that says how it is called from the repository; and one table for each subject."""
    table = (ROOT / "benchmarks" / "README.md").read_text("utf-8").partition("\n## ")[0]
    scripts = [
        path.name
        for path in (ROOT / "benchmarks").glob("*.py")
        if f"python benchmarks/{path.name}" in path.read_text("utf-8")
    ]
    assert len(scripts) > 3
    assert [name for name in scripts if f"`{name}`" not in table] == []
    results = sorted(path.name for path in (ROOT / "benchmarks" / "results").glob("*.md"))
    assert [name for name in results if f"({Path('results') / name})" not in table] == []


def test_the_size_of_jaxs_cache():
    from duetto.learners import runtime

    assert f"up to {runtime.CACHE_LIMIT >> 20} MB" in (DOCS / "scale" / "machine.md").read_text("utf-8")


def test_a_cell_of_a_job_with_other_steps_than_its_row_says_them():
    head, rows = compared.exploration()
    cells = {row[0]: row[head.index("behavior cloning")] for row in rows}
    assert cells["KeyCorridorS4R3"].endswith(" (100,000 steps)")
    assert "steps" not in cells["KeyCorridorS3R3"]


def test_a_preset_on_a_page_exists():
    for page in OWN:
        for name in re.findall(r"--preset ([a-z][\w-]+)", page.read_text("utf-8")):
            assert any(name in presets(algorithm) for algorithm in ALGORITHMS), f"{name} on {page.name}"


def test_the_glossary_is_in_alphabetical_order():
    text = (DOCS / "reference" / "glossary.md").read_text("utf-8")
    words = re.findall(r"^(\S.*)\n: ", text, re.MULTILINE)
    assert len(words) > 30
    assert words == sorted(words, key=str.lower)


def test_every_command_is_in_the_reference():
    from duetto.tools.cli import COMMANDS

    text = (DOCS / "reference" / "cli.md").read_text("utf-8")
    assert all(re.search(rf"^## duetto {name}\b", text, re.MULTILINE) for name in set(COMMANDS) - {"list"})


# ---------------------------------------------------------------------------------------------------- algorithms
ANATOMY = [
    "Usage",
    "Quick facts",
    "Options",
    "Idea",
    "What goes wrong without it",
    "The mathematics",
    "Pseudocode",
    "Worked example",
    "Metrics",
    "Results",
    "Exercises",
    "Details",
    "Papers",
]
WRITTEN = sorted(path.stem for path in (DOCS / "algorithms").glob("*.md"))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_a_page(name: str):
    assert name in WRITTEN, f"docs/algorithms/{name}.md is missing"


@pytest.mark.parametrize("name", WRITTEN)
def test_an_algorithms_page_has_every_part(name: str):
    assert name in ALGORITHMS
    headings = re.findall(r"^## (.*)$", (DOCS / "algorithms" / f"{name}.md").read_text("utf-8"), re.MULTILINE)
    found = [next((i for i, heading in enumerate(headings) if heading.startswith(part)), None) for part in ANATOMY]
    assert None not in found, [part for part, place in zip(ANATOMY, found, strict=True) if place is None]
    assert found == sorted(found, key=lambda place: place or 0)


@pytest.mark.parametrize("name", WRITTEN)
def test_every_step_has_an_equation_its_lines_and_a_picture(name: str):
    """Pictures are drawn by a file of the algorithm's name in docs/figures, which a new algorithm need not have."""
    text = (DOCS / "algorithms" / f"{name}.md").read_text("utf-8")
    numbers = [int(number) for number in re.findall(r"^### (\d+) · ", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) == 15 if name == "td3" else len(numbers) >= 3
    steps = re.findall(r"^### \d.*?(?=^##)", text, re.MULTILINE | re.DOTALL)
    assert len(steps) == len(numbers)
    assert all("$$" in step and "<!-- source:" in step for step in steps)
    if (DOCS / "figures" / f"{name}.py").is_file():
        assert all("_static/figures/" in step for step in steps)


@pytest.mark.parametrize("name", sorted(set(WRITTEN) - {"bc", "dqfd", "r2d3"}))  # those need demonstrations
def test_the_python_under_usage_runs(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """As written, but in a small environment and for a few steps."""
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "algorithms" / f"{name}.md").read_text("utf-8")
    block = re.findall(r"```python\n(.*?)```", text.partition("## Usage")[2], re.DOTALL)[0]
    block, replaced = re.subn(
        r'duetto\.train\("(\w+)", "([^"]+)"[^)]*\)',
        lambda call: f'duetto.train("{call[1]}", "{small_like(call[2])}", steps=30, backend="torch", evaluate_every=0)',
        block,
    )
    assert replaced == 1
    exec(block.replace("episodes=10", "episodes=1"), {})


def small_like(environment: str) -> str:
    return "CartPole-v1" if environment.startswith(("CartPole", "MiniGrid")) else "Pendulum-v1"


@pytest.mark.parametrize("name", WRITTEN)
def test_an_algorithms_page_says_how_other_implementations_differ(name: str):
    text = (DOCS / "algorithms" / f"{name}.md").read_text("utf-8")
    papers = text.partition("## Papers\n")[2]
    others = papers.partition("Other implementations, and how they differ:\n\n")[2]
    assert len(re.findall(r"^- \[", others, re.MULTILINE)) >= 1
