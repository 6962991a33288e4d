"""The learner in JAX.

The algorithm's `update` runs inside `jit` on a `_Trace`, which holds the networks and optimiser states while they are
traced. There is one compiled program for each phase. Only what a phase changes goes through its program (donated); the
rest is read: acting with an actor that a phase leaves alone need not wait for that phase to finish.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from duetto.algorithms.base import Algorithm, OptimizerSpec, RolloutSpec, Tree
from duetto.errors import UsageError
from duetto.functional import forms
from duetto.functional.forms import ARRAY, Each
from duetto.learners.base import Learner, Metrics, Parameters, Precision, matched, summarize
from duetto.networks.jax import build
from duetto.networks.spaces import Space

State = dict[str, Any]  # "net/<name>" to a list of the network's arrays, "optimizer/<name>" to Adam's state


class JaxLearner(Learner):
    """Equinox modules, Optax, one program per phase."""

    backend = "jax"

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
        self.device = _device(device)
        with jax.default_device(self.device):
            nets = {name: build(spec, self.initial_random(name)) for name, spec in self.specs.items()}
            nets |= {name: jax.tree.map(jnp.copy, nets[source]) for name, source in self.targets.items()}
        self._modules = {name: _Module(net, self._is_custom(name)) for name, net in nets.items()}
        self._optimizers = {name: _adam(spec) for name, spec in self.optimizer_specs.items()}
        state: State = {
            f"net/{name}": jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)) for name, net in nets.items()
        }
        for name, optimizer in self._optimizers.items():
            state[f"optimizer/{name}"] = optimizer.init(state[f"net/{name}"])
        self._state = jax.device_put(state, self.device)
        self._phases: dict[int, _Phase] = {}
        self._programs: dict[str, Any] = {}

    # ------------------------------------------------------------------------------------------------ learning
    def _update(self, batch: Any, rows: np.ndarray | None, noise: Any, rates: dict[str, float]) -> Metrics:
        """See `Learner._update`."""
        number = self.algorithm.phase(self.updates)
        inputs = (batch, rows, noise, {name: np.float32(rate) for name, rate in rates.items()})
        if number not in self._phases:
            self._phases[number] = _Phase(self, number, (self._state, *inputs))
        phase = self._phases[number]
        changing = {name: self._state[name] for name in phase.changes}
        fixed = {name: self._state[name] for name in phase.reads}
        changed, values, priority = phase.program(changing, fixed, *inputs)
        self._state.update(changed)
        return Metrics(phase.names, values, priority)

    # ------------------------------------------------------------------------------------------------ acting
    def _act(self, method: Any, obs: Tree, *noise: np.ndarray | None) -> Any:
        """See `Learner._act`."""
        if method not in self._programs:
            self._programs[method] = jax.jit(self._program(getattr(self.algorithm, method)))
        state = {name: self._state[f"net/{name}"] for name in self.algorithm.acting_networks}
        return jax.tree.map(np.asarray, self._programs[method](state, obs, *noise))

    def _program(self, method: Any) -> Any:
        rollouts = isinstance(
            self.algorithm.memory(), RolloutSpec
        )  # then what was collected is compared while learning
        precision = self.precision if rollouts else "float32"

        def run(state: State, *inputs: Any) -> Any:
            nets = SimpleNamespace(
                **{
                    name: self._callable(name, _in(precision, self._modules[name], arrays))
                    for name, arrays in state.items()
                }
            )
            return method(nets, *inputs), self._carry(nets)

        return run

    # ------------------------------------------------------------------------------------------------ state
    def parameters(self) -> Parameters:
        """See `Learner.parameters`."""
        return {name: self._named(name, self._state[f"net/{name}"]) for name in self._modules}

    def load_parameters(self, parameters: Parameters) -> None:
        """See `Learner.load_parameters`."""
        self._host = None
        forms.check(parameters, Each(Each(ARRAY)), "learner/parameters")
        for name in self._modules:
            self._state[f"net/{name}"] = self._arrays(name, parameters.get(name, {}), name)

    def optimizer_state(self) -> dict[str, Any]:
        """See `Learner.optimizer_state`."""
        state: dict[str, Any] = {}
        for name in self._optimizers:
            parts = self._state[f"optimizer/{name}"]
            adam: Any = next(part for part in parts if isinstance(part, optax.ScaleByAdamState))
            first, second = (self._named(name, moments) for moments in (adam.mu, adam.nu))
            state[name] = {"steps": int(adam.count), "first": first, "second": second}
        return state

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """See `Learner.load_optimizer_state`."""
        for name in self._optimizers:
            owner = f"the optimiser of {name}"
            adam = optax.ScaleByAdamState(
                count=jax.device_put(jnp.asarray(min(state[name]["steps"], 2**31 - 1), jnp.int32), self.device),
                mu=self._arrays(name, state[name]["first"], owner),
                nu=self._arrays(name, state[name]["second"], owner),
            )
            self._state[f"optimizer/{name}"] = tuple(
                adam if isinstance(part, optax.ScaleByAdamState) else part for part in self._state[f"optimizer/{name}"]
            )

    def _is_custom(self, name: str) -> bool:
        return self.specs[self.targets.get(name, name)].custom is not None

    def _named(self, network: str, arrays: list[Array]) -> dict[str, np.ndarray]:
        return {name: np.array(array) for name, array in zip(self._modules[network].names, arrays, strict=True)}

    def _arrays(self, network: str, values: dict[str, np.ndarray], owner: str) -> list[Array]:
        module = self._modules[network]
        expected = dict(zip(module.names, module.shapes, strict=True))
        # A copy: on a CPU, JAX would go on reading the caller's memory.
        return jax.device_put([jnp.array(value) for value in matched(values, expected, owner).values()], self.device)


class _Module:
    """A network without its arrays. Programs take flat lists of arrays: modules cost 70 µs more at each call."""

    def __init__(self, net: Any, custom: bool):
        self._custom = custom
        arrays, self._static = eqx.partition(net, eqx.is_inexact_array)
        paths, self._structure = jax.tree_util.tree_flatten_with_path(arrays)
        self.names = [".".join(_step(step) for step in path) for path, _ in paths]  # PyTorch's names
        self.shapes = [tuple(leaf.shape) for _, leaf in paths]

    def with_arrays(self, arrays: list[Array]) -> Any:
        net = eqx.combine(jax.tree.unflatten(self._structure, arrays), self._static)
        return _Broadcasting(net) if self._custom else net


class _Phase:
    """The compiled program of one phase, and which parts of the state it changes and reads."""

    def __init__(self, learner: JaxLearner, number: int, example: tuple[State, Any, Any, Any, dict[str, Any]]):
        names: tuple[str, ...] = ()
        changes: tuple[str, ...] = tuple(example[0])

        def learn(state: State, batch: Any, noise: Any, rates: dict[str, Array]) -> _Trace:
            nonlocal names, changes
            trace = _Trace(learner, state, rates)
            with jax.numpy_rank_promotion("raise"):
                learner.algorithm.update(trace, batch, noise, number)
            names, changes = tuple(trace.names), tuple(sorted(trace.changed))
            return trace

        def run(
            changing: State, fixed: State, batch: Any, rows: Array | None, noise: Any, rates: dict[str, Array]
        ) -> tuple[State, Array, Array | None]:
            if rows is None:
                trace = learn({**changing, **fixed}, batch, noise, rates)
                return {name: trace.state[name] for name in changes}, jnp.stack(trace.values), trace.priority

            def part(state: State, some: Array) -> tuple[State, Array]:
                trace = learn({**state, **fixed}, jax.tree.map(lambda x: x[some], batch), noise, rates)
                return {name: trace.state[name] for name in state}, jnp.stack(trace.values)

            changed, values = jax.lax.scan(part, changing, rows)
            return {name: changed[name] for name in changes}, jnp.mean(values, 0), None

        state, *rest = example
        jax.eval_shape(run, state, {}, *rest)  # an abstract run, to see what this phase changes
        self.names, self.changes = names, changes
        self.reads = tuple(name for name in state if name.startswith("net/") and name not in changes)
        self.program = jax.jit(run, donate_argnums=0)


class _Trace:
    """What `update` sees as the learner while it is traced: the state, as it changes."""

    def __init__(self, learner: JaxLearner, state: State, rates: dict[str, Array]):
        self.learner, self.state, self.rates = learner, state, rates
        self.changed: set[str] = set()
        self.names: list[str] = []
        self.values: list[Array] = []
        self.priority: Array | None = None

    def minimize(self, name: str, loss: Any, *args: Any) -> None:
        """See `Updater.minimize`."""
        key = f"net/{name}"

        def of_parameters(parameters: Any) -> tuple[Array, dict[str, Array]]:
            return loss(self._nets(**{name: parameters}), *args)

        (value, info), gradient = jax.value_and_grad(of_parameters, has_aux=True)(self.state[key])
        optimizer = self.learner._optimizers[name]
        if self.learner.optimizer_specs[name].max_grad_norm > 0:
            norm = jnp.sqrt(sum(jnp.sum(part**2) for part in gradient))
            info = info | {f"{name}_gradient_norm": norm}
        step, moments = optimizer.update(gradient, self.state[f"optimizer/{name}"], self.state[key])
        rate = self.rates[name]
        self._set(key, jax.tree.map(lambda w, s: w - rate * s, self.state[key], step))
        self._set(f"optimizer/{name}", moments)
        self._record(name, value, info)

    def track(self, target: str, source: str, tau: float) -> None:
        """See `Updater.track`."""
        old, new = self.state[f"net/{target}"], self.state[f"net/{source}"]

        def between(t: Array, s: Array) -> Array:
            return t + tau * (s - t) if tau < 0.5 else s - (1 - tau) * (s - t)  # as torch.lerp: τ = 1 copies every bit

        self._set(f"net/{target}", jax.tree.map(between, old, new))

    def _nets(self, **replaced: Any) -> SimpleNamespace:
        nets = {}
        for name, module in self.learner._modules.items():
            arrays = replaced.get(name, self.state[f"net/{name}"])
            nets[name] = self.learner._callable(name, _in(self.learner.precision, module, arrays))
        return SimpleNamespace(**nets)

    def _set(self, key: str, value: Any) -> None:
        self.state[key] = value
        self.changed.add(key)

    def _record(self, name: str, value: Array, info: dict[str, Array]) -> None:
        self.priority = info.pop("priority", self.priority)
        names, values = summarize(info, jnp)
        self.names += [f"{name}_loss", *names]
        self.values += [value, *values]


class _Broadcasting:
    """A user's own network, which may broadcast as JAX usually does; ours and the losses may not."""

    def __init__(self, net: Any):
        self._net = net

    def __call__(self, *inputs: Any) -> Any:
        with jax.numpy_rank_promotion("allow"):
            return self._net(*inputs)

    def first(self, *inputs: Any) -> Array:
        with jax.numpy_rank_promotion("allow"):
            return self._net.first(*inputs)


def _in(precision: Precision, module: _Module, arrays: list[Array]) -> Any:
    """The network, computing in that precision."""
    if precision == "float32":
        return module.with_arrays(arrays)
    return _InBfloat16(module.with_arrays([array.astype(jnp.bfloat16) for array in arrays]))


class _InBfloat16:
    """A network with parameters cast to bfloat16, which gives float32."""

    def __init__(self, net: Any):
        self._net = net

    def __call__(self, *inputs: Any) -> Any:
        return jax.tree.map(lambda x: x.astype(jnp.float32), self._net(*inputs))

    def first(self, *inputs: Any) -> Array:
        return self._net.first(*inputs).astype(jnp.float32)


def _adam(spec: OptimizerSpec) -> optax.GradientTransformation:
    """Everything of the optimiser but the step size, which comes with each update."""
    clip = [optax.clip_by_global_norm(spec.max_grad_norm)] if spec.max_grad_norm > 0 else []
    decay = [optax.add_decayed_weights(spec.weight_decay)] if spec.weight_decay > 0 else []
    adam = [optax.scale_by_adam(eps=spec.epsilon)]
    return optax.chain(*clip, *(adam + decay if spec.decoupled else decay + adam))


def _step(step: Any) -> str:
    return str(step.name if hasattr(step, "name") else step.idx if hasattr(step, "idx") else step.key)


def has_cuda() -> bool:
    """Whether JAX can use a CUDA device here."""
    return jax.default_backend() == "gpu"


def _device(device: str) -> Any:
    if device == "cuda" and not has_cuda():
        raise UsageError("JAX sees no CUDA device here: use --device cpu, or pip install 'jax[cuda13]'.")
    return jax.devices("gpu" if device == "cuda" else "cpu")[0]
