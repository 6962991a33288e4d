"""`{drawn} MODULE.FUNCTION`: a picture that a function in `docs/figures` draws while the site is built.

The SVG becomes part of the page, so its colours follow the page's, light or dark. The content is its caption.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Drawn(SphinxDirective):
    """See the module."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """The figure."""
        module, _, function = self.arguments[0].partition(".")
        found = import_module(module)
        assert found.__file__ is not None
        for source in Path(found.__file__).parent.rglob("*"):
            if source.suffix in (".py", ".csv"):
                self.env.note_dependency(str(source))
        figure = nodes.figure(classes=["drawn"])
        figure += nodes.raw("", getattr(found, function)(), format="html")
        if self.content:
            paragraph, _ = self.parse_inline("\n".join(self.content), lineno=self.lineno)
            figure += nodes.caption("", "", *paragraph)
        return [figure]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("drawn", Drawn)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
