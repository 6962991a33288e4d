"""Networks in NumPy, for acting on a CPU: a few rows cost less here than calling a framework does.

    one observation of 17 numbers, 64-64 for policy and value: half as long as through PyTorch, 0.8 of JAX's time

And whoever only acts need not import a framework. Nothing is learned here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.networks import network, numpy_layers
from duetto.networks.encoding import is_image
from duetto.networks.specs import Network, NetworkSpec, Policy

LARGEST = 300  # units of a hidden layer: with more the frameworks' products win


def possible(spec: NetworkSpec) -> bool:
    """Whether this network can act in NumPy: no images, no ensembles, no network of a user's own."""
    if not isinstance(spec, Network) or spec.custom is not None or spec.members:
        return False
    return not is_image(spec.observation)


def worth_it(spec: NetworkSpec) -> bool:
    """Whether acting with this network is faster in NumPy than in a framework that is imported anyway."""
    if not isinstance(spec, Network) or not possible(spec) or spec.recurrent:
        return False
    return isinstance(spec.heads[0], Policy) and max(spec.torso.hidden, default=0) <= LARGEST


def build(spec: NetworkSpec, parameters: dict[str, np.ndarray]) -> network.Network:
    """The network with these parameters; only for what is `possible`, or for the `first` member of an ensemble."""
    assert isinstance(spec, Network)
    layers: Any = numpy_layers  # not all of them: what is possible needs no others
    return network.Network(spec, parameters, layers)
