"""What every learner promises, and what both frameworks share: names, counters, schedules, random numbers, state.

A learner owns everything that learning changes. Its state uses only arrays and JSON values under names that are equal
in both frameworks, so that what one wrote the other loads: parameters, optimiser moments, counters, random state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from array_api_compat import array_namespace

from duetto.algorithms.base import DIVERGENCE, PRIORITY, Algorithm, Array, OptimizerSpec, Tree
from duetto.algorithms.nearest import did_you_mean
from duetto.errors import UsageError
from duetto.functional import forms
from duetto.functional.forms import ANY, ARRAY, Each
from duetto.functional.policy_gradient import weighted_mean
from duetto.functional.randomness import generator, restore, state_of
from duetto.functional.schedules import decayed, kl_adaptive
from duetto.learners.acting import Acting, HostActing, Method, called, carried
from duetto.learners.dealing import together
from duetto.learners.packing import kind
from duetto.learners.parameters import Parameters
from duetto.learners.twins import Twins
from duetto.networks import numpy as host
from duetto.networks.spaces import Space

Precision = Literal["float32", "bf16"]


class Metrics(NamedTuple):
    """The report of one update. `values` stays on the device until somebody looks at it."""

    names: tuple[str, ...]
    values: Array  # (len(names),) float32
    priority: Array | None  # (B,), the new priority of each transition, where the algorithm has one

    def value(self, name: str) -> float:
        """The value of this name, after waiting for its device."""
        return float(on_host(self.values)[self.names.index(name)])


class Rates(NamedTuple):
    """The numbers that change over a run, as they are at one update."""

    learning: dict[str, float]  # the optimisers' step sizes
    scheduled: dict[str, float]  # the algorithm's own, see `Algorithm.scheduled`


def on_host(array: Array) -> np.ndarray:
    """An array of either framework as NumPy's, after waiting for its device."""
    return array.cpu().numpy() if hasattr(array, "cpu") else np.asarray(array)


class Whole:
    """An array (N, ...) on the device, which nobody waits for until one of its rows is looked at."""

    def __init__(self, array: Any) -> None:
        self._array, self._copy = array, None

    def __getitem__(self, number: int) -> Row:
        return Row(self, number)

    def on_host(self) -> np.ndarray:
        """The whole array as NumPy's, after waiting for its device."""
        if self._copy is None:
            self._copy, self._array = on_host(self._array), None
        return self._copy


class Row:
    """A row of a `Whole`: a seed's, or an update's. NumPy can make it an array."""

    def __init__(self, whole: Whole, number: int) -> None:
        self._whole, self._number = whole, number

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._whole.on_host()[self._number], dtype)


class Prepared(NamedTuple):
    """The inputs of one update."""

    phase: int
    batch: Any
    rows: np.ndarray | None  # (M, B), the parts of the batch; None takes it whole
    noise: Any
    rates: Rates


class Learner(Acting):
    """Parameters, targets, optimisers, counters and random state, and the update that changes them."""

    backend: Literal["torch", "jax"]
    threads = 0  # whose results these are, where they may depend on it (on a CPU)
    at_once = 1  # updates that `update_each` makes at once, at most
    seeds = 1  # that are computed side by side, see `voices`
    ranks = 1  # that a batch is dealt to, see `ranks`
    remote = False  # whether they are all elsewhere, see `remote`
    twins: Twins | None = None  # the images of memories that it keeps; None: it keeps none

    def __init__(self, algorithm: Algorithm, observation: Space, action: Space, seed: int, precision: Precision):
        super().__init__(algorithm, algorithm.networks(observation, action))
        if precision not in get_args(Precision):
            raise UsageError(f"precision is {precision!r}; it must be one of {', '.join(get_args(Precision))}.")
        for name, spec in self.specs.items():
            if spec.custom is not None and spec.recurrent:
                raise UsageError(
                    f"{algorithm.name()}'s {name} is a network of your own, which sees one step at a time, and its "
                    "recurrent layers learn from sequences. Leave the network out, or set recurrent to none."
                )
        self.targets: dict[str, str] = algorithm.targets()
        self.optimizer_specs: dict[str, OptimizerSpec] = algorithm.optimizers()
        for method, names in (("optimizers", self.optimizer_specs), ("targets", self.targets.values())):
            check_is_network(method, names, self.specs)
        self.precision: Precision = precision
        self.random: np.random.Generator = generator(seed, "learner")
        self.updates: int = 0
        self._adapted = {name: spec.learning_rate for name, spec in self.optimizer_specs.items() if spec.kl > 0}
        self._seed = seed
        # Parameters that change with every step are better left where they are (but see `JaxLearner._acting`). And what
        # a rollout is collected with is compared while learning: then both are in the same precision.
        self.on_policy: bool = algorithm.memory().on_policy
        collects = self.on_policy and precision == "float32"
        self._acts_on_host = collects and all(host.worth_it(self.specs[name]) for name in algorithm.acting_networks)
        self._host: HostActing | None = None  # with the parameters as they are now

    def update(self, batch: Any, progress: float = 0.0) -> Metrics:
        """Learn from one batch of NumPy arrays. `progress` in [0, 1] is how far the run is, for schedules.

        Where the algorithm splits it (`Algorithm.split`), one update is made for each part, and the metrics are means.
        """
        _, batch, rows, noise, rates = self._prepared(batch, progress)
        metrics = self._update(batch, rows, noise, rates)
        self._host = None
        if self._adapted:
            divergence = metrics.value(DIVERGENCE)
            for name, rate in self._adapted.items():
                self._adapted[name] = kl_adaptive(rate, divergence, self.optimizer_specs[name].kl)
        return metrics

    def update_each(self, batches: Sequence[Any], progress: Sequence[float]) -> list[Metrics]:
        """Call `update` with each batch in turn, `at_once` at most; no batch depends on the update before it.

        The epochs of a rollout are of one batch, the same object each time.
        """
        one = self.on_policy and all(batch is batches[0] for batch in batches)
        phases = {self.algorithm.phase(self.updates + 1 + number) for number in range(len(batches))}
        if one and 1 < len(batches) <= self.at_once and len(phases) == 1:
            return self._updated_in_epochs(batches[0], progress)
        return [self.update(batch, how_far) for batch, how_far in zip(batches, progress, strict=True)]

    def _updated_in_epochs(self, batch: Any, progress: Sequence[float]) -> list[Metrics]:
        epochs = [self._prepared(batch, how_far) for how_far in progress]
        self._host = None
        if len({kind((one.rows, one.noise)) for one in epochs}) > 1:  # another number of minibatches, say
            return [self._update(one.batch, one.rows, one.noise, one.rates) for one in epochs]
        names, each = self._epochs(epochs[0].batch, together([(one.rows, one.noise, one.rates) for one in epochs]))
        values: Any = Whole(each)
        return [Metrics(names, values[epoch], None) for epoch in range(len(epochs))]

    def _epochs(self, batch: Any, each: tuple[Any, Any, Rates]) -> tuple[tuple[str, ...], Array]:
        """Call `_update` with one batch for each of E epochs; rows, noise and rates have a first axis of epochs.
        Returns names, and values (E, names).
        """
        raise NotImplementedError(f"{type(self).__name__} makes one update at a time")

    def _prepared(self, batch: Any, progress: float) -> Prepared:
        """The inputs of the next update, which is counted, and whose random numbers are drawn."""
        self.updates += 1
        rows = self.algorithm.split(self.random, len(batch.weight))
        noise = self.algorithm.draw(self.random, batch)
        if self.twins is not None:
            batch = self.twins.named(batch)
        rates = Rates(self.learning_rates(progress), self.algorithm.scheduled(progress))
        return Prepared(self.algorithm.phase(self.updates), batch, rows, noise, rates)

    @abstractmethod
    def learn_beside(self) -> None:
        """Let `update` return before it is done from here on; what `acting_parameters` gave out is left alone.

        All else that looks at the parameters waits until it is done. To be called before the first update.
        """

    def close(self) -> None:
        """End what `learn_beside` began."""

    @abstractmethod
    def acting_parameters(self) -> Callable[[], Parameters]:
        """A function that returns the acting networks' parameters after all updates begun so far; it waits for them."""

    @abstractmethod
    def _update(self, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics:
        """Make the update on the framework. `rows` (M, B) are the parts of the batch; None takes it whole."""

    def _acting(self, method: Method, obs: Tree, *noise: np.ndarray | None) -> Any:
        """See `Acting`: in NumPy where that is faster."""
        if not self._acts_on_host:
            return self._act(method, obs, *noise)
        if self._host is None:
            self._host = HostActing(self.algorithm, self.specs)
            self._host.use(self.parameters())
        return self._host._acting(method, obs, *noise)

    def _callable(self, name: str, net: Any) -> Any:
        """The network as losses and policies call it."""
        source = self.targets.get(name, name)
        return called(source, self.specs[source], net)

    def _carry(self, nets: SimpleNamespace) -> dict[str, Array]:
        """The carry, by name, of the acting networks that were called."""
        return carried(self.algorithm, nets)

    @abstractmethod
    def _act(self, method: Method, obs: Tree, *noise: np.ndarray | None) -> Any:
        """The result of the algorithm's method and the carry, computed on the framework, NumPy to NumPy."""

    @abstractmethod
    def parameters(self) -> Parameters:
        """Copies of all parameters and running statistics, those of target networks too."""

    @abstractmethod
    def load_parameters(self, parameters: Parameters) -> None:
        """Set all parameters; a missing or unknown name or a wrong shape raises CheckpointError."""

    @abstractmethod
    def optimizer_state(self) -> dict[str, Any]:
        """Each optimiser's number of steps, and Adam's two moments under the parameters' names."""

    @abstractmethod
    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """Set all optimisers to what `optimizer_state` returned."""

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
        """Continue exactly where `state_dict` was taken. Raises CheckpointError where the state does not fit."""
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


def epochs_at_once(algorithm: Algorithm) -> int:
    """Number of epochs that are made at once: all of a rollout's; 1 where the step size depends on the epoch before."""
    spec: Any = algorithm.memory()  # a RolloutSpec
    return 1 if any(optimizer.kl > 0 for optimizer in algorithm.optimizers().values()) else spec.epochs


def check_is_network(method: str, names: Iterable[str], networks: Collection[str]) -> None:
    """Raise UsageError where an algorithm's method names a network that it does not have."""
    for name in names:
        if name not in networks:
            raise UsageError(
                f"The algorithm's {method}() names a network {name!r}; there are {', '.join(networks)}."
                f"{did_you_mean(name, networks)}"
            )


def check_learns(name: str, learning: Collection[str]) -> None:
    """Raise UsageError where an algorithm's update minimises a loss of a network that is not among `learning`."""
    if name not in learning:
        raise UsageError(
            f"The update minimises a loss of {name!r}, which has no optimizer; there are {', '.join(learning)}."
            f"{did_you_mean(name, learning)}"
        )


def checked_loss(name: str, found: Any) -> tuple[Any, dict[str, Any]]:
    """The scalar and the report that a network's loss returned. Raises UsageError where it returned anything else."""
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
        raise UsageError(
            f"The loss of {name!r} must return a scalar and a dict of what it reports, maybe {{}}; it returned a "
            f"{type(found).__name__}."
        )
    loss, report = found
    if not hasattr(loss, "ndim"):
        raise UsageError(f"The loss of {name!r} is a {type(loss).__name__}; it must be a scalar array.")
    if shape := tuple(loss.shape):
        raise UsageError(f"The loss of {name!r} has the shape {shape}; it must be a scalar. Take batch.mean of it.")
    numbers = {
        key: value for key, value in report.items() if isinstance(value, np.generic) or not hasattr(value, "ndim")
    }
    for key, value in numbers.items():
        if not isinstance(value, int | float | np.number | np.bool_):
            raise UsageError(
                f"The loss of {name!r} reports {key!r} as a {type(value).__name__}; report arrays or numbers."
            )
    xp = array_namespace(loss)
    return loss, report | {key: xp.full_like(loss, float(value)) for key, value in numbers.items()}


def check_depends(name: str, depends: bool) -> None:
    """Raise UsageError where the loss of a network does not depend on the network's parameters."""
    if not depends:
        raise UsageError(f"The loss of {name!r} does not depend on its parameters, so it has no gradient.")


def check_minimised(names: Collection[str], phase: int) -> None:
    """Raise UsageError where an update of this phase reports nothing, as it minimised no loss."""
    if not names:
        raise UsageError(
            f"The algorithm's update minimises no loss in phase {phase}, so nothing is learned: let it "
            "minimise one in each, or have fewer phases."
        )


class Summary(NamedTuple):
    """The report of a loss, as scalars."""

    names: list[str]
    values: list[Array]
    ways: list[Literal["mean", "least", "greatest"]]  # in which those of a batch's shares make that of the batch


def summarize(info: dict[str, Array], xp: Any, mask: Any = None) -> Summary:
    """Mean, least and greatest of every array that a loss reports, and its scalars, which are means over rows.

    Of arrays (..., B, L) of a batch of sequences only the steps count that its `mask` (B, L) has.
    """
    found = Summary([], [], [])
    for name, array in sorted(
        (name, array) for name, array in info.items() if name != PRIORITY
    ):  # JAX sorts what passes through its transformations
        found.ways.append("mean")
        if array.ndim == 0:
            found.names.append(name)
            found.values.append(array)
            continue
        found.names.extend((f"{name}_mean", f"{name}_min", f"{name}_max"))
        if mask is None or array.shape[-mask.ndim :] != mask.shape:
            found.values.extend((xp.mean(array), xp.min(array), xp.max(array)))
        else:
            found.values.extend(_of_steps(array, xp.broadcast_to(mask, array.shape), xp))
        found.ways.extend(("least", "greatest"))
    return found


def _of_steps(array: Any, mask: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Mean, least and greatest of the steps that a mask of the same shape has."""
    least, greatest = (xp.full_like(array, end) for end in (float("inf"), float("-inf")))
    among = mask > 0
    return (
        weighted_mean(array, mask),
        xp.min(xp.where(among, array, least)),
        xp.max(xp.where(among, array, greatest)),
    )
