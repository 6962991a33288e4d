"""The learner in JAX.

The algorithm's `update` runs inside `jit` on a `_Trace`, which holds the networks and optimiser states while they are
traced. There is one compiled program for each phase. Only what a phase changes goes through its program (donated); the
rest is read: acting with an actor that a phase leaves alone need not wait for that phase to finish.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from duetto.algorithms.base import PRIORITY, Algorithm, OptimizerSpec, Tree
from duetto.errors import UsageError
from duetto.functional import forms
from duetto.functional.forms import ARRAY, Each
from duetto.learners import jax_cache
from duetto.learners.base import Learner, Metrics, Precision, Rates, summarize
from duetto.learners.dealing import every
from duetto.learners.packing import Packing, Place, kind
from duetto.learners.parameters import Parameters, matched
from duetto.networks.jax import build
from duetto.networks.spaces import Space

State = dict[str, Any]  # "net/<name>" to a list of the network's arrays, those that learn first; "optimizer/<name>"


class JaxLearner(Learner):
    """Equinox modules, Optax, one program per phase."""

    backend: Literal["torch", "jax"] = "jax"

    def __init__(
        self,
        algorithm: Algorithm,
        observation: Space,
        action: Space,
        seed: int = 0,
        device: str = "cpu",
        precision: Precision = "float32",
    ):
        super().__init__(algorithm, observation, action, seed, precision)
        jax_cache.use()
        self.device: Any = _device(device)
        with jax.default_device(self.device):
            self._nets = {name: build(spec, self.initial_random(name)) for name, spec in self.specs.items()}
            self._nets |= {name: self._nets[source] for name, source in self.targets.items()}
            state: State = {f"net/{name}": [jnp.copy(part) for part in net.arrays] for name, net in self._nets.items()}
        self.names: tuple[str, ...] = tuple(self._nets)
        self._optimizers = {name: _adam(spec) for name, spec in self.optimizer_specs.items()}
        for name, optimizer in self._optimizers.items():
            state[f"optimizer/{name}"] = optimizer.init(state[f"net/{name}"][: self._nets[name].learned])
        self._state = self._put(state)
        self._phases: dict[int, _Phase] = {}
        self._programs: dict[str, Any] = {}
        self.kept: frozenset[str] = frozenset()  # parts of the state that somebody may look at after an update
        self.packs: bool = device == "cuda"  # what an update takes, so that it is one copy
        self._packings: dict[Hashable, Packing] = {}

    # ------------------------------------------------------------------------------------------------ learning
    def _update(self, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics:
        """See `Learner._update`."""
        return self._updated(self.algorithm.phase(self.updates), batch, rows, noise, rates)

    def _updated(self, number: int, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics:
        inputs = (batch, rows, noise, jax.tree.map(np.float32, rates))
        if number not in self._phases:
            jax_cache.hand_over()
            self._phases[number] = _Phase(self, number, self._of_one((self._state, *inputs)))
        phase = self._phases[number]
        changing = {name: self._state[name] for name in phase.donated}
        fixed = {name: self._state[name] for name in phase.reads}
        changed, values, priority = phase.program(changing, fixed, *self._placed(*inputs))
        self._state.update(changed)
        return Metrics(phase.names, values, priority)

    def learn_beside(self) -> None:
        """See `Learner.learn_beside`: updates are queued anyway, and change the arrays that they are given."""
        self.kept = frozenset(f"net/{name}" for name in self.algorithm.acting_networks)

    # ------------------------------------------------------------------------------------------------ acting
    def acting_parameters(self) -> Callable[[], Parameters]:
        """See `Learner.acting_parameters`; on a CPU they are no copies."""
        arrays = {name: self._state[f"net/{name}"] for name in self.algorithm.acting_networks}
        return lambda: {
            name: {key: np.asarray(array) for key, array in zip(self._nets[name].names, own, strict=True)}
            for name, own in arrays.items()
        }

    def _act(self, method: Any, obs: Tree, *noise: np.ndarray | None) -> Any:
        """See `Learner._act`."""
        if method not in self._programs:
            self._programs[method] = jax.jit(self.each(self._program(getattr(self.algorithm, method))))
        state = {name: self._here(self._state[f"net/{name}"]) for name in self.algorithm.acting_networks}
        return jax.tree.map(np.asarray, self._programs[method](state, obs, *noise))

    def _here(self, arrays: list[Array]) -> list[Array]:
        """The same, on the one device that acts."""
        return arrays

    def _program(self, method: Any) -> Any:
        precision = self.precision if self.on_policy else "float32"

        def run(state: State, *inputs: Any) -> Any:
            nets = SimpleNamespace(**{name: self.called(name, state[name], precision) for name in state})
            return method(nets, *inputs), self._carry(nets)

        return run

    def each(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What is compiled for a function of one learner's arrays: itself; see `jax_many`."""
        return function

    def _of_one(self, tree: Any) -> Any:
        """One learner's arrays, of those that what `each` gives takes."""
        return tree

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A phase's program, which may change its first argument in place."""
        program = self.each(function)

        def run(changing: State, fixed: State, *inputs: Any) -> Any:
            packed = isinstance(inputs[0], Packed)
            return program(changing, fixed, *(inputs[0].unpacked() if packed else inputs))

        return jax.jit(run, donate_argnums=0)

    def parts(self, batch: Any, rows: Array) -> tuple[Any, Callable[[Any], Any]]:
        """What a phase's program goes through part by part, and what makes a batch of each."""
        return rows, lambda some: jax.tree.map(lambda x: x[some], batch)

    def _placed(self, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> tuple[Any, ...]:
        """What a phase's program takes, where its devices look for it."""
        inputs = batch, rows, noise, rates
        if not self.packs:
            return inputs
        inputs = every(inputs, lambda leaf: np.asarray(leaf, jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)))
        packing = self._packings.get(which := kind(inputs)) or self._packings.setdefault(which, Packing(inputs))
        buffer = np.empty(packing.size, np.uint8)
        packing.write(inputs, buffer)
        return (Packed(buffer, packing),)

    def called(self, name: str, arrays: list[Array], precision: Precision) -> Any:
        """A network as losses and policies call it, with these arrays."""
        net = self._nets[name].with_arrays(arrays, jnp.bfloat16 if precision == "bf16" else jnp.float32)
        return self._callable(name, net)

    def networks(self) -> SimpleNamespace:
        """The acting networks as a policy calls them; recurrent ones anew for each, see `Unrolling`."""
        names = self.algorithm.acting_networks
        return SimpleNamespace(**{name: self.called(name, self._state[f"net/{name}"], "float32") for name in names})

    # ------------------------------------------------------------------------------------------------ state
    def parameters(self) -> Parameters:
        """See `Learner.parameters`."""
        return {name: self._named(name, self._state[f"net/{name}"]) for name in self._nets}

    def load_parameters(self, parameters: Parameters) -> None:
        """See `Learner.load_parameters`."""
        self._host = None
        forms.check(parameters, Each(Each(ARRAY)), "learner/parameters")
        for name in self._nets:
            self._state[f"net/{name}"] = self._arrays(name, parameters.get(name, {}), name)

    def optimizer_state(self) -> dict[str, Any]:
        """See `Learner.optimizer_state`."""
        state: dict[str, Any] = {}
        for name in self._optimizers:
            parts = self._state[f"optimizer/{name}"]
            adam: Any = next(part for part in parts if isinstance(part, optax.ScaleByAdamState))
            first, second = (self._named(name, moments) for moments in (adam.mu, adam.nu))
            state[name] = {"steps": adam.count.tolist(), "first": first, "second": second}
        return state

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """See `Learner.load_optimizer_state`."""
        for name in self._optimizers:
            owner, learned = f"the optimiser of {name}", self._nets[name].learned
            adam = optax.ScaleByAdamState(
                count=self._put(jnp.asarray(np.minimum(state[name]["steps"], 2**31 - 1), jnp.int32)),
                mu=self._arrays(name, state[name]["first"], owner, learned),
                nu=self._arrays(name, state[name]["second"], owner, learned),
            )
            self._state[f"optimizer/{name}"] = tuple(
                adam if isinstance(part, optax.ScaleByAdamState) else part for part in self._state[f"optimizer/{name}"]
            )

    def _named(self, network: str, arrays: list[Array]) -> dict[str, np.ndarray]:
        """All of a network's arrays by name, or the moments of those that learn."""
        names = self._nets[network].names[: len(arrays)]
        return {name: np.array(array) for name, array in zip(names, arrays, strict=True)}

    def _arrays(
        self, network: str, values: dict[str, np.ndarray], owner: str, number: int | None = None
    ) -> list[Array]:
        """The first `number` of a network's arrays, all by default, from values by name."""
        net = self._nets[network]
        expected = dict(zip(net.names[:number], net.shapes[:number], strict=True))
        # A copy: on a CPU, JAX would go on reading the caller's memory.
        return self._put([jnp.array(value) for value in matched(values, expected, owner).values()])

    def _put(self, tree: Any) -> Any:
        """These arrays where learning looks for them."""
        return jax.device_put(tree, self.device)


@partial(jax.tree_util.register_dataclass, data_fields=["buffer"], meta_fields=["packing"])
@dataclass
class Packed:
    """Arrays in one buffer, (size,) uint8."""

    buffer: Any
    packing: Packing

    def unpacked(self) -> Any:
        """Within a compiled program, the tree of them."""
        return self.packing.read(self._array)

    def _array(self, place: Place) -> Array:
        data = self.buffer[place.begin : place.end]
        if place.dtype == np.bool_:
            return jnp.reshape(data, place.shape) != 0
        if place.dtype.itemsize > 1:
            data = jnp.reshape(data, (-1, place.dtype.itemsize))
        return jnp.reshape(jax.lax.bitcast_convert_type(data, place.dtype), place.shape)


class _Phase:
    """The compiled program of one phase, and which parts of the state it changes and reads."""

    def __init__(self, learner: JaxLearner, number: int, example: tuple[State, Any, Any, Any, Rates]):
        self._learner, self._number = learner, number
        state, batch, rows, noise, rates = example
        traced = self._example(state, batch, rows, noise, rates)
        self.names, self.changes = tuple(traced.names), tuple(sorted(traced.changed))
        self.donated = tuple(name for name in self.changes if name not in learner.kept)
        self.reads = tuple(name for name in state if name.startswith("net/") and name not in self.donated)
        self.program = learner.compiled(self._run)

    def _example(self, state: State, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> _Trace:
        """An abstract run, to see what this phase changes and reports."""
        traces: list[_Trace] = []

        def look(state: State, batch: Any, noise: Any, rates: Rates) -> None:
            traces.append(self._learn(state, batch, noise, rates))

        part = batch if rows is None else jax.tree.map(lambda x: x[rows[0]], batch)
        jax.eval_shape(look, state, part, noise, rates)
        return traces[0]

    def _learn(self, state: State, batch: Any, noise: Any, rates: Rates) -> _Trace:
        trace = _Trace(self._learner, state, rates)
        with jax.numpy_rank_promotion("raise"):
            self._learner.algorithm.update(trace, batch, noise, self._number)
        return trace

    def _run(
        self, donated: State, fixed: State, batch: Any, rows: Array | None, noise: Any, rates: Rates
    ) -> tuple[State, Array, Array | None]:
        changing = {name: donated[name] if name in donated else fixed[name] for name in self.changes}
        if rows is None:
            trace = self._learn({**fixed, **changing}, batch, noise, rates)
            return {name: trace.state[name] for name in changing}, jnp.stack(trace.values), trace.priority

        parts, batch_of = self._learner.parts(batch, rows)

        def part(state: State, some: Any) -> tuple[State, Array]:
            trace = self._learn({**fixed, **state}, batch_of(some), noise, rates)
            return {name: trace.state[name] for name in state}, jnp.stack(trace.values)

        changed, values = jax.lax.scan(part, changing, parts)
        return changed, jnp.mean(values, 0), None


class _Trace:
    """What `update` sees as the learner while it is traced: the state, as it changes."""

    def __init__(self, learner: JaxLearner, state: State, rates: Rates):
        self.learner, self.state, self.scheduled = learner, dict(state), rates.scheduled
        self._rates = rates.learning
        self.changed: set[str] = set()
        self.names: list[str] = []
        self.values: list[Array] = []
        self.priority: Array | None = None

    def minimize(self, name: str, loss: Any, *args: Any) -> dict[str, Array]:
        """See `Updater.minimize`."""
        key, net = f"net/{name}", self.learner._nets[name]
        learned, statistics = self.state[key][: net.learned], self.state[key][net.learned :]

        def of_parameters(parameters: list[Array]) -> tuple[Array, tuple[dict[str, Array], list[Array]]]:
            arrays = parameters + statistics
            nets = self._networks(**{name: arrays})
            value, info = loss(nets, *args)
            return value, (info, net.statistics(getattr(nets, name), arrays))

        (value, (info, after)), gradient = jax.value_and_grad(of_parameters, has_aux=True)(learned)
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
        names, values, _ = summarize(info, jnp)
        self.names += [f"{name}_loss", *names]
        self.values += [value, *values]


def _adam(spec: OptimizerSpec) -> optax.GradientTransformation:
    """Everything of the optimiser but the step size, which comes with each update."""
    clip = [optax.clip_by_global_norm(spec.max_grad_norm)] if spec.max_grad_norm > 0 else []
    decay = [optax.add_decayed_weights(spec.weight_decay)] if spec.weight_decay > 0 else []
    adam = [optax.scale_by_adam(b1=spec.beta1, eps=spec.epsilon)]
    return optax.chain(*clip, *(adam + decay if spec.decoupled else decay + adam))


def has_cuda() -> bool:
    """Whether JAX can use a CUDA device here. To find out, it begins; see `make_devices`."""
    return jax.default_backend() == "gpu"


def make_devices(number: int) -> None:
    """Of the processor, so many at least, where JAX has not begun in this process yet."""
    config: Any = jax.config
    with contextlib.suppress(RuntimeError):  # it has
        config.update("jax_num_cpu_devices", max(number, config.jax_num_cpu_devices))


def _device(device: str) -> Any:
    if device == "cuda" and not has_cuda():
        raise UsageError("JAX sees no CUDA device here: use --device cpu, or pip install 'jax[cuda13]'.")
    return jax.local_devices(backend="gpu" if device == "cuda" else "cpu")[0]
