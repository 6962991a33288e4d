"""Action values: selecting and masking them, dueling streams, Huber's loss."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

FORBIDDEN = -1e15  # for -∞, whose product with 0 is NaN; its square is finite in float32


def mask_actions(x: Any, mask: Any) -> Any:
    """Return values or logits x (..., n) with FORBIDDEN, -1e15, where `mask` is False.

    The mask may lack leading axes of x: (n,), (B, n), (..., n).
    """
    xp = array_namespace(x)
    return xp.where(xp.broadcast_to(mask[(None,) * (x.ndim - mask.ndim)], x.shape), x, FORBIDDEN)


def value_of_action(q: Any, action: Any) -> Any:
    """Return Q(s, a) (...) for values q (..., n) and actions (...). Raises ValueError for other shapes."""
    if tuple(q.shape[:-1]) != tuple(action.shape):
        raise ValueError(
            f"q has shape {tuple(q.shape)}, action {tuple(action.shape)}; they must be (..., n) and (...)."
        )
    xp = array_namespace(q)
    choices = xp.reshape(xp.arange(q.shape[-1], device=device(q)), (*(1,) * action.ndim, -1))
    return xp.sum(xp.where(action[..., None] == choices, q, 0.0), axis=-1)


def dueling(value: Any, advantage: Any) -> Any:
    """Q = V + A - mean_a A (..., n), of V (..., 1) and A (..., n) (Wang et al., 2016, arXiv:1511.06581, equation 9)."""
    return value + advantage - array_namespace(advantage).mean(advantage, axis=-1, keepdims=True)


def huber(error: Any, delta: float) -> Any:
    """e² / 2 up to `|e| = δ`, and linear beyond, `δ (|e| - δ/2)`, of errors e (...) (Huber, 1964); e² where δ is 0."""
    if delta == 0:
        return error**2
    xp = array_namespace(error)
    size = xp.abs(error)
    return xp.where(size <= delta, 0.5 * error**2, delta * (size - 0.5 * delta))
