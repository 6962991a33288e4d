"""The learner in JAX.

The algorithm's `update` runs inside `jit` on a `TracedUpdate`, which holds the networks and optimizer states while
they are traced (`jax_update`). Each phase (`Algorithm.phase`) has compiled programs for 1, 2, 4, 8 or 16 updates, or
for all epochs of a rollout, because calling a program takes as long as an update of small networks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from typing_extensions import override

from duetto.algorithms.base import Algorithm, OptimizerSpec, Tree
from duetto.functional.pytree import tree_map, tree_map_many
from duetto.learners.base import LazyArray, Learner, Metrics, Precision, Update
from duetto.learners.jax_update import CompiledUpdate, State
from duetto.learners.policy import Parameters, carried, in_numpy, matched
from duetto.learners.runtime import start_jax, use_jax_cache, xla_has
from duetto.networks.jax import build
from duetto.networks.spaces import Space

CompilerOptions = dict[str, str | int | bool | float]
ADAM = ("count", "mu", "nu")  # names in Optax's state
MOST_AT_ONCE = 16  # updates in one program
MOST_ROWS, MOST_PARAMETERS = 16, 2**18  # NumPy acts on up to 16 observations, with networks up to this size
# On a GPU: select kernels by a fixed rule. By default XLA measures which kernels are fastest, so another process may
# select kernels that add in another order.
SAME_EACH_TIME: CompilerOptions = {"xla_gpu_deterministic_ops": True}
# On a CPU: matrix products by Eigen instead of YNNPACK, XLA's default. TD3's update with 256 rows and layers of 400 and
# 300 units takes 0.92 times the CPU time (AMD EPYC, Zen 4). Eigen is not faster for wider layers or smaller batches.
EIGEN: CompilerOptions = {"xla_cpu_experimental_ynn_fusion_type": ""}
EIGEN_ROWS, EIGEN_UNITS = 128, 512


class JaxLearner(Learner):
    """The learner in JAX. Networks are lists of arrays, optimizers are from Optax; each phase has compiled programs."""

    backend: Literal["torch", "jax"] = "jax"

    def __init__(
        self,
        algorithm: Algorithm,
        observation: Space,
        action: Space,
        seed: int = 0,
        device: str = "cpu",
        precision: Precision = "float32",
        threads: int = 0,
    ):
        super().__init__(algorithm, observation, action, seed, precision)
        self.threads: int = start_jax(threads) if device == "cpu" else 0
        rollout: Any = algorithm.memory()
        self.at_once: int = 1 if self._adapted else rollout.epochs if self.on_policy else MOST_AT_ONCE
        use_jax_cache()
        self.device: Any = jax.local_devices(backend="gpu" if device == "cuda" else "cpu")[0]
        with jax.default_device(self.device):
            self._nets = {name: build(spec, self.initial_random(name)) for name, spec in self.specs.items()}
            self._nets |= {name: self._nets[source] for name, source in self.targets.items()}
            state: State = {f"net/{name}": list(map(np.array, net.arrays)) for name, net in self._nets.items()}
        self._optimizers = {name: _adam(spec) for name, spec in self.optimizer_specs.items()}
        for name, optimizer in self._optimizers.items():  # zeros, without compiling a program for each shape
            shapes = jax.eval_shape(optimizer.init, state[f"net/{name}"][: self._nets[name].learned])
            state[f"optimizer/{name}"] = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        self._state = self._put(state)
        self._compiled: dict[int, CompiledUpdate] = {}
        self._programs: dict[str, Any] = {}
        self.on_gpu: bool = device == "cuda"
        acting = [shape for name in algorithm.acting_networks for shape in self._nets[name].shapes]
        small = sum(math.prod(shape) for shape in acting) <= MOST_PARAMETERS
        off_policy = not self.on_policy and not self.recurrent
        # For small networks, copying the parameters and acting in NumPy is faster than a call of JAX.
        if small and off_policy and device == "cpu" and in_numpy(algorithm, self.specs):
            self._numpy_rows = MOST_ROWS

    # ------------------------------------------------------------------------------------------------ learning
    @override
    def update_alike(self, updates: Sequence[Update]) -> list[Metrics]:
        """Make updates of the same phase and shapes by one call of a compiled program.

        On-policy, the updates are epochs of one rollout, which the program gets only once.
        """
        first, rollout = updates[0], updates[0].batch if self.on_policy else None
        if (compiled := self._compiled.get(first.phase)) is None:
            compiled = self._compiled[first.phase] = CompiledUpdate(self, self._state, first)
        inputs = tree_map_many(_stacked, [_float32(one, rollout) for one in updates])
        changing = {name: self._state[name] for name in compiled.changes}
        fixed = {name: self._state[name] for name in compiled.reads}
        changed, values, priority = compiled.program(changing, fixed, rollout, inputs)
        self._state.update(changed)
        if self.on_policy:  # on a CPU, JAX reads the caller's arrays, which the next rollout overwrites
            jax.block_until_ready(values)
        metrics = Metrics(compiled.names, LazyArray(values), None if priority is None else LazyArray(priority))
        return [metrics.row(number) for number in range(len(updates))]

    # ------------------------------------------------------------------------------------------------ acting
    @override
    def _act(self, method: Any, obs: Tree, *noise: np.ndarray | None) -> Any:
        if method not in self._programs:
            program = self.each(self._program(getattr(self.algorithm, method)))
            self._programs[method] = jax.jit(program, compiler_options=self.compiler_options())
        state = {f"net/{name}": self._state[f"net/{name}"] for name in self.algorithm.acting_networks}
        return jax.tree.map(np.asarray, self._programs[method](state, obs, *noise))

    def _program(self, method: Any) -> Any:
        def run(state: State, *inputs: Any) -> Any:
            nets = self.networks(state)
            with self.exactly():
                return method(nets, *inputs), carried(self.algorithm, nets)

        return run

    def exactly(self) -> AbstractContextManager[Any]:
        """Return a context for tracing without TensorFloat-32, which JAX uses by default on newer GPUs."""
        return jax.default_matmul_precision("float32") if self.on_gpu else nullcontext()

    def each(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function to compile: `function`, which `JaxVmapLearner` maps over seeds."""
        return function

    def compiler_options(self, rows: int = 0) -> CompilerOptions | None:
        """Return XLA's options for batches of `rows` rows; None if there are none, or `XLA_FLAGS` sets one of them."""
        options = SAME_EACH_TIME if self.on_gpu else EIGEN if self._by_eigen(rows) else {}
        named = any(option in os.environ.get("XLA_FLAGS", "") for option in options)
        return None if named else options or None

    def _by_eigen(self, rows: int) -> bool:
        if rows < EIGEN_ROWS or self.recurrent or self.precision != "float32" or self.device.platform != "cpu":
            return False
        shapes = [shape for net in self._nets.values() for shape in net.shapes]
        small = all(len(shape) < 4 and max(shape[-2:], default=0) < EIGEN_UNITS for shape in shapes)  # 4: convolutions
        return small and xla_has(frozenset(EIGEN.items()))

    def networks(self, state: State, acting: bool = True) -> SimpleNamespace:
        """Return networks with the arrays in `state` in the form that losses call; recurrent ones in `RecurrentUnroll`.

        With `acting`, return only the acting networks; off-policy they compute in float32.
        """
        bf16 = self.precision == "bf16" and (self.on_policy or not acting)
        nets = {
            name: self._nets[name].with_arrays(state[f"net/{name}"], jnp.bfloat16 if bf16 else jnp.float32)
            for name in (self.algorithm.acting_networks if acting else self._nets)
        }
        return SimpleNamespace(**{name: self._callable(self.targets.get(name, name), nets[name]) for name in nets})

    # ------------------------------------------------------------------------------------------------ state
    @property
    def state(self) -> State:
        """The arrays that learning changes, on the device; see `jax_update.State`."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state, self._numpy_policy = state, None

    @override
    def parameters(self, *networks: str) -> Parameters:
        return {name: self._named(name, self._state[f"net/{name}"]) for name in networks or self._nets}

    @override
    def load_parameters(self, parameters: Parameters) -> None:
        self._numpy_policy = None
        self._state |= {f"net/{name}": self._arrays(name, parameters.get(name, {}), name) for name in self._nets}

    @override
    def optimizer_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for name in self._optimizers:
            steps, *moments = (optax.tree_utils.tree_get(self._state[f"optimizer/{name}"], key) for key in ADAM)
            first, second = (self._named(name, arrays) for arrays in moments)
            state[name] = {"steps": steps.tolist(), "first": first, "second": second}
        return state

    @override
    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        for name in self._optimizers:
            key, owner, learned = f"optimizer/{name}", f"the optimizer of {name}", self._nets[name].learned
            steps = self._put(np.asarray(np.minimum(state[name]["steps"], 2**31 - 1), np.int32))
            moments = (self._arrays(name, state[name][which], owner, learned) for which in ("first", "second"))
            adam = dict(zip(ADAM, (steps, *moments), strict=True))
            self._state[key] = optax.tree_utils.tree_set(self._state[key], **adam)

    def _named(self, network: str, arrays: list[Array]) -> dict[str, np.ndarray]:
        """Return copies of a network's arrays, or of their moments, by name."""
        names = self._nets[network].names[: len(arrays)]
        return {name: np.array(array) for name, array in zip(names, arrays, strict=True)}

    def _arrays(
        self, network: str, values: dict[str, np.ndarray], owner: str, number: int | None = None
    ) -> list[Array]:
        """Return a network's first `number` arrays (default: all), on the device, from `values` by name."""
        net = self._nets[network]
        expected = dict(zip(net.names[:number], net.shapes[:number], strict=True))
        # Copied, because on a CPU JAX may use the caller's memory.
        return self._put([np.array(value) for value in matched(values, expected, owner).values()])

    def _put(self, tree: Any) -> Any:
        """Return the tree on the device."""
        return jax.device_put(tree, self.device)


class JaxVmapLearner(JaxLearner):
    """A learner whose parameters, inputs and outputs have a leading axis of N seeds; see `multi_seed`."""

    def __init__(self, algorithm: Algorithm, observation: Space, action: Space, seeds: Sequence[int], *how: Any):
        """`how` are the device, the precision and the number of threads."""
        super().__init__(algorithm, observation, action, seeds[0], *how)
        states = [JaxLearner(algorithm, observation, action, seed, *how)._state for seed in seeds]
        self._state = self._put(jax.tree.map(lambda *rows: np.stack(list(map(np.asarray, rows))), *states))
        for name in self.specs:  # a target network shares the `net` of its source
            net = self._nets[name]
            net.shapes = [(len(seeds), *shape) for shape in net.shapes]

    @override
    def each(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.vmap(function)


def _float32(update: Update, rollout: Any) -> Update:
    """Return the update with its scalars as float32, and without its batch if there is a `rollout`."""
    rates, scheduled = (tree_map(np.float32, rates) for rates in (update.learning_rates, update.scheduled))
    batch = update.batch if rollout is None else None
    return update._replace(phase=None, batch=batch, learning_rates=rates, scheduled=scheduled)


def _stacked(arrays: Sequence[Any]) -> np.ndarray:
    return np.stack(arrays) if len(arrays) > 1 else np.asarray(arrays[0])[None]  # a view


def _adam(spec: OptimizerSpec) -> optax.GradientTransformation:
    """Return the optimizer without its learning rate, which comes with each update."""
    clip = [optax.clip_by_global_norm(spec.max_grad_norm)] if spec.max_grad_norm > 0 else []
    decay = [optax.add_decayed_weights(spec.weight_decay)] if spec.weight_decay > 0 else []
    adam = [optax.scale_by_adam(b1=spec.beta1, eps=spec.epsilon)]
    return optax.chain(*clip, *(adam + decay if spec.decoupled else decay + adam))
