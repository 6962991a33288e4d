"""`{sentences}`: every error message of the library, read from its source while the site is built.

An ellipsis marks a value. Messages are grouped by package, under the first line of its docstring.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from duetto import errors

SOURCE = Path(errors.__file__).parent
KINDS = {name for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.DuettoError)}


class Sentences(SphinxDirective):
    """A list of messages for each package. Its text is what a code host shows."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return a heading and a list for each package."""
        found: list[nodes.Node] = []
        for package in sorted({path.parent for path in SOURCE.rglob("*.py")}):
            said = sorted({one for path in sorted(package.glob("*.py")) for one in sentences(path.read_text("utf-8"))})
            if said:
                about = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
                parts, _ = self.parse_inline(f"{package.name} · {about.splitlines()[0]}", lineno=self.lineno)
                found += [nodes.rubric("", "", *parts), self._list(said)]
        return found

    def _list(self, said: list[tuple[str, str]]) -> nodes.Node:
        listed = nodes.bullet_list(classes=["sentences"])
        for words, kind in said:
            name = [nodes.Text(" "), nodes.literal("", kind)] if kind != "UsageError" else []
            listed += nodes.list_item("", nodes.paragraph("", "", nodes.Text(words), *name, support_smartquotes=False))
        return listed


def sentences(source: str) -> Iterator[tuple[str, str]]:
    """Yield message and kind of each error in a file, except errors that only pass on another message."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS and node.args:
            words = " ".join(_words(node.args[0]).split())
            if any(letter.isalpha() for letter in words):
                yield words, node.func.id


def _words(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(words)):
            return words
        case ast.JoinedStr(values=parts):
            return "".join(_words(part) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _words(left) + _words(right)
    return "…"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("sentences", Sentences)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
