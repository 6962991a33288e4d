"""The compiled program for updates of one phase, which is the kind of an update (`Algorithm.phase`).

A program returns only the part of the state that its phase changes, and may overwrite this part's old memory. It only
reads the rest. So acting does not wait for an update that does not change the actor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from duetto.algorithms.base import PRIORITY, Updater
from duetto.learners.base import Update, check_named, checked_loss, summarize
from duetto.networks.layers import projected

if TYPE_CHECKING:
    from duetto.learners.jax import JaxLearner

# "net/<name>": list of a network's arrays, the trainable ones first; "optimizer/<name>": Optax's state
State = dict[str, Any]


class CompiledUpdate:
    """The compiled program of one phase, and the parts of the state that it changes and reads.

    Attributes:
        names: Names of the metrics.
        step: A function from state, batch, noise, learning rates and scheduled numbers to the changed part of the
            state, the metrics' values (names,) and priorities (B,) or (B, L). JAX traces it once.
        changes, reads: Keys of the part of the state that the program changes, and of the part that it only reads.
        program: A function of these two parts, a rollout (or None) and K updates stacked along a first axis. Without a
            rollout each update has its own batch. Returns the changed part, values (K, names) and priorities (K, ...).
    """

    names: tuple[str, ...]
    changes: tuple[str, ...]
    reads: tuple[str, ...]
    program: Callable[..., Any]

    def __init__(self, learner: JaxLearner, state: State, example: Update) -> None:
        self._learner, self._phase = learner, example.phase
        self.step: Any = jax.jit(self._traced, inline=True)

        def first_part(batch: Any, rows: Array | None) -> Any:
            return batch if rows is None else jax.tree.map(lambda x: x[rows[0]], batch)

        # Traced here once, for all programs: they differ only in the number of updates.
        part = jax.eval_shape(learner.each(first_part), example.batch, example.rows)
        numbers = jax.tree.map(np.float32, example[4:])  # types as in `program`, else JAX traces again
        jax.eval_shape(learner.each(self.step), state, part, example.noise, *numbers)
        self.reads = tuple(name for name in state if name not in self.changes)
        self._update = learner.each(self._update_one)
        options = learner.compiler_options(self._rows)
        self.program = jax.jit(self._update_all, donate_argnums=0, compiler_options=options)

    def _traced(
        self, state: State, batch: Any, noise: Any, rates: dict[str, Any], scheduled: dict[str, Any]
    ) -> tuple[State, Array, Array | None]:
        """Return a step's changed state, metrics and priorities; set `names`, `changes` and `_rows`."""
        trace = TracedUpdate(self._learner, state, rates, scheduled, getattr(batch, "mask", None))
        with jax.numpy_rank_promotion("raise"), self._learner.exactly():
            self._learner.algorithm.update(trace, batch, noise, self._phase)
        self.names = tuple(trace.names)
        self.changes = tuple(name for name in sorted(state) if trace.state[name] is not state[name])
        self._rows = len(jax.tree.leaves(batch)[0])
        return {name: trace.state[name] for name in self.changes}, jnp.stack(trace.values), trace.priority

    def _update_one(
        self, changing: State, fixed: State, batch: Any, rows: Array | None, *inputs: Any
    ) -> tuple[State, Array, Array | None]:
        """Make an update: a step with the batch, or with each of its minibatches."""
        if rows is None:
            return self.step(fixed | changing, batch, *inputs)

        def step(state: State, some: Array) -> tuple[State, Array]:
            changed, values, _ = self.step(fixed | state, jax.tree.map(lambda x: x[some], batch), *inputs)
            return changed, values

        changed, values = jax.lax.scan(step, changing, rows)
        return changed, jnp.mean(values, 0), None

    def _update_all(
        self, changing: State, fixed: State, rollout: Any, updates: Update
    ) -> tuple[State, Array, Array | None]:
        def update(state: State, own: Update) -> tuple[State, tuple[Array, Array | None]]:
            batch = own.batch if rollout is None else rollout
            changed, *metrics = self._update(state, fixed, batch, *own[2:])
            return changed, tuple(metrics)

        if len(jax.tree.leaves(updates.learning_rates)[0]) == 1:
            changed, metrics = update(changing, jax.tree.map(lambda x: x[0], updates))
            return changed, *jax.tree.map(lambda x: x[None], metrics)
        changed, metrics = jax.lax.scan(update, changing, updates)
        return changed, *metrics


class TracedUpdate(Updater):
    """The `Updater` while JAX traces an update: it holds the state, and records changes, metrics and priorities."""

    def __init__(
        self, learner: JaxLearner, state: State, rates: dict[str, Any], scheduled: dict[str, Any], mask: Array | None
    ) -> None:
        """`mask` (B, L) is the mask of a batch of sequences."""
        self.learner: JaxLearner = learner
        self._mask = mask
        self.state: State = dict(state)
        self.scheduled: dict[str, Any] = scheduled
        self._rates = rates
        self.names: list[str] = []
        self.values: list[Array] = []
        self.priority: Array | None = None

    @override
    def minimize(self, name: str, loss: Any, *args: Any) -> dict[str, Array]:
        check_named("The update minimizes a loss of a network without an optimizer,", name, self.learner._optimizers)
        key, net = f"net/{name}", self.learner._nets[name]
        learned, statistics = self.state[key][: net.learned], self.state[key][net.learned :]

        def of_parameters(parameters: list[Array]) -> tuple[Array, tuple[dict[str, Array], list[Array]]]:
            nets = self.learner.networks(self.state | {key: parameters + statistics}, acting=False)
            value, info = checked_loss(name, loss(nets, *args))
            updated = getattr(getattr(nets, name), "updated_stats", {})
            return value, (info, [updated.get(*old) for old in zip(net.names[net.learned :], statistics, strict=True)])

        (value, (info, after)), gradient = jax.value_and_grad(of_parameters, has_aux=True)(learned)
        optimizer = self.learner._optimizers[name]
        norm = {}
        if self.learner.optimizer_specs[name].max_grad_norm > 0:
            norm[f"{name}_gradient_norm"] = jnp.sqrt(sum(jnp.sum(part**2) for part in gradient))
        step, moments = optimizer.update(gradient, self.state[f"optimizer/{name}"], learned)
        rate = self._rates[name]
        learned = jax.tree.map(lambda w, s: w - rate * s, learned, step)
        values = dict(zip(net.names, learned, strict=False))  # without the running statistics
        values |= projected(self.learner.specs[name].projected_stacks, values)
        self.state |= {key: [*values.values(), *after], f"optimizer/{name}": moments}
        self.priority = info.get(PRIORITY, self.priority)
        names, metrics = summarize(info | norm, jnp, self._mask)
        self.names += [f"{name}_loss", *names]
        self.values += [value, *metrics]
        return info

    @override
    def track(self, target: str, source: str, tau: float) -> None:
        old, new = self.state[f"net/{target}"], self.state[f"net/{source}"]

        def between(t: Array, s: Array) -> Array:
            return t + tau * (s - t) if tau < 0.5 else s - (1 - tau) * (s - t)  # as torch.lerp: τ = 1 copies every bit

        number = self.learner._nets[source].learned
        self.state[f"net/{target}"] = [*map(between, old[:number], new[:number]), *new[number:]]
