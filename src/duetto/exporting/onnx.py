"""Running a written ONNX file with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


def reader(path: Path) -> Any:
    """Load the file as a function of named NumPy arrays."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    taken = [port.name for port in session.get_inputs()]
    given_back = [port.name for port in session.get_outputs()]

    def call(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = session.run(given_back, {name: given[name] for name in taken})
        return dict(zip(given_back, map(np.asarray, found), strict=True))

    return call
