"""Acting: what collectors and evaluations ask of a learner, and whoever can answer it without learning.

    Acting              the questions
      Learner           answers with the networks that it trains (`base`)
      Parted            answers with parameters from elsewhere
        HostActing        in NumPy, without importing a framework
        FrameworkActing   by a framework

`build` makes one of the last two, for a process that only acts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from duetto.algorithms.base import Algorithm, Array, Tree
from duetto.functional import blas, forms
from duetto.functional.forms import ARRAY, Each
from duetto.learners.parameters import Parameters, matched
from duetto.learners.unrolling import Unrolling
from duetto.networks import numpy as host
from duetto.networks.initial import parameter_shapes
from duetto.networks.spaces import Space
from duetto.networks.specs import NetworkSpec
from duetto.networks.windows import Window

if TYPE_CHECKING:
    from duetto.learners.base import Learner, Precision
    from duetto.learners.choice import Backend

Method = Literal["act", "collect", "value"]
Specs = dict[str, NetworkSpec]


class Acting(ABC):
    """An algorithm's policy, NumPy to NumPy.

    Attributes:
        algorithm: Whose policy it is.
        specs: Its networks by name, those that act among them.
        recurrent: Whether `remember` is the method to call, with a Window, instead of the method itself.
    """

    algorithm: Algorithm
    specs: Specs

    def __init__(self, algorithm: Algorithm, specs: Specs) -> None:
        self.algorithm, self.specs = algorithm, specs
        self.recurrent: bool = any(spec.custom is None and spec.recurrent for spec in specs.values())

    def act(self, obs: Tree, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions (N, ...) for observations (N, ...)."""
        return self._acting("act", obs, noise)[0]

    def collect(self, obs: Tree, noise: np.ndarray | None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Actions (N, ...) to learn from and what the memory keeps with them; see `Algorithm.collect`."""
        return self._acting("collect", obs, noise)[0]

    def value(self, obs: Tree) -> np.ndarray:
        """State values (N,); see `Algorithm.value`."""
        return self._acting("value", obs)[0]

    def remember(self, method: Method, window: Window, *noise: np.ndarray | None) -> tuple[Any, dict[str, np.ndarray]]:
        """The result of `act`, `collect` or `value` for recurrent networks, and their carry after the last
        observation.
        """
        return self._acting(method, window, *noise)

    def carry_shapes(self) -> dict[str, tuple[int, int]]:
        """Shapes of the acting networks' carry by name, without the leading axis; none without recurrence."""
        specs = {name: self.specs[name] for name in self.algorithm.acting_networks}
        return {f"{name}/{key}": shape for name, spec in specs.items() for key, shape in spec.carry().items()}

    @abstractmethod
    def _acting(self, method: Method, obs: Tree, *noise: np.ndarray | None) -> Any:
        """The result of the algorithm's method with the networks as they are now, and the carry, {} without
        recurrence.
        """


class Parted(Acting):
    """A policy apart from the learner: it acts once it was given parameters."""

    @abstractmethod
    def load(self, parameters: Parameters) -> None:
        """Act with copies of these from now on; only the networks that act need be there.

        Raises:
            CheckpointError: A name is missing or unknown, or a shape is not that of the network.
        """


class HostActing(Parted):
    """A policy that acts in NumPy, on one thread: so actions are the same on any number of cores."""

    def __init__(self, algorithm: Algorithm, specs: Specs) -> None:
        """`specs` may hold networks that do not act."""
        super().__init__(algorithm, specs)
        self._nets: dict[str, Any] = {}

    def load(self, parameters: Parameters) -> None:
        """See `Parted`. Products with a few rows take half as long where weights lie column by column."""
        forms.check(parameters, Each(Each(ARRAY)), "learner/parameters")
        copies: Parameters = {}
        for name in self.algorithm.acting_networks:
            values = matched(parameters.get(name, {}), parameter_shapes(self.specs[name]), name)
            copies[name] = {key: np.array(value, np.float32, order="F") for key, value in values.items()}
        self.use(copies)

    def use(self, parameters: Parameters) -> None:
        """Act with these arrays themselves; they are not copied, and have to fit the networks."""
        self._nets = {name: host.build(self.specs[name], parameters[name]) for name in self.algorithm.acting_networks}

    def _acting(self, method: Method, obs: Tree, *noise: np.ndarray | None) -> Any:
        """See `Acting`."""
        if not self._nets:
            raise RuntimeError("These networks have no parameters yet: load some before they act.")
        nets = SimpleNamespace(**{name: called(name, self.specs[name], net) for name, net in self._nets.items()})
        with blas.one_thread():
            return getattr(self.algorithm, method)(nets, obs, *noise), carried(self.algorithm, nets)


class FrameworkActing(Parted):
    """A policy that acts by a framework's learner: for images, networks of a user's own, rollouts in bf16."""

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner.algorithm, learner.specs)
        self._learner = learner

    def load(self, parameters: Parameters) -> None:
        """See `Parted`."""
        self._learner.load_parameters(parameters)

    def _acting(self, method: Method, obs: Tree, *noise: np.ndarray | None) -> Any:
        """See `Acting`."""
        return self._learner._act(method, obs, *noise)


def in_numpy(algorithm: Algorithm, specs: Specs, precision: Precision = "float32") -> bool:
    """Whether NumPy can act as learners of this precision do."""
    rounded = precision == "bf16" and algorithm.memory().on_policy  # else they act in float32 anyway
    return not rounded and all(host.possible(specs[name]) for name in algorithm.acting_networks)


def build(
    algorithm: Algorithm,
    observation: Space,
    action: Space,
    *,
    backend: Backend,
    precision: Precision = "float32",
    device: str = "cpu",
    threads: int = 0,
) -> Parted:
    """A policy that acts as a learner of this backend and precision does, once it is given that learner's parameters.

    It acts in NumPy where it can, and then no framework is imported and `device` does not count. PyTorch acts with one
    thread, JAX with `threads` (see `learners.build`).

    Raises:
        UsageError: NumPy cannot act with these networks, and the framework is not installed.
    """
    specs = algorithm.networks(observation, action)
    if in_numpy(algorithm, specs, precision):
        return HostActing(algorithm, specs)
    from duetto import learners

    acts: Any = OnlyActs(algorithm)
    how: Any = {"device": device, "precision": precision, "threads": 1 if backend == "torch" else threads}
    learner = learners.build(backend, acts, observation, action, **how)
    return FrameworkActing(learner)


class OnlyActs:
    """An algorithm without all that only learning needs: its learner has the acting networks alone."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._algorithm, name)

    def networks(self, observation: Space, action: Space) -> Specs:
        """Specs of the networks that act."""
        every = self._algorithm.networks(observation, action)
        return {name: every[name] for name in self._algorithm.acting_networks}

    def targets(self) -> dict[str, str]:
        """An empty dict: no target acts."""
        return {}

    def optimizers(self) -> dict[str, Any]:
        """An empty dict: nothing learns."""
        return {}


def called(name: str, spec: NetworkSpec, net: Any) -> Any:
    """The network as losses and policies call it; a recurrent one as a new `Unrolling` for each loss."""
    return Unrolling(net, name, spec.members) if spec.recurrent else net


def carried(algorithm: Algorithm, nets: SimpleNamespace) -> dict[str, Array]:
    """The carry, by name, of the acting networks that were called."""
    used = (getattr(nets, name) for name in algorithm.acting_networks)
    return {key: part for net in used if isinstance(net, Unrolling) for key, part in net.carry.items()}
