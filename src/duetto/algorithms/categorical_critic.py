"""Options of actor-critics whose critics may learn categorical distributions of returns, from scaled rewards.

    p = distribution of the target critic with the lower mean at (s', a')
    y_j = r + γ (z_j - e),  e: α log π(a'|s'), 0 without entropy          z_j: fixed returns ("atoms")
    critics: one step down   mean_i cross-entropy(p at y, projected onto the atoms; softmax of critic i)

Bellemare et al., 2017, arXiv:1707.06887; the choice of a critic is FastTD3's (Seo et al., 2025, arXiv:2505.22642).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from array_api_compat import array_namespace

from duetto.algorithms.actor_critic import ActorCritic
from duetto.algorithms.base import PRIORITY, Array, Batch, Bounds, NonNegative, RewardScaling
from duetto.algorithms.options import OptionTable, in_group
from duetto.errors import UsageError
from duetto.functional import categorical
from duetto.functional.array_ops import stop_gradient
from duetto.networks.heads import CategoricalHead, CriticHead


@dataclass(frozen=True)
class CategoricalCritic(ActorCritic):
    """Options of an actor-critic with scalar or categorical critics, and scaled or raw rewards."""

    critic: Literal["scalar", "categorical"] = "scalar"
    """Critics learn values by squared errors, or distributions over `num_atoms` fixed returns by cross-entropy."""
    num_atoms: Annotated[int, Bounds(2)] = 101
    """Fixed returns of a categorical critic."""
    value_range: tuple[float, float] = (-5.0, 5.0)
    """Lowest and highest return of a categorical critic."""
    normalize_rewards: bool = False
    """Divide the rewards of a batch by the running std of discounted returns."""
    return_bound: NonNegative = 5.0
    """Normalized rewards are smaller where past returns would exceed this; 0 for no bound."""

    option_table: ClassVar[OptionTable] = {
        **in_group("", "critic", "normalize_rewards"),
        **in_group("", "num_atoms", "value_range", needs="critic=categorical", rare=True),
        **in_group("", "return_bound", needs="normalize_rewards", rare=True),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        ends = self.value_range
        if not (isinstance(ends, tuple) and len(ends) == 2 and all(type(end) in (int, float) for end in ends)):
            raise UsageError(f"value_range is {ends!r}; it must be two numbers, as (-5.0, 5.0).")
        if not ends[0] < ends[1]:
            raise UsageError(f"value_range is {ends[0]} {ends[1]}; the first number must be less than the second.")

    def reward_scaling(self) -> RewardScaling | None:
        """See `normalize_rewards`; the first return decides, not an initial variance of 1."""
        return RewardScaling(1e-4, sampled=True, bound=self.return_bound) if self.normalize_rewards else None

    def critic_head(self, size: int) -> CriticHead:
        """Return the head of each critic: of values, or of logits."""
        if self.critic == "scalar":
            return super().critic_head(size)
        options = (self._critic_hidden(), self.activation, self.network)
        return CategoricalHead(size, *options, joins=self.critic_action_layer, atoms=self.num_atoms)

    def loss_of_critics(self) -> Any:
        """Return the method that is the critics' loss: `critic_loss`, or `distribution_loss` of categorical ones."""
        return self.distribution_loss if self.critic == "categorical" else self.critic_loss

    def critic_loss(self, nets: Any, batch: Batch, noise: Any) -> tuple[Array, dict[str, Array]]:
        """Return the loss of critics of values."""
        raise NotImplementedError

    def distribution_loss(self, nets: Any, batch: Batch, noise: Any) -> tuple[Array, dict[str, Array]]:
        """Return the loss of categorical critics."""
        raise NotImplementedError

    def q_values(self, output: Array) -> Array:
        """Return values (...) of critics' outputs: values (...), or logits (..., num_atoms)."""
        return output if self.critic == "scalar" else categorical.mean_value(output, *self.value_range)

    def categorical_loss(
        self, batch: Batch, logits: Array, next_logits: Array, entropy_cost: Array
    ) -> tuple[Array, dict[str, Array]]:
        """Mean cross-entropy of critics (Bellemare et al., 2017, algorithm 1), with the lower target critic.

        Args:
            batch: B transitions.
            logits: (M, B, n) of critics at (s, a).
            next_logits: (M, B, n) of target critics at (s', a'); they get no gradient.
            entropy_cost: (B,), α log π(a'|s'); 0 without entropy.

        Returns:
            The loss; and values of critics and targets, and the target's share outside of `value_range`.
        """
        xp, (low, high) = array_namespace(logits), self.value_range
        p = stop_gradient(categorical.lowest_critic(stop_gradient(next_logits), low, high))  # (B, n)
        atoms = categorical.atom_values(p, low, high)
        returns = categorical.shifted_atoms(self.reward(batch), batch.discount, stop_gradient(entropy_cost), atoms)
        target = categorical.project(p, returns, low, high)  # (B, n)
        loss = categorical.cross_entropy(xp.broadcast_to(target[None], logits.shape), logits)  # (M, B)
        q = self.q_values(logits)
        value = xp.sum(target * xp.broadcast_to(atoms, target.shape), axis=-1)
        outside = xp.astype((returns < low) | (returns > high), p.dtype)
        return batch.weighted_mean(xp.mean(loss, axis=0)), {
            "q": q,
            "target": value,
            "clipped": batch.mean(xp.sum(p * outside, axis=-1)),
            PRIORITY: xp.mean(xp.abs(q - value[None]), axis=0),
        }
