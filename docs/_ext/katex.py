"""Equations for KaTeX, which lies in `_static/katex`: sphinx.ext.mathjax and its kin load a script from elsewhere."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(f'<span class="math notranslate">{self.encode(node.astext())}</span>')
    raise nodes.SkipNode


def _display(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math display notranslate">{self.encode(node.astext())}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer("katex", (_inline, None), (_display, None))
    app.config.html_math_renderer = "katex"  # pyright: ignore[reportAttributeAccessIssue]
    return {"parallel_read_safe": True, "parallel_write_safe": True}
