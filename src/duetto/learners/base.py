"""What every learner promises, and what both frameworks share: names, counters, schedules, random numbers, state.

A learner owns everything that learning changes. Its state uses only arrays and JSON values under names that are equal
in both frameworks, so that what one wrote the other loads: parameters, optimiser moments, counters, random state.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np

from duetto.algorithms.base import DIVERGENCE, PRIORITY, Algorithm, Array, Tree
from duetto.errors import CheckpointError, UsageError
from duetto.functional import forms
from duetto.functional.forms import ANY, ARRAY, Each
from duetto.functional.randomness import generator, restore, state_of
from duetto.functional.schedules import decayed, kl_adaptive
from duetto.learners.unrolling import Unrolling
from duetto.networks import numpy as host
from duetto.networks.initial import parameter_shapes
from duetto.networks.spaces import Space
from duetto.networks.windows import Window

Precision = Literal["float32", "bf16"]
Parameters = dict[str, dict[str, np.ndarray]]  # network's name to parameter's name to values


class Metrics(NamedTuple):
    """What one update reports. `values` stays on the device until somebody looks at it."""

    names: tuple[str, ...]
    values: Array  # (len(names),) float32
    priority: Array | None  # (B,), the new priority of each transition, where the algorithm has one

    def value(self, name: str) -> float:
        """One of the values, after waiting for its device."""
        return float(on_host(self.values)[self.names.index(name)])


class Rates(NamedTuple):
    """The numbers that change over a run, as they are at one update."""

    learning: dict[str, float]  # the optimisers' step sizes
    scheduled: dict[str, float]  # the algorithm's own, see `Algorithm.scheduled`


def on_host(array: Array) -> np.ndarray:
    """An array of either framework as NumPy's, after waiting for its device."""
    return array.cpu().numpy() if hasattr(array, "cpu") else np.asarray(array)


class Learner(ABC):
    """Parameters, targets, optimisers, counters and random state, and the update that changes them."""

    backend: Literal["torch", "jax"]
    threads = 0  # whose results these are, where they may depend on it (PyTorch on a CPU)

    def __init__(self, algorithm: Algorithm, observation: Space, action: Space, seed: int, precision: Precision):
        self.algorithm = algorithm
        self.specs = algorithm.networks(observation, action)
        self.targets = algorithm.targets()
        self.optimizer_specs = algorithm.optimizers()
        self.precision: Precision = precision
        self.random = generator(seed, "learner")
        self.updates = 0
        self._adapted = {name: spec.learning_rate for name, spec in self.optimizer_specs.items() if spec.kl > 0}
        self._seed = seed
        self.recurrent = any(spec.custom is None and spec.recurrent for spec in self.specs.values())
        # Parameters that change with every step are better left where they are. And what a rollout is collected with is
        # compared while learning: then both are in the same precision.
        self.on_policy = algorithm.memory().on_policy
        collects = self.on_policy and precision == "float32"
        self._acts_on_host = collects and all(host.worth_it(self.specs[name]) for name in algorithm.acting_networks)
        self._host: SimpleNamespace | None = None

    def update(self, batch: Any, progress: float = 0.0) -> Metrics:
        """Learn from one batch of NumPy arrays. `progress` in [0, 1] is how far the run is, for schedules.

        Where the algorithm splits it (`Algorithm.split`), one update is made for each part, and the metrics are means.
        """
        self.updates += 1
        rows = self.algorithm.split(self.random, len(batch.weight))
        noise = self.algorithm.draw(self.random, batch)
        rates = Rates(self.learning_rates(progress), self.algorithm.scheduled(progress))
        metrics = self._update(batch, rows, noise, rates)
        self._host = None
        if self._adapted:
            divergence = metrics.value(DIVERGENCE)
            for name, rate in self._adapted.items():
                self._adapted[name] = kl_adaptive(rate, divergence, self.optimizer_specs[name].kl)
        return metrics

    @abstractmethod
    def _update(self, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics:
        """The update on the framework. `rows` (M, B) are the parts of the batch; None takes it whole."""

    def act(self, obs: Tree, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions (N, ...) for observations (N, ...), NumPy to NumPy."""
        return self._acting("act", obs, noise)[0]

    def collect(self, obs: Tree, noise: np.ndarray | None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Actions (N, ...) to learn from and what the memory keeps with them; see `Algorithm.collect`."""
        return self._acting("collect", obs, noise)[0]

    def value(self, obs: Tree) -> np.ndarray:
        """State values (N,); see `Algorithm.value`."""
        return self._acting("value", obs)[0]

    def remember(
        self, method: Literal["act", "collect", "value"], window: Window, *noise: np.ndarray | None
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """That one of the three for recurrent networks, and their carry after the window's last observation."""
        return self._acting(method, window, *noise)

    def carry_shapes(self) -> dict[str, tuple[int, int]]:
        """The arrays of the acting networks' carry by name, without the leading axis; none without recurrence."""
        specs = {name: self.specs[name] for name in self.algorithm.acting_networks}
        return {f"{name}/{key}": shape for name, spec in specs.items() for key, shape in spec.carry().items()}

    def _acting(self, method: Literal["act", "collect", "value"], obs: Tree, *noise: np.ndarray | None) -> Any:
        """The algorithm's method with the networks as they are now, in NumPy where that is faster; and the carry."""
        if not self._acts_on_host:
            return self._act(method, obs, *noise)
        if self._host is None:
            parameters = self.parameters()
            names = self.algorithm.acting_networks
            self._host = SimpleNamespace(**{name: host.build(self.specs[name], parameters[name]) for name in names})
        return getattr(self.algorithm, method)(self._host, obs, *noise), {}

    def _callable(self, name: str, net: Any) -> Any:
        """The network as losses and policies call it."""
        source = self.targets.get(name, name)
        spec = self.specs[source]
        return Unrolling(net, source, spec.members) if spec.recurrent else net

    def _carry(self, nets: SimpleNamespace) -> dict[str, Array]:
        """What the acting networks that were called carry on."""
        called = (getattr(nets, name) for name in self.algorithm.acting_networks)
        return {key: part for net in called if isinstance(net, Unrolling) for key, part in net.carry.items()}

    @abstractmethod
    def _act(self, method: Literal["act", "collect", "value"], obs: Tree, *noise: np.ndarray | None) -> Any:
        """`_acting` on the framework, NumPy to NumPy: the method's result and the carry."""

    @abstractmethod
    def parameters(self) -> Parameters:
        """Copies of all parameters and running statistics, those of target networks too."""

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
            "adapted_rates": dict(self._adapted),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken."""
        moments = {"steps": int, "first": Each(ARRAY), "second": Each(ARRAY)}
        own = {"parameters": ANY, "optimizers": dict.fromkeys(self.optimizer_specs, moments), "random": ANY}
        forms.check(state, own | {"updates": int, "adapted_rates": Each(float)}, "learner")
        self.load_parameters(state["parameters"])
        self.load_optimizer_state(state["optimizers"])
        restore(self.random, state["random"])
        self.updates = state["updates"]
        # of those that adapt now, which `learning_rate_kl` may have changed
        self._adapted = {name: state["adapted_rates"].get(name, rate) for name, rate in self._adapted.items()}

    def learning_rates(self, progress: float) -> dict[str, float]:
        """Each optimiser's current step size."""
        return {
            name: self._adapted.get(name, spec.learning_rate) * decayed(spec.decay, progress, spec.final_rate)
            for name, spec in self.optimizer_specs.items()
        }

    def initial_random(self, name: str) -> np.random.Generator:
        """The generator for a network's first parameters, the same in both frameworks."""
        return generator(self._seed, f"parameters of {name}")


def check_parameters(algorithm: Algorithm, observation: Space, action: Space, parameters: Any) -> None:
    """Raise CheckpointError unless networks for these spaces have such parameters. Nothing is built for it.

    Networks of a user's own are looked at when they are there.
    """
    forms.check(parameters, Each(Each(ARRAY)), "learner/parameters")
    for name, shapes in _shapes(algorithm, observation, action).items():
        matched(parameters.get(name, {}), shapes, name)


def check_room(algorithm: Algorithm, observation: Space, action: Space) -> None:
    """Raise UsageError where the system refuses memory for the parameters, before a framework asks for it."""
    shapes = [shape for network in _shapes(algorithm, observation, action).values() for shape in network.values()]
    needed = 4 * sum(math.prod(shape) for shape in shapes)
    try:
        np.empty(needed, np.uint8)
    except (MemoryError, ValueError) as error:  # ValueError: more than there are addresses
        raise UsageError(
            f"The networks' parameters need {needed / 2**30:.1f} GiB of memory, which this machine does not have. Make "
            "them smaller."
        ) from error


def _shapes(algorithm: Algorithm, observation: Space, action: Space) -> dict[str, dict[str, tuple[int, ...]]]:
    """Of every network and target that is not a user's own."""
    specs, targets = algorithm.networks(observation, action), algorithm.targets()
    every = specs | {target: specs[source] for target, source in targets.items()}
    return {name: parameter_shapes(spec) for name, spec in every.items() if spec.custom is None}


def matched(found: dict[str, np.ndarray], expected: dict[str, tuple[int, ...]], network: str) -> dict[str, np.ndarray]:
    """The parameters in `found`, in the order of `expected`, or CheckpointError that says how they differ."""
    # Recurrent layers of actors and critics once stood beside no torso (see `storage.migration`).
    found = {f"torso.{name}" if f"torso.{name}" in expected else name: value for name, value in found.items()}
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
    """Mean, least and greatest of every array that a loss reports, and its scalars, as names and scalars."""
    names: list[str] = []
    values: list[Array] = []
    for name, array in sorted(
        (name, array) for name, array in info.items() if name != PRIORITY
    ):  # JAX sorts what passes through its transformations
        if array.ndim == 0:
            names.append(name)
            values.append(array)
            continue
        names += [f"{name}_mean", f"{name}_min", f"{name}_max"]
        values += [xp.mean(array), xp.min(array), xp.max(array)]
    return names, values
