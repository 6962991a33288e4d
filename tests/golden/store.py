"""Recorded results ("golden traces"), one compressed file per part, and their comparison with today's.

The tests in this folder compare. To record again: `GOLDEN_RECORD=1 pytest -n 0 tests/golden -k PART`.
A commit that changes a trace says why the new numbers are right.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).with_name("data")
RECORD = os.environ.get("GOLDEN_RECORD") == "1"
_loaded: dict[str, dict[str, np.ndarray]] = {}

Rule = Callable[[str, np.ndarray, np.ndarray], None]  # name, recorded, now; raises AssertionError


def compare(part: str, case: str, results: Mapping[str, Any], rule: Rule | None = None, record: bool = True) -> None:
    """Compare the arrays of one case with the recorded ones, by `rule` or exactly; with GOLDEN_RECORD=1, record them.

    Results that should equal others that are recorded are only compared (`record=False`).
    """
    arrays = {f"{case}/{name}": np.asarray(value) for name, value in results.items()}
    if RECORD and record:
        _record(part, case, arrays)
    recorded = {name: value for name, value in _load(part).items() if name.startswith(f"{case}/")}
    assert recorded, f"no trace of {case} in {part}.npz"
    assert recorded.keys() == arrays.keys(), f"{part}: other names: {sorted(recorded.keys() ^ arrays.keys())}"
    for name, value in recorded.items():
        (rule or exact)(f"{part}/{name}", value, arrays[name])


def exact(name: str, recorded: np.ndarray, now: np.ndarray) -> None:
    """Compare by value, shape and dtype."""
    assert recorded.dtype == now.dtype, f"{name}: dtype {now.dtype}, recorded {recorded.dtype}"
    np.testing.assert_array_equal(now, recorded, err_msg=name)


def digest(*arrays: Any) -> str:
    """Return a hash of arrays' dtypes, shapes and bytes, to record large inputs by."""
    found = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        found.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return found.hexdigest()[:32]


def _load(part: str) -> dict[str, np.ndarray]:
    if part not in _loaded:
        with np.load(DATA / f"{part}.npz", allow_pickle=False) as file:
            _loaded[part] = dict(file)
    return _loaded[part]


def _record(part: str, case: str, arrays: dict[str, np.ndarray]) -> None:
    DATA.mkdir(exist_ok=True)
    kept = _load(part) if (DATA / f"{part}.npz").exists() else _loaded.setdefault(part, {})
    for name in [name for name in kept if name.startswith(f"{case}/")]:
        del kept[name]
    kept.update(arrays)
    np.savez_compressed(DATA / f"{part}.npz", **dict(sorted(kept.items())))
