"""The learner in PyTorch."""

from __future__ import annotations

import contextlib
import copy
import os
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when PyTorch loads OpenMP; see `default_threads`

import array_api_compat
import numpy as np
import torch
from torch import Tensor

from duetto.algorithms.base import Algorithm, Batch, OptimizerSpec, Tree
from duetto.errors import UsageError
from duetto.learners.base import Learner, Metrics, Parameters, Precision, matched, summarize
from duetto.networks.spaces import Space
from duetto.networks.torch import build


def has_cuda() -> bool:
    """Whether PyTorch can use a CUDA device here."""
    return torch.cuda.is_available()


def default_threads() -> int:
    """Threads for one learner on a CPU."""
    return max(1, min(4, os.cpu_count() or 1))


class TorchLearner(Learner):
    """Modules, fused Adam, `foreach` averaging."""

    backend = "torch"

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
            raise UsageError("PyTorch sees no CUDA device here: use --device cpu, or install a CUDA build of PyTorch.")
        torch.set_num_threads(threads or default_threads())
        self.device = torch.device(device)
        nets = {name: build(spec, self.initial_random(name)).to(device) for name, spec in self.specs.items()}
        nets |= {name: copy.deepcopy(nets[source]).requires_grad_(False) for name, source in self.targets.items()}
        self.nets = SimpleNamespace(**nets)
        self._weights = {name: dict(net.named_parameters()) for name, net in nets.items()}
        self._optimizers = {name: _adam(spec, self._weights[name]) for name, spec in self.optimizer_specs.items()}
        self._autocast = contextlib.nullcontext()
        if precision == "bf16":
            self._autocast = torch.autocast(self.device.type, dtype=torch.bfloat16)

    # ------------------------------------------------------------------------------------------------ learning
    def update(self, batch: Batch, progress: float = 0.0) -> Metrics:
        """See `Learner.update`."""
        self.updates += 1
        noise = _tensors(self.algorithm.draw(self.random, batch), self.device)
        for name, rate in self.learning_rates(progress).items():
            self._optimizers[name].param_groups[0]["lr"] = rate
        self._names: list[str] = []
        self._values: list[Tensor] = []
        self._priority = None
        tensors = Batch(*(_tensors(field, self.device) for field in batch))
        self.algorithm.update(self, tensors, noise, self.updates % self.algorithm.period)
        return Metrics(tuple(self._names), torch.stack(self._values), self._priority)

    def minimize(self, name: str, loss: Any, *args: Any) -> None:
        """See `Updater.minimize`."""
        weights = list(self._weights[name].values())
        with self._autocast:
            value, info = loss(self.nets, *args)
        gradients = torch.autograd.grad(value, weights)
        limit = self.optimizer_specs[name].max_grad_norm
        if limit > 0:
            norm = torch.nn.utils.get_total_norm(gradients)
            torch._foreach_mul_(gradients, limit / torch.clamp(norm, min=limit))
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient.contiguous()  # the fused step reads raw memory, in the weight's own order
        self._optimizers[name].step()
        self._record(name, value, info)

    def track(self, target: str, source: str, tau: float) -> None:
        """See `Updater.track`. Buffers (running statistics of a user's network) are copied."""
        with torch.no_grad():
            torch._foreach_lerp_(list(self._weights[target].values()), list(self._weights[source].values()), tau)
            buffers = zip(getattr(self.nets, target).buffers(), getattr(self.nets, source).buffers(), strict=True)
            for to, origin in buffers:
                to.copy_(origin)

    def _record(self, name: str, value: Tensor, info: dict[str, Tensor]) -> None:
        info = {key: array.detach() for key, array in info.items()}
        self._priority = info.pop("priority", self._priority)
        names, values = summarize(info, array_api_compat.array_namespace(value))
        self._names += [f"{name}_loss", *names]
        self._values += [value.detach().float(), *(value.float() for value in values)]

    # ------------------------------------------------------------------------------------------------ acting
    def act(self, obs: Tree, noise: np.ndarray | None = None) -> np.ndarray:
        """See `Learner.act`."""
        with torch.no_grad():
            action = self.algorithm.act(self.nets, _tensors(obs, self.device), _tensors(noise, self.device))
        return action.cpu().numpy()

    # ------------------------------------------------------------------------------------------------ state
    def parameters(self) -> Parameters:
        """See `Learner.parameters`."""
        return {
            name: {key: value.detach().cpu().numpy().copy() for key, value in net.state_dict().items()}
            for name, net in vars(self.nets).items()
        }

    def load_parameters(self, parameters: Parameters) -> None:
        """See `Learner.load_parameters`."""
        for name, net in vars(self.nets).items():
            expected = {key: tuple(value.shape) for key, value in net.state_dict().items()}
            values = matched(parameters.get(name, {}), expected, name)
            net.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in values.items()})

    def optimizer_state(self) -> dict[str, Any]:
        """See `Learner.optimizer_state`."""
        state: dict[str, Any] = {}
        for name, optimizer in self._optimizers.items():
            moments: dict[str, Any] = {"steps": 0, "first": {}, "second": {}}
            for key, weight in self._weights[name].items():
                held = optimizer.state[weight]
                moments["steps"] = int(held["step"])
                moments["first"][key] = held["exp_avg"].cpu().numpy().copy()
                moments["second"][key] = held["exp_avg_sq"].cpu().numpy().copy()
            state[name] = moments
        return state

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """See `Learner.load_optimizer_state`."""
        for name, optimizer in self._optimizers.items():
            expected = {key: tuple(weight.shape) for key, weight in self._weights[name].items()}
            first = matched(state[name]["first"], expected, f"the optimiser of {name}")
            second = matched(state[name]["second"], expected, f"the optimiser of {name}")
            for key, weight in self._weights[name].items():
                held = optimizer.state[weight]
                held["step"].fill_(state[name]["steps"])
                held["exp_avg"].copy_(torch.from_numpy(np.array(first[key])))
                held["exp_avg_sq"].copy_(torch.from_numpy(np.array(second[key])))


def _adam(spec: OptimizerSpec, weights: dict[str, Tensor]) -> torch.optim.Adam:
    optimizer = torch.optim.Adam(
        list(weights.values()),
        lr=spec.learning_rate,
        eps=spec.epsilon,
        weight_decay=spec.weight_decay,
        decoupled_weight_decay=spec.decoupled,
        fused=True,
    )
    for weight in weights.values():  # Adam makes these at its first step; a checkpoint before it needs them too
        zeros = {"exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}
        optimizer.state[weight] = {"step": torch.zeros((), dtype=torch.float32, device=weight.device), **zeros}
    return optimizer


def _tensors(tree: Any, device: torch.device) -> Any:
    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree).to(device, non_blocking=True)
    if isinstance(tree, dict):
        return {name: _tensors(value, device) for name, value in tree.items()}
    return tree
