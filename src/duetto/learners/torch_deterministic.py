"""Deterministic operations of PyTorch on a GPU, so that a run can be repeated and resumed bit for bit.

An operation without a deterministic kernel warns, with its name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

# cuBLAS reads it when it starts: with one workspace size for all products it is deterministic, also in recurrent
# layers (PyTorch's notes on reproducibility).
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.utils.deterministic

MEMORY: Any = torch.utils.deterministic  # its `fill_uninitialized_memory` is defined at import
WARN = 1  # PyTorch's modes are 0 (off), 1 (warn) and 2 (raise)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """Use deterministic operations inside; a stricter mode stays. The modes belong to the process."""
    mode, fills = torch.get_deterministic_debug_mode(), MEMORY.fill_uninitialized_memory
    torch.set_deterministic_debug_mode(max(mode, WARN))
    MEMORY.fill_uninitialized_memory = fills and mode > 0  # only for users who set the mode themselves
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        MEMORY.fill_uninitialized_memory = fills
