"""Parameters as NumPy arrays, and checks that they fit given networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.algorithms.base import Algorithm
from duetto.errors import CheckpointError
from duetto.functional import state_schema
from duetto.functional.state_schema import ARRAY, DictOf
from duetto.networks.initializers import parameter_shapes
from duetto.networks.spaces import Space

Parameters = dict[str, dict[str, np.ndarray]]  # network's name to parameter's name to values


def check_parameters(algorithm: Algorithm, observation: Space, action: Space, parameters: Any) -> None:
    """Raise CheckpointError unless networks for these spaces have such parameters, without building them.

    Custom networks are checked when they are built.
    """
    state_schema.check(parameters, DictOf(DictOf(ARRAY)), "learner/parameters")
    for name, shapes in _shapes(algorithm, observation, action).items():
        matched(parameters.get(name, {}), shapes, name)


def _shapes(algorithm: Algorithm, observation: Space, action: Space) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return the shapes of all parameters, except those of custom networks, by network and name."""
    specs, targets = algorithm.networks(observation, action), algorithm.targets()
    every = specs | {target: specs[source] for target, source in targets.items()}
    return {name: parameter_shapes(spec) for name, spec in every.items() if spec.custom is None}


def matched(found: dict[str, np.ndarray], expected: dict[str, tuple[int, ...]], network: str) -> dict[str, np.ndarray]:
    """Return the parameters in the order of `expected`. Raise CheckpointError if names or shapes differ."""
    if found.keys() != expected.keys():
        missing, unknown = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
        raise CheckpointError(
            f"The parameters of {network} do not fit this network: missing {missing}, unknown {unknown}. "
            "Was it saved with other network options?"
        )
    for name, shape in expected.items():
        if found[name].shape != shape:
            raise CheckpointError(
                f"{network}'s {name} has shape {found[name].shape}; this network has {shape}. "
                "Was it saved with other network options?"
            )
    return {name: found[name] for name in expected}
