"""Action values: selecting and masking them, dueling streams, R2D2's value scale, Huber's and the large-margin loss."""

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


def large_margin(q: Any, expert_action: Any, margin: float) -> Any:
    """J_E = max_a [Q(s, a) + l(a_E, a)] - Q(s, a_E) ≥ 0 (...), of q (..., n) and choices (...).

    l is the margin, and 0 for a = a_E (Hester et al., 2018, arXiv:1704.03732, equation 2, after Piot et al., 2014).
    """
    xp = array_namespace(q)
    choices = xp.reshape(xp.arange(q.shape[-1], device=device(q)), (*(1,) * expert_action.ndim, -1))
    raised = xp.where(choices == expert_action[..., None], q, q + margin)
    return xp.max(raised, axis=-1) - value_of_action(q, expert_action)


def rescale(x: Any, epsilon: float) -> Any:
    """`h(x) = sign(x) (√(|x| + 1) - 1) + ε x` (Pohlen et al., 2018, arXiv:1805.11593; R2D2 has ε = 0.001).

    x is (...), taken element by element. Written as `x / (√(|x| + 1) + 1) + ε x`, which does not cancel near 0.
    """
    xp = array_namespace(x)
    return x / (xp.sqrt(xp.abs(x) + 1.0) + 1.0) + epsilon * x


def unrescale(y: Any, epsilon: float) -> Any:
    """h⁻¹(y) of y (...), the inverse of `rescale`.

    The textbook's form subtracts nearly equal numbers: 5 % off in float32 at `|x| = 0.001`. This one does not.

    With `u = |y| + 1 + ε` and z = 2u / (√(1 + 4εu) + 1), the root of εz² + z = u, it is
    `|x| = (z + 1) |y| / (ε (z + 1) + 1)`.
    """
    xp = array_namespace(y)
    size = xp.abs(y)
    u = size + 1.0 + epsilon
    z = 2.0 * u / (xp.sqrt(1.0 + 4.0 * epsilon * u) + 1.0)
    return xp.sign(y) * (z + 1.0) * size / (epsilon * (z + 1.0) + 1.0)
