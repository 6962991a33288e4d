"""A policy chooses actions for observations, both as NumPy arrays.

    Policy           the interface that collectors and evaluations use
      Learner        acts with the networks that it trains (`base`)
      NumpyPolicy    acts in NumPy, without importing a framework

`build` makes a policy for a process that only acts: a `NumpyPolicy` if NumPy has the networks' layers, else a learner
with the acting networks alone.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from typing_extensions import override

from duetto.algorithms.base import Algorithm, Array, Tree
from duetto.cpu import one_blas_thread
from duetto.errors import CheckpointError
from duetto.functional.state_schema import ARRAY, DictOf
from duetto.networks import numpy_layers
from duetto.networks.heads import PolicyHead
from duetto.networks.initializers import parameter_shapes
from duetto.networks.network import Network, RecurrentUnroll
from duetto.networks.preprocessing import is_image
from duetto.networks.spaces import Space
from duetto.networks.specs import AnyNetworkSpec, NetworkSpec

if TYPE_CHECKING:
    from duetto.learners import Backend
    from duetto.learners.base import Precision

Method = Literal["act", "collect", "value"]
Specs = dict[str, AnyNetworkSpec]
Parameters = dict[str, dict[str, np.ndarray]]  # network's name to parameter's name to values
PARAMETERS = DictOf(DictOf(ARRAY))  # their schema in a saved state
MAX_HIDDEN = 300  # units of a hidden layer up to which NumPy is faster


class Policy(ABC):
    """An algorithm's policy, with NumPy arrays as inputs and outputs.

    Attributes:
        algorithm: The algorithm.
        specs: Specs of networks by name; all networks that act are among them.
        recurrent: Whether to call `call_with_carry` with a SequenceInput, instead of `act` and `collect`.
    """

    algorithm: Algorithm
    specs: Specs

    def __init__(self, algorithm: Algorithm, specs: Specs) -> None:
        self.algorithm, self.specs = algorithm, specs
        self.recurrent: bool = any(spec.custom is None and spec.recurrent for spec in specs.values())

    def act(self, obs: Tree, noise: np.ndarray | None = None) -> np.ndarray:
        """Return actions (N, ...) for observations (N, ...)."""
        return self.call_with_carry("act", obs, noise)[0]

    def collect(self, obs: Tree, noise: np.ndarray | None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return exploring actions (N, ...), and the arrays to store with them; see `Algorithm.collect`."""
        return self.call_with_carry("collect", obs, noise)[0]

    def value(self, obs: Tree) -> np.ndarray:
        """Return state values (N,); see `Algorithm.value`."""
        return self.call_with_carry("value", obs)[0]

    def carry_shapes(self) -> dict[str, tuple[int, int]]:
        """Return shapes of the acting networks' hidden states by name, without the batch axis."""
        specs: Any = {name: self.specs[name] for name in self.algorithm.acting_networks if self.specs[name].recurrent}
        return {f"{name}/{key}": shape for name, spec in specs.items() for key, shape in spec.carry().items()}

    def _callable(self, name: str, net: Any) -> Any:
        """Return network `name` as losses and policies call it: `net`, or if recurrent, a new `RecurrentUnroll`."""
        return RecurrentUnroll(net, name) if self.specs[name].recurrent else net

    @abstractmethod
    def load_parameters(self, parameters: Parameters) -> None:
        """Copy these parameters, and ignore networks that the policy does not have.

        Raises:
            CheckpointError: A parameter of the policy's networks is missing, unknown or of another shape.
        """

    @abstractmethod
    def call_with_carry(self, method: Method, obs: Tree, *noise: np.ndarray | None) -> Any:
        """Call the algorithm's method; return its result and the hidden states after it ({} if feedforward).

        For recurrent networks, `obs` is a `SequenceInput`, which contains the hidden states before the call.
        """


class NumpyPolicy(Policy):
    """A policy that acts in NumPy with one thread, so actions do not depend on the number of cores."""

    def __init__(self, algorithm: Algorithm, specs: Specs) -> None:
        """`specs` may contain networks that do not act."""
        super().__init__(algorithm, specs)
        self._nets: dict[str, Any] = {}

    @override
    def load_parameters(self, parameters: Parameters) -> None:
        """Copy these parameters in Fortran order, which halves the time of matrix products for a few observations."""
        copies: Parameters = {}
        for name in self.algorithm.acting_networks:
            values = matched(parameters.get(name, {}), parameter_shapes(self.specs[name]), name)
            copies[name] = {key: np.array(value, np.float32, order="F") for key, value in values.items()}
        self.use(copies)

    def use(self, parameters: Parameters) -> None:
        """Act with these arrays, which must fit the networks, without copying them."""
        layers: Any = numpy_layers  # it has no layers for images and ensembles
        specs: Any = self.specs
        self._nets = {name: Network(specs[name], parameters[name], layers) for name in self.algorithm.acting_networks}

    @override
    def call_with_carry(self, method: Method, obs: Tree, *noise: np.ndarray | None) -> Any:
        nets = SimpleNamespace(**{name: self._callable(name, net) for name, net in self._nets.items()})
        with one_blas_thread():
            return getattr(self.algorithm, method)(nets, obs, *noise), carried(self.algorithm, nets)


def can_act(spec: AnyNetworkSpec) -> bool:
    """Return whether NumPy can compute this network: no images, ensembles or custom networks."""
    return isinstance(spec, NetworkSpec) and not (spec.custom or spec.members or is_image(spec.observation))


def is_faster(spec: AnyNetworkSpec) -> bool:
    """Return whether NumPy is faster for acting than a framework that is already imported.

    With one observation of 17 numbers and 64-64 units for policy and value, a call takes half of PyTorch's time and 0.8
    of JAX's.
    """
    if not isinstance(spec, NetworkSpec) or not can_act(spec) or spec.recurrent:
        return False
    return isinstance(spec.heads[0], PolicyHead) and max(spec.torso.hidden, default=0) <= MAX_HIDDEN


def in_numpy(algorithm: Algorithm, specs: Specs, precision: Precision = "float32") -> bool:
    """Return whether a NumPy policy can act like a learner of this precision."""
    rounded = precision == "bf16" and algorithm.memory().on_policy  # off-policy learners act in float32
    return not rounded and all(can_act(specs[name]) for name in algorithm.acting_networks)


def build(
    algorithm: Algorithm,
    observation: Space,
    action: Space,
    *,
    backend: Backend,
    precision: Precision = "float32",
    device: str = "cpu",
    threads: int = 0,
) -> Policy:
    """Build a policy that acts like a learner of this backend and precision with the same parameters.

    It acts in NumPy if possible; then no framework is imported, and `device` has no effect. PyTorch acts with one
    thread, JAX with `threads` (see `learners.build`).

    Raises:
        UsageError: NumPy cannot act with these networks, and the framework is not installed.
    """
    specs = algorithm.networks(observation, action)
    if in_numpy(algorithm, specs, precision):
        return NumpyPolicy(algorithm, specs)
    from duetto import learners

    acting_only = inference_only(algorithm)
    how: Any = {"device": device, "precision": precision, "threads": 1 if backend == "torch" else threads}
    return learners.build(backend, acting_only, observation, action, **how)


def inference_only(algorithm: Algorithm) -> Any:
    """Return the algorithm with its acting networks alone, for a learner without targets and optimizers."""

    def networks(observation: Space, action: Space) -> Specs:
        specs = algorithm.networks(observation, action)
        return {name: specs[name] for name in algorithm.acting_networks}

    acting = copy.copy(algorithm)
    vars(acting).update(networks=networks, targets=dict, optimizers=dict)
    return acting


def carried(algorithm: Algorithm, nets: SimpleNamespace) -> dict[str, Array]:
    """Return the hidden states, by name, of the acting networks that were called."""
    used = (getattr(nets, name) for name in algorithm.acting_networks)
    return {key: part for net in used if isinstance(net, RecurrentUnroll) for key, part in net.carry.items()}


# ---------------------------------------------------------------------------------------------------- parameters
def check_parameters(algorithm: Algorithm, observation: Space, action: Space, parameters: Any) -> None:
    """Raise CheckpointError if the parameters do not fit networks for these spaces.

    This builds no network, so it skips custom networks. They are checked when they are built.
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
