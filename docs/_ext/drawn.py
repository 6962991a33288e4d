"""Figures and steps of the site.

A paragraph that starts with an image becomes a figure; the rest, after a line break, is its caption. Drawings in
`_static/figures` become a part of the page, so that their colors follow its theme. Clips in `_static/clips` have a
still for readers who asked for less motion.

A section with a title such as "3 · Two critics" is a step: text at the left, figures at the right, code below.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

STATIC = Path(__file__).parents[1] / "_static"
STEP = re.compile(r"\d+ · ")


def _figures(app: Sphinx, tree: nodes.document) -> None:
    for number, image in enumerate(list(tree.findall(nodes.image))):
        html = _html(image, app.env.docname)
        paragraph = image.parent
        if html is None or paragraph.index(image) != 0:
            continue
        figure = nodes.figure("", nodes.raw("", html, format="html"), classes=["drawn"])
        figure["ids"] = [f"figure-{number}"]
        caption = paragraph.children[1:]
        while caption and isinstance(caption[0], nodes.raw):  # the line break between image and caption
            del caption[0]
        if caption:
            figure += nodes.caption("", "", *caption)
        paragraph.replace_self(figure)
        for files in app.env.images.values():
            files[0].discard(app.env.docname)


def _html(image: nodes.image, docname: str) -> str | None:
    """Return the HTML of a drawing or clip; None for another image."""
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


def _steps(app: Sphinx, tree: nodes.document) -> None:
    for section in list(tree.findall(nodes.section)):
        if not STEP.match(section[0].astext()):
            continue
        title, *parts = section.children
        figures = [part for part in parts if isinstance(part, nodes.figure)]
        code = [part for part in parts if isinstance(part, nodes.literal_block)]
        text = [part for part in parts if part not in figures and part not in code]
        columns = [
            nodes.container("", *text, classes=[] if figures else ["wide"]),
            nodes.container("", *figures),
            nodes.container("", *code, classes=["wide"]),
        ]
        section.children = [title]
        section += nodes.container("", *[column for column in columns if column.children], classes=["step"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", _figures, priority=500)
    app.connect("doctree-read", _steps, priority=501)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
