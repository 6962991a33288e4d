"""Action values: picking them, and making them from two streams."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

FORBIDDEN = -1e15  # stands for -∞, which times 0 would be no number; so would the square of much less in float32


def allowed(x: Any, mask: Any) -> Any:
    """x (..., n), values or logits of actions, but FORBIDDEN, -1e15, where `mask` is False; same shape as x.

    The mask lacks at most the first axes of x: (n,), (B, n), (..., n).
    """
    xp = array_namespace(x)
    return xp.where(xp.broadcast_to(mask[(None,) * (x.ndim - mask.ndim)], x.shape), x, FORBIDDEN)


def chosen(q: Any, action: Any) -> Any:
    """Q(s, a) (...) of action values q (..., n) and choices (...). ValueError for other shapes."""
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
