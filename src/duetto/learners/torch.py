"""The learner in PyTorch."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

from typing_extensions import override

from duetto.algorithms.base import Updater

# PyTorch's OpenMP reads this at import: how often a waiting thread polls before it sleeps. Waking a thread costs more
# than an operation, so without polling two threads are slower than one. Longer polling stalls a busy machine.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
# cuBLAS reads this at its start. One workspace size for all products makes it deterministic, also in recurrent layers
# (PyTorch's notes on reproducibility).
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import array_api_compat.torch
import numpy as np
import torch
import torch.utils.deterministic
from torch import Tensor

from duetto.algorithms.base import PRIORITY, Algorithm, Tree
from duetto.functional.pytree import tree_map
from duetto.learners.base import (
    LazyArray,
    Learner,
    Metrics,
    Precision,
    Update,
    check_named,
    checked_loss,
    on_host,
    summarize,
)
from duetto.learners.cuda_graphs import GraphRecorder
from duetto.learners.policy import Parameters, carried, matched
from duetto.learners.runtime import available_threads, keep_freed_memory, torch_threads
from duetto.learners.torch_adam import Adam
from duetto.networks.layers import projected
from duetto.networks.spaces import Space
from duetto.networks.specs import ParameterSpec
from duetto.networks.torch import TorchCustomNetwork, TorchNetwork, build

MEMORY: Any = torch.utils.deterministic  # type checkers do not see its `fill_uninitialized_memory`
WARN = 1  # PyTorch's modes of deterministic operations are 0 (off), 1 (warn) and 2 (raise)
RECORDS = "DUETTO_CUDA_GRAPHS"  # environment variable; 0 turns CUDA graphs off


def has_cuda() -> bool:
    """Return whether PyTorch can use a CUDA device here."""
    return torch.cuda.is_available()


class TorchLearner(Learner, Updater):
    """The learner in PyTorch, with fused Adam, `foreach` operations for target networks, and CUDA graphs on a GPU.

    `Learner.update_each` (`base`) calls `update_alike`, which calls the algorithm's `update`.
    """

    backend: Literal["torch", "jax"] = "torch"
    scheduled: dict[str, Tensor]
    _nth = 0  # number of the minibatch in its update

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
        self.device: torch.device = torch.device(device)
        if device == "cpu":
            keep_freed_memory()
            torch.set_num_threads(threads or torch_threads(observation))
            self.threads: int = torch.get_num_threads()  # read back: PyTorch without OpenMP always has one
        else:  # the CPU only launches kernels
            torch.set_num_threads(threads or available_threads())
        self._nets = {name: build(spec, self.initial_random(name), device) for name, spec in self.specs.items()}
        for name, source in self.targets.items():
            self._nets[name] = build(self.specs[source], self.initial_random(source), device)
            self.track(name, source, 1.0)  # a custom network's initial values may not depend on PyTorch's seed
        for name in self._nets.keys() - self.optimizer_specs.keys():  # they are constant
            for weight in self._nets[name].learned.values():
                weight.requires_grad_(False)
        self._plain = SimpleNamespace(**{name: self._called(name) for name in self._nets})
        self._optimizers = {name: Adam(spec, self._nets[name].learned) for name, spec in self.optimizer_specs.items()}
        self._recorder: GraphRecorder | None = None
        if device == "cuda" and self._recordable() and os.environ.get(RECORDS) != "0":
            self._recorder = GraphRecorder(self.device, self._changing)
        self._phase_names: dict[int, tuple[str, ...]] = {}  # metrics' names; a replayed graph cannot report them
        self._autocast = contextlib.nullcontext()
        if precision == "bf16":
            self._autocast = torch.autocast(self.device.type, dtype=torch.bfloat16)

    # ------------------------------------------------------------------------------------------------ learning
    @override
    def update_alike(self, updates: Sequence[Update]) -> list[Metrics]:
        metrics: list[Metrics] = []
        for update in updates:
            self._phase, self._nth = update.phase, -1
            rates = self._learning_rates(update.learning_rates)
            times = 1 if update.rows is None else update.rows.shape[-2]
            if self._recorder is not None:
                rates = tree_map(np.float32, rates)
            scheduled = tree_map(lambda value: np.asarray(value, np.float32), update.scheduled)
            inputs = update._replace(phase=None, learning_rates=rates, scheduled=scheduled), np.zeros(1, np.int64)
            if self._recorder is not None:
                results = self._recorder.replay(("update", self._phase), inputs, self._step, times)
            else:
                self._use_threads(self.threads)
                tensors = as_tensors(inputs, self.device)
                results = []
                for _ in range(times):
                    results.append(self._step(tensors))
            values, priorities = zip(*results, strict=True)
            mean = values[0] if times == 1 else torch.stack(values).mean(0)
            priority = None if priorities[-1] is None else LazyArray(priorities[-1])
            metrics.append(Metrics(self._phase_names[self._phase], LazyArray(mean), priority))
        return metrics

    def _learning_rates(self, rates: dict[str, Any]) -> dict[str, Any]:
        """Return the learning rates in the form that `Adam.step` takes; `TorchVmapLearner` overrides this."""
        return rates

    def _recordable(self) -> bool:
        """Return whether every update has the same operations, as CUDA graphs require.

        The operations of recurrent layers depend on the starts of episodes; custom networks may do anything.
        """
        return not self.recurrent and all(spec.custom is None for spec in self.specs.values())

    def _step(self, inputs: tuple[Update, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Make the next step of an update, and return its metrics and priorities.

        `inputs` are the update with tensors, and the minibatch's number (1,), which this method increments.
        """
        update, part = inputs
        self._nth += 1
        self._rates, self.scheduled, batch = update.learning_rates, update.scheduled, update.batch
        if update.rows is not None:
            batch = self._part(batch, update.rows, part)
            part.add_(1)
        self._names: list[str] = []
        self._values: list[Tensor] = []
        self._priority: Tensor | None = None
        self._mask = getattr(batch, "mask", None)  # of a batch of sequences
        with torch.enable_grad(), self._learning(), self._repeatable():
            self.algorithm.update(self, batch, update.noise, self._phase)
        self._phase_names[self._phase] = tuple(self._names)
        return torch.stack(self._values, -1), self._priority

    def _part(self, batch: Any, rows: Tensor, part: Tensor) -> Any:
        """Return minibatch number `part`. The number is a tensor (1,), so that a CUDA graph can increment it."""
        chosen = rows.index_select(0, part)[0]
        return tree_map(lambda array: array.index_select(0, chosen), batch)

    def _repeatable(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which a GPU adds in the same order each time, as a CPU does."""
        return deterministic() if self.device.type == "cuda" else contextlib.nullcontext()

    @contextlib.contextmanager
    def _learning(self) -> Iterator[None]:
        """Put custom modules, except targets, in train mode in this context.

        The modules' random numbers, such as those of dropout, depend only on the seed and on the numbers of the update
        and the minibatch. So a resumed run draws the same numbers.
        """
        custom = [
            net for name, net in self._nets.items() if isinstance(net, TorchCustomNetwork) and name not in self.targets
        ]
        if not custom:
            yield
            return
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(zlib.crc32(f"{self._seed} {self.updates} {self._nth}".encode()))
            for net in custom:
                net.module.train()
            try:
                yield
            finally:
                for net in custom:
                    net.module.eval()

    def _changing(self) -> Iterator[Tensor]:
        for net in self._nets.values():
            yield from net.values.values()
        for optimizer in self._optimizers.values():
            yield from optimizer.tensors()

    @override
    def minimize(self, name: str, loss: Any, *args: Any) -> dict[str, Tensor]:
        check_named("The update minimizes a loss of a network without an optimizer,", name, self._optimizers)
        gradients, value, info, statistics = self._differentiate(name, loss, args)
        norm = self._optimizers[name].step(gradients, self._rates[name])
        values = self._nets[name].values
        with torch.no_grad():
            for key, array in (statistics | projected(self.specs[name].projected_stacks, values)).items():
                values[key].copy_(array)
        self._priority = info.get(PRIORITY, self._priority)
        names, values = self._summarize(info if norm is None else info | {f"{name}_gradient_norm": norm})
        self._names += [f"{name}_loss", *names]
        self._values += [value.float(), *(value.float() for value in values)]
        return info

    def _differentiate(self, name: str, loss: Any, args: Any) -> tuple[list[Tensor], Tensor, Any, dict[str, Tensor]]:
        """Call the loss; return its gradients, value and metrics, and the new running statistics of its network."""
        with self._autocast:
            value, info = checked_loss(name, loss(self.networks(), *args))
        gradients = torch.autograd.grad(
            value, self._optimizers[name].weights, allow_unused=True, materialize_grads=True
        )
        statistics = dict(getattr(self._nets[name], "updated_stats", {}))
        for net in self._nets.values():
            if isinstance(net, TorchNetwork):
                net.updated_stats.clear()
        return list(gradients), value.detach(), {key: array.detach() for key, array in info.items()}, statistics

    def _summarize(self, info: dict[str, Tensor]) -> tuple[list[str], list[Tensor]]:
        return summarize(info, array_api_compat.torch, self._mask)

    def networks(self) -> SimpleNamespace:
        """Return the networks in the form that losses and policies call; recurrent ones in a new `RecurrentUnroll`."""
        if not self.recurrent:
            return self._plain
        return SimpleNamespace(**{name: self._called(name) for name in self._nets})

    def _called(self, name: str) -> Any:
        net = self._nets[name]
        if isinstance(net.spec, ParameterSpec):
            return net.values["value"]
        return self._callable(self.targets.get(name, name), net)

    @override
    def track(self, target: str, source: str, tau: float) -> None:
        to, origin = self._nets[target], self._nets[source]
        with torch.no_grad():
            torch._foreach_lerp_(  # pyright: ignore[reportPrivateImportUsage]
                [to.values[name] for name in origin.learned], list(origin.learned.values()), tau
            )
            learned = set(map(id, origin.learned.values()))  # custom modules may share a tensor under several names
            for name, value in origin.values.items():
                if id(value) not in learned:
                    to.values[name].copy_(value)

    def _use_threads(self, number: int) -> None:
        """Set the number of threads, which another learner may have changed."""
        if number and torch.get_num_threads() != number:
            torch.set_num_threads(number)

    # ------------------------------------------------------------------------------------------------ acting
    @override
    def _act(self, method: Any, obs: Tree, *noise: np.ndarray | None) -> Any:
        inputs = (obs, *noise)
        if self._recorder is not None and method == "collect":  # its inputs always have the same shapes
            return tree_map(on_host, self._recorder.replay(method, inputs, partial(self._acted, method))[0])
        self._use_threads(self.threads)
        return tree_map(on_host, self._acted(method, as_tensors(inputs, self.device)))

    def _acted(self, method: Any, inputs: Any) -> Any:
        """Call this method of the algorithm with `inputs` (tensors); return its result and the new hidden states."""
        with torch.no_grad(), self._repeatable(), self._autocast if self.on_policy else contextlib.nullcontext():
            nets = self.networks()
            return getattr(self.algorithm, method)(nets, *inputs), carried(self.algorithm, nets)

    # ------------------------------------------------------------------------------------------------ state
    @override
    def parameters(self, *networks: str) -> Parameters:
        return {
            name: {key: value.detach().cpu().numpy().copy() for key, value in self._nets[name].values.items()}
            for name in networks or self._nets
        }

    @override
    def load_parameters(self, parameters: Parameters) -> None:
        self._numpy_policy = None
        shapes = {name: {key: tuple(x.shape) for key, x in net.values.items()} for name, net in self._nets.items()}
        matching = {name: matched(parameters.get(name, {}), shapes[name], name) for name in self._nets}
        with torch.no_grad():  # checked above, so a mismatch changes nothing
            for name, net in self._nets.items():
                for key, value in matching[name].items():
                    net.values[key].copy_(torch.from_numpy(np.array(value)))

    @override
    def optimizer_state(self) -> dict[str, Any]:
        return {name: optimizer.state() for name, optimizer in self._optimizers.items()}

    @override
    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        for name, optimizer in self._optimizers.items():
            optimizer.load(state[name], f"the optimizer of {name}")


def as_tensors(tree: Any, device: torch.device) -> Any:
    """Return the tree with NumPy arrays as tensors on `device`; Python numbers do not change."""

    def tensor(leaf: Any) -> Any:
        return torch.from_numpy(leaf).to(device, non_blocking=True) if isinstance(leaf, np.ndarray) else leaf

    return tree_map(tensor, tree)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """Use deterministic operations in this context, so a run on a GPU repeats and resumes bit for bit.

    For an operation without a deterministic kernel, PyTorch issues a warning that names it. If the user has set a
    stricter mode, that mode applies.
    """
    mode, fills = torch.get_deterministic_debug_mode(), MEMORY.fill_uninitialized_memory
    torch.set_deterministic_debug_mode(max(mode, WARN))
    MEMORY.fill_uninitialized_memory = fills and mode > 0  # fill only if the user has set a mode
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        MEMORY.fill_uninitialized_memory = fills
