"""Layers in PyTorch under `torch.func.vmap`, which knows PyTorch's own operations only; see `torch_layers`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (everyone calls it F)

from duetto.networks.batch_norm import EPSILON, shaped
from duetto.networks.torch_layers import (
    activations,
    convolve,
    entering,
    flat,
    members,
    norm,
    picture,
    recurrent,
    unrounded,
)

__all__ = [
    "activations",
    "batch_norm",
    "convolve",
    "entering",
    "flat",
    "last",
    "linear",
    "members",
    "moments",
    "norm",
    "picture",
    "recurrent",
]


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """See `network.Layers`."""
    if weight.ndim == 2:
        return F.linear(x, weight, bias)
    return torch.baddbmm(bias[:, None], x.expand(len(weight), *x.shape[-2:]), weight.mT)


def last(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """See `network.Layers`."""
    return unrounded(linear, x, weight, bias)


def moments(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """See `network.Layers`. Gradients flow through them."""
    x = x.float()
    mean = x.mean(axes, keepdim=True)
    return mean.squeeze(axes), ((x - mean) ** 2).mean(axes)


def batch_norm(x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """See `network.Layers`."""
    factor = scale * torch.rsqrt(variance + EPSILON)
    return ((x - shaped(mean, x)) * shaped(factor, x) + shaped(shift, x)).to(x.dtype)
