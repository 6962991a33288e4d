"""FlashSAC: soft actor-critic with categorical critics, normalized layers, weights of unit norm and scaled rewards.

    act              a ~ π(s), tanh of a Gaussian, whose noise stays for k steps, P(k) ∝ 1/k², k ≤ 16
    each d-th update, including the first
        actor:       π of [s; s'] as one batch to the norms, the half of s in the loss
                     one step down   mean (α log π(ã|s) - min_i E Z_i(s, ã)),   ã ~ π(s) through the noise
        temperature: one step down   α · (H - H̄),   H = -mean log π(ã|s),   H̄ = entropy of N(0, 0.15²) per number of a
    each update      a', log π(a'|s') ~ π(s')
        critics:     Z_i of [s; s'], [a; a'] as one batch to the norms, and Z'_i of the target critics likewise
                     one step down   mean_i cross-entropy(r + γ (Z'_k(s', a') - α log π(a'|s')); Z_i(s, a))
                     k: the target critic with the lower mean               γ = 0 where the episode terminated
        targets:     Z' ← τ Z + (1 - τ) Z'
    after each step of actor and critics their weights are projected (`networks.layers.projected`)

The facts that make it FlashSAC, each with a test: the order is actor, temperature, critics, targets, so that a target
comes from the new policy; the actor is updated in the first of d updates; target critics are normalized by the joint
batch, not by running statistics, as they are copied from another network's; the policy of s' and the critics in the
actor's loss use running statistics; the learning rates of actor and temperature decay with their own updates, so they
end in the middle of the schedule; noise is repeated; projected weights have unit norm, a target's have not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from array_api_compat import array_namespace

from duetto.algorithms.actor_critic import categorical_loss
from duetto.algorithms.base import Array, Batch, LossAndInfo, OptimizerSpec, Updater
from duetto.algorithms.exploration import RepeatedSampling
from duetto.algorithms.options import Count, Fraction, NonNegative, OptionTable, Positive, Sizes, in_group
from duetto.algorithms.sac import SAC, ActionNoisePair
from duetto.functional.array_ops import concat, stop_gradient
from duetto.functional.distributions import SquashedGaussian
from duetto.functional.schedules import Decay
from duetto.networks.heads import SquashedGaussianHead
from duetto.networks.layers import FlashBlocks
from duetto.networks.spaces import Space
from duetto.networks.specs import AnyNetworkSpec, NetworkSpec


@dataclass(frozen=True)
class FlashSAC(SAC):
    """FlashSAC (2026, arXiv:2604.04539)."""

    batch_size: Count = 512
    learning_rate_decay: Decay = "cosine"
    learning_rate_final: Fraction = 0.5
    """Factor of the critic's learning rate at the end of the run, unless constant."""
    temperature: Positive = 0.01
    target_entropy_scale: NonNegative = 0.4781815
    """The target entropy is minus this times the size of an action; by default that of a Gaussian of std 0.15."""
    tau: Fraction = 0.01
    critic_action_layer: ClassVar[int] = 0  # pyright: ignore[reportIncompatibleVariableOverride]  # no option
    critic: ClassVar[str] = "categorical"  # pyright: ignore[reportIncompatibleVariableOverride]  # no option
    normalize_rewards: bool = True
    hidden: Sizes = (128, 128)
    """Width of each hidden block of the actor, and of the critic unless `critic_hidden` is given."""
    critic_hidden: Sizes = (256, 256)
    """Width of each hidden block of the critic; empty for those of `hidden`."""
    network: FlashBlocks = "flash"  # pyright: ignore[reportIncompatibleVariableOverride]  # others
    """Hidden blocks: residual ones of equal width, or XQC's plain layers."""
    initializer: Literal["fan_in", "normal", "orthogonal"] = "orthogonal"  # pyright: ignore[reportIncompatibleVariableOverride]
    """Initial weights: U(±gain/√inputs), N(0, gain²), or orthogonal, which are then projected."""
    project_weights: bool = True
    """Project weights to unit norm after every optimizer step."""
    policy_delay: Count = 2
    """Critic updates per update of actor and temperature."""
    noise_repeats: Count = 16
    """Maximum number of steps with the same noise; 1 for new noise at each step."""

    small: ClassVar[dict[str, Any]] = {"hidden": (8,), "critic_hidden": (8,), "num_atoms": 11}
    alternatives: ClassVar[dict[str, Any]] = {
        "num_atoms": (21, {}),
        "noise_repeats": (1, {}),
        "initializer_gain": (0.5, {"project_weights": False}),
        "initializer_final_bound": (0.003, {"project_weights": False, "initializer": "normal"}),
    }
    option_table: ClassVar[OptionTable] = {
        **in_group("networks", "project_weights", rare=True),
        **in_group("exploration", "noise_repeats"),
        **in_group("", "num_atoms", "value_range", "return_bound"),
    }

    # ------------------------------------------------------------------------------------------------ the equations
    def actor_loss(self, nets: Any, batch: Batch, noise: Array) -> LossAndInfo:
        """α log π(a|s) - min E Z(s, a) of fresh actions, by the critics' running statistics."""
        size = len(batch.reward)
        both = nets.actor(concat(batch.obs, batch.next_obs), train=True)  # π of [s; s'], (2B, A)
        policy = SquashedGaussian(both.mean[:size], both.log_std[:size])
        return self.loss_of_policy(nets, batch, policy, noise)

    def temperature_loss(self, nets: Any, batch: Batch, log_prob: Array) -> LossAndInfo:
        """α (H - H̄), with the entropy H of the actor's loss."""
        target = -self.target_entropy_scale * batch.action.shape[-1]
        alpha = array_namespace(batch.reward).exp(nets.log_alpha)
        return alpha * stop_gradient(-batch.mean(log_prob) - target), {"temperature": alpha}

    def critic_loss(self, nets: Any, batch: Batch, noise: Array) -> LossAndInfo:
        """Mean cross-entropy of critics with the lower target critic (Bellemare et al., 2017, algorithm 1).

        Critics and target critics see (s, a) and (s', a') in one pass.
        """
        xp, size = array_namespace(batch.reward), len(batch.reward)
        next_action, log_prob = nets.actor(batch.next_obs).sample_and_log_prob(noise)  # (B, A), (B,)
        both = concat(batch.obs, batch.next_obs), concat(batch.action, stop_gradient(next_action))
        next_logits = nets.target_critic(*both, train=True)[:, size:]  # (2, B, n)
        logits = nets.critic(*both, train=True)[:, :size]
        entropy_cost = xp.exp(nets.log_alpha) * log_prob
        return categorical_loss(batch, logits, next_logits, entropy_cost, self.value_range)

    def update(self, learner: Updater, batch: Batch, noise: ActionNoisePair, phase: int) -> None:
        """In phase 0 update actor and temperature, then the critics, then their targets."""
        if phase == 0:
            actor = learner.minimize("actor", self.actor_loss, batch, noise.now)
            if self.learn_temperature:
                learner.minimize("log_alpha", self.temperature_loss, batch, actor["log_prob"])
        learner.minimize("critic", self.critic_loss, batch, noise.next)
        self.track_targets(learner)

    def phase(self, update: int) -> int:
        """Return 0 for updates of the actor, the first and then every `policy_delay` updates, over the whole run."""
        return 0 if (update - 1) % self.policy_delay == 0 else 1

    # ------------------------------------------------------------------------------------------------ what it needs
    def explorer(self) -> RepeatedSampling:
        """Return exploration by sampling the policy, with repeated noise."""
        return RepeatedSampling(self.stochastic_evaluation, self.noise_repeats)

    def networks(self, observation: Space, action: Space) -> dict[str, AnyNetworkSpec]:
        """Return actor, critics, and the temperature's logarithm."""
        return {
            name: replace(spec, projected=self.project_weights and spec.custom is None)
            if isinstance(spec, NetworkSpec)
            else spec
            for name, spec in super().networks(observation, action).items()
        }

    def policy(self, size: int) -> SquashedGaussianHead:
        """Return the actor's head, whose log-std is in (-10, 2)."""
        layers = (self.hidden, self.activation, self.network)
        return SquashedGaussianHead(size, *layers, log_std=(-10.0, 2.0), squashes=True)

    def optimizers(self) -> dict[str, OptimizerSpec]:
        """Return Adam for each network; those of the actor's updates decay once in `policy_delay` updates."""
        found = super().optimizers()
        delayed = {name: replace(spec, horizon=self.policy_delay) for name, spec in found.items() if name != "critic"}
        return found | delayed
