"""The PyTorch learner of several seeds at once: every tensor has a first axis of seeds.

Losses and policies run under `torch.func.vmap` over that axis. Adam and the averaging of target networks are
elementwise, so the code for one seed computes them for all seeds at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from typing_extensions import override

from duetto.algorithms.base import Algorithm
from duetto.functional.pytree import tree_map
from duetto.learners.base import checked_loss, summarize
from duetto.learners.torch import TorchLearner
from duetto.learners.torch_adam import Adam
from duetto.networks import torch_layers
from duetto.networks.network import Network
from duetto.networks.spaces import Space
from duetto.networks.specs import ParameterSpec

Values = dict[str, Tensor]


class TorchVmapLearner(TorchLearner):
    """A learner whose parameters, inputs and outputs have a first axis of N seeds; see `multi_seed`."""

    def __init__(self, algorithm: Algorithm, observation: Space, action: Space, seeds: Sequence[int], *how: Any):
        """`how` are the device, the precision and the number of threads."""
        super().__init__(algorithm, observation, action, seeds[0], *how)
        nets = [TorchLearner(algorithm, observation, action, seed, *how)._nets for seed in seeds]
        for name, net in self._nets.items():
            values = {key: torch.stack([one[name].values[key].detach() for one in nets]) for key in net.values}
            self._nets[name] = SimpleNamespace(values=values, learned={key: values[key] for key in net.learned})
        self._optimizers = {
            name: VmapAdam(spec, self._nets[name].learned) for name, spec in self.optimizer_specs.items()
        }

    # ------------------------------------------------------------------------------------------------ learning
    @override
    def _part(self, batch: Any, rows: Tensor, part: Tensor) -> Any:
        """Return minibatch number `part` of each seed; every seed has its own rows."""
        chosen = rows.index_select(1, part)[:, 0]
        seeds = torch.arange(len(chosen), device=chosen.device)[:, None]
        return tree_map(lambda array: array[seeds, chosen], batch)

    @override
    def _learning_rates(self, rates: dict[str, Any]) -> dict[str, Any]:
        """Return each optimizer's learning rate: one number if it is equal for all seeds, else (N,)."""
        return {name: float(rate[0]) if len(set(rate.tolist())) == 1 else rate for name, rate in rates.items()}

    @override
    def _differentiate(self, name: str, loss: Any, args: Any) -> tuple[list[Tensor], Tensor, Any, Values]:
        every = {other: net.values for other, net in self._nets.items()}

        def of_one(learned: Values, every: dict[str, Values], args: Any) -> tuple[Tensor, Any]:
            nets = self._networks_of(every | {name: every[name] | learned})
            with self._autocast, torch_layers.pytorch_products():
                value, info = checked_loss(name, loss(nets, *args))
            return value, (info, getattr(getattr(nets, name), "updated_stats", {}))

        differentiate = vmap(grad_and_value(of_one, has_aux=True), (0, 0, _axes(args)))
        gradients, (value, (info, statistics)) = differentiate(self._nets[name].learned, every, args)
        return list(gradients.values()), value, info, statistics

    @override
    def _summarize(self, info: dict[str, Tensor]) -> tuple[list[str], list[Tensor]]:
        names: list[str] = []

        def of_one(info: dict[str, Tensor]) -> list[Tensor]:
            names[:], values = summarize(info, torch)
            return values

        return names, vmap(of_one)(info) if info else []

    def _networks_of(self, values: Mapping[str, Values]) -> SimpleNamespace:
        """Return one seed's networks with these tensors, in the form that losses and policies call."""
        layers: Any = torch_layers
        networks: dict[str, Any] = {}
        for name, own in values.items():
            spec = self.specs[self.targets.get(name, name)]
            networks[name] = own["value"] if isinstance(spec, ParameterSpec) else Network(spec, own, layers)
        return SimpleNamespace(**networks)

    # ------------------------------------------------------------------------------------------------ acting
    @override
    def _acted(self, method: Any, inputs: Any) -> Any:
        acting = {name: self._nets[name].values for name in self.algorithm.acting_networks}

        def of_one(acting: dict[str, Values], inputs: Any) -> Any:
            with torch_layers.pytorch_products():
                return getattr(self.algorithm, method)(self._networks_of(acting), *inputs)

        with torch.no_grad(), self._repeatable(), self._autocast if self.on_policy else contextlib.nullcontext():
            return vmap(of_one, (0, _axes(inputs)))(acting, inputs), {}


class VmapAdam(Adam):
    """Adam for all seeds, which have made the same number of steps."""

    @torch.no_grad()
    @override
    def step(self, gradients: list[Tensor], rate: Any) -> Tensor | None:
        """Take a step; `rate` is one number or (N,). Return the gradients' norms (N,) if the spec clips them."""
        norm, limit, seeds = None, self._spec.max_grad_norm, len(self.weights[0])
        if limit > 0:
            norms = [torch.linalg.vector_norm(gradient.reshape(seeds, -1), dim=1) for gradient in gradients]
            norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)
            factor = limit / torch.clamp(norm, min=limit)
            gradients = [part * factor.reshape(-1, *(1,) * (part.ndim - 1)) for part in gradients]
        if np.ndim(rate) == 0:
            self._move(self.weights, gradients, rate)
            return norm
        moved = [weight.clone() for weight in self.weights]
        self._move(moved, gradients, 1.0)  # a step with rate 1, which is then scaled by each seed's rate
        for weight, end in zip(self.weights, moved, strict=True):
            weight.lerp_(end, rate.to(weight.dtype).reshape(-1, *(1,) * (weight.ndim - 1)))
        return norm


def _axes(tree: Any) -> Any:
    """Return the axes for `vmap`: 0 for every tensor of the tree; None stays None."""
    return tree_map(lambda _: 0, tree)
