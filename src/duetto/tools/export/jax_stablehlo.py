"""Write the graph with JAX, as StableHLO that `jax.export` serializes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export as jax_export

from duetto.learners.jax import JaxLearner
from duetto.tools.export.graph import Graph


def write(graph: Graph, learner: JaxLearner, path: Path) -> None:
    """Write the file, for CPUs, NVIDIA GPUs and TPUs."""
    names = [port.name for port in graph.inputs]

    def step(*arrays: Any) -> tuple[Any, ...]:
        with jax.default_matmul_precision("float32"):  # without TensorFloat-32
            return graph(learner.networks(learner.state), dict(zip(names, arrays, strict=True)))

    (batch,) = jax_export.symbolic_shape("N")
    arrays = [jax.ShapeDtypeStruct((batch, *port.shape), port.dtype) for port in graph.inputs]
    exported = jax_export.export(jax.jit(step), platforms=("cpu", "cuda", "tpu"))(*arrays)
    path.write_bytes(exported.serialize())


def reader(path: Path, graph: Graph) -> Any:
    """Load the written file as a function from the inputs' NumPy arrays to the outputs, in order."""
    exported = jax_export.deserialize(bytearray(path.read_bytes()))
    dtypes = [port.dtype for port in graph.inputs]
    return lambda *arrays: exported.call(*map(jnp.asarray, arrays, dtypes))
