"""The code blocks of the pages are run, and the outputs that they show are compared: `pytest docs`."""

from __future__ import annotations

import sys
from doctest import ELLIPSIS
from pathlib import Path

from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser

sys.path.insert(0, str(Path(__file__).parent / "figures"))

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS), SkipParser()],
    patterns=["*.md"],
    excludes=["extending.md", "_build/**"],  # tests/cli/test_own_algorithm.py runs that one's
).pytest()
