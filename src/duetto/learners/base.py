"""What every learner promises, and what both frameworks share: names, counters, schedules, random numbers, state.

A learner owns everything that learning changes. Its state uses only arrays and JSON values under names that are equal
in both frameworks, so that what one wrote the other loads: parameters, optimiser moments, counters, random state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple

import numpy as np

from duetto.algorithms.base import Algorithm, Array, Batch, Tree
from duetto.errors import CheckpointError
from duetto.functional.randomness import generator, restore, state_of
from duetto.functional.schedules import decayed
from duetto.networks.spaces import Space

Precision = Literal["float32", "bf16"]
Parameters = dict[str, dict[str, np.ndarray]]  # network's name to parameter's name to values


class Metrics(NamedTuple):
    """What one update reports. `values` stays on the device until somebody looks at it."""

    names: tuple[str, ...]
    values: Array  # (len(names),) float32
    priority: Array | None  # (B,), the new priority of each transition, where the algorithm has one


def on_host(array: Array) -> np.ndarray:
    """An array of either framework as NumPy's, after waiting for its device."""
    return array.cpu().numpy() if hasattr(array, "cpu") else np.asarray(array)


class Learner(ABC):
    """Parameters, targets, optimisers, counters and random state, and the update that changes them."""

    backend: Literal["torch", "jax"]

    def __init__(self, algorithm: Algorithm, observation: Space, action: Space, seed: int, precision: Precision):
        self.algorithm = algorithm
        self.specs = algorithm.networks(observation, action)
        self.targets = algorithm.targets()
        self.optimizer_specs = algorithm.optimizers()
        self.precision = precision
        self.random = generator(seed, "learner")
        self.updates = 0
        self._seed = seed

    @abstractmethod
    def update(self, batch: Batch, progress: float = 0.0) -> Metrics:
        """Learn from one batch of NumPy arrays. `progress` in [0, 1] is how far the run is, for schedules."""

    @abstractmethod
    def act(self, obs: Tree, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions (N, ...) for observations (N, ...), NumPy to NumPy."""

    @abstractmethod
    def parameters(self) -> Parameters:
        """Copies of all parameters, those of target networks too."""

    @abstractmethod
    def load_parameters(self, parameters: Parameters) -> None:
        """Set all parameters; a missing or unknown name or a wrong shape raises CheckpointError."""

    @abstractmethod
    def optimizer_state(self) -> dict[str, Any]:
        """For each optimiser its number of steps and Adam's two moments under the parameters' names."""

    @abstractmethod
    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """Set all optimisers."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on."""
        return {
            "parameters": self.parameters(),
            "optimizers": self.optimizer_state(),
            "random": state_of(self.random),
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken."""
        self.load_parameters(state["parameters"])
        self.load_optimizer_state(state["optimizers"])
        restore(self.random, state["random"])
        self.updates = state["updates"]

    def learning_rates(self, progress: float) -> dict[str, float]:
        """Each optimiser's current step size."""
        return {
            name: spec.learning_rate * decayed(spec.decay, progress, spec.final_rate)
            for name, spec in self.optimizer_specs.items()
        }

    def initial_random(self, name: str) -> np.random.Generator:
        """The generator for a network's first parameters, the same in both frameworks."""
        return generator(self._seed, f"parameters of {name}")


def matched(found: dict[str, np.ndarray], expected: dict[str, tuple[int, ...]], network: str) -> dict[str, np.ndarray]:
    """The parameters in `found`, in the order of `expected`, or CheckpointError that says how they differ."""
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


def summarize(info: dict[str, Array], xp: Any) -> tuple[list[str], list[Array]]:
    """Mean, least and greatest of every array that a loss reports, as names and scalars."""
    names: list[str] = []
    values: list[Array] = []
    for name, array in info.items():
        names += [f"{name}_mean", f"{name}_min", f"{name}_max"]
        values += [xp.mean(array), xp.min(array), xp.max(array)]
    return names, values
