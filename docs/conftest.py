"""The code blocks of the pages are run, and the outputs that they show are compared: `pytest docs`."""

from __future__ import annotations

from contextlib import chdir
from doctest import ELLIPSIS
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser


def enter(namespace: dict[str, Any]) -> None:
    """A page's runs are made in a folder that goes away."""
    namespace["_folder"] = folder = TemporaryDirectory()
    namespace["_there"] = there = chdir(folder.name)
    there.__enter__()


def leave(namespace: dict[str, Any]) -> None:
    """Back from it."""
    namespace["_there"].__exit__(None, None, None)
    namespace["_folder"].cleanup()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Of an error, show what is the page's own. Sybil (10.1) fails itself where the error has a cause."""
    item._traceback_filter = lambda error: error.traceback.cut(path=item.path)


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS), SkipParser()],
    setup=enter,
    teardown=leave,
    # extending.md is run by tests/cli/test_own_code.py
    patterns=[
        "index.md",
        "callbacks.md",
        "cluster.md",
        "which.md",
        *(f"{folder}/*.md" for folder in ("start", "learn", "algorithms", "howto", "scale", "built")),
        "reference/files.md",
        "reference/functional.md",
    ],
).pytest()
