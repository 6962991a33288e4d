"""Write what the pages take from the source and from committed runs: figures, lines of code, tables.

Pages are plain Markdown, so that they also read well on a code host. The name of a figure is that of the function that
draws it: _static/figures/sac-idea.svg is drawn by `idea()` in docs/figures/sac.py, which also gives the text of the
image. A comment names the source of the next block:

    <!-- source: src/duetto/algorithms/sac.py pyobject="SAC.update" -->             these lines of the source
    <!-- table: fast.ratios -->                  `ratios()` in docs/figures/fast.py returns header and rows
    <!-- results: td3-halfcheetah td3-ant -->    a table of committed learning runs

python docs/build_pages.py            # refresh all pages; a test checks that this changes nothing
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from html import unescape
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "figures"), str(DOCS / "_ext")]
FIGURES = DOCS / "_static" / "figures"
RUNS = DOCS.parent / "benchmarks" / "results" / "runs.md"  # the page of results includes it
FIGURE = re.compile(
    r"^!\[.*\]\((?P<up>[./]*)_static/figures/(?P<module>[a-z0-9]+)-(?P<function>\w+)\.svg\)", re.MULTILINE
)
BLOCK = re.compile(
    r"<!-- (?P<kind>source|table|results): (?P<source>[^\n]*?) -->\n(?P<block>```.*?\n```|(?:\|[^\n]*\n?)+)?",
    re.DOTALL,
)
Table = tuple[list[str], list[list[str]]]  # header and rows; a row of one cell is a heading


def refreshed(page: Path) -> tuple[str, dict[Path, str]]:
    """Return the page with new blocks, and the SVG files that it shows."""
    figures: dict[Path, str] = {}

    def block(match: re.Match[str]) -> str:
        kind, source = match["kind"], match["source"]
        ends = "\n" if (match["block"] or "\n").endswith("\n") else ""
        return f"<!-- {kind}: {source} -->\n{MAKERS[kind](source)}{ends}"

    def figure(match: re.Match[str]) -> str:
        svg = getattr(import_module(match["module"]), match["function"])()
        path = FIGURES / f"{match['module']}-{match['function']}.svg"
        figures[path] = alone(svg)
        words = re.search(r"<title>(.*?)</title>", svg)
        assert words is not None
        return f"![{unescape(words[1])}]({match['up']}_static/figures/{path.name})"

    from drawing import alone

    return FIGURE.sub(figure, BLOCK.sub(block, page.read_text("utf-8"))), figures


@cache
def code(source: str) -> str:
    """Return lines of a file as a code block, which is no example to run.

    Options are those of `literalinclude`, and `line`: only the line that contains this text.
    """
    from sphinx.directives.code import LiteralIncludeReader

    path, *given = shlex.split(source)
    options = {"dedent": None} | dict(option.split("=", 1) for option in given)
    if line := options.pop("line", None):
        options |= {"start-at": line, "end-at": line}
    reader = LiteralIncludeReader(
        str(DOCS.parent / path),
        options,
        SimpleNamespace(source_encoding="utf-8"),  # pyright: ignore[reportArgumentType]
    )
    text, _lines = reader.read()
    text = text.rstrip().removesuffix(",")  # of an argument, which would become a tuple
    command = [sys.executable, "-m", "ruff", "format", "-q", "--stdin-filename", "page.py", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    shown = text if done.returncode else done.stdout  # as `ruff format` leaves it in the page
    return f"```python3\n{shown.rstrip()}\n```"


def table(source: str) -> str:
    """Return the table that a function in docs/figures makes."""
    module, _, function = source.partition(".")
    return markdown(getattr(import_module(module), function)())


def results(source: str) -> str:
    """Return a table of committed learning runs."""
    from generated import results_table

    return markdown(results_table(source))


MAKERS: dict[str, Callable[[str], str]] = {"source": code, "table": table, "results": results}


def markdown(of: Table) -> str:
    """Return a table as Markdown."""
    header, rows = of
    lines = [header, ["---"] * len(header), *(row + [""] * (len(header) - len(row)) for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main() -> None:
    """Refresh all pages and figures; delete figures that no page shows."""
    figures: dict[Path, str] = {}
    for page in [DOCS.parent / "README.md", RUNS, *sorted(DOCS.rglob("*.md"))]:
        text, own = refreshed(page)
        figures |= own
        if text != page.read_text("utf-8"):
            page.write_text(text, "utf-8")
    FIGURES.mkdir(exist_ok=True)
    for path, svg in figures.items():
        path.write_text(svg, "utf-8")
    for path in set(FIGURES.glob("*.svg")) - figures.keys():
        path.unlink()


if __name__ == "__main__":
    main()
