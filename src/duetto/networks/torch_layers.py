"""The functions that `layers` lists, in PyTorch; the counterpart of `networks/jax_layers.py`.

Recurrent layers use PyTorch's own loop over time, which ignores episodes. So Duetto calls the loop anew where an
episode of any row starts:

a a a a b b b c c        two rows, one letter per episode; three calls of the loop:
d d d d d d d e e        steps 0-3, 4-6 and 7-8; the state of a row is zeroed where its episode starts
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (everyone calls it F)

from duetto.cpu import cpuinfo
from duetto.networks.layers import RecurrentSpec, SequenceInput

Values = Mapping[str, Tensor]
activations: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "elu": F.elu,
    "silu": F.silu,
}


# On AMD processors, oneDNN's float32 products are faster than Intel MKL's. On Zen 4 (family 25 with AVX-512) this holds
# only for one thread; with two threads, MKL trains SAC 1.2 times and TD3 1.15 times as fast as oneDNN.
HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
AMD = cpuinfo().get("vendor_id") == "AuthenticAMD"
ONEDNN = AMD and HAS_ONEDNN
ZEN_4 = AMD and cpuinfo().get("cpu family") == "25" and "avx512f" in cpuinfo().get("flags", "")


class _Products(threading.local):
    plain: bool = False


_products: _Products = _Products()
MIN_ROWS, MANY_ROWS, MIN_PRODUCTS = 32, 128, 2**20  # smaller products are faster by MKL, whose calls cost less


@contextmanager
def pytorch_products() -> Iterator[None]:
    """Return a context in which products use only PyTorch's own operators, as `vmap` and exported graphs require."""
    before, _products.plain = _products.plain, True
    try:
        yield
    finally:
        _products.plain = before


class OneDnnLinear(torch.autograd.Function):
    """x Wᵀ + b for x (B, in) on a CPU by oneDNN, forwards and backwards.

    On a core of an AMD EPYC (Zen 5) an update of TD3 or SAC is 1.2 to 1.5 times as fast. `torch.compile` generates the
    same operator.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return x Wᵀ + b, and keep x and W for `backward`."""
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients that PyTorch needs, and None for the others."""
        (x, weight), (gradient,) = ctx.saved_tensors, gradients
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _product(gradient, weight.mT, None) if needs_x else None,
            _product(gradient.mT, x.mT, None) if needs_weight else None,
            gradient.sum(0) if needs_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x Wᵀ + b, for an ensemble one product per member; see the list in `layers`."""
    if weight.ndim == 3:
        if bias is None:
            return torch.matmul(x, weight.mT)
        return torch.baddbmm(bias[:, None], x.expand(len(weight), *x.shape[-2:]), weight.mT)
    if _products.plain or not ONEDNN or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    if ZEN_4 and torch.get_num_threads() > 1:
        return F.linear(x, weight, bias)
    if x.ndim > 2:
        return linear(x.flatten(0, -2), weight, bias).unflatten(0, x.shape[:-1])
    if not (len(x) >= MANY_ROWS or (len(x) >= MIN_ROWS and len(x) * weight.numel() >= MIN_PRODUCTS)):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return OneDnnLinear.apply(x, weight, bias)  # pyright: ignore[reportReturnType]
    return _product(x, weight, bias)


def norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Apply layer normalization over the last axis."""
    if scale.ndim == 1:
        return F.layer_norm(x, scale.shape, scale, shift)
    return F.layer_norm(x, scale.shape[-1:]) * scale[:, None] + shift[:, None]


def batch_norm(x: Tensor, scale: Tensor, shift: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize x over its rows. PyTorch's operator gets an ensemble's members as additional columns."""
    rows = x.transpose(0, 1).flatten(1) if scale.ndim == 2 else x.flatten(0, -2)
    if _products.plain:  # under `vmap`, the operator's statistics have the dtype of its rows
        rows = rows.float()
    y, *stats = torch.native_batch_norm(rows, scale.flatten(), shift.flatten(), None, None, True, 0.0, epsilon)
    y = y.unflatten(1, scale.shape).transpose(0, 1) if scale.ndim == 2 else y.reshape(x.shape)
    mean, inverse = (part.detach().reshape(scale.shape) for part in stats)
    return y.to(x.dtype), mean, (inverse.double() ** -2 - epsilon).float()


def conv_relu(x: Tensor, weight: Tensor, bias: Tensor, stride: int, factor: float) -> Tensor:
    """Return ReLU of the convolution of factor · x. `factor` scales the weights, a smaller array than x."""
    weight = weight if factor == 1 else weight * factor
    return torch.relu(F.conv2d(x, weight, bias, stride=stride))


def prepare_image(image: Tensor, channels_first: bool, like: Tensor) -> Tensor:
    """Return images (B, C, H, W), channels last in memory, in the precision of products."""
    x = image if channels_first else image.movedim(-1, -3)
    # Converting bytes after the change of layout takes half the time of doing both in one step.
    kind = x.device.type  # bfloat16 represents integers up to 256 exactly
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
    return x.contiguous(memory_format=torch.channels_last).to(dtype)


def flatten(image: Tensor) -> Tensor:
    """Return the convolutions' outputs as (B, features), channels last, without a copy."""
    return image.permute(0, 2, 3, 1).flatten(1)


def split_members(values: Values) -> list[dict[str, Tensor]] | None:
    """Return a list with each member's arrays if they are on a CPU; else return None.

    On a CPU a batched product is no faster, and a single member fits into the cache.
    """
    heads = {name: array.unbind(0) for name, array in values.items() if not name.startswith("torso")}
    first = next(iter(heads.values()))
    if first[0].device.type != "cpu":
        return None
    return [{name: members[i] for name, members in heads.items()} for i in range(len(first))]


def cast_input(x: Tensor, like: Tensor) -> Tensor:
    """Return x unchanged: autocast converts it for products in bfloat16."""
    return x


def output_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply the last layer in float32, even within autocast."""
    if not torch.is_autocast_enabled(x.device.type):
        return linear(x, weight, bias)
    with torch.autocast(x.device.type, enabled=False):
        return linear(x.float(), weight, bias)


# ---------------------------------------------------------------------------------------------------- recurrent layers
# Ignored in the whole process: on a GPU, PyTorch copies the weights into one array and warns at each call.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk of memory")


def recurrent(
    spec: RecurrentSpec, weights: Values, x: Tensor, carry: dict[str, Tensor], window: SequenceInput
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return outputs (B, S, size) and the hidden states after the last position."""
    arrays, outputs = [weights[name] for name in spec.shapes(0)], []
    # Biases, layers, dropout, train (else cuDNN gives no gradients), bidirectional, batch first.
    options = (True, spec.layers, 0.0, True, False, True)
    state = [part.to(x.dtype).transpose(0, 1) for part in carry.values()]
    starts = window.starts.any(0).nonzero()[:, 0].tolist() if x.shape[1] > 1 else []
    for start, end in pairwise(sorted({0, min(spec.burn_in, x.shape[1]), x.shape[1], *starts})):
        state = [_state_before(spec, part, window, start).contiguous() for part in state]
        if spec.kind == "gru":
            output, *state = torch.gru(x[:, start:end], state[0], arrays, *options)
        else:
            output, *state = torch.lstm(x[:, start:end], state, arrays, *options)
        outputs.append(output)
    after = dict(zip(carry, (part.transpose(0, 1).float() for part in state), strict=True))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1), after


def _state_before(spec: RecurrentSpec, state: Tensor, window: SequenceInput, time: int) -> Tensor:
    """Return the state (layers, B, size) before the observation at `time`; it is zero where an episode starts.

    No gradient flows through the end of the burn-in.
    """
    if time == spec.burn_in:
        kept = window.is_first if spec.learn_from_start else torch.zeros_like(window.is_first)
        state = torch.where(kept[None, :, None], state, state.detach())
    return torch.where(window.starts[:, time][None, :, None], torch.zeros_like(state), state)
