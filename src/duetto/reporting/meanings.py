"""The meanings of a run's numbers, and how they look when learning is healthy: `meanings.yaml`.

The tables of the documentation are made from it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from duetto.algorithms import ALGORITHMS
from duetto.storage import yaml_files

_PARTS = ("_mean", "_min", "_max")


@dataclass(frozen=True)
class Meaning:
    """One row: metrics that belong together, explained in plain words with `code` in backticks."""

    metrics: tuple[str, ...]
    what: str
    healthy: str = ""
    sick: str = ""
    step: int | None = None  # of the mathematics on the algorithm's page


@cache
def meanings(algorithm: str) -> tuple[Meaning, ...]:
    """The rows of an algorithm itself; none if nothing is written about it."""
    return tuple(Meaning(**row | {"metrics": tuple(row["metrics"])}) for row in _written(algorithm).get("rows", []))


def meaning(algorithm: str, metric: str) -> Meaning | None:
    """The row of a metric: the algorithm's own, that of its nearest base class, or that of any algorithm; or None."""
    for name in _by_nearness(algorithm):
        for row in meanings(name):
            if any(fnmatchcase(metric, pattern) for pattern in row.metrics):
                return row
    return None


def order(algorithm: str) -> list[str]:
    """The metrics of an algorithm in the order of the rows."""
    return [metric for name in _by_nearness(algorithm) for row in meanings(name) for metric in row.metrics]


def stem(metric: str) -> str:
    """The common name of a mean, a least and a greatest value: "learn/q" for "learn/q_min"."""
    for part in _PARTS:
        if metric.endswith(part):
            return metric.removesuffix(part)
    return metric


def _by_nearness(algorithm: str) -> Iterator[str]:
    yield algorithm
    if like := _written(algorithm).get("like"):
        yield from (name for name in _by_nearness(like) if name != "any")
    elif algorithm in ALGORITHMS:
        yield from (base.__name__.lower() for base in ALGORITHMS[algorithm].__mro__[1:-1])
    yield "any"


def _written(algorithm: str) -> dict[str, Any]:
    return _all().get(algorithm, {})


@cache
def _all() -> dict[str, Any]:
    return yaml_files.parse((files("duetto.reporting") / "meanings.yaml").read_text("utf-8"))
