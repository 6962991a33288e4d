"""On a GPU, PyTorch that adds in the same order each time, so that a run can be made again, and goes on, bit for bit.

What has no such way there warns, with its name.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

# Read when cuBLAS begins: with memory of one size for all its products it takes the same way each time, recurrent
# layers' among them (PyTorch's notes on reproducibility).
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.utils.deterministic

MEMORY: Any = torch.utils.deterministic  # its own `fill_uninitialized_memory` is made as it is imported
WARNS = 1  # of the modes of PyTorch: 0 lets everything, 2 refuses

_lock = threading.Lock()
_inside = 0  # threads and contexts that are, for the mode is the whole process's
_before: tuple[int, bool] = (0, True)
_set: tuple[int, bool] = _before


@contextlib.contextmanager
def repeatable() -> Iterator[None]:
    """A context in which PyTorch takes operations that give the same bits each time; a stricter mode stays.

    The mode that was set before comes back when the last thread is out, unless somebody set another meanwhile.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _inside, _before, _set
    with _lock:
        _inside += 1
        if _inside == 1:
            _before = mode, fills = _modes()
            _use((max(mode, WARNS), fills and mode > 0))  # filled, by who asked for the mode
            _set = _modes()


def _leave() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if _inside == 0 and _modes() == _set:
            _use(_before)


def _modes() -> tuple[int, bool]:
    return torch.get_deterministic_debug_mode(), MEMORY.fill_uninitialized_memory


def _use(modes: tuple[int, bool]) -> None:
    torch.set_deterministic_debug_mode(modes[0])
    MEMORY.fill_uninitialized_memory = modes[1]
