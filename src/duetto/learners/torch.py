"""The learner in PyTorch."""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

# Read when PyTorch loads OpenMP: a thread that waits for the others looks for them this often before it sleeps. Without
# (waking costs more than an operation) two threads are slower than one; with far more, a busy machine stands still.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

import array_api_compat
import numpy as np
import torch
from torch import Tensor, nn

from duetto.algorithms.base import PRIORITY, Algorithm, Tree
from duetto.errors import UsageError
from duetto.functional import forms
from duetto.functional.forms import ARRAY, Each
from duetto.functional.trees import leaves, mapped
from duetto.learners import heap, twins
from duetto.learners.base import (
    Learner,
    Metrics,
    Precision,
    Rates,
    check_depends,
    check_learns,
    check_minimised,
    checked_loss,
    summarize,
)
from duetto.learners.beside import Beside, Later
from duetto.learners.parameters import Parameters as Values
from duetto.learners.parameters import matched
from duetto.learners.threads import FloatingThreads, granted
from duetto.learners.torch_adam import Adam
from duetto.learners.torch_recording import Recorder
from duetto.learners.torch_repeatable import repeatable
from duetto.learners.torch_twins import TorchTwins
from duetto.networks import torch_layers
from duetto.networks.spaces import Space
from duetto.networks.torch import Built, Custom, Parameters, build

MOST_THREADS = 4  # where nobody asks for more
RECORDS = "DUETTO_CUDA_GRAPHS"  # 0 in the environment: a GPU is asked for each operation


def has_cuda() -> bool:
    """Whether PyTorch can use a CUDA device here."""
    return torch.cuda.is_available()


class Inputs(NamedTuple):
    """The inputs of a recorded update."""

    batch: Any
    rows: Any  # (M, B) of its parts, or None
    part: Any  # (1,), which of them it is
    noise: Any
    rates: Any  # `Rates` of tensors


class TorchLearner(Learner):
    """The learner in PyTorch: fused Adam, `foreach` averaging; on a GPU as CUDA graphs, see `torch_recording`."""

    backend: Literal["torch", "jax"] = "torch"
    records = True  # where it can
    scheduled: dict[str, Tensor]
    threads: int
    _nth = 0  # part of an update
    _making = 0  # the update that is made beside

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
        if device == "cuda" and not has_cuda():
            raise UsageError(
                "PyTorch sees no CUDA device here: use --device cpu, or install a CUDA build of PyTorch."
                " A run that has begun goes on with `device: cpu` in its config.yaml and --accept-changes."
            )
        self.device: torch.device = torch.device(device)
        if device == "cpu":
            heap.keep()
        self._set_threads(threads)
        self._nets = {name: build(spec, self.initial_random(name), device) for name, spec in self.specs.items()}
        for name, net in self._nets.items():
            _check_sizes(name, net.values)
        for name, source in self.targets.items():
            self._nets[name] = build(self.specs[source], self.initial_random(source), device)
            for weight in self._nets[name].learned.values():
                weight.requires_grad_(False)
            with torch.no_grad():  # a user's class may draw from other generators than PyTorch's
                for key, value in self._nets[source].values.items():
                    self._nets[name].values[key].copy_(value)
        self._plain = SimpleNamespace(**{name: self._called(name) for name in self._nets})
        self._optimizers = {name: Adam(spec, self._nets[name].learned) for name, spec in self.optimizer_specs.items()}
        self._beside: Beside | None = None  # who makes the updates; None: whoever asks for them
        self._recorder: Recorder | None = None
        if device == "cuda" and self._recordable() and os.environ.get(RECORDS) != "0":
            self._recorder = Recorder(self.device, self._changing)
        self.twins: twins.Twins | None = TorchTwins(self.device) if twins.wanted(device == "cuda") else None
        self._phase_names: dict[int, tuple[str, ...]] = {}  # what recorded updates report
        self._autocast = contextlib.nullcontext()
        if precision == "bf16":
            self._autocast = torch.autocast(self.device.type, dtype=torch.bfloat16)

    # ------------------------------------------------------------------------------------------------ learning
    def _update(self, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics:
        """See `Learner._update`."""
        number = self.algorithm.phase(self.updates)
        if self._beside is None:
            return self._updated(number, batch, rows, noise, rates)
        work = partial(self._updated_as, self.updates, number, batch, rows, noise, rates)
        made: Any = Later(self._beside.begin(work))
        return made

    def _updated_as(self, update: int, *arguments: Any) -> Metrics:
        """Make the `update`-th update; by then, more may have been counted."""
        self._making = update
        return self._updated(*arguments)

    def _updated(self, phase: int, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics:
        self._phase = phase
        rates = Rates(self._step_sizes(rates.learning), rates.scheduled)
        if self._recorder is not None:
            return self._played(self._recorder, batch, rows, noise, rates)
        self._rates, self._noise = rates.learning, as_tensors(noise, self.device)
        self.scheduled = {
            name: torch.tensor(value, dtype=torch.float32, device=self.device)
            for name, value in rates.scheduled.items()
        }
        values = []
        for nth, part in enumerate([batch] if rows is None else self._parts(batch, rows)):
            self._nth = nth
            values.append(self._learn(part))
        return Metrics(tuple(self._names), _mean(values), self._priority)

    def _step_sizes(self, rates: dict[str, Any]) -> dict[str, Any]:
        """Step sizes as optimisers take them."""
        return rates

    def _parts(self, batch: Any, rows: np.ndarray) -> Iterator[Any]:
        return (mapped(lambda array, part=part: array.take(part, axis=0), batch) for part in rows)

    def _recordable(self) -> bool:
        """Whether all that an update and an action ask for is the same each time.

        Recurrent layers divide their work as episodes begin; what a user's own networks do nobody knows.
        """
        return self.records and not self.recurrent and all(spec.custom is None for spec in self.specs.values())

    def _played(self, recorder: Recorder, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics:
        """Make an update as `_updated` does, by playing its recording."""
        inputs = Inputs(batch, rows, np.zeros(1, np.int64), noise, mapped(np.float32, rates))
        times = 1 if rows is None else rows.shape[-2]
        given = recorder.play(("update", self._phase), inputs, self._of_arrived, times)
        values, priorities = zip(*given, strict=True)
        return Metrics(self._phase_names[self._phase], _mean(values), priorities[-1])

    def _of_arrived(self, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
        """Make an update, or its next part, from inputs on the device; return what it reports, and priorities."""
        self._rates, self._noise, self.scheduled = inputs.rates.learning, inputs.noise, inputs.rates.scheduled
        batch = inputs.batch
        if inputs.rows is not None:
            batch = self._part(batch, inputs.rows, inputs.part)
            inputs.part.add_(1)
        values = self._step(batch)
        self._phase_names[self._phase] = tuple(self._names)
        return values, self._priority

    def _part(self, batch: Any, rows: Tensor, part: Tensor) -> Any:
        """The `part`-th part of a batch that is on the device."""
        own = rows.index_select(0, part)[0]
        return mapped(lambda array: array.index_select(0, own), batch)

    def _learn(self, batch: Any) -> Tensor:
        tensors = as_tensors(batch, self.device)
        if self._floating is None:
            self._use_threads(self.threads)
            return self._step(tensors)
        kind = (self._phase, *_shapes(batch))
        self._floating.before_update(kind, lambda: self._step_outcome(tensors))
        began = time.perf_counter()
        values = self._step(tensors)
        self._floating.after_update(time.perf_counter() - began)
        return values

    def _step(self, batch: Any) -> Tensor:
        self._names: list[str] = []
        self._values: list[Tensor] = []
        self._ways: list[str] = []
        self._priority = None
        if self.twins is not None:
            batch = self.twins.shown(batch, self.twins.arrays)
        self._mask = getattr(batch, "mask", None)  # of a batch of sequences
        with self._learning(), self._repeatable():
            self.algorithm.update(self, batch, self._noise, self._phase)
        check_minimised(self._names, self._phase)
        return torch.stack(self._values, -1)

    def _repeatable(self) -> contextlib.AbstractContextManager[None]:
        """A context in which a GPU adds in the same order each time; a processor does."""
        return repeatable() if self.device.type == "cuda" else contextlib.nullcontext()

    @contextlib.contextmanager
    def _learning(self) -> Iterator[None]:
        """Put a user's own modules, but those of targets, in train mode inside. What they draw, dropout for example,
        follows from the seed and the number of the update, so that a run that goes on draws the same.
        """
        own = [net for name, net in self._nets.items() if isinstance(net, Custom) and name not in self.targets]
        if not own:
            yield
            return
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(zlib.crc32(f"{self._seed} {self._number} {self._nth}".encode()))
            for net in own:
                net.learning(True)
            try:
                yield
            finally:
                for net in own:
                    net.learning(False)

    @property
    def _number(self) -> int:
        """Number of the update that is being made."""
        return self.updates if self._beside is None else self._making

    def _step_outcome(self, batch: Any) -> bytes:
        """Every bit that an update reports and changes; what it changed is put back."""
        before = [tensor.clone() for tensor in self._changing()]
        reported = [self._step(batch), *(() if self._priority is None else (self._priority,))]
        bits = _bits([*reported, *self._changing()])
        with torch.no_grad():
            for tensor, value in zip(self._changing(), before, strict=True):
                tensor.copy_(value)
        return bits

    def _changing(self) -> Iterator[Tensor]:
        for net in self._nets.values():
            yield from net.values.values()
        for optimizer in self._optimizers.values():
            yield from optimizer.tensors()

    def minimize(self, name: str, loss: Any, *args: Any) -> dict[str, Tensor]:
        """See `Updater.minimize`."""
        check_learns(name, self._optimizers)
        weights = self._optimizers[name].weights
        with self._autocast:
            value, info = checked_loss(name, loss(self.networks(), *args))
        check_depends(name, value.requires_grad)
        gradients = torch.autograd.grad(value, weights, allow_unused=True, materialize_grads=True)
        norm = self._optimizers[name].step(self._averaged(list(gradients)), self._rates[name])
        self._keep_statistics(name)
        info = {key: array.detach() for key, array in info.items()}
        self._record(name, value, info if norm is None else info | {f"{name}_gradient_norm": norm})
        return info

    def _averaged(self, gradients: list[Tensor]) -> list[Tensor]:
        """Mean gradients over all shares of the batch, of which this learner has the only one; see `torch_ranks`."""
        return gradients

    def _keep_statistics(self, minimized: str) -> None:
        """Keep the running statistics of the network that was minimised; forget those that others saw in passing."""
        for name, net in self._nets.items():
            if isinstance(net, Built) and net.moved:
                if name == minimized:
                    net.keep_statistics()
                net.moved.clear()

    def learn_beside(self) -> None:
        """See `Learner.learn_beside`: a thread makes them, and no images are kept, for it may not have come to them."""
        self._beside = Beside()
        self.twins = None

    def close(self) -> None:
        """See `Learner.close`."""
        if self._beside is not None:
            self._beside.close()

    def _finish(self) -> None:
        if self._beside is not None:
            self._beside.finish()

    def networks(self) -> SimpleNamespace:
        """The networks as a loss or a policy calls them; recurrent ones anew for each, see `Unrolling`."""
        if not self.recurrent:
            return self._plain
        return SimpleNamespace(**{name: self._called(name) for name in self._nets})

    def freeze(self) -> None:
        """Turn gradients off for all parameters."""
        for net in self._nets.values():
            for value in net.values.values():
                value.requires_grad_(False)

    def _called(self, name: str) -> Any:
        net = self._nets[name]
        return net.values["value"] if isinstance(net, Parameters) else self._callable(name, net)

    def track(self, target: str, source: str, tau: float) -> None:
        """See `Updater.track`."""
        to, origin = self._nets[target], self._nets[source]
        with torch.no_grad():
            torch._foreach_lerp_(  # pyright: ignore[reportPrivateImportUsage]
                [to.values[name] for name in origin.learned], list(origin.learned.values()), tau
            )
            learned = {id(value) for value in origin.learned.values()}  # modules may share one, under several names
            for name, value in origin.values.items():
                if id(value) not in learned:
                    to.values[name].copy_(value)

    def _set_threads(self, threads: int) -> None:
        """Set the number of threads that is asked for; for 0 results are those of one, whatever number is used.

        What a user's own networks draw or keep cannot be taken back, and how recurrent layers divide their work changes
        with the episodes in a batch: there it cannot be tested beforehand, and one thread is used.
        """
        self.threads, self._floating = threads or 1, None
        self._onednn = torch_layers.prefers_onednn(threads)
        if self.device.type != "cpu":  # the processor only hands out work
            self.threads = 0
            torch.set_num_threads(threads or min(MOST_THREADS, granted()))
            return
        torch.set_num_threads(self.threads)
        self.threads = torch.get_num_threads()  # a build without OpenMP has one
        most = min(MOST_THREADS, granted())
        own = any(spec.custom is not None for spec in self.specs.values())
        if threads == 0 and most > 1 and not own and not self.recurrent:
            self._floating = FloatingThreads(most, self._use_threads)

    def _use_threads(self, number: int) -> None:
        """Use this number of threads, and this learner's products, from here on; another learner may have set both."""
        torch_layers.products.onednn = self._onednn
        if number and torch.get_num_threads() != number:
            torch.set_num_threads(number)

    def _record(self, name: str, value: Tensor, info: dict[str, Tensor]) -> None:
        self._priority = info.get(PRIORITY, self._priority)
        names, values, ways = summarize(info, array_api_compat.array_namespace(value), self._mask)
        self._names += [f"{name}_loss", *names]
        self._ways += ["mean", *ways]
        self._values += [value.detach().float(), *(value.float() for value in values)]

    # ------------------------------------------------------------------------------------------------ acting
    def _act(self, method: Any, obs: Tree, *noise: np.ndarray | None) -> Any:
        """See `Learner._act`."""
        self._finish()
        self._use_threads(self.threads)
        if self._recorder is not None and method == "collect":  # of as many environments each time
            return as_arrays(self._recorder.play(method, (obs, *noise), partial(self._acted, method))[0])
        return as_arrays(self._acted(method, as_tensors((obs, *noise), self.device)))

    def _acted(self, method: Any, inputs: Any) -> Any:
        """The method's result and the carry, from tensors."""
        with torch.no_grad(), self._repeatable(), self._autocast if self.on_policy else contextlib.nullcontext():
            nets = self.networks()
            return getattr(self.algorithm, method)(nets, *inputs), self._carry(nets)

    def acting_parameters(self) -> Callable[[], Values]:
        """See `Learner.acting_parameters`: copies, made when they are due."""
        copied = partial(self._copies, self.algorithm.acting_networks)
        return copied if self._beside is None else self._beside.begin(copied).result

    # ------------------------------------------------------------------------------------------------ state
    def parameters(self) -> Values:
        """See `Learner.parameters`."""
        self._finish()
        return self._copies(self._nets)

    def _copies(self, names: Iterable[str]) -> Values:
        return {
            name: {key: value.detach().cpu().numpy().copy() for key, value in self._nets[name].values.items()}
            for name in names
        }

    def load_parameters(self, parameters: Values) -> None:
        """See `Learner.load_parameters`."""
        self._finish()
        self._host = None
        forms.check(parameters, Each(Each(ARRAY)), "learner/parameters")
        found = {
            name: matched(
                parameters.get(name, {}), {key: tuple(value.shape) for key, value in net.values.items()}, name
            )
            for name, net in self._nets.items()
        }
        with torch.no_grad():  # all of them fit
            for name, net in self._nets.items():
                for key, value in found[name].items():
                    net.values[key].copy_(torch.from_numpy(np.array(value)))

    def optimizer_state(self) -> dict[str, Any]:
        """See `Learner.optimizer_state`."""
        self._finish()
        return {name: optimizer.state() for name, optimizer in self._optimizers.items()}

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """See `Learner.load_optimizer_state`."""
        self._finish()
        for name, optimizer in self._optimizers.items():
            optimizer.load(state[name], f"the optimiser of {name}")


def _check_sizes(name: str, values: dict[str, Tensor]) -> None:
    """Raise UsageError where a network of the user's own has parameters that get their sizes with the first call: the
    optimisers and targets are made before that.
    """
    if lazy := [key for key, value in values.items() if nn.parameter.is_lazy(value)]:
        raise UsageError(
            f"The {name} network of your own has parameters without sizes, {', '.join(lazy)}, as nn.LazyLinear's "
            "are before the first call. Give the layers their sizes, or call them once at the end of its __init__; a "
            "layer that is never called has to go."
        )


def _mean(values: Sequence[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.stack(list(values)).mean(0)


def _shapes(tree: Any) -> tuple[Hashable, ...]:
    return tuple(leaf.shape for leaf in leaves(tree))


def _bits(tensors: list[Tensor]) -> bytes:
    return b"".join(tensor.detach().cpu().numpy().tobytes() for tensor in tensors)


def as_arrays(tree: Any) -> Any:
    """The tree with every tensor as a NumPy array."""
    if isinstance(tree, dict):
        return {name: as_arrays(value) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(as_arrays(value) for value in tree)
    return tree.cpu().numpy()


def as_tensors(tree: Any, device: torch.device) -> Any:
    """The tree with every NumPy array as a tensor on `device`."""
    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree).to(device, non_blocking=True)
    if isinstance(tree, dict):
        return {name: as_tensors(value, device) for name, value in tree.items()}
    if isinstance(tree, tuple):
        parts = [as_tensors(value, device) for value in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return tree
