"""How an option is searched for a better value (`duetto tune`), where its type and its present value do not say it.

`tuning.space` derives a range or choices from a field's type and bounds. An algorithm says the rest beside its fields,
in `Algorithm.tuned`: by the names of its options, one of these, or None for what is searched only if it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

FROM_ONE: Literal["1-x"] = "1-x"
DOUBLING: Literal["doubling"] = "doubling"


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    log: bool | Literal["1-x"] = False  # by their logarithm, or by that of their distance from 1
    step: float | Literal["doubling"] | None = None  # from `low` on, or powers of two


@dataclass(frozen=True)
class Around:
    """Numbers from the option's present value divided by `factor` to that times `factor`, by their logarithm."""

    factor: float
    step: Literal["doubling"] | None = None


@dataclass(frozen=True)
class Choices:
    """Values to choose from, in no order."""

    values: tuple[Any, ...]


Search = Range | Around | Choices
