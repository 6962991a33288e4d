"""The options of every command, as tyro's completion script has them."""

from __future__ import annotations

import ast
import re
from contextlib import redirect_stdout, suppress
from functools import cache
from io import StringIO
from typing import Any

from duetto.tools.cli import main

OF_ALGORITHMS = ("train", "tune", "sweep")  # commands whose options depend on the algorithm


@cache
def script() -> str:
    """The completion script for bash."""
    with redirect_stdout(StringIO()) as out, suppress(SystemExit):
        main(["--tyro-print-completion", "bash"])
    return out.getvalue()


@cache
def _root() -> dict[str, Any]:
    found = re.search(r"^COMPLETION_SPEC = (.*)$", script(), re.MULTILINE)
    assert found
    return ast.literal_eval(found[1])


def flags(*words: str) -> set[str]:
    """Options of `duetto WORDS`, such as `flags("train", "td3")`."""
    spec = _root()
    for word in words:
        spec = spec["subcommands"][word]
    return {flag for option in spec["options"] for flag in option["flags"]} - {"-h", "--help", "--help-all"}


def every_flag() -> set[str]:
    """Options of all commands together."""
    specs, found = [_root()], set()
    while specs:
        spec = specs.pop()
        specs += spec.get("subcommands", {}).values()
        found |= {flag for option in spec["options"] for flag in option["flags"]}
    return found - {"-h", "--help", "--help-all"}
