"""Layers in PyTorch. The counterpart of `networks/jax_layers.py`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (everyone calls it F)

from duetto.networks.encoding import encode
from duetto.networks.specs import Recurrent
from duetto.networks.windows import Window

Map = Callable[[Tensor], Tensor]
ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "elu": F.elu, "silu": F.silu}


class OneDnnLinear(torch.autograd.Function):
    """y = x Wᵀ + b for (B, in) on a CPU, by oneDNN's kernels, also backwards.

    PyTorch's own float32 products come from Intel's MKL, which on AMD processors runs at half of oneDNN's speed (256 x
    400 x 300 on one core of an AMD EPYC, Zen 5: 102 against 230 GFLOP/s). The operator is the one that `torch.compile`
    generates on CPUs.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """See the class."""
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Only the gradients that are asked for."""
        (x, weight), (gradient,) = ctx.saved_tensors, gradients
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _product(gradient, weight.mT, None) if needs_x else None,
            _product(gradient.mT, x.mT, None) if needs_weight else None,
            gradient.sum(0) if needs_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _mkl_is_slow() -> bool:
    """Whether this is an AMD processor on which oneDNN's operator exists."""
    cpuinfo = Path("/proc/cpuinfo")
    amd = cpuinfo.is_file() and "AuthenticAMD" in cpuinfo.read_text()
    return amd and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


USE_ONEDNN = _mkl_is_slow()
# Products of fewer rows, or smaller ones of less than enough rows, are faster by MKL, whose calls cost less.
LEAST_ROWS, ENOUGH_ROWS, LEAST_PRODUCTS = 32, 128, 2**20


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """y = x Wᵀ + b by the fastest way there is here."""
    if not USE_ONEDNN or x.device.type != "cpu" or torch.is_autocast_enabled("cpu") or not _is_large(x, weight):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return OneDnnLinear.apply(x, weight, bias)  # pyright: ignore[reportReturnType]
    return _product(x, weight, bias)


def _is_large(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN's product is worth its call."""
    rows = len(x)
    return rows >= ENOUGH_ROWS or (rows >= LEAST_ROWS and rows * weight.numel() >= LEAST_PRODUCTS)


class Linear(nn.Module):
    """Weights of y = x Wᵀ + b, (out, in), or of a map for each of M members, (M, out, in)."""

    def __init__(self, inputs: int, outputs: int, members: int):
        super().__init__()
        lead = (members,) if members else ()
        self.weight = nn.Parameter(torch.empty(*lead, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(*lead, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out), or with members (M, B, in) or (B, in) to (M, B, out) as one batched product."""
        if self.weight.ndim == 2:
            if x.ndim == 2:
                return linear(x, self.weight, self.bias)
            return linear(x.flatten(0, -2), self.weight, self.bias).unflatten(0, x.shape[:-1])
        if x.ndim == 2:
            x = x.expand(len(self.weight), *x.shape)
        return torch.baddbmm(self.bias[:, None], x, self.weight.mT)

    def members(self) -> list[Map]:
        """Each member's map alone, (B, in) to (B, out)."""
        parts = zip(self.weight.unbind(0), self.bias.unbind(0), strict=True)
        return [lambda x, weight=weight, bias=bias: linear(x, weight, bias) for weight, bias in parts]


class Convolution(nn.Module):
    """A convolution without padding and ReLU, (B, in, H, W) to (B, out, H', W'), channels last in memory."""

    def __init__(self, shape: tuple[int, ...], stride: int, scale: float):
        super().__init__()
        self.stride, self.scale = stride, scale
        self.weight = nn.Parameter(torch.empty(shape).contiguous(memory_format=torch.channels_last))
        self.bias = nn.Parameter(torch.empty(shape[0]))

    def forward(self, x: Tensor) -> Tensor:
        """See the class. `scale` multiplies the weights, which are fewer numbers than the input."""
        weight = self.weight if self.scale == 1 else self.weight * self.scale
        return torch.relu(F.conv2d(x, weight, self.bias, stride=self.stride))


class RecurrentLayers(nn.Module):
    """See `specs.Recurrent`. The parameters have the names and layouts of `nn.LSTM` and `nn.GRU`."""

    def __init__(self, spec: Recurrent, inputs: int):
        super().__init__()
        self.spec = spec
        shapes = spec.shapes(inputs)
        self.names = list(shapes)
        self.weights = nn.ParameterDict({name: torch.empty(shapes[name]) for name in sorted(shapes)})

    def forward(self, x: Tensor, window: Window) -> tuple[Tensor, dict[str, Tensor]]:
        """Features (B, S, F) to (B, S, size), and the carry after the last of them."""
        previous = encode(self.spec.action, window.previous_action)
        x = torch.cat([x, previous.to(x.dtype), window.previous_reward[..., None].to(x.dtype)], -1)
        state = self._initial(x, window)
        resets = [t for t in range(1, x.shape[1]) if bool(window.starts[:, t].any())] if x.shape[1] > 1 else []
        outputs = []
        # The library's loop over time knows no resets: it is run from each to the next.
        bounds = sorted({0, *resets, min(self.spec.burn_in, x.shape[1]), x.shape[1]})
        for begin, end in pairwise(bounds):
            state = [self._entering(part, window, begin) for part in state]
            output, state = self._run(x[:, begin:end], state)
            outputs.append(output)
        carry = dict(zip(self.spec.state(), (part.transpose(0, 1) for part in state), strict=True))
        return torch.cat(outputs, 1), carry

    def _initial(self, x: Tensor, window: Window) -> list[Tensor]:
        found = []
        for name, shape in self.spec.state().items():
            given = window.carry.get(name)
            given = x.new_zeros(len(x), *shape) if given is None else given.to(x.dtype)
            found.append(given.transpose(0, 1))
        return found

    def _entering(self, state: Tensor, window: Window, time: int) -> Tensor:
        """The state (layers, B, size) before the observation at `time`: zero at an episode's start, no gradient through
        the end of the burn-in.
        """
        if time == self.spec.burn_in:
            kept = window.fresh if self.spec.learn_from_start else torch.zeros_like(window.fresh)
            state = torch.where(kept[None, :, None], state, state.detach())
        return torch.where(window.starts[:, time][None, :, None], torch.zeros_like(state), state)

    def _run(self, x: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        weights = [self.weights[name] for name in self.names]
        options = (True, self.spec.layers, 0.0, False, False, True)  # biases, layers, dropout, train, both ways, (B, S)
        if self.spec.kind == "gru":
            output, hidden = torch.gru(x, state[0].contiguous(), weights, *options)
            return output, [hidden]
        output, hidden, cells = torch.lstm(x, [part.contiguous() for part in state], weights, *options)
        return output, [hidden, cells]
