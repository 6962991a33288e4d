"""The learner in PyTorch of several seeds at once: every tensor has a first axis of seeds.

Losses and policies are `torch.func`'s, `vmap`ped over that axis. What comes behind a gradient (Adam, averaging) treats
every number alike, so it is that of one learner, over tensors that are N times as long.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from duetto.algorithms.base import PRIORITY, Algorithm
from duetto.functional.trees import mapped
from duetto.learners.base import Precision, Rates, check_depends, check_learns, checked_loss, summarize
from duetto.learners.torch import TorchLearner
from duetto.learners.torch_adam import Adam
from duetto.networks import torch_many_layers
from duetto.networks.network import Network
from duetto.networks.spaces import Space
from duetto.networks.specs import Parameter

Values = dict[str, Tensor]


class Networks(NamedTuple):
    """The networks of one name, of all seeds."""

    values: Values  # (N, ...)
    learned: Values  # those of them that learn


class TorchMany(TorchLearner):
    """See `voices.Many`."""

    def __init__(
        self,
        algorithm: Algorithm,
        observation: Space,
        action: Space,
        seeds: Sequence[int],
        device: str = "cpu",
        precision: Precision = "float32",
        threads: int = 0,
    ):
        super().__init__(algorithm, observation, action, seeds[0], device, precision, threads)
        own = (algorithm, observation, action)
        nets = [TorchLearner(*own, seed, device, precision, threads)._nets for seed in seeds]
        self._nets = {name: _together([each[name] for each in nets]) for name in self._nets}
        self._optimizers = {
            name: AdamOfMany(spec, self._nets[name].learned) for name, spec in self.optimizer_specs.items()
        }

    # ------------------------------------------------------------------------------------------------ learning
    def _parts(self, batch: Any, rows: np.ndarray) -> Iterator[Any]:
        seeds = np.arange(len(rows))[:, None]
        return (mapped(lambda array, part=part: array[seeds, part], batch) for part in rows.swapaxes(0, 1))

    def _epochs(self, batch: Any, each: tuple[Any, Any, Rates]) -> tuple[tuple[str, ...], Tensor]:
        """See `Learner._epochs`; behind the axis of seeds."""
        of_seeds: Any = next(iter(each[-1].learning.values()))  # (N, E)
        number = of_seeds.shape[1]
        found = [self._update(batch, *mapped(lambda array, at=at: array[:, at], each)) for at in range(number)]
        return found[0].names, torch.stack([one.values for one in found], 1)

    def _part(self, batch: Any, rows: Tensor, part: Tensor) -> Any:
        """See TorchLearner: of every seed its own."""
        own = rows.index_select(1, part)[:, 0]
        seeds = torch.arange(len(own), device=own.device)[:, None]
        return mapped(lambda array: array[seeds, own], batch)

    def _step_sizes(self, rates: dict[str, Any]) -> dict[str, Any]:
        """See TorchLearner: one number where all seeds have the same, else (N,)."""
        return {name: float(rate[0]) if len(set(rate.tolist())) == 1 else rate for name, rate in rates.items()}

    def minimize(self, name: str, loss: Any, *args: Any) -> dict[str, Tensor]:
        """See `Updater.minimize`."""
        check_learns(name, self._optimizers)
        every = {other: net.values for other, net in self._nets.items()}
        names: list[str] = []

        def of_one(learned: Values, every: dict[str, Values], args: Any) -> tuple[Tensor, Any]:
            nets = self._networks_of(every | {name: every[name] | learned})
            with self._autocast:
                value, info = checked_loss(name, loss(nets, *args))
            check_depends(name, value.requires_grad)
            names[:], values, _ = summarize(info, torch)
            moved = getattr(getattr(nets, name), "moved", {})
            return value, (info, moved, [value.float() for value in values])

        gradients, (value, (info, moved, values)) = vmap(grad_and_value(of_one, has_aux=True), (0, 0, _axes(args)))(
            self._nets[name].learned, every, args
        )
        norm = self._optimizers[name].step(list(gradients.values()), self._rates[name])
        for key, statistics in moved.items():
            every[name][key].copy_(statistics)
        self._priority = info.get(PRIORITY, self._priority)
        self._names += [f"{name}_loss", *names]
        self._values += [value.float(), *values]
        if norm is not None:
            self._names.append(f"{name}_gradient_norm")
            self._values.append(norm)
        return info

    def _networks_of(self, values: Mapping[str, Values]) -> SimpleNamespace:
        """A seed's networks as losses and policies call them, with these tensors of its own."""
        layers: Any = torch_many_layers
        found: dict[str, Any] = {}
        for name, own in values.items():
            spec = self.specs[self.targets.get(name, name)]
            found[name] = own["value"] if isinstance(spec, Parameter) else Network(spec, own, layers)
        return SimpleNamespace(**found)

    # ------------------------------------------------------------------------------------------------ acting
    def _acted(self, method: Any, inputs: Any) -> Any:
        """See TorchLearner."""
        acting = {name: self._nets[name].values for name in self.algorithm.acting_networks}

        def of_one(acting: dict[str, Values], inputs: Any) -> Any:
            return getattr(self.algorithm, method)(self._networks_of(acting), *inputs)

        with torch.no_grad(), self._repeatable(), self._autocast if self.on_policy else contextlib.nullcontext():
            return vmap(of_one, (0, _axes(inputs)))(acting, inputs), {}


class AdamOfMany(Adam):
    """An optimiser for all seeds, whose counts of steps are equal."""

    @torch.no_grad()
    def step(self, gradients: list[Tensor], rate: Any) -> Tensor | None:
        """See `Adam`. `rate` is that of all seeds, or (N,); the norm is (N,)."""
        norm, limit, seeds = None, self._spec.max_grad_norm, len(self.weights[0])
        if limit > 0:
            norms = [torch.linalg.vector_norm(gradient.reshape(seeds, -1), dim=1) for gradient in gradients]
            norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)
            factor = limit / torch.clamp(norm, min=limit)
            gradients = [part * factor.reshape(-1, *(1,) * (part.ndim - 1)) for part in gradients]
        moving = (self.weights, gradients, self._first, self._second)
        if np.ndim(rate) == 0:
            self._move(*moving, self._steps, rate)
            return norm
        before = [steps.clone() for steps in self._steps]
        for seed, own in enumerate(rate.tolist() if isinstance(rate, np.ndarray) else rate):
            weights, slopes, first, second = ([part[seed] for part in parts] for parts in moving)
            steps = self._steps if seed == 0 else [steps.clone() for steps in before]
            self._move(weights, slopes, first, second, steps, own)
        return norm


def _together(nets: list[Any]) -> Networks:
    values = {key: torch.stack([net.values[key].detach() for net in nets]) for key in nets[0].values}
    return Networks(values, {key: values[key] for key in nets[0].learned})


def _axes(tree: Any) -> Any:
    """The axis that `vmap` maps over: 0 for every tensor of the tree; None stays None."""
    return mapped(lambda _: 0, tree)
