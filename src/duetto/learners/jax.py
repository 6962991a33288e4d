"""The learner in JAX.

The algorithm's `update` runs inside `jit` on a `Trace`, which holds the networks and optimiser states while they are
traced (`jax_phase`). There is one compiled program for each phase, and others for 2, 4, 8 and 16 updates of that phase,
or for all epochs of a rollout: calling one takes as long as an update of small networks. Which updates are made at once
depends on their number alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from duetto.algorithms.base import Algorithm, OptimizerSpec, Tree
from duetto.errors import UsageError
from duetto.functional import forms
from duetto.functional.forms import ARRAY, Each
from duetto.functional.trees import mapped
from duetto.learners import heap, jax_cache, jax_products, twins
from duetto.learners.acting import HostActing, in_numpy
from duetto.learners.base import Learner, Metrics, Precision, Prepared, Rates, Whole, epochs_at_once
from duetto.learners.jax_begin import begin, has_cuda
from duetto.learners.jax_phase import Packed, Phase, State
from duetto.learners.jax_twins import JaxTwins
from duetto.learners.packing import Packing, kind
from duetto.learners.parameters import Parameters, matched
from duetto.networks.encoding import is_image
from duetto.networks.jax import build
from duetto.networks.spaces import Space
from duetto.networks.specs import Network
from duetto.processor import multiplies_bfloat16

MOST_ROWS, MOST_PARAMETERS = 16, 2**18  # of what NumPy acts on, and with
# On a GPU: not to try which kernels are the fastest, since another process finds others, which add in another order.
SAME_EACH_TIME: dict[str, str | int | bool | float] = {"xla_gpu_deterministic_ops": True}


class JaxLearner(Learner):
    """The learner in JAX: lists of arrays, Optax, one program per phase."""

    backend: Literal["torch", "jax"] = "jax"
    at_once = 16
    epoch_axis: int = 0  # of what `_epochs` takes

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
        self.threads: int = begin(threads) if device == "cpu" else 0
        if self.on_policy and self.at_once > 1:
            self.at_once: int = epochs_at_once(algorithm)
        jax_cache.use()
        if device == "cpu":
            heap.keep()
        self.device: Any = _device(device)
        with jax.default_device(self.device):
            self._nets = {name: build(spec, self.initial_random(name)) for name, spec in self.specs.items()}
            self._nets |= {name: self._nets[source] for name, source in self.targets.items()}
            state: State = {f"net/{name}": list(map(np.array, net.arrays)) for name, net in self._nets.items()}
        self.names: tuple[str, ...] = tuple(self._nets)
        self._optimizers = {name: _adam(spec) for name, spec in self.optimizer_specs.items()}
        for name, optimizer in self._optimizers.items():
            state[f"optimizer/{name}"] = _begun(optimizer, state[f"net/{name}"][: self._nets[name].learned])
        self._state = self._put(state)
        self._phases: dict[int, Phase] = {}
        self._programs: dict[str, Any] = {}
        self.kept: frozenset[str] = frozenset()  # parts of the state that somebody may look at after an update
        self.on_gpu: bool = device == "cuda"
        self._packings: dict[Hashable, Packing] = {}
        self.twins: twins.Twins | None = JaxTwins(self.device) if twins.wanted(device == "cuda") else None
        acting = [shape for name in algorithm.acting_networks for shape in self._nets[name].shapes]
        small = sum(math.prod(shape) for shape in acting) <= MOST_PARAMETERS
        elsewhere = self.on_policy or self.recurrent or device != "cpu"
        self._copies_to_act: bool = small and not elsewhere and in_numpy(algorithm, self.specs)

    # ------------------------------------------------------------------------------------------------ learning
    def _update(self, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics:
        """See `Learner._update`."""
        return self._updated(self.algorithm.phase(self.updates), batch, rows, noise, rates)

    def _updated(self, number: int, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics:
        inputs = (batch, rows, noise, jax.tree.map(np.float32, rates))
        phase = self._phase(number, inputs)
        values, priority = self._run(phase, phase.program, inputs)
        return Metrics(phase.names, values, priority)

    def update_each(self, batches: Sequence[Any], progress: Sequence[float]) -> list[Metrics]:
        """See `Learner.update_each`."""
        if len(batches) == 1 or self.on_policy or self.at_once == 1 or self._adapted:  # to what each one reports
            return super().update_each(batches, progress)
        updates = [self._prepared(batch, how_far) for batch, how_far in zip(batches, progress, strict=True)]
        metrics = [one for some in _alike(updates) for one in self._made(some)]
        self._host = None
        return metrics

    def _made(self, updates: list[Prepared]) -> list[Metrics]:
        """Make updates of one phase at once; return their metrics."""
        if len(updates) == 1:
            return [self._updated(*updates[0])]
        each = [(one.batch, one.rows, one.noise, jax.tree.map(np.float32, one.rates)) for one in updates]
        phase = self._phase(updates[0].phase, each[0])
        values, _ = self._run(phase, phase.several, jax.tree.map(lambda *rows: np.stack(rows), *each))
        whole: Any = Whole(values)
        return [Metrics(phase.names, whole[i], None) for i in range(len(updates))]

    def _epochs(self, batch: Any, each: tuple[Any, Any, Rates]) -> tuple[tuple[str, ...], Array]:
        """See `Learner._epochs`."""
        rows, noise, rates = each
        inputs = rows, noise, jax.tree.map(np.float32, rates)
        first = jax.tree.map(lambda array: array.take(0, self.epoch_axis), inputs)
        phase = self._phase(self.algorithm.phase(self.updates), (batch, *first))
        values, _ = self._run(phase, phase.epochs, (batch, *inputs))
        return phase.names, values

    def _phase(self, number: int, example: tuple[Any, ...]) -> Phase:
        if number not in self._phases:
            jax_cache.hand_over()
            self._phases[number] = Phase(self, number, self._of_one((self._readable(), *example)))
        return self._phases[number]

    def _run(self, phase: Phase, program: Any, inputs: tuple[Any, ...]) -> tuple[Array, Array | None]:
        """Run a program on the state; return the values and priorities that its update, or updates, report."""
        state = self._readable()
        changing = {name: state[name] for name in phase.donated}
        fixed = {name: state[name] for name in phase.reads}
        changed, values, priority = program(changing, fixed, *self._placed(*inputs))
        self._state.update(changed)
        if self.on_policy:  # on a CPU the rollout's own memory is read, and whoever called may fill it again
            jax.block_until_ready(values)
        return values, priority

    def _readable(self) -> State:
        """The state, with the images that updates read."""
        return self._state if self.twins is None else self._state | self.twins.arrays

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

    def _acting(self, method: Any, obs: Tree, *noise: np.ndarray | None) -> Any:
        """See `Learner._acting`: for a few observations NumPy and a copy of a small network cost less than a call."""
        if not self._copies_to_act or len(jax.tree.leaves(obs)[0]) > MOST_ROWS:
            return super()._acting(method, obs, *noise)
        if self._host is None:
            self._host = HostActing(self.algorithm, self.specs)
            arrays = {name: self._here(self._state[f"net/{name}"]) for name in self.algorithm.acting_networks}
            self._host.use({name: self._named(name, own) for name, own in arrays.items()})
        return self._host._acting(method, obs, *noise)

    def _act(self, method: Any, obs: Tree, *noise: np.ndarray | None) -> Any:
        """See `Learner._act`."""
        if method not in self._programs:
            program = self.each(self._program(getattr(self.algorithm, method)))
            self._programs[method] = jax.jit(program, compiler_options=self.by_rule())
        state = {name: self._here(self._state[f"net/{name}"]) for name in self.algorithm.acting_networks}
        return jax.tree.map(np.asarray, self._programs[method](state, obs, *noise))

    def _here(self, arrays: list[Array]) -> list[Array]:
        """The same arrays, on the one device that acts."""
        return arrays

    def _program(self, method: Any) -> Any:
        precision = self.precision if self.on_policy else "float32"

        def run(state: State, *inputs: Any) -> Any:
            nets = SimpleNamespace(**{name: self.called(name, state[name], precision) for name in state})
            with self.exactly():
                return method(nets, *inputs), self._carry(nets)

        return run

    def exactly(self) -> AbstractContextManager[Any]:
        """A context that keeps traced products of float32 exact; on newer GPUs JAX rounds to TensorFloat-32
        otherwise.
        """
        return jax.default_matmul_precision("float32") if self.on_gpu else nullcontext()

    def each(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function to compile for a function of one learner's arrays: here itself; see `jax_many`."""
        return function

    def _of_one(self, tree: Any) -> Any:
        """One learner's arrays, from those that the result of `each` takes."""
        return tree

    def compiled(self, function: Callable[..., Any], rows: int) -> Callable[..., Any]:
        """A phase's program, which may change its first argument in place. `rows` are those of a batch."""
        program = self.each(function)

        def run(changing: State, fixed: State, *inputs: Any) -> Any:
            packed = isinstance(inputs[0], Packed)
            return program(changing, fixed, *(inputs[0].unpacked() if packed else inputs))

        options = jax_products.EIGEN if self._by_eigen(rows) else self.by_rule()
        return jax.jit(run, donate_argnums=0, compiler_options=options)

    def by_rule(self) -> dict[str, str | int | bool | float] | None:
        """What XLA is told for a GPU, so that kernels are chosen by rule; who names it in `XLA_FLAGS` decides."""
        named = any(option in os.environ.get("XLA_FLAGS", "") for option in SAME_EACH_TIME)
        return SAME_EACH_TIME if self.on_gpu and not named else None

    def _by_eigen(self, rows: int) -> bool:
        """Whether Eigen makes the products: only where it was measured, on vectors, in float32, on a processor."""
        in_float32 = self.precision == "float32" or not multiplies_bfloat16()
        if self.device.platform != "cpu" or not in_float32 or self.recurrent:
            return False
        if any(isinstance(spec, Network) and is_image(spec.observation) for spec in self.specs.values()):
            return False
        shapes = [shape for name in self.specs for shape in self._nets[name].shapes]
        return jax_products.by_eigen(rows, shapes) and jax_products.known()

    def parts(self, batch: Any, rows: Array) -> tuple[Any, Callable[[Any], Any]]:
        """What a phase's program scans over part by part, and a function that makes a batch of each part."""
        return rows, lambda some: jax.tree.map(lambda x: x[some], batch)

    def _placed(self, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> tuple[Any, ...]:
        """The inputs of a phase's program, where its devices look for them."""
        inputs = batch, rows, noise, rates
        if not self.on_gpu:
            return inputs
        inputs = mapped(lambda leaf: np.asarray(leaf, jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)), inputs)
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
        self._state |= {f"net/{name}": self._arrays(name, parameters.get(name, {}), name) for name in self._nets}

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
                count=self._put(np.asarray(np.minimum(state[name]["steps"], 2**31 - 1), np.int32)),
                mu=self._arrays(name, state[name]["first"], owner, learned),
                nu=self._arrays(name, state[name]["second"], owner, learned),
            )
            self._state[f"optimizer/{name}"] = tuple(
                adam if isinstance(part, optax.ScaleByAdamState) else part for part in self._state[f"optimizer/{name}"]
            )

    def _named(self, network: str, arrays: list[Array]) -> dict[str, np.ndarray]:
        """A network's arrays by name, or the moments of those that learn, as copies."""
        names = self._nets[network].names[: len(arrays)]
        return {name: np.array(array) for name, array in zip(names, arrays, strict=True)}

    def _arrays(
        self, network: str, values: dict[str, np.ndarray], owner: str, number: int | None = None
    ) -> list[Array]:
        """The first `number` of a network's arrays, all by default, from values by name."""
        net = self._nets[network]
        expected = dict(zip(net.names[:number], net.shapes[:number], strict=True))
        # A copy: on a CPU, JAX would go on reading the caller's memory.
        return self._put([np.array(value) for value in matched(values, expected, owner).values()])

    def _put(self, tree: Any) -> Any:
        """The tree's arrays, where learning looks for them."""
        return jax.device_put(tree, self.device)


def _alike(updates: list[Prepared]) -> Iterator[list[Prepared]]:
    """Successive updates that one program can make: of one phase and shape, 2, 4, 8 or 16 of them, or one alone."""
    kinds = [(one.phase, kind((one.batch, one.rows, one.noise))) for one in updates]
    begin = 0
    while begin < len(updates):
        end = next((i for i in range(begin, len(updates)) if kinds[i] != kinds[begin]), len(updates))
        end = begin + (1 << (min(end - begin, JaxLearner.at_once).bit_length() - 1))
        yield updates[begin:end]
        begin = end


def _adam(spec: OptimizerSpec) -> optax.GradientTransformation:
    """Everything of the optimiser but the step size, which comes with each update."""
    clip = [optax.clip_by_global_norm(spec.max_grad_norm)] if spec.max_grad_norm > 0 else []
    decay = [optax.add_decayed_weights(spec.weight_decay)] if spec.weight_decay > 0 else []
    adam = [optax.scale_by_adam(b1=spec.beta1, eps=spec.epsilon)]
    return optax.chain(*clip, *(adam + decay if spec.decoupled else decay + adam))


def _begun(optimizer: optax.GradientTransformation, parameters: list[np.ndarray]) -> Any:
    """The state that `optimizer.init` returns, all zeros here, without a compiled program for each shape."""
    shapes = jax.eval_shape(optimizer.init, parameters)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


def _device(device: str) -> Any:
    if device == "cuda" and not has_cuda():
        raise UsageError(
            "JAX sees no CUDA device here: use --device cpu, or pip install 'jax[cuda13]'. A run that has begun goes "
            "on with `device: cpu` in its config.yaml and --accept-changes."
        )
    return jax.local_devices(backend="gpu" if device == "cuda" else "cpu")[0]
