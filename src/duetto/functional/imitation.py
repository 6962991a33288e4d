"""Losses for an expert's actions."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from duetto.functional.distributions import Categorical
from duetto.functional.q_values import value_of_action


def large_margin(q: Any, expert_action: Any, margin: float) -> Any:
    """J_E = max_a [Q(s, a) + l(a_E, a)] - Q(s, a_E) ≥ 0 (...), of q (..., n) and choices (...).

    l is the margin, and 0 for a = a_E (Hester et al., 2018, arXiv:1704.03732, equation 2, after Piot et al., 2014).
    """
    xp = array_namespace(q)
    choices = xp.reshape(xp.arange(q.shape[-1], device=device(q)), (*(1,) * expert_action.ndim, -1))
    raised = xp.where(choices == expert_action[..., None], q, q + margin)
    return xp.max(raised, axis=-1) - value_of_action(q, expert_action)


def cross_entropy(preferences: Any, expert_action: Any) -> Any:
    """-log softmax(preferences)(a_E) (...), of preferences (..., n) and choices (...): behavior cloning's loss."""
    return -Categorical(preferences).log_prob(expert_action)
