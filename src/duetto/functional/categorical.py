"""Values as categorical distributions over fixed returns ("atoms"), for critics that learn by cross-entropy.

Terms::

    atoms        z_j, j = 0 .. n-1, evenly spaced from `low` to `high`
    value        Σ_j p_j z_j,  p = softmax(logits)
    target       y_j = clip(r + γ (z_j - e), low, high), with the probabilities p of a target critic; e: α log π(a'|s')
    projection   every p_j is shared between the two atoms next to y_j, in proportion to their nearness
    loss         cross-entropy -Σ_j m_j log softmax(logits)_j of the projected target m

Bellemare et al., 2017, arXiv:1707.06887, section 4. All arrays are float32, whatever the run's `precision` is.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from duetto.functional.array_ops import check_same_shape, scatter_add, stop_gradient

Array = Any


def atom_values(logits: Array, low: float, high: float) -> Array:
    """Return the atoms (n,), evenly spaced from `low` to `high`; `logits` (..., n) only determine n."""
    xp, count = array_namespace(logits), logits.shape[-1]
    return low + (high - low) / (count - 1) * xp.arange(count, dtype=logits.dtype, device=device(logits))


def log_probabilities(logits: Array) -> Array:
    """Return log softmax(logits), without overflow; `logits` and the result are (..., n)."""
    xp = array_namespace(logits)
    shifted = logits - stop_gradient(xp.max(logits, axis=-1, keepdims=True))  # any shift has the same gradient
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


def mean_value(logits: Array, low: float, high: float) -> Array:
    """Return the means (...) of distributions with `logits` (..., n) over n atoms from `low` to `high`."""
    xp = array_namespace(logits)
    atoms = xp.reshape(atom_values(logits, low, high), (*(1,) * (logits.ndim - 1), -1))
    return xp.sum(xp.exp(log_probabilities(logits)) * atoms, axis=-1)


def lowest_critic(logits: Array, low: float, high: float) -> Array:
    """Return, for each row, the probabilities (..., n) of the critic with the lowest mean; `logits` are (M, ..., n)."""
    xp = array_namespace(logits)
    least = xp.argmin(mean_value(logits, low, high), axis=0)  # (...), index of a critic
    index = xp.broadcast_to(least[None, ..., None], (1, *logits.shape[1:]))
    return xp.exp(log_probabilities(xp.take_along_axis(logits, index, axis=0)[0]))


def shifted_atoms(reward: Array, discount: Array, entropy_cost: Array, atoms: Array) -> Array:
    """Return the returns r + γ (z_j - e) of all atoms z_j, not clipped.

    `reward`, `discount` and `entropy_cost` e are (...), `atoms` z are (n,), and the result is (..., n).
    """
    check_same_shape(reward=reward, discount=discount, entropy_cost=entropy_cost)
    z = array_namespace(atoms).reshape(atoms, (*(1,) * reward.ndim, -1))
    return reward[..., None] + discount[..., None] * (z - entropy_cost[..., None])


def project(probabilities: Array, returns: Array, low: float, high: float) -> Array:
    """Project a distribution over `returns`, clipped to [low, high], onto n atoms; return the atoms' probabilities.

    `probabilities`, `returns` and the result are (..., n). Raises ValueError if shapes differ.
    """
    check_same_shape(probabilities=probabilities, returns=returns)
    xp, last = array_namespace(returns), probabilities.shape[-1] - 1
    position = xp.clip((xp.clip(returns, low, high) - low) / ((high - low) / last), 0.0, float(last))
    lower = xp.floor(position)
    upper_share = position - lower  # 0 if the position is an atom
    index = xp.astype(lower, xp.int32)
    below = scatter_add(index, probabilities * (1.0 - upper_share))
    return below + scatter_add(xp.clip(index + 1, 0, last), probabilities * upper_share)


def cross_entropy(target: Array, logits: Array) -> Array:
    """Return the cross-entropy -Σ_j m_j log softmax(logits)_j.

    The target m and `logits` are (..., n), the result is (...). Raises ValueError if shapes differ.
    """
    check_same_shape(target=target, logits=logits)
    return -array_namespace(logits).sum(target * log_probabilities(logits), axis=-1)
