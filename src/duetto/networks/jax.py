"""Networks in JAX. The counterpart of `networks/torch.py`.

Compiled programs take flat lists of arrays (Equinox modules as arguments cost 70 µs more at each call); `with_arrays`
makes the network that computes with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from duetto.networks import jax_layers, network
from duetto.networks.initial import initial_parameters
from duetto.networks.specs import Network, NetworkSpec, Parameter

if TYPE_CHECKING:
    from duetto.networks.jax_custom import Custom


def build(spec: NetworkSpec, random: np.random.Generator) -> Built | Custom:
    """The network that the spec describes, with fresh parameters drawn from `random`."""
    if spec.custom is not None:
        from duetto.networks.jax_custom import Custom  # Equinox takes long to import, and nothing else needs it

        assert isinstance(spec, Network)
        return Custom(spec, random)
    return Built(spec, initial_parameters(spec, random))


class Built:
    """A network of Duetto's own, not a user's.

    Attributes: names, shapes, arrays (the first ones), all in one order, statistics last; learned, how many arrays
    precede the statistics.
    """

    def __init__(self, spec: NetworkSpec, values: dict[str, np.ndarray]) -> None:
        self._spec = spec
        self.names: list[str] = list(values)
        self.shapes: list[tuple[int, ...]] = [value.shape for value in values.values()]
        self.arrays: list[Array] = [jax.device_put(value) for value in values.values()]
        self.learned: int = len(values) - len(spec.statistics)

    def with_arrays(self, arrays: list[Array], precision: Any = jnp.float32) -> Any:
        """The network computing with these arrays; of a `Parameter` the array itself."""
        if isinstance(self._spec, Parameter):
            return arrays[0]
        exact = self._spec.exact | self._spec.statistics.keys()
        own = {
            name: array if name in exact else array.astype(precision)
            for name, array in zip(self.names, arrays, strict=True)
        }
        return network.Network(self._spec, own, jax_layers)

    def statistics(self, net: Any, arrays: list[Array]) -> list[Array]:
        """The running statistics as calls of `net` with `train` left them, else unchanged."""
        own = list(zip(self.names, arrays, strict=True))[self.learned :]
        return [net.moved.get(name, array) for name, array in own]
