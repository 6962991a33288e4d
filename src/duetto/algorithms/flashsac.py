"""FlashSAC: soft actor-critic with categorical critics, normalized layers, weights of unit norm and scaled rewards.

    act              a ~ π(s), tanh of a Gaussian, whose noise stays for k steps, P(k) ∝ 1/k², k ≤ 16
    each d-th update, including the first
        actor:       π of [s; s'], normalized as one batch; only the rows of s are in the loss
                     minimize   mean (α log π(ã|s) - min_i E Z_i(s, ã)),   ã ~ π(s), reparameterized
        temperature: minimize   α · (H - H̄),   H = -mean log π(ã|s),   H̄ = entropy of N(0, 0.15²) per action entry
    each update      a', log π(a'|s') ~ π(s')
        critics:     Z_i of [s; s'], [a; a'], normalized as one batch, and Z'_i of the target critics likewise
                     minimize   mean_i cross-entropy(r + γ (Z'_k(s', a') - α log π(a'|s')); Z_i(s, a))
                     k: the target critic with the lower mean               γ = 0 where the episode terminated
        targets:     Z' ← τ Z + (1 - τ) Z'
    after each step of actor and critics their weights are projected (`networks.layers.projected`)

The facts that define FlashSAC, each with a test:

- The order is actor, temperature, critics, target critics, so targets come from the new policy.
- The actor is updated in the first of every d updates.
- Target critics normalize by the statistics of the joint batch. Their running statistics are copies of the critics'
  statistics, which do not fit averaged weights.
- The policy of s', and the critics in the actor's loss, use running statistics.
- The learning rates of actor and temperature decay d times more slowly, so the run ends before their decay does.
- Exploration noise is repeated for several steps.
- Projected weights have unit norm. The target critics' weights are averages without unit norm.
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
    """Final learning rate of the critics as a fraction of the initial one, if it decays."""
    temperature: Positive = 0.01
    target_entropy_scale: NonNegative = 0.4781815
    """The target entropy is minus this value times the action's size. The default gives the entropy of N(0, 0.15²)."""
    tau: Fraction = 0.01
    critic_action_layer: ClassVar[int] = 0  # pyright: ignore[reportIncompatibleVariableOverride]  # not an option
    critic: ClassVar[str] = "categorical"  # pyright: ignore[reportIncompatibleVariableOverride]  # not an option
    normalize_rewards: bool = True
    hidden: Sizes = (128, 128)
    """Width of each hidden block of the actor, and of the critic unless `critic_hidden` is given."""
    critic_hidden: Sizes = (256, 256)
    """Width of each hidden block of the critic; empty to use `hidden`."""
    network: FlashBlocks = "flash"  # pyright: ignore[reportIncompatibleVariableOverride]  # other kinds
    """Hidden blocks: FlashSAC's residual blocks of equal width, or XQC's plain layers."""
    initializer: Literal["fan_in", "normal", "orthogonal"] = "orthogonal"  # pyright: ignore[reportIncompatibleVariableOverride]
    """Initial weights: U(±gain/√inputs), N(0, gain²) or orthogonal. `project_weights` also applies to them."""
    project_weights: bool = True
    """Project weights to unit norm after every optimizer step."""
    policy_delay: Count = 2
    """Critic updates per update of actor and temperature."""
    noise_repeats: Count = 16
    """Maximum number of steps with the same noise; 1 for new noise at each step."""

    small: ClassVar[dict[str, Any]] = {"hidden": (8,), "critic_hidden": (8,), "num_atoms": 11}
    option_table: ClassVar[OptionTable] = {
        **in_group("networks", "project_weights", rare=True),
        **in_group("exploration", "noise_repeats"),
        **in_group("", "num_atoms", "value_range", "return_bound"),
    }

    # ------------------------------------------------------------------------------------------------ the equations
    def actor_loss(self, nets: Any, batch: Batch, noise: Array) -> LossAndInfo:
        """Return α log π(a|s) - min E Z(s, a) for new actions a; the critics use running statistics."""
        size = len(batch.reward)
        both = nets.actor(concat(batch.obs, batch.next_obs), train=True)  # π of [s; s'], (2B, A)
        policy = SquashedGaussian(both.mean[:size], both.log_std[:size])
        return self.loss_of_policy(nets, batch, policy, noise)

    def temperature_loss(self, nets: Any, batch: Batch, actor: dict[str, Array]) -> LossAndInfo:
        """Return α (H - H̄), with the entropy H from the actor's loss."""
        target = -self.target_entropy_scale * batch.action.shape[-1]
        alpha = array_namespace(batch.reward).exp(nets.log_alpha)
        return alpha * stop_gradient(-batch.mean(actor["log_prob"]) - target), {"temperature": alpha}

    def critic_loss(self, nets: Any, batch: Batch, noise: Array) -> LossAndInfo:
        """Return the mean cross-entropy with the target (Bellemare et al., 2017).

        The target critic with the lower mean gives the target. Critics and target critics each process (s, a) and
        (s', a') in one pass.
        """
        xp, size = array_namespace(batch.reward), len(batch.reward)
        next_action, log_prob = nets.actor(batch.next_obs).sample_and_log_prob(noise)  # (B, A), (B,)
        both = concat(batch.obs, batch.next_obs), concat(batch.action, stop_gradient(next_action))
        next_logits = nets.target_critic(*both, train=True)[:, size:]  # (2, B, n)
        logits = nets.critic(*both, train=True)[:, :size]
        entropy_cost = xp.exp(nets.log_alpha) * log_prob
        return categorical_loss(batch, logits, next_logits, entropy_cost, self.value_range)

    def update(self, learner: Updater, batch: Batch, noise: ActionNoisePair, phase: int) -> None:
        """Update actor and temperature (only in phase 0), then the critics, then their targets."""
        if phase == 0:
            actor = learner.minimize("actor", self.actor_loss, batch, noise.now)
            if self.learn_temperature:
                learner.minimize("log_alpha", self.temperature_loss, batch, actor)
        learner.minimize("critic", self.critic_loss, batch, noise.next)
        self.track_targets(learner)

    def phase(self, update: int) -> int:
        """Return 0 for the first of every `policy_delay` updates, which also updates the actor; else 1."""
        return 0 if (update - 1) % self.policy_delay == 0 else 1

    # -------------------------------------------------------------------------------------------------------- specs
    def explorer(self) -> RepeatedSampling:
        """Return exploration by sampling the policy, with repeated noise."""
        return RepeatedSampling(self.stochastic_evaluation, self.noise_repeats)

    def networks(self, observation: Space, action: Space) -> dict[str, AnyNetworkSpec]:
        """Return the specs of SAC's networks. `project_weights` applies to all except custom networks."""
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
        """Return Adam for each network.

        The learning rates of actor and temperature decay `policy_delay` times more slowly than the critics' rate.
        """
        found = super().optimizers()
        delayed = {name: replace(spec, horizon=self.policy_delay) for name, spec in found.items() if name != "critic"}
        return found | delayed
