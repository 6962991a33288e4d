"""Tables that are made of the code and of committed results.

{options} NAME        every option of an algorithm, of a `run` or of an `atari` game: its default, and its help
{presets} NAME        the algorithm's presets: their sources and the options that they set
{metrics} NAME        the meaning and the healthy values of the algorithm's metrics
{command} NAME ...    the output of `duetto NAME ... --help`

The content of a directive is only for readers of the Markdown: a command that shows the same. `docs/build_pages.py`
writes the other tables into the pages.
"""

from __future__ import annotations

import csv
import dataclasses
import inspect
import os
import re
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

from docutils import nodes
from learned import campaign, config
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

import duetto
from duetto.algorithms import ALGORITHMS
from duetto.environments.atari import AtariOptions
from duetto.presets import presets
from duetto.storage.config import RunOptions
from duetto.tools.cli import run_command
from duetto.tools.report.metric_docs import meanings

LONG = 45  # characters of a cell
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "learning"


class Table(SphinxDirective):
    """A directive that makes a table of rows of Markdown."""

    has_content = True

    def table(self, head: list[str], rows: list[list[str]], kind: str) -> nodes.Node:
        """Return a table. A cell is a line of Markdown; a row of one cell is a heading."""
        table = nodes.table(classes=kind.split())
        group = nodes.tgroup(cols=len(head))
        table += group
        for _ in head:
            group += nodes.colspec(colwidth=1)
        group += nodes.thead("", self._row(head, len(head)))
        group += nodes.tbody("", *(self._row(row, len(head)) for row in rows))
        return table

    def _row(self, cells: list[str], columns: int) -> nodes.row:
        row = nodes.row()
        for cell in cells:
            entry = nodes.entry(morecols=columns - 1) if len(cells) < columns else nodes.entry()
            entry += nodes.paragraph("", "", *self.parse_inline(cell, lineno=self.lineno)[0])
            row += entry
        return row


class Options(Table):
    """The options of an algorithm, a run or an Atari game."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table: an algorithm's own options first, then those of its bases."""
        rows: list[list[str]] = []
        name = self.arguments[0]
        for owner, options in grouped({"run": RunOptions, "atari": AtariOptions}.get(name) or ALGORITHMS[name]):
            rows += [] if name == "atari" else [[f"**{owner}**"]]
            written = (lambda one: f"`{one}`") if name == "atari" else flag
            rows += [[written(one), f"`{shown(default)}`", text] for one, default, text in options]
        return [self.table(["option", "default", "what it does"], rows, "options explained")]


class Presets(Table):
    """The presets of an algorithm."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a row for each preset: name, source and options."""
        known = presets(ALGORITHMS[self.arguments[0]].name())
        rows = [
            [
                f"`{name}`",
                _code(preset.about),
                ", ".join(f"`{option}` {shown(value)}" for option, value in preset.algorithm.items()),
            ]
            for name, preset in known.items()
        ]
        return [self.table(["preset", "source", "options"], rows, "rows")]


class Metrics(Table):
    """The metrics of an algorithm."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the metrics of a report, with the step of the page that explains each."""
        rows = [
            [
                ", ".join(f"`{metric}`" for metric in row.metrics),
                row.what + (f", step {row.step}" if row.step else ""),
                row.healthy,
                row.sick,
            ]
            for row in meanings(self.arguments[0])
        ]
        return [self.table(["metric", "what it is", "healthy", "sick"], rows, "rows")]


class Command(SphinxDirective):
    """The help of a command."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the help, as on a terminal of 88 columns."""
        name, *arguments = self.arguments[0].split()
        said = StringIO()
        with patch.dict(os.environ, COLUMNS="88", TERM="dumb"), redirect_stdout(said), suppress(SystemExit):
            run_command(name, *arguments, "--help")
        return [nodes.literal_block("", said.getvalue().strip(), language="text", classes=["help"])]


def results_table(names: str) -> tuple[list[str], list[list[str]]]:
    """A row for each committed run, by the beginning of its folder's name, over all seeds; `*`: all runs."""
    head = ["command", "backend", "seeds", "steps", "last evaluation", "best"]
    if names == "*":
        return [*head, "more episodes at the end", "job"], all_results()
    return head, [result(name) for name in names.split()]


def flag(name: str) -> str:
    """Return an option as on the command line. Custom networks have only a Python name."""
    return f"`{name}`" if name.endswith("_network") else f"`--{name.replace('_', '-')}`"


def _code(text: str) -> str:
    """Mark options in plain text as code; otherwise their two dashes become one."""
    return re.sub(r"(?<![`\w-])(--[\w-]+(?: \w+=\w+)?)", r"`\1`", text)


def grouped(algorithm: type[Any]) -> list[tuple[str, list[tuple[str, Any, str]]]]:
    """The class that has the last word on each option, and name, default and help of its options."""
    texts: dict[str, tuple[str, str]] = {}
    for owner in reversed(algorithm.__mro__):
        if dataclasses.is_dataclass(owner):
            found = ModuleAnalyzer.for_module(owner.__module__)
            found.analyze()
            own = inspect.get_annotations(owner)
            for name in own:
                if text := found.attr_docs.get((owner.__name__, name)):
                    texts[name] = owner.__name__, " ".join(text).strip()
    groups: dict[str, list[tuple[str, Any, str]]] = {}
    for field in dataclasses.fields(algorithm):
        owner, text = texts[field.name]
        groups.setdefault(owner, []).append((field.name, field.default, text))
    order = [base.__name__ for base in algorithm.__mro__]
    return sorted(groups.items(), key=lambda group: order.index(group[0]))


def shown(value: Any) -> str:
    """A value as the command line takes it."""
    if isinstance(value, list | tuple):
        return " ".join(shown(part) for part in value) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) or "none"


def seeds(name: str) -> list[Path]:
    """The folders of a run, one for each seed."""
    folders = sorted(folder for folder in RESULTS.glob(f"{name}-s*") if folder.name.removeprefix(f"{name}-s").isdigit())
    if not folders:
        raise LookupError(f"{RESULTS} has no run {name}")
    return folders


def _command(name: str) -> str:
    """Return the command that makes a row's runs today. Presets may have changed since the run."""
    return f"`duetto train {campaign()['jobs'][name]['train']}`"


def _mark(folders: list[Path]) -> str:
    """Of runs from before a change of the maths; the page says which."""
    return " †" if any(folder.name in campaign()["rounded"] for folder in folders) else ""


def all_results() -> list[list[str]]:
    """The rows of every run, under a heading for each environment."""
    names = sorted({re.sub(r"-s\d+$", "", folder.parent.name) for folder in RESULTS.glob("*-s*/evaluations.csv")})
    groups: dict[str, list[list[str]]] = {}
    for name in names:
        row = result(name)
        groups.setdefault(row[0].split()[3].strip("`"), []).append([*row, last_episodes(name), f"`{name}`"])
    return [row for environment in sorted(groups) for row in ([f"**{environment}**"], *groups[environment])]


def last_episodes(name: str) -> str:
    """Each seed's mean return of the episodes that were played once the run was over, and how many they are."""
    found = []
    for folder in seeds(name):
        if (folder / "final.csv").exists():
            with (folder / "final.csv").open(encoding="utf-8") as file:
                found.append([float(row["return"]) for row in csv.DictReader(file)])
    if not found:
        return ""
    return f"{', '.join(shown_return(fmean(one)) for one in found)} ({len(found[0])} each)"


def shown_return(value: float) -> str:
    """A return, without more digits than it deserves."""
    return f"{value:,.{0 if abs(value) >= 10 else 2}f}".replace("-", "−")


def result(name: str) -> list[str]:
    """A run's row: means over seeds of the evaluations' mean returns."""
    folders = seeds(name)
    curves = []
    for folder in folders:
        with (folder / "evaluations.csv").open(encoding="utf-8") as file:
            curves.append([(int(row["step"]), float(row["mean_return"])) for row in csv.DictReader(file)])
    run = config(folders[0].name)["run"]
    length = min(len(curve) for curve in curves)
    means = [fmean(curve[i][1] for curve in curves) for i in range(length)]
    planned, made = run["steps"], curves[0][length - 1][0]
    steps = f"{made:,}" if made >= planned else f"{made:,} of {planned:,}"
    numbers = shown_return(means[-1]), shown_return(max(means))
    return [_command(name) + _mark(folders), run["backend"], str(len(folders)), steps, *numbers]


def _outside(app: Sphinx, page: str, source: list[str]) -> None:
    """Links to Markdown elsewhere in the repository, which a reader of the source can follow, become plain words."""
    source[0] = re.sub(r"\[([^\]]+)\]\((?:\.\./)+(?:benchmarks|examples|[A-Z]+\.md)[^)]*\)", r"\1", source[0])


def _long(app: Sphinx, tree: nodes.document) -> None:
    """Cells with a sentence say so: where a page is narrow they stay wide enough to be read."""
    for cell in tree.findall(nodes.entry):
        if len(cell.astext()) > LONG:
            cell["classes"].append("long")


def _public(app: Sphinx, env: Any, node: Any, contnode: nodes.Node) -> nodes.Node | None:
    """A type hint names a class where it is defined; documented it is as `duetto.Name`."""
    name = node.get("reftarget", "").rpartition(".")[2]
    if node.get("refdomain") != "py" or name not in duetto.__all__ or node["reftarget"] == f"duetto.{name}":
        return None
    python = env.get_domain("py")
    return python.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], f"duetto.{name}", node, contnode)


def _factories(app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, back: str | None):
    """Defaults that are made anew at each call; as Python writes them a signature cannot be read, by Sphinx either."""
    return (signature.replace("<factory>", "...") if signature else signature), back


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("options", Options)
    app.add_directive("presets", Presets)
    app.add_directive("metrics", Metrics)
    app.add_directive("command", Command)
    app.connect("autodoc-process-signature", _factories)
    app.connect("source-read", _outside)
    app.connect("doctree-read", _long)
    app.connect("missing-reference", _public)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
