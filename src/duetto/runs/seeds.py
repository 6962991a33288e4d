"""Seeds as train, sweep and tune take them, in Python and on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from duetto.errors import UsageError
from duetto.functional.rng import as_int

MAX_SEEDS = 100_000  # of one range: more is a typing error
_RANGE = re.compile(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", re.ASCII)


def parse_seeds(seeds: Any) -> tuple[int, ...]:
    """Parse seeds: `5` is five seeds, from 0 on; `3-7`, `0,3,9`, `0-2,10-12` and lists of numbers name them.

    Raises:
        UsageError: It is none of these, or names a seed twice.
    """
    wrong = UsageError(f"seeds is {seeds!r}; it must be how many, 5, or which: 0-4, or 0,3,9, each once.")
    text = str(as_int(seeds)).strip()
    if text.isdecimal() and text.isascii():
        text = f"0-{int(text[:9]) - 1}"
    elif not isinstance(seeds, str):
        if not isinstance(seeds, Iterable) or isinstance(seeds, bytes) or not getattr(seeds, "ndim", 1):
            raise wrong
        text = ",".join(str(as_int(part)) for part in seeds)
    numbers: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not 0 <= last - first < MAX_SEEDS:
            raise wrong
        numbers += range(first, last + 1)
    if len(set(numbers)) < len(numbers):
        raise wrong
    return tuple(numbers)
