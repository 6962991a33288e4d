"""On a GPU, PyTorch that adds in the same order each time, so that a run can be made again, and goes on, bit for bit.

What has no such way there warns, with its name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

# Read when cuBLAS begins: with memory of one size for all its products it takes the same way each time, recurrent
# layers' among them (PyTorch's notes on reproducibility).
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.utils.deterministic

MEMORY: Any = torch.utils.deterministic  # its own `fill_uninitialized_memory` is made as it is imported
WARNS = 1  # of the modes of PyTorch: 0 lets everything, 2 refuses


@contextlib.contextmanager
def repeatable() -> Iterator[None]:
    """A context in which PyTorch takes operations that give the same bits each time; a stricter mode stays."""
    mode, fills = torch.get_deterministic_debug_mode(), MEMORY.fill_uninitialized_memory
    torch.set_deterministic_debug_mode(max(mode, WARNS))
    MEMORY.fill_uninitialized_memory = fills and mode > 0  # with zeros, for whoever asked for this mode
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        MEMORY.fill_uninitialized_memory = fills
