"""Figures of the site.

A paragraph that begins with an image becomes a figure; the rest of the paragraph is its caption. Drawings in
`_static/figures` become a part of the page, so that their colors follow its theme. Clips in `_static/clips` have a
still for readers who asked for less motion.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

STATIC = Path(__file__).parents[1] / "_static"


def _figures(app: Sphinx, tree: nodes.document) -> None:
    for number, image in enumerate(list(tree.findall(nodes.image))):
        html = _html(image, app.env.docname)
        paragraph = image.parent
        if html is None or paragraph.index(image) != 0:
            continue
        figure = nodes.figure("", nodes.raw("", html, format="html"), classes=["drawn"])
        figure["ids"] = [f"figure-{number}"]
        if caption := paragraph.children[1:]:
            figure += nodes.caption("", "", *caption)
        paragraph.replace_self(figure)
        for files in app.env.images.values():
            files[0].discard(app.env.docname)


def _html(image: nodes.image, docname: str) -> str | None:
    """The element that shows one of our own drawings or clips; None for another image."""
    uri, words = image["uri"], escape(image.get("alt", ""))
    if "_static/figures/" in uri:
        svg = (STATIC / "figures" / Path(uri).name).read_text("utf-8")
        svg = re.sub(r"<style>.*?</style>(?=<title>)", "", svg, count=1, flags=re.DOTALL)
        return re.sub(r'xmlns="\S+" width="\S+" height="\S+" ', "", svg, count=1)
    if "_static/clips/" in uri:
        place = "../" * docname.count("/") + f"_static/clips/{Path(uri).stem}"
        still = f'<source media="(prefers-reduced-motion: reduce)" srcset="{place}.png">'
        return f'<picture>{still}<img class="film" src="{place}.webp" alt="{words}"></picture>'
    return None


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", _figures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
