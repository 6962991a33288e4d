"""The compiled programs of one phase of an algorithm.

Only what a phase changes goes through its program (donated); the rest is read: acting with an actor that a phase leaves
alone need not wait for that phase to finish.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from duetto.algorithms.base import PRIORITY
from duetto.learners.base import Rates, check_depends, check_learns, check_minimised, checked_loss, summarize
from duetto.learners.packing import Packing, Place

if TYPE_CHECKING:
    from duetto.learners.jax import JaxLearner

# "net/<name>" to a list of the network's arrays, those that learn first; "optimizer/<name>"; "images/<name>": `twins`
State = dict[str, Any]


@partial(jax.tree_util.register_dataclass, data_fields=["buffer"], meta_fields=["packing"])
@dataclass
class Packed:
    """A tree of arrays in one buffer, (size,) uint8."""

    buffer: Any
    packing: Packing

    def unpacked(self) -> Any:
        """The tree of the arrays, within a compiled program."""
        return self.packing.read(self._array)

    def _array(self, place: Place) -> Array:
        data = self.buffer[place.begin : place.end]
        if place.dtype == np.bool_:
            return jnp.reshape(data, place.shape) != 0
        if place.dtype.itemsize > 1:
            data = jnp.reshape(data, (-1, place.dtype.itemsize))
        return jnp.reshape(jax.lax.bitcast_convert_type(data, place.dtype), place.shape)


class Phase:
    """The compiled program of one phase, and which parts of the state it changes and reads."""

    names: tuple[str, ...]
    """Of the numbers it reports."""
    changes: tuple[str, ...]
    donated: tuple[str, ...]
    """What changes and may be overwritten in its place."""
    reads: tuple[str, ...]
    program: Callable[..., Any]
    several: Callable[..., Any]
    """`program`, with an axis of updates in front of its inputs."""
    epochs: Callable[..., Any]
    """The same, in front of all inputs but the batch, which is one for all."""

    def __init__(self, learner: JaxLearner, number: int, example: tuple[State, Any, Any, Any, Rates]):
        self._learner, self._number = learner, number
        state, batch, rows, noise, rates = example
        # Traced here, once for all programs; learners that deal batches trace it again, for shares and shardings.
        self._update = jax.jit(self._traced, inline=True)
        self._found: tuple[tuple[str, ...], tuple[str, ...]] = (), ()
        part = batch if rows is None else jax.tree.map(lambda x: x[rows[0]], batch)
        jax.eval_shape(self._update, state, part, noise, rates)
        self.names, self.changes = self._found
        self.donated = tuple(name for name in self.changes if name not in learner.kept)
        self.reads = tuple(name for name in state if name not in self.donated)
        size = len(batch.weight) if rows is None else rows.shape[1]
        self.program = learner.compiled(self._run, size)
        self.several = learner.compiled(self._run_each, size)
        self.epochs = learner.compiled(self._run_epochs, size)

    def _traced(self, state: State, batch: Any, noise: Any, rates: Rates) -> tuple[State, Array, Array | None]:
        """The state that an update changes, and the values and priorities it reports; `_found` has the names of
        both.
        """
        trace = Trace(self._learner, state, rates, getattr(batch, "mask", None))
        if self._learner.twins is not None:
            batch = self._learner.twins.shown(batch, state)
        with jax.numpy_rank_promotion("raise"), self._learner.exactly():
            self._learner.algorithm.update(trace, batch, noise, self._number)
        check_minimised(trace.names, self._number)
        self._found = tuple(trace.names), tuple(sorted(trace.changed))
        return {name: trace.state[name] for name in self._found[1]}, jnp.stack(trace.values), trace.priority

    def _run(
        self, donated: State, fixed: State, batch: Any, rows: Array | None, noise: Any, rates: Rates
    ) -> tuple[State, Array, Array | None]:
        if rows is None:
            return self._update({**fixed, **donated}, batch, noise, rates)

        parts, batch_of = self._learner.parts(batch, rows)

        def part(state: State, some: Any) -> tuple[State, Array]:
            changed, values, _ = self._update({**fixed, **state}, batch_of(some), noise, rates)
            return changed, values

        changed, values = jax.lax.scan(part, self._changing(donated, fixed), parts)
        return changed, jnp.mean(values, 0), None

    def _changing(self, donated: State, fixed: State) -> State:
        return {name: donated[name] if name in donated else fixed[name] for name in self.changes}

    def _run_each(
        self, donated: State, fixed: State, batch: Any, rows: Array | None, noise: Any, rates: Rates
    ) -> tuple[State, Array, None]:
        return self._scanned(donated, fixed, lambda own: own, (batch, rows, noise, rates))

    def _run_epochs(
        self, donated: State, fixed: State, batch: Any, rows: Array | None, noise: Any, rates: Rates
    ) -> tuple[State, Array, None]:
        return self._scanned(donated, fixed, lambda own: (batch, *own), (rows, noise, rates))

    def _scanned(
        self, donated: State, fixed: State, inputs_of: Callable[[Any], tuple[Any, ...]], each: Any
    ) -> tuple[State, Array, None]:
        """Run `_run` with the inputs of one update after the other."""

        def one(state: State, own: Any) -> tuple[State, Array]:
            changed, values, _ = self._run(state, fixed, *inputs_of(own))
            return changed, values

        changed, values = jax.lax.scan(one, self._changing(donated, fixed), each)
        return changed, values, None


class Trace:
    """The learner that `update` sees while it is traced: the state, as it changes."""

    def __init__(self, learner: JaxLearner, state: State, rates: Rates, mask: Array | None):
        """`mask` (B, L) is that of a batch of sequences."""
        self.learner: JaxLearner = learner
        self._mask = mask
        self.state: State = dict(state)
        self.scheduled: dict[str, float] = rates.scheduled
        self._rates = rates.learning
        self.changed: set[str] = set()
        self.names: list[str] = []
        self.values: list[Array] = []
        self.priority: Array | None = None

    def minimize(self, name: str, loss: Any, *args: Any) -> dict[str, Array]:
        """See `Updater.minimize`."""
        check_learns(name, self.learner._optimizers)
        key, net = f"net/{name}", self.learner._nets[name]
        learned, statistics = self.state[key][: net.learned], self.state[key][net.learned :]

        def of_parameters(parameters: list[Array]) -> tuple[Array, tuple[dict[str, Array], list[Array]]]:
            arrays = parameters + statistics
            nets = self._networks(**{name: arrays})
            value, info = checked_loss(name, loss(nets, *args))
            return value, (info, net.statistics(getattr(nets, name), arrays))

        value, (info, after), gradient, depends = _differentiated(of_parameters, learned)
        check_depends(name, depends)
        optimizer = self.learner._optimizers[name]
        norm = {}
        if self.learner.optimizer_specs[name].max_grad_norm > 0:
            norm[f"{name}_gradient_norm"] = jnp.sqrt(sum(jnp.sum(part**2) for part in gradient))
        step, moments = optimizer.update(gradient, self.state[f"optimizer/{name}"], learned)
        rate = self._rates[name]
        self._set(key, jax.tree.map(lambda w, s: w - rate * s, learned, step) + after)
        self._set(f"optimizer/{name}", moments)
        self._record(name, value, info | norm)
        return info

    def track(self, target: str, source: str, tau: float) -> None:
        """See `Updater.track`."""
        old, new = self.state[f"net/{target}"], self.state[f"net/{source}"]

        def between(t: Array, s: Array) -> Array:
            return t + tau * (s - t) if tau < 0.5 else s - (1 - tau) * (s - t)  # as torch.lerp: τ = 1 copies every bit

        number = self.learner._nets[source].learned
        self._set(f"net/{target}", [*map(between, old[:number], new[:number]), *new[number:]])

    def _networks(self, **replaced: Any) -> SimpleNamespace:
        names, precision = self.learner.names, self.learner.precision
        arrays = {name: replaced.get(name, self.state[f"net/{name}"]) for name in names}
        return SimpleNamespace(**{name: self.learner.called(name, arrays[name], precision) for name in names})

    def _set(self, key: str, value: Any) -> None:
        self.state[key] = value
        self.changed.add(key)

    def _record(self, name: str, value: Array, info: dict[str, Array]) -> None:
        self.priority = info.get(PRIORITY, self.priority)
        names, values, _ = summarize(info, jnp, self._mask)
        self.names += [f"{name}_loss", *names]
        self.values += [value, *values]


def _differentiated(loss: Callable[[Any], tuple[Array, Any]], parameters: Any) -> tuple[Array, Any, Any, bool]:
    """The loss, what it reports, its gradient, and whether it depends on the parameters: if not, JAX makes zeros."""
    perturbed: list[bool] = []

    @jax.custom_vjp
    def seen(value: Any) -> Any:  # no trace of it is left in the program
        return value

    def forward(value: Any) -> tuple[Any, None]:
        perturbed.append(value.perturbed)
        return value.value, None

    seen.defvjp(forward, lambda _, gradient: (gradient,), symbolic_zeros=True)

    def followed(parameters: Any) -> tuple[Any, Any]:
        value, report = loss(parameters)
        return seen(value), report

    (value, report), gradient = jax.value_and_grad(followed, has_aux=True)(parameters)
    return value, report, gradient, any(perturbed)
