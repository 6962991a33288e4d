"""The options of every command, as the completion script has them."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import Any

from duetto.tools.cli import completion

OF_ALGORITHMS = completion.OF_ALGORITHMS


@cache
def _root() -> dict[str, Any]:
    found = re.search(r"^COMPLETION_SPEC = (.*)$", completion.script(), re.MULTILINE)
    assert found
    return ast.literal_eval(found[1])


def flags(*words: str) -> set[str]:
    """Options of `duetto WORDS`, such as `flags("train", "td3")`."""
    spec = _root()
    for word in words:
        spec = spec["subcommands"][word]
    return {flag for option in spec["options"] for flag in option["flags"]} - {"-h", "--help"}


def every_flag() -> set[str]:
    """Options of all commands together."""
    specs, found = [_root()], set()
    while specs:
        spec = specs.pop()
        specs += spec.get("subcommands", {}).values()
        found |= {flag for option in spec["options"] for flag in option["flags"]}
    return found - {"-h", "--help"}
