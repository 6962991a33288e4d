"""Networks in NumPy, for acting on a CPU without importing a framework.

With one observation of 17 numbers and 64-64 units for policy and value, a call takes half of PyTorch's time and 0.8 of
JAX's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.networks import network, numpy_layers
from duetto.networks.heads import PolicyHead
from duetto.networks.preprocessing import is_image
from duetto.networks.specs import AnyNetworkSpec, NetworkSpec

MAX_HIDDEN = 300  # units of a hidden layer up to which NumPy is faster


def can_act(spec: AnyNetworkSpec) -> bool:
    """Return whether NumPy can compute this network: no images, ensembles or custom networks."""
    if not isinstance(spec, NetworkSpec) or spec.custom is not None or spec.members:
        return False
    return not is_image(spec.observation)


def is_faster(spec: AnyNetworkSpec) -> bool:
    """Return whether NumPy is faster for acting than a framework that is already imported."""
    if not isinstance(spec, NetworkSpec) or not can_act(spec) or spec.recurrent:
        return False
    return isinstance(spec.heads[0], PolicyHead) and max(spec.torso.hidden, default=0) <= MAX_HIDDEN


def build(spec: AnyNetworkSpec, parameters: dict[str, np.ndarray]) -> network.Network:
    """Build the network with these parameters; of an ensemble only `q1` works."""
    assert isinstance(spec, NetworkSpec)
    layers: Any = numpy_layers  # without those of images and ensembles
    return network.Network(spec, parameters, layers)
