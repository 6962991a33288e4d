"""The base class of learners: names, counters, schedules, random numbers and state.

A learner owns everything that learning changes: parameters, optimizer moments, counters, random state. Its state
consists of arrays and JSON values under the same names in both frameworks, so each framework loads the other's state.

    update_each(batches)   count the updates, draw their noise and minibatches, and group them by `Algorithm.phase`
                           and shapes
    update_alike(updates)  make the updates of a group: PyTorch one after the other, JAX in one compiled program
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from array_api_compat import array_namespace
from typing_extensions import override

from duetto.algorithms.base import DIVERGENCE, PRIORITY, Algorithm, Array, OptimizerSpec, Tree
from duetto.algorithms.suggestions import did_you_mean
from duetto.errors import UsageError
from duetto.functional import state_schema
from duetto.functional.policy_gradient import weighted_mean
from duetto.functional.pytree import signature, tree_leaves
from duetto.functional.rng import generator, restore_rng, rng_state
from duetto.functional.schedules import decay_factor, kl_adaptive
from duetto.functional.state_schema import ANY, ARRAY, DictOf
from duetto.learners.policy import PARAMETERS, Method, NumpyPolicy, Parameters, Policy, is_faster
from duetto.networks.spaces import Space

Precision = Literal["float32", "bf16"]


class LazyArray:
    """An array on a device, or a part of it; when NumPy first reads any part, the whole array is copied to the host."""

    def __init__(self, array: Array) -> None:
        self._source = [array]  # all parts share this list, and thus one copy on the host
        self._index: tuple[int, ...] = ()

    def __getitem__(self, number: int) -> LazyArray:
        part = copy.copy(self)
        part._index = (*self._index, number)
        return part

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._source[0] = on_host(self._source[0])
        return np.asarray(self._source[0][self._index], dtype)


class Metrics(NamedTuple):
    """The metrics of one update. Only reading `values` or `priority` with NumPy waits for the device."""

    names: tuple[str, ...]
    values: LazyArray  # (len(names),) float32
    priority: LazyArray | None  # (B,) or (B, L), the new |δ| of each item or step, if the algorithm has priorities

    def value(self, name: str) -> float:
        """Return the metric of this name, after waiting for the device."""
        return float(np.asarray(self.values)[self.names.index(name)])

    def row(self, number: int) -> Metrics:
        """Return the metrics of one update or seed, if updates or seeds are the first axis of the arrays."""
        return Metrics(self.names, self.values[number], None if self.priority is None else self.priority[number])


class Update(NamedTuple):
    """The inputs of one update."""

    phase: int
    batch: Any
    rows: Any  # (M, B) int32, rows of the batch in each of M minibatches; None: one step with the whole batch
    noise: Any
    learning_rates: dict[str, Any]  # by optimizer
    scheduled: dict[str, Any]  # see `Algorithm.scheduled`


def on_host(array: Array) -> np.ndarray:
    """Return a PyTorch or JAX array as a NumPy array, after waiting for its device."""
    return array.cpu().numpy() if hasattr(array, "cpu") else np.asarray(array)


class Learner(Policy):
    """Parameters, target networks, optimizers, counters and random state, and the updates that change them.

    Attributes:
        threads: Number of CPU threads; 0 on a GPU. The last bits of results may depend on this number.
        at_once: Maximum number of updates that `update_each` makes in one program.
        seeds: Number of seeds that learn side by side, see `multi_seed`.
    """

    backend: Literal["torch", "jax"]
    threads = 0
    at_once = 1
    seeds = 1

    def __init__(self, algorithm: Algorithm, observation: Space, action: Space, seed: int, precision: Precision):
        super().__init__(algorithm, algorithm.networks(observation, action))
        if precision not in get_args(Precision):
            raise UsageError(f"precision is {precision!r}; it must be one of {', '.join(get_args(Precision))}.")
        for name, spec in self.specs.items():
            if spec.custom is not None and spec.recurrent:
                raise UsageError(
                    f"{algorithm.name()}'s {name} is a custom network, which sees one step at a time. Recurrent layers "
                    "learn from sequences. Remove the custom network, or set recurrent to none."
                )
        self.targets: dict[str, str] = algorithm.targets()
        self.optimizer_specs: dict[str, OptimizerSpec] = algorithm.optimizers()
        named = {"optimizers()": self.optimizer_specs, "targets()": self.targets.values()}
        for source, names in (named | {"acting_networks": algorithm.acting_networks}).items():
            for name in names:
                check_named(f"The algorithm's {source} names a network", name, self.specs)
        self.precision: Precision = precision
        self.random: np.random.Generator = generator(seed, "learner")
        self.updates: int = 0
        self._adapted = {name: spec.learning_rate for name, spec in self.optimizer_specs.items() if spec.kl > 0}
        self._seed = seed
        # Off-policy, parameters change at every step, and copying them to NumPy costs more than NumPy saves (except in
        # `JaxLearner`). PPO's loss compares the policy that collected with the learned one, so both use one precision.
        self.on_policy: bool = algorithm.memory().on_policy
        collects = self.on_policy and precision == "float32"
        faster = collects and all(is_faster(self.specs[name]) for name in algorithm.acting_networks)
        self._numpy_rows: float = math.inf if faster else 0  # NumPy acts on at most this many observations
        self._numpy_policy: NumpyPolicy | None = None  # None when parameters have changed

    def update(self, batch: Any, progress: float = 0.0) -> Metrics:
        """Learn from one batch of NumPy arrays. Training calls `update_each`, with several batches.

        `progress` in [0, 1] is the completed share of the run, for schedules.

        If the algorithm splits the batch (`Algorithm.split`), the update has a step for each minibatch, and its metrics
        are means over these steps.
        """
        return self.update_each([batch], [progress])[0]

    def update_each(self, batches: Sequence[Any], progress: Sequence[float]) -> list[Metrics]:
        """Learn from each batch in turn, with at most `at_once` updates in one program; return their metrics.

        No batch may depend on the updates before it. For each epoch of a rollout, pass the same batch object.
        """
        metrics: list[Metrics] = []
        pairs = zip(batches, progress, strict=True)
        while updates := [self._prepare(*pair) for pair in islice(pairs, self.at_once)]:
            for group in self._alike(updates):
                metrics += self.update_alike(group)
            for name, rate in self._adapted.items():
                self._adapted[name] = kl_adaptive(rate, metrics[-1].value(DIVERGENCE), self.optimizer_specs[name].kl)
        return metrics

    @abstractmethod
    def update_alike(self, updates: Sequence[Update]) -> list[Metrics]:
        """Make successive updates of the same phase and shapes; on-policy, they also have the same batch."""

    def _prepare(self, batch: Any, progress: float) -> Update:
        """Count an update and draw its random numbers; return its inputs."""
        self.updates += 1
        self._numpy_policy = None
        rows = self.algorithm.split(self.random, len(batch.weight))
        noise = self.algorithm.draw(self.random, batch)
        rates, scheduled = self.learning_rates(progress), self.algorithm.scheduled(progress)
        return Update(self.algorithm.phase(self.updates), batch, rows, noise, rates, scheduled)

    def _alike(self, updates: list[Update]) -> Iterator[list[Update]]:
        """Yield groups of successive updates with the same phase and shapes.

        On-policy, the updates of a group also have the same batch. Off-policy, a group has 1, 2, 4, 8 or 16 updates, so
        JAX compiles few programs.
        """
        while len(updates) > 1:
            kinds = [(one.phase, signature(one), id(one.batch) if self.on_policy else None) for one in updates]
            count = next((i for i, kind in enumerate(kinds) if kind != kinds[0]), len(updates))
            count = count if self.on_policy else 1 << (count.bit_length() - 1)
            yield updates[:count]
            updates = updates[count:]
        if updates:
            yield updates

    @override
    def call_with_carry(self, method: Method, obs: Tree, *noise: np.ndarray | None) -> Any:
        """Call the method in NumPy if that is faster, else in the framework."""
        most = self._numpy_rows
        if not most or (most < math.inf and len(tree_leaves(obs)[0]) > most):
            return self._act(method, obs, *noise)
        if self._numpy_policy is None:
            self._numpy_policy = NumpyPolicy(self.algorithm, self.specs)
            self._numpy_policy.use(self.parameters(*self.algorithm.acting_networks))
        return self._numpy_policy.call_with_carry(method, obs, *noise)

    @abstractmethod
    def _act(self, method: Method, obs: Tree, *noise: np.ndarray | None) -> Any:
        """Run the algorithm's method in the framework; return its result and the hidden states as NumPy arrays."""

    @abstractmethod
    def parameters(self, *networks: str) -> Parameters:
        """Return copies of parameters and running statistics of `networks`, by default of all, including targets."""

    @abstractmethod
    def load_parameters(self, parameters: Parameters) -> None:
        """Set all parameters. Raise CheckpointError if a parameter is missing or unknown, or has a wrong shape."""

    @abstractmethod
    def optimizer_state(self) -> dict[str, Any]:
        """Return each optimizer's number of steps, and Adam's two moments under the parameters' names."""

    @abstractmethod
    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `optimizer_state`."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next update depends on."""
        return {
            "parameters": self.parameters(),
            "optimizers": self.optimizer_state(),
            "random": rng_state(self.random),
            "updates": self.updates,
            "adapted_rates": dict(self._adapted),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`, so that learning continues exactly. Raise CheckpointError if `state` does not fit."""
        moments = {"steps": int, "first": DictOf(ARRAY), "second": DictOf(ARRAY)}
        schema = {"parameters": PARAMETERS, "optimizers": dict.fromkeys(self.optimizer_specs, moments), "random": ANY}
        state_schema.check(state, schema | {"updates": int, "adapted_rates": DictOf(float)}, "learner")
        self.load_parameters(state["parameters"])
        self.load_optimizer_state(state["optimizers"])
        restore_rng(self.random, state["random"])
        self.updates = state["updates"]
        # The user may have changed `learning_rate_kl` since the state was saved.
        self._adapted = {name: state["adapted_rates"].get(name, rate) for name, rate in self._adapted.items()}

    def learning_rates(self, progress: float) -> dict[str, float]:
        """Return each optimizer's current learning rate."""
        return {
            name: self._adapted.get(name, spec.learning_rate)
            * decay_factor(spec.decay, progress / spec.horizon, spec.final_rate)
            for name, spec in self.optimizer_specs.items()
        }

    def initial_random(self, name: str) -> np.random.Generator:
        """Return the generator for a network's initial parameters, the same in both frameworks."""
        return generator(self._seed, f"parameters of {name}")


def check_named(what: str, name: str, known: Collection[str]) -> None:
    """Raise UsageError if an algorithm names a network that is not in `known`."""
    if name not in known:
        raise UsageError(f"{what} {name!r}; there are {', '.join(known)}.{did_you_mean(name, known)}")


def checked_loss(name: str, found: Any) -> tuple[Any, dict[str, Any]]:
    """Return the scalar and the dict of metrics that a network's loss returned; raise UsageError for anything else."""
    loss, report = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    if not isinstance(report, dict) or tuple(getattr(loss, "shape", (0,))):
        returned = f"a {type(found).__name__}" if not isinstance(report, dict) else _kind(loss)
        raise UsageError(
            f"The loss of {name!r} must return a scalar array, such as batch.mean(...), and a dict of metrics, "
            f"maybe {{}}; it returned {returned}."
        )
    for key, value in report.items():
        if isinstance(value, int | float | np.generic):
            report = report | {key: array_namespace(loss).full_like(loss, float(value))}
        elif not hasattr(value, "ndim"):
            raise UsageError(f"The loss of {name!r} reports {key!r} as {_kind(value)}; report arrays or numbers.")
    return loss, report


def _kind(value: Any) -> str:
    return f"an array of shape {tuple(value.shape)}" if hasattr(value, "shape") else f"a {type(value).__name__}"


def summarize(info: dict[str, Array], xp: Any, mask: Any = None) -> tuple[list[str], list[Array]]:
    """Return names and values of a loss's metrics: the scalars, and mean, min and max of each array.

    `mask` (B, L) is the mask of a batch of sequences: in arrays (..., B, L), steps with mask 0 are ignored.
    """
    names: list[str] = []
    values: list[Array] = []
    for name in sorted(info.keys() - {PRIORITY}):  # sorted, because JAX's transformations sort dicts
        array = info[name]
        if array.ndim == 0:
            names.append(name)
            values.append(array)
            continue
        names += [f"{name}_mean", f"{name}_min", f"{name}_max"]
        if mask is None or array.shape[-mask.ndim :] != mask.shape:
            values += [xp.mean(array), xp.min(array), xp.max(array)]
        else:
            steps = xp.broadcast_to(mask, array.shape)
            low, high = (xp.where(steps > 0, array, xp.full_like(array, end)) for end in (math.inf, -math.inf))
            values += [weighted_mean(array, steps), xp.min(low), xp.max(high)]
    return names, values
