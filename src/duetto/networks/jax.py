"""Networks in JAX; the counterpart of `networks/torch.py`.

Compiled programs take flat lists of arrays, since Equinox modules as arguments cost 70 µs more at each call.
`with_arrays` makes the network that computes with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from duetto.networks import jax_layers, network
from duetto.networks.initializers import initial_parameters
from duetto.networks.specs import AnyNetworkSpec, NetworkSpec, ParameterSpec
from duetto.networks.weight_projection import projected

if TYPE_CHECKING:
    from duetto.networks.jax_custom import JaxCustomNetwork


def build(spec: AnyNetworkSpec, random: np.random.Generator) -> JaxNetwork | JaxCustomNetwork:
    """Build the network of the spec, with parameters drawn from `random`."""
    if spec.custom is not None:
        from duetto.networks.jax_custom import JaxCustomNetwork  # the only user of Equinox, which is slow to import

        assert isinstance(spec, NetworkSpec)
        return JaxCustomNetwork(spec, random)
    return JaxNetwork(spec, initial_parameters(spec, random))


class JaxNetwork:
    """The arrays of a network, in one order with the running statistics last.

    Attributes:
        names: Their names.
        shapes: Their shapes.
        arrays: Their initial values.
        learned: The number of arrays before the statistics.
    """

    def __init__(self, spec: AnyNetworkSpec, values: dict[str, np.ndarray]) -> None:
        self._spec = spec
        self.names: list[str] = list(values)
        self.shapes: list[tuple[int, ...]] = [value.shape for value in values.values()]
        self.arrays: list[Array] = [jax.device_put(value) for value in values.values()]
        self.learned: int = len(values) - len(spec.statistics)

    def with_arrays(self, arrays: list[Array], precision: Any = jnp.float32) -> Any:
        """Return the network with these arrays; of a `ParameterSpec` the array itself."""
        if isinstance(self._spec, ParameterSpec):
            return arrays[0]
        exact = self._spec.exact | self._spec.statistics.keys()
        named = zip(self.names, arrays, strict=True)
        values = {name: array if name in exact else array.astype(precision) for name, array in named}
        return network.Network(self._spec, values, jax_layers)

    def projected(self, learned: list[Array]) -> list[Array]:
        """Return the learned arrays with weights projected onto unit norm."""
        assert isinstance(self._spec, NetworkSpec)
        values = dict(zip(self.names, learned, strict=False))  # without the statistics
        return list((values | projected(self._spec.head_stacks, values)).values())

    def statistics(self, net: Any, arrays: list[Array]) -> list[Array]:
        """Return the running statistics after the last call of `net` with `train`, else those of `arrays`."""
        statistics = list(zip(self.names, arrays, strict=True))[self.learned :]
        return [net.updated_stats.get(name, array) for name, array in statistics]
