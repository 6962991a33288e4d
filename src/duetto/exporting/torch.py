"""The graph written by PyTorch: a program of `torch.export`, or ONNX."""

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

from duetto.exporting.graph import Graph
from duetto.learners.torch import TorchLearner
from duetto.networks import torch_layers

EXAMPLES = 3  # environments that the graph is traced with; any number is taken later


class Exported(nn.Module):
    """The graph as a module that takes one array for each of its inputs."""

    def __init__(self, graph: Graph, learner: TorchLearner) -> None:
        super().__init__()
        self._graph, self._learner = graph, learner
        learner.freeze()
        self._names = [port.name for port in graph.inputs]

    def forward(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        """Compute the graph's outputs, in order."""
        return self._graph(self._learner.networks(), dict(zip(self._names, arrays, strict=True)))


def write(graph: Graph, learner: TorchLearner, path: Path, form: str) -> None:
    """Write the file in the form "torch" or "onnx"."""
    arrays = tuple(torch.from_numpy(port.empty(EXAMPLES)) for port in graph.inputs)
    module = Exported(graph, learner).eval()
    with torch.no_grad(), _portable():
        batch = torch.export.Dim("batch", min=1, max=2**20)
        program = torch.export.export(module, arrays, dynamic_shapes=(tuple({0: batch} for _ in arrays),))
        if form == "torch":
            whole = io.BytesIO()  # PyTorch's own writer ends the process where the disk is full
            torch.export.save(program, whole)
            path.write_bytes(whole.getbuffer())
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


def reader(path: Path, graph: Graph) -> Any:
    """Load the written "torch" file as a function of named NumPy arrays."""
    run = torch.export.load(str(path)).module()
    names = [port.name for port in graph.outputs]

    def call(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        with torch.no_grad():
            found = run(*(torch.from_numpy(np.ascontiguousarray(given[port.name])) for port in graph.inputs))
        return dict(zip(names, (part.numpy() for part in found), strict=True))

    return call


@contextmanager
def _portable() -> Iterator[None]:
    """Use operators that exist everywhere, not those that are fastest on this processor; silence PyTorch's warnings."""
    before, torch_layers.products.onednn = torch_layers.products.onednn, False
    log = logging.getLogger("torch.onnx")
    level = log.level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own future
            log.setLevel(logging.ERROR)  # it misses packages that are not needed
            yield
    finally:
        torch_layers.products.onednn = before
        log.setLevel(level)
