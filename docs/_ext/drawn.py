"""Pictures, of which the content is the caption.

{drawn} MODULE.FUNCTION  what a function in `docs/figures` draws while the site is built: SVG, which becomes part of the
                         page, so its colours follow the page's, light or dark
{film} NAME              a moving picture of `_static/clips`, and a still for those who asked for less motion; `:words:`
                         say what it shows
"""

from __future__ import annotations

from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

STATIC = Path(__file__).parents[1] / "_static"


class Picture(SphinxDirective):
    """A directive that makes a figure with a caption."""

    required_arguments = 1
    has_content = True

    def figure(self, html: str) -> list[nodes.Node]:
        """The figure."""
        figure = nodes.figure(classes=["drawn"])
        figure += nodes.raw("", html, format="html")
        if self.content:
            paragraph, _ = self.parse_inline("\n".join(self.content), lineno=self.lineno)
            figure += nodes.caption("", "", *paragraph)
        return [figure]


class Drawn(Picture):
    """See the module."""

    def run(self) -> list[nodes.Node]:
        """The figure."""
        module, _, function = self.arguments[0].partition(".")
        found = import_module(module)
        assert found.__file__ is not None
        for source in Path(found.__file__).parent.rglob("*"):
            if source.suffix in (".py", ".csv", ".png"):
                self.env.note_dependency(str(source))
        return self.figure(getattr(found, function)())


class Film(Picture):
    """See the module."""

    option_spec: ClassVar[dict[str, Any]] = {"words": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """The figure, with paths from the page that it is on."""
        place = "../" * self.env.docname.count("/") + f"_static/clips/{self.arguments[0]}"
        missing = [end for end in ("webp", "png") if not (STATIC / "clips" / f"{self.arguments[0]}.{end}").is_file()]
        if missing:
            raise self.error(f"docs/_static/clips has no {self.arguments[0]}.{missing[0]}")
        still = f'<source media="(prefers-reduced-motion: reduce)" srcset="{place}.png">'
        words = escape(self.options["words"])
        return self.figure(f'<picture>{still}<img class="film" src="{place}.webp" alt="{words}"></picture>')


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("drawn", Drawn)
    app.add_directive("film", Film)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
