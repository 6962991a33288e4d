"""Layers in PyTorch; see `network.Layers`. The counterpart of `networks/jax_layers.py`."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (everyone calls it F)

from duetto.networks.batch_norm import EPSILON, shaped
from duetto.networks.torch_recurrent import recurrent as recurrent

Values = Mapping[str, Tensor]
activations: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "elu": F.elu,
    "silu": F.silu,
}


class OneDnnLinear(torch.autograd.Function):
    """y = x Wᵀ + b for (B, in) on a CPU, by oneDNN's kernels, also backwards.

    PyTorch's own float32 products come from Intel's MKL, which on some AMD processors runs at half of oneDNN's speed
    (see `mkl_speed`). The operator is the one that `torch.compile` generates on CPUs.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """See the class."""
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients that are asked for; None in place of the others."""
        (x, weight), (gradient,) = ctx.saved_tensors, gradients
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _product(gradient, weight.mT, None) if needs_x else None,
            _product(gradient.mT, x.mT, None) if needs_weight else None,
            gradient.sum(0) if needs_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def mkl_speed(cpuinfo: str, operator: bool) -> Literal["best", "even", "half"]:
    """How fast MKL is on the processor of this `/proc/cpuinfo`, where `operator`, oneDNN's, exists.

    What was measured decides, and nothing that is timed at the start: a run that goes on has the products that it had.
    256 x 400 x 300 on one core, oneDNN against MKL: 230 and 102 GFLOP/s on an AMD EPYC of the generation Zen 5, 105 and
    94 on one of Zen 4. Other processors of AMD's were not measured, and count as the former.
    """
    if not operator or "AuthenticAMD" not in cpuinfo:
        return "best"
    zen_4 = re.search(r"^cpu family\s*: 25$", cpuinfo, re.MULTILINE) and re.search(r"\bavx512f\b", cpuinfo)
    return "even" if zen_4 else "half"


def _here() -> Literal["best", "even", "half"]:
    path = Path("/proc/cpuinfo")
    operator = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return mkl_speed(path.read_text("utf-8", "replace") if path.is_file() else "", operator)


MKL = _here()


class _Products(threading.local):
    """Which library makes this thread's products: a learner sets it before it computes, as it does the threads."""

    onednn: bool = MKL != "best"


products: _Products = _Products()


def prefers_onednn(threads: int) -> bool:
    """Whether oneDNN makes the products of a learner with `threads`; 0: as many as come to the same numbers.

    Where both are equally fast, oneDNN is for learners whose numbers must not depend on threads: its numbers do not, so
    with 0 it has all cores where MKL has one, and one thread is to have the same numbers. With more threads MKL's calls
    cost less.
    """
    return MKL == "half" or (MKL == "even" and threads < 2)


# Products of fewer rows, or smaller ones of less than enough rows, are faster by MKL, whose calls cost less.
LEAST_ROWS, ENOUGH_ROWS, LEAST_PRODUCTS = 32, 128, 2**20


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """See `network.Layers`."""
    if weight.ndim == 2:
        return product(x, weight, bias) if x.ndim == 2 else _merged(x, weight, bias)
    if x.ndim == 2:
        x = x.expand(len(weight), *x.shape)
    return torch.baddbmm(bias[:, None], x, weight.mT)


def _merged(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return product(x.flatten(0, -2), weight, bias).unflatten(0, x.shape[:-1])


def product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """y = x Wᵀ + b, (B, in) to (B, out), by the fastest way on this machine."""
    if not products.onednn or x.device.type != "cpu" or torch.is_autocast_enabled("cpu") or not _is_large(x, weight):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return OneDnnLinear.apply(x, weight, bias)  # pyright: ignore[reportReturnType]
    return _product(x, weight, bias)


def _is_large(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN's product is worth its call."""
    rows = len(x)
    return rows >= ENOUGH_ROWS or (rows >= LEAST_ROWS and rows * weight.numel() >= LEAST_PRODUCTS)


def norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """See `network.Layers`."""
    if scale.ndim == 1:
        return F.layer_norm(x, scale.shape, scale, shift)
    return F.layer_norm(x, scale.shape[-1:]) * scale[:, None] + shift[:, None]


@torch.no_grad()
def moments(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """See `network.Layers`. In two passes: `torch.var_mean` over rows takes several times as long."""
    x = x.float()
    mean = x.mean(axes, keepdim=True)
    return mean.squeeze(axes), (x - mean).square_().mean(axes)


class BatchNorm(torch.autograd.Function):
    """(x - mean) / √(variance + ε) · scale + shift; mean and variance are x's own, and its gradient goes through them
    too.

    It takes a few passes over the rows, where derivatives of each operation would take dozens.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """See the class."""
        inverse = torch.rsqrt(variance + EPSILON)
        centred = x - shaped(mean, x)
        ctx.save_for_backward(centred, scale, inverse)
        return torch.addcmul(shaped(shift, x), centred, shaped(scale * inverse, x)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of `forward`; with n rows and x̂ = (x - μ) / s:  dx = γ / s (dy - Σ dy / n - x̂ Σ (dy x̂) / n)."""
        (centred, scale, inverse), (gradient,) = ctx.saved_tensors, gradients
        of_x, dtype = ctx.needs_input_grad[0], gradient.dtype
        axes = tuple(range(scale.ndim - 1, centred.ndim - 1))
        gradient = gradient.float()
        of_shift, of_scale = gradient.sum(axes), (gradient * centred).sum(axes) * inverse
        if not of_x:
            return None, of_scale, of_shift, None, None
        rows, factor = centred.numel() // scale.numel(), scale * inverse
        constant, slope = -factor * of_shift / rows, -factor * inverse * of_scale / rows
        x = torch.addcmul(shaped(constant, centred), gradient, shaped(factor, centred))
        return x.addcmul_(centred, shaped(slope, centred)).to(dtype), of_scale, of_shift, None, None


def batch_norm(x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """See `network.Layers`."""
    return BatchNorm.apply(x, scale, shift, mean, variance)  # pyright: ignore[reportReturnType]


def convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int, factor: float) -> Tensor:
    """See `network.Layers`. `factor` multiplies the weights, which are fewer numbers than the input."""
    weight = weight if factor == 1 else weight * factor
    return torch.relu(F.conv2d(x, weight, bias, stride=stride))


def picture(image: Tensor, channels_first: bool, like: Tensor) -> Tensor:
    """Images (B, C, H, W), channels last in memory, in the precision of products."""
    x = image if channels_first else image.movedim(-1, -3)
    # Bytes are moved to channels last, then converted: in one step, which looks simpler, it takes twice as long.
    return x.contiguous(memory_format=torch.channels_last).to(_precision(x))


def _precision(x: Tensor) -> torch.dtype:
    """The dtype that a product with x is computed in; bfloat16 holds the whole numbers to 256 exactly."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32


def flat(picture: Tensor) -> Tensor:
    """See `network.Layers`; no copy is made."""
    return picture.permute(0, 2, 3, 1).flatten(1)


def members(values: Values) -> list[dict[str, Tensor]] | None:
    """The arrays of each member on a CPU, None elsewhere.

    On a CPU a batched product is no faster, and one member after the other stays in the cache.
    """
    own = {name: array.unbind(0) for name, array in values.items() if not name.startswith("torso")}
    some = next(iter(own.values()))
    if some[0].device.type != "cpu":
        return None
    return [{name: parts[i] for name, parts in own.items()} for i in range(len(some))]


def entering(x: Tensor, like: Tensor) -> Tensor:
    """x unchanged: autocast converts it where a product is to be in bfloat16."""
    return x


def last(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """See `network.Layers`."""
    return unrounded(linear, x, weight, bias)


def unrounded(layer: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The output of a linear layer without autocast."""
    if not torch.is_autocast_enabled(x.device.type):
        return layer(x, weight, bias)
    with torch.autocast(x.device.type, enabled=False):
        return layer(x.float(), weight, bias)
