"""Read `metric_docs.yaml`: the meanings of metrics, and their healthy values.

The metrics tables of the documentation come from the same file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from duetto.algorithms import ALGORITHMS
from duetto.storage import safe_yaml


@dataclass(frozen=True)
class Meaning:
    """One row of `metric_docs.yaml`: metrics with a common explanation. Its texts may have `code` in backticks."""

    metrics: tuple[str, ...]
    what: str
    healthy: str = ""
    sick: str = ""
    step: int | None = None  # number of the step in the mathematics on the algorithm's page


@cache
def meanings(algorithm: str) -> tuple[Meaning, ...]:
    """Return the rows of an algorithm, without those of its base classes."""
    return tuple(
        Meaning(**row | {"metrics": tuple(row["metrics"])}) for row in _all().get(algorithm, {}).get("rows", [])
    )


def meaning(algorithm: str, metric: str) -> Meaning | None:
    """Return a metric's row for an algorithm, else for its nearest base class, else for any algorithm; else None."""
    for name in _by_nearness(algorithm):
        for row in meanings(name):
            if any(fnmatchcase(metric, pattern) for pattern in row.metrics):
                return row
    return None


def stem(metric: str) -> str:
    """Return the common name of a mean, a minimum and a maximum: "learn/q" for "learn/q_min"."""
    return re.sub("_(mean|min|max)$", "", metric)


def _by_nearness(algorithm: str) -> Iterator[str]:
    yield algorithm
    if like := _all().get(algorithm, {}).get("like"):
        yield from (name for name in _by_nearness(like) if name != "any")
    elif algorithm in ALGORITHMS:
        yield from (base.__name__.lower() for base in ALGORITHMS[algorithm].__mro__[1:-1])
    yield "any"


@cache
def _all() -> dict[str, Any]:
    return safe_yaml.parse((files("duetto.tools.report") / "metric_docs.yaml").read_text("utf-8"))
