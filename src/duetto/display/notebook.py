"""Lines that change in a notebook's output: one output, shown once and then replaced.

This needs nothing but the notebook's own IPython. Rich's `Live` would need ipywidgets, whose outputs are empty in a
notebook that is saved and opened again.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rich.console import RenderableType
from rich.jupyter import JupyterMixin


class NotebookLines:
    """Changing lines as `rich.live.Live` has them on a terminal, but without a thread: callers must call `refresh`."""

    def __init__(self, lines: RenderableType, transient: bool = True) -> None:
        """With `transient`, the lines are removed at the end."""
        self.transient: bool = transient
        self._lines = lines
        self._output: Any = None

    def start(self) -> None:
        """Show the lines."""
        self._output = import_module("IPython.display").display(_Output(self._lines), display_id=True)

    def refresh(self) -> None:
        """Show the lines as they are now."""
        if self._output is not None:
            self._output.update(_Output(self._lines))

    def stop(self) -> None:
        """Leave the lines as they are now, or remove them if `transient`."""
        if self._output is not None:
            self._output.update(_Output("" if self.transient else self._lines))
        self._output = None


class _Output(JupyterMixin):
    """The lines in the forms that a notebook asks for: HTML, and plain text."""

    def __init__(self, lines: RenderableType) -> None:
        self._lines = lines

    def __rich_console__(self, *_: Any) -> Any:
        yield self._lines
