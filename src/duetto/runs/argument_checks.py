"""Check whole numbers, seeds and checkpoints, which are arguments of functions and commands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from duetto.errors import UsageError
from duetto.functional.rng import as_int
from duetto.storage.checkpoint import CheckpointStore, Loaded

MAX_SEEDS = 100_000  # in one range: a larger number must be a typing error
_RANGE = re.compile(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", re.ASCII)


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return the value of the argument `name` as an int. Raises UsageError unless it is an int >= `least`."""
    value = as_int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} is {value!r}; it must be a whole number.")
    if value < least:
        raise UsageError(f"{name} is {value}; it must be at least {least}.")
    return value


def parse_seeds(seeds: Any) -> tuple[int, ...]:
    """Parse seeds: `5` means the seeds 0 to 4; `3-7`, `0,3,9`, `0-2,10-12` and lists contain the seeds themselves.

    Raises:
        UsageError: `seeds` is none of these, or contains a seed twice.
    """
    wrong = UsageError(f"seeds is {seeds!r}; it must be a number of seeds (5), or seeds (0-4 or 0,3,9), each once.")
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


def load_checkpoint(folder: Path, checkpoint: str | int) -> Loaded:
    """Load the "last" or "best" checkpoint of the run in `folder`, or the checkpoint of a step.

    The replay buffer is not read, because acting does not need it and it may be large or damaged.
    """
    store = CheckpointStore(folder / "checkpoints")
    match checkpoint:
        case "best":
            return store.load_best()
        case "last":
            return store.load_latest(memory=False)
    if not str(checkpoint).isdecimal():
        raise UsageError(f"checkpoint is {checkpoint!r}; it must be last, best or a step.")
    return store.load(int(checkpoint), memory=False)
