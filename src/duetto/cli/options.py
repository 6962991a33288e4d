"""Options that several commands have."""

from __future__ import annotations

import re
from typing import Annotated, Any

import yaml
from tyro.conf import FlagCreatePairsOff, Positional, arg

from duetto.errors import UsageError
from duetto.storage.yaml_files import numbers

_METAVAR = "KEY=VALUE ..."
_EXAMPLE = "--environment-options sticky_actions=0."

EnvironmentId = Annotated[
    Positional[str], arg(metavar="ENVIRONMENT", help="An id, module:ID, or FILE.py:CLASS for one of your own.")
]
EnvironmentOptions = Annotated[
    tuple[str, ...],
    arg(help=f"Options of the environment itself, on top of the preset's; {_EXAMPLE}", metavar=_METAVAR),
]
PlainEnvironmentOptions = Annotated[
    tuple[str, ...], arg(help=f"Options of the environment itself; {_EXAMPLE}", metavar=_METAVAR)
]

Json = Annotated[FlagCreatePairsOff[bool], arg(help="Print one JSON object, and nothing else on stdout.")]
Metric = Annotated[str, arg(help="A column of evaluations.csv or a number of metrics.jsonl.", metavar="NAME")]
Runs = Annotated[
    tuple[str, ...],
    arg(
        help="Folders of runs: runs/td3-*; and tables of results, ours or others': theirs.csv",
        metavar="RUN ...",
        help_behavior_hint="(required)",
    ),
]
Quiet = Annotated[FlagCreatePairsOff[bool], arg(help="Show nothing but what has to be known.")]
Trust = Annotated[
    bool, arg(help="Run code that the run's folder names (packages, files), though you did not begin the run here.")
]
Seeds = Annotated[
    str | None, arg(help="Train these seeds at once, side by side, a run each: 0-9 or 0,3,7.", metavar="0-9|0,3,7")
]


def seeds(text: str) -> list[int]:
    """Parse seeds: numbers and ranges, ends included, with commas between.

    Raises:
        UsageError: It is something else, or one number alone.
    """
    numbers: list[int] = []
    if (alone := text.strip()).isdecimal():  # of `sweep` and `tune`, it is how many
        others = f"--seeds 0-{max(1, int(alone) - 1)}"
        raise UsageError(f"--seeds {alone} may be one seed or {alone} of them: write --seed {alone}, or {others}.")
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise UsageError(f"--seeds is {text!r}; it must be numbers and ranges, such as 0-9 or 0,3,7.")
        numbers += range(first, last + 1)
    return numbers


def environment_options(given: tuple[str, ...]) -> dict[str, Any]:
    """Parse KEY=VALUE texts to a dict, with values as YAML reads them. UsageError if one is none."""
    options: dict[str, Any] = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"--environment-options takes KEY=VALUE, not {text!r}: --environment-options stack=4.")
        if not key or key in options:
            raise UsageError(
                f"--environment-options has {f'two values for {key}' if key else repr(text)}. Give one each."
            )
        options[key] = _value(text, value)
    return options


def _value(text: str, value: str) -> Any:
    """The value as YAML reads it; but 1e-3, which YAML takes for text, becomes a number unless quoted."""
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UsageError(f"--environment-options cannot read the value of {text!r}: write lists as [1, 2].") from error
    return read if value.strip().startswith(("'", '"')) else numbers(read)
