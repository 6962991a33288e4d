"""Write the graph with PyTorch, as a program of `torch.export` or as ONNX."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from duetto.learners.torch import TorchLearner
from duetto.networks import torch_layers
from duetto.tools.export.graph import Graph

EXAMPLES = 3  # environments in the trace; the graph takes any number


class Exported(nn.Module):
    """The graph as a module with one argument for each input."""

    def __init__(self, graph: Graph, learner: TorchLearner) -> None:
        super().__init__()
        self._graph, self._learner = graph, learner
        self._names = [port.name for port in graph.inputs]

    def forward(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        """Compute the graph's outputs, in order."""
        return self._graph(self._learner.networks(), dict(zip(self._names, arrays, strict=True)))


def write(graph: Graph, learner: TorchLearner, path: Path, form: str) -> None:
    """Write the file in the format "torch" or "onnx"."""
    arrays = tuple(torch.from_numpy(port.empty(EXAMPLES)) for port in graph.inputs)
    module = Exported(graph, learner).eval()
    with torch.no_grad(), _portable():
        batch = torch.export.Dim("batch", min=1, max=2**20)
        program = torch.export.export(module, arrays, dynamic_shapes=(tuple({0: batch} for _ in arrays),))
        if form == "torch":
            buffer = io.BytesIO()  # PyTorch's file writer kills the process if the disk is full
            torch.export.save(program, buffer)
            path.write_bytes(buffer.getbuffer())
            return
        torch.onnx.export(
            program,
            f=str(path),
            input_names=[port.name for port in graph.inputs],
            output_names=[port.name for port in graph.outputs],
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def reader(path: Path) -> Any:
    """Load the written "torch" file as a function from the inputs' NumPy arrays to the outputs, in order."""
    run = torch.export.load(str(path)).module()

    def call(*arrays: np.ndarray) -> Any:
        with torch.no_grad():
            return run(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))

    return call


def onnx_reader(path: Path, graph: Graph) -> Any:
    """Load the written "onnx" file in ONNX Runtime as a function from the inputs' NumPy arrays to the outputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    used = {port.name for port in session.get_inputs()}  # the ONNX export drops unused inputs

    def call(*arrays: np.ndarray) -> Any:
        inputs = zip(graph.inputs, arrays, strict=True)
        return session.run(None, {port.name: array for port, array in inputs if port.name in used})

    return call


@contextmanager
def _portable() -> Iterator[None]:
    """Trace only operators that exist on all processors, and silence PyTorch's warnings."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    try:
        with torch_layers.pytorch_products(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            log.setLevel(logging.ERROR)
            yield
    finally:
        log.setLevel(level)
