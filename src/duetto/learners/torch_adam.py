"""Adam in PyTorch, in its functional form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam

from duetto.algorithms.base import OptimizerSpec
from duetto.learners.policy import matched


class Adam:
    """`torch.optim.Adam`, fused, in its functional form. `Optimizer.step` would cost 0.25 ms more at each call."""

    weights: list[Tensor]

    def __init__(self, spec: OptimizerSpec, weights: Mapping[str, Tensor]):
        self._spec, self._names, self.weights = spec, list(weights), list(weights.values())
        self._first = [torch.zeros_like(weight) for weight in self.weights]
        self._second = [torch.zeros_like(weight) for weight in self.weights]
        self._steps = [torch.zeros((), device=weight.device) for weight in self.weights]

    @torch.no_grad()
    def step(self, gradients: list[Tensor], rate: float | Tensor) -> Tensor | None:
        """Take a step with the learning rate `rate`; return the gradients' global norm if the spec clips it."""
        spec, norm = self._spec, None
        if spec.max_grad_norm > 0:
            norm = torch.nn.utils.get_total_norm(gradients)
            factor = spec.max_grad_norm / torch.clamp(norm, min=spec.max_grad_norm)
            gradients = torch._foreach_mul(gradients, factor)  # pyright: ignore[reportAssignmentType, reportPrivateImportUsage]
        self._move(self.weights, gradients, rate)
        return norm

    def _move(self, weights: list[Tensor], gradients: list[Tensor], rate: float | Tensor) -> None:
        """Update the moments, then these weights, with the learning rate `rate`."""
        spec = self._spec
        adam(
            weights,
            [_laid_out(gradient, weight) for gradient, weight in zip(gradients, weights, strict=True)],
            self._first,
            self._second,
            [],
            self._steps,
            fused=True,
            decoupled_weight_decay=spec.decoupled,
            amsgrad=False,
            beta1=spec.beta1,
            beta2=0.999,
            lr=rate,
            weight_decay=spec.weight_decay,
            eps=spec.epsilon,
            maximize=False,
        )

    def tensors(self) -> list[Tensor]:
        """Return all tensors that a step changes, except the weights."""
        return [*self._first, *self._second, *self._steps]

    def state(self) -> dict[str, Any]:
        """Return the number of steps, and the moments as NumPy arrays by the parameters' names."""
        first, second = ([x.cpu().numpy().copy() for x in moments] for moments in (self._first, self._second))
        return {
            "steps": int(self._steps[0]),
            "first": dict(zip(self._names, first, strict=True)),
            "second": dict(zip(self._names, second, strict=True)),
        }

    def load(self, state: dict[str, Any], owner: str) -> None:
        """Restore the result of `state`."""
        expected = {name: tuple(weight.shape) for name, weight in zip(self._names, self.weights, strict=True)}
        for kind, moments in (("first", self._first), ("second", self._second)):
            for moment, value in zip(moments, matched(state[kind], expected, owner).values(), strict=True):
                moment.copy_(torch.from_numpy(np.array(value)))
        for steps in self._steps:
            steps.fill_(state["steps"])


def _laid_out(gradient: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient with its weight's memory layout, which fused kernels assume."""
    if gradient.stride() == weight.stride():
        return gradient
    return torch.empty_like(weight).copy_(gradient)
