"""Parameters as NumPy arrays, and checks that they fit given networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.algorithms.base import Algorithm
from duetto.errors import CheckpointError
from duetto.functional.state_schema import ARRAY, DictOf
from duetto.networks.initializers import parameter_shapes
from duetto.networks.spaces import Space

Parameters = dict[str, dict[str, np.ndarray]]  # network's name to parameter's name to values
PARAMETERS = DictOf(DictOf(ARRAY))  # their schema in a saved state


def check_parameters(algorithm: Algorithm, observation: Space, action: Space, parameters: Any) -> None:
    """Raise CheckpointError unless networks for these spaces have such parameters, without building them.

    Custom networks are checked when they are built.
    """
    specs = algorithm.networks(observation, action)
    specs |= {target: specs[source] for target, source in algorithm.targets().items()}
    for name, spec in specs.items():
        if spec.custom is None:
            matched(parameters.get(name, {}), parameter_shapes(spec), name)


def matched(found: dict[str, np.ndarray], expected: dict[str, tuple[int, ...]], network: str) -> dict[str, np.ndarray]:
    """Return the parameters in the order of `expected`. Raise CheckpointError if names or shapes differ."""
    if found.keys() != expected.keys():
        missing, unknown = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
        fault = f"The parameters of {network} do not fit this network: missing {missing}, unknown {unknown}"
    elif wrong := next((name for name, shape in expected.items() if found[name].shape != shape), ""):
        fault = f"{network}'s {wrong} has shape {found[wrong].shape}; this network has {expected[wrong]}"
    else:
        return {name: found[name] for name in expected}
    raise CheckpointError(f"{fault}. Was it saved with other network options?")
