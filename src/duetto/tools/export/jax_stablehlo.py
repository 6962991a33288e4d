"""Write the graph with JAX: StableHLO, serialized by `jax.export`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export

from duetto.learners.jax import JaxLearner
from duetto.tools.export.graph import Graph

NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32"}  # without jax_enable_x64


def write(graph: Graph, learner: JaxLearner, path: Path) -> None:
    """Write the file, for CPUs, NVIDIA GPUs and TPUs."""
    names = [port.name for port in graph.inputs]
    graph = replace(graph, action_dtypes={name: narrow(dtype) for name, dtype in graph.action_dtypes.items()})

    def step(*arrays: Any) -> tuple[Any, ...]:
        with jax.default_matmul_precision("float32"):  # without TensorFloat-32
            return graph(learner.networks(), dict(zip(names, arrays, strict=True)))

    (batch,) = jax_export.symbolic_shape("N")
    arrays = [jax.ShapeDtypeStruct((batch, *port.shape), narrow(port.dtype)) for port in graph.inputs]
    exported = jax_export.export(jax.jit(step), platforms=("cpu", "cuda", "tpu"))(*arrays)
    path.write_bytes(exported.serialize())


def narrow(dtype: str) -> str:
    """Return the dtype that JAX uses for this one by default."""
    return NARROW.get(dtype, dtype)


def reader(path: Path, graph: Graph) -> Any:
    """Load the written file as a function of named NumPy arrays."""
    exported = jax_export.deserialize(bytearray(path.read_bytes()))
    names = [port.name for port in graph.outputs]

    def call(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        arrays = [jnp.asarray(inputs[port.name], narrow(port.dtype)) for port in graph.inputs]
        return dict(zip(names, map(np.asarray, exported.call(*arrays)), strict=True))

    return call
