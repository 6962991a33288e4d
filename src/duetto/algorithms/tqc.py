"""Truncated Quantile Critics: SAC whose critics predict quantiles; targets drop the largest quantiles of all critics.

    N critics, each with M quantiles z_1 .. z_M of the return, at the probabilities τ_j = (2j - 1) / 2M

    each update  a', log π(a'|s') ~ π(s')
                 z'_1 ≤ .. ≤ z'_NM: the quantiles of all target critics at (s', a'), sorted
                 y_k = r + γ (z'_k - α log π(a'|s')),  k = 1 .. N (M - d)      γ = 0 where the episode terminated
                 critics:  minimize   Σ_i mean_jk ρ_j(y_k - z_ij(s, a))
                           ρ_j(u) = |τ_j - [u < 0]| huber(u)                   u² / 2 up to |u| = 1, linear beyond
                 actor:    minimize   mean (α log π(ã|s) - mean_ij z_ij(s, ã)),   ã ~ π(s), reparameterized
                 temperature and the critics' targets as in SAC

The facts that define TQC, each with a test:

- Targets drop the N · d largest quantiles of the sorted mixture of all critics, not d quantiles of each critic.
- Every critic learns from all remaining quantiles.
- The quantile Huber loss weights errors by τ.
- The actor maximizes the mean of all quantiles, including the dropped quantiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from array_api_compat import array_namespace, device

from duetto.algorithms.base import PRIORITY, Array, Batch, LossAndInfo
from duetto.algorithms.options import Count, CountOrZero, OptionTable, in_group
from duetto.algorithms.sac import SAC
from duetto.errors import UsageError
from duetto.functional.array_ops import check_same_shape
from duetto.functional.q_values import huber
from duetto.networks.heads import CriticHead


def truncated_mixture(quantiles: Array, dropped: int) -> Array:
    """Sort quantiles (N, ..., M) of N critics together, and drop the N · `dropped` largest.

    The result is (..., N · (M - `dropped`)).
    """
    xp, (critics, size) = array_namespace(quantiles), (quantiles.shape[0], quantiles.shape[-1])
    pooled = xp.concat([quantiles[i] for i in range(critics)], axis=-1)
    return xp.sort(pooled, axis=-1)[..., : critics * (size - dropped)]


def quantile_huber(quantiles: Array, target: Array) -> Array:
    """Return the mean of ρ_j(y_k - z_j) over j and k (Dabney et al., 2018, arXiv:1710.10044, equation 10, κ = 1).

    `quantiles` are z (N, ..., M), `target` is y (..., K); the result is (N, ...). Raises ValueError for other shapes.
    """
    check_same_shape(quantiles=quantiles[0, ..., 0], target=target[..., 0])
    xp, count = array_namespace(quantiles), quantiles.shape[-1]
    error = target[None, ..., None, :] - quantiles[..., None]  # (N, ..., M, K)
    tau = (xp.arange(count, dtype=xp.float32, device=device(quantiles)) + 0.5) / count
    tau = xp.reshape(tau, (*(1,) * (quantiles.ndim - 1), count, 1))
    weight = xp.where(error < 0, 1.0 - tau, tau)
    return xp.mean(weight * huber(error, 1.0), axis=(-2, -1))


@dataclass(frozen=True)
class TQC(SAC):
    """Truncated Quantile Critics (Kuznetsov et al., 2020, arXiv:2005.04269)."""

    num_critics: Count = 5
    """N: number of critics."""
    num_quantiles: Count = 25
    """M: number of quantiles of each critic."""
    dropped_quantiles: CountOrZero = 2
    """d: targets drop the N · d largest of all quantiles; a larger d lowers value estimates."""

    critic: ClassVar[str] = "quantiles"  # pyright: ignore[reportIncompatibleVariableOverride]  # not an option
    num_atoms: ClassVar[int] = 0  # pyright: ignore[reportIncompatibleVariableOverride]
    value_range: ClassVar[tuple[float, float]] = (-1.0, 1.0)  # pyright: ignore[reportIncompatibleVariableOverride]

    option_table: ClassVar[OptionTable] = in_group("", "num_critics", "num_quantiles")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dropped_quantiles >= self.num_quantiles:
            raise UsageError(
                f"dropped_quantiles is {self.dropped_quantiles}; it must be less than num_quantiles, "
                f"{self.num_quantiles}."
            )

    def critic_loss(self, nets: Any, batch: Batch, noise: Array) -> LossAndInfo:
        """Return the quantile Huber loss against the truncated mixture (equations 10 to 13)."""
        xp = array_namespace(batch.reward)
        next_action, log_prob = nets.actor(batch.next_obs).sample_and_log_prob(noise)  # (B, A), (B,)
        next_z = truncated_mixture(nets.target_critic(batch.next_obs, next_action), self.dropped_quantiles)
        reward, discount, entropy = batch.reward, batch.discount, -xp.exp(nets.log_alpha) * log_prob
        target = reward[..., None] + discount[..., None] * (next_z + entropy[..., None])  # (B, N (M - d))
        z = nets.critic(batch.obs, batch.action)  # (N, B, M)
        q, mean = xp.mean(z, axis=-1), xp.mean(target, axis=-1)  # (N, B), (B,)
        return batch.weighted_mean(xp.sum(quantile_huber(z, target), axis=0)), {
            "q": q,
            "target": mean,
            PRIORITY: xp.mean(xp.abs(q - mean[None]), axis=0),
        }

    def actor_loss(self, nets: Any, batch: Batch, noise: Array) -> LossAndInfo:
        """Return α log π(a|s) minus the mean of all quantiles, for new actions (equation 14)."""
        xp = array_namespace(batch.reward)
        action, log_prob = nets.actor(batch.obs).sample_and_log_prob(noise)
        q = xp.mean(xp.mean(nets.critic(batch.obs, action), axis=-1), axis=0)
        check_same_shape(q=q, log_prob=log_prob)
        return batch.mean(xp.exp(nets.log_alpha) * log_prob - q), {"log_prob": log_prob}

    def critics(self) -> int:
        """Return the number of critics."""
        return self.num_critics

    def critic_head(self, size: int) -> CriticHead:
        """Return a critic's head with `num_quantiles` outputs."""
        return replace(super().critic_head(size), outputs=self.num_quantiles)
