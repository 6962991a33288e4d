"""Equations for KaTeX in `_static/katex`: sphinx.ext.mathjax and its kin load a script from elsewhere.

Pages have plain symbols. Here those that have a color on the whole site become the macros of `_static/maths.js`.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

COLORED = {
    r"\mu": r"\Actor",
    "Q": r"\Critic",
    "V": r"\Value",
    r"\pi": r"\Policy",
    "r": r"\Reward",
    r"\varepsilon": r"\Noise",
    "y": r"\Target",
    "A": r"\Advantage",
}
_WORDS = re.compile(r"\\(?:begin|end|text|operatorname|mathrm|mathcal|mathbb)\{[^}]*\}|\\[A-Za-z]+|[A-Za-z]")


def colored(equation: str) -> str:
    """Return the equation with macros for the symbols in `COLORED`, in braces so that they may be an index."""
    return _WORDS.sub(lambda word: f"{{{COLORED[word[0]]}}}" if word[0] in COLORED else word[0], equation)


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(f'<span class="math notranslate">{self.encode(colored(node.astext()))}</span>')
    raise nodes.SkipNode


def _display(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math display notranslate">{self.encode(colored(node.astext()))}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer("katex", (_inline, None), (_display, None))
    app.config.html_math_renderer = "katex"  # pyright: ignore[reportAttributeAccessIssue]
    return {"parallel_read_safe": True, "parallel_write_safe": True}
