"""Proximal Policy Optimization.

    collect      act with π in N environments for T steps: a ~ π(s); store log π(a|s) and V(s)
    advantages   A_t by generalized advantage estimation, R_t = A_t + V(s_t)            (functional.returns)
    each epoch   shuffle the N·T steps, cut them into minibatches; on each, make one gradient step that minimizes
                     -mean min(ρ A, clip(ρ, 1-ε, 1+ε) A) + c_V ½ mean (V(s) - R)² - c_H mean H(π(s))
                 with ρ = π(a|s) / π_old(a|s), A normalized over the minibatch, the gradient's norm clipped

Normalized advantages, clipped gradients and orthogonal initial weights are from Huang et al., 2022, "The 37
Implementation Details of PPO".

The facts that define PPO:

- The rollout's log-probabilities stay fixed during its updates; so do values and advantages, unless recomputed.
- A truncated episode bootstraps from the value of its final observation. A terminated episode does not.
- Every epoch uses each step once.
- One optimizer updates policy and value together.
- If an environment forbids actions, only allowed actions have a probability, in collection and in updates.
- For an action with several parts, π is the product of the parts' distributions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from array_api_compat import array_namespace
from typing_extensions import override

from duetto.algorithms.base import (
    DIVERGENCE,
    Algorithm,
    Array,
    LossAndInfo,
    ObservationScaling,
    OptimizerSpec,
    RewardScaling,
    RolloutBatch,
    RolloutSpec,
    Tree,
    Updater,
)
from duetto.algorithms.exploration import PolicySampling
from duetto.algorithms.options import (
    Bounds,
    Count,
    Fraction,
    NonNegative,
    Option,
    OptionTable,
    Positive,
    Sizes,
    in_group,
)
from duetto.functional.array_ops import check_same_shape
from duetto.functional.policy_gradient import clipped_surrogate, clipped_value_error, normalized, weighted_mean
from duetto.functional.schedules import Decay, decay_factor
from duetto.networks.heads import PolicyHead, StateValueHead
from duetto.networks.layers import Activation, Blocks, Recurrent, RecurrentSpec
from duetto.networks.masks import choice_sizes
from duetto.networks.preprocessing import SeenReward, named_parts
from duetto.networks.spaces import Box, Space
from duetto.networks.specs import AnyNetworkSpec, CustomNetwork, Initializer, NetworkSpec, Torso

# Measured on CartPole, Acrobot and Pendulum, with learning rates from 3e-4 to 1e6: runs that learned had mean
# divergences up to 0.4 and entropies of at least 0.05; runs that failed had divergences above 20 and entropies of 0.
MAX_DIVERGENCE = 5.0
MIN_ENTROPY = 1e-6


@dataclass(frozen=True)
class PPO(Algorithm):
    """Proximal Policy Optimization (Schulman et al., 2017, arXiv:1707.06347)."""

    discount: Fraction = 0.99
    """γ: the weight of a reward one step later."""
    gae_lambda: Fraction = 0.95
    """λ: 0 bootstraps after one step, 1 sums all rewards."""
    rollout_steps: Count = 2048
    """Steps of each environment per rollout."""
    epochs: Count = 10
    """Passes over each rollout."""
    minibatches: Count = 32
    """Number of minibatches per epoch; each makes one optimizer step."""
    learning_rate: Positive = 3e-4
    """Step size of Adam."""
    learning_rate_decay: Decay = "constant"
    """Schedule of the learning rate over the run."""
    learning_rate_final: Fraction = 0.0
    """Final learning rate as a fraction of the initial one, if it decays."""
    adam_epsilon: Positive = 1e-5
    """Adam's ε."""
    max_grad_norm: NonNegative = 0.5
    """Maximum global L2 norm of the gradient; 0 turns clipping off."""
    clip_range: Positive = 0.2
    """ε: maximum distance of the probability ratio from 1."""
    clip_range_decay: Decay = "constant"
    """Schedule of the clip range over the run; linear and cosine end at 0."""
    clip_value: bool = False
    """Clip the change of values to the clip range, as in OpenAI Baselines; appropriate if rewards are about 1."""
    normalize_advantages: bool = True
    """Standardize the advantages of each minibatch."""
    recompute_advantages: bool = False
    """Recompute advantages before every epoch except the first (as Tianshou can)."""
    value_coefficient: NonNegative = 0.5
    """Weight of the value loss, ½ (V - R)²."""
    entropy_coefficient: NonNegative = 0.0
    """Weight of the entropy bonus."""
    target_kl: NonNegative = 0.0
    """Skip a rollout's remaining epochs once an epoch's mean KL divergence exceeds this; 0 for no limit."""
    learning_rate_kl: NonNegative = 0.0
    """Adapt the learning rate to keep each epoch's KL divergence near this value; 0 for no adaptation."""

    normalize_observations: bool = False
    """Scale observations, except images, by their running mean and std."""
    observation_statistics: Literal["rollouts", "steps"] = "rollouts"
    """Update the statistics after each rollout (the first rollout is then not scaled), or at each step."""
    observation_clip: Positive = 5.0
    """Clip scaled observations to ± this value."""
    normalize_rewards: bool = False
    """Divide rewards by the running std of their discounted sums."""
    normalization_prior: Positive = 1.0
    """Weight of the initial mean 0 and variance 1, in samples; use SB3's 0.0001 for observations far from 0."""
    stochastic_evaluation: bool = False
    """In evaluations, sample actions instead of using the policy's mode."""

    hidden: Sizes = (64, 64)
    """Units of the hidden layers."""
    activation: Activation = "tanh"
    """Activation of the hidden layers; convolutions and SimBa's layers have ReLU."""
    image_features: Count = 512
    """Units of the layer after an image's convolutions."""
    shared_torso: bool = False
    """Policy and value share all layers except the output layers."""
    policy_gain: Positive = 0.01
    """Gain of the policy head's orthogonal initial weights; linear layers have √2, the value head 1."""
    zero_biases: bool = True
    """Initialize biases with 0 instead of as PyTorch does; recurrent layers always have 0."""
    initial_log_std: Annotated[float, Bounds(-20.0, 20.0)] = 0.0
    """Initial log-std of continuous actions."""
    network: Blocks = "mlp"
    """Hidden layers: plain, with layer normalization, or SimBa's residual blocks (all sizes in `hidden` equal)."""
    agent_network: CustomNetwork | None = None
    """A custom policy with value function (Python only)."""
    recurrent: Recurrent = "none"
    """Recurrent layers, for partial observability; each minibatch then has whole rollouts of some environments."""
    recurrent_size: Count = 128
    """Units of the recurrent layers."""
    recurrent_layers: Count = 1
    """Number of recurrent layers."""
    previous_reward: SeenReward = "tanh"
    """Transformation of the previous reward, an input of recurrent layers."""

    acting_networks: ClassVar[tuple[str, ...]] = ("agent",)
    observations: ClassVar[str] = "vectors, images, integers, Dict and Tuple of these"
    actions: ClassVar[str] = "Discrete, MultiDiscrete, MultiBinary, Box, Dict and Tuple of these"
    option_table: ClassVar[OptionTable] = {
        "rollout_steps": Option(search={"factor": 4, "step": "doubling"}),
        "minibatches": Option(search={"factor": 4, "step": "doubling"}),
        "clip_range": Option(search={"factor": 4}),
        "entropy_coefficient": Option(search={"low": 1e-5, "high": 0.1, "log": True}),
        **in_group("", "clip_value", "normalize_advantages", "clip_range_decay"),
        **in_group("", "recompute_advantages", "observation_statistics", "observation_clip", rare=True),
        **in_group("", "normalization_prior", rare=True),
        **in_group("exploration", "stochastic_evaluation", rare=True),
        **in_group("networks", "hidden", search="auto"),
        "activation": Option("networks", search={"choices": ["tanh", "relu"]}),
        **in_group("networks", "network", "shared_torso", "image_features"),
        **in_group("networks", "policy_gain", "zero_biases", rare=True),
        **in_group("networks", "initial_log_std", "agent_network", rare=True, search="auto"),
        "learning_rate_decay": Option("optimizer", search={"choices": ["constant", "linear"]}),
        **in_group("optimizer", "learning_rate", "max_grad_norm", "learning_rate_kl", search="auto"),
        **in_group("optimizer", "learning_rate_final", needs="learning_rate_decay"),
        **in_group("optimizer", "adam_epsilon", rare=True),
        **in_group("recurrence", "recurrent"),
        **in_group("recurrence", "recurrent_size", "recurrent_layers", "previous_reward", needs="recurrent"),
    }

    # ------------------------------------------------------------------------------------------------ the equations
    def loss(self, nets: Any, batch: RolloutBatch, clip: Array) -> LossAndInfo:
        """Return the sum of the clipped surrogate, value and entropy terms (equations 7 and 9). `clip` is ε."""
        xp = array_namespace(batch.advantage)
        policy, value = nets.agent(batch.obs)
        log_ratio = policy.log_prob(batch.action) - batch.log_prob
        check_same_shape(
            log_ratio=log_ratio, value=value, advantage=batch.advantage, returns=batch.returns, weight=batch.weight
        )
        # The ratio of padding could be infinite, and inf * 0 is nan.
        log_ratio = xp.where(batch.weight > 0, log_ratio, xp.zeros_like(log_ratio))
        ratio = xp.exp(log_ratio)

        def mean(x: Array) -> Array:
            return weighted_mean(x, batch.weight)

        advantage = normalized(batch.advantage, batch.weight) if self.normalize_advantages else batch.advantage
        policy_loss = -mean(clipped_surrogate(ratio, advantage, clip))
        error = (value - batch.returns) ** 2
        if self.clip_value:
            error = clipped_value_error(value, batch.value, batch.returns, clip)
        value_loss, entropy = 0.5 * mean(error), mean(policy.entropy())
        total = policy_loss + self.value_coefficient * value_loss - self.entropy_coefficient * entropy
        return total, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            DIVERGENCE: mean(ratio - 1.0 - log_ratio),  # k3 of Schulman, 2020, "Approximating KL divergence"
            "approx_kl_k2": 0.5 * mean(log_ratio**2),  # k2 of the same post, which OpenAI Baselines logs
            "clip_fraction": mean(xp.astype(xp.abs(ratio - 1.0) > clip, ratio.dtype)),
        }

    def update(self, learner: Updater, batch: RolloutBatch, noise: Any, phase: int) -> None:
        """Make one optimizer step on a minibatch."""
        learner.minimize("agent", self.loss, batch, learner.scheduled["clip_range"])

    def split(self, random: np.random.Generator, size: int) -> np.ndarray:
        """Return all row indices, shuffled and split into equal minibatches: (minibatches, B)."""
        return random.permutation(size).astype(np.int32).reshape(self.minibatches, -1)

    def scheduled(self, progress: float) -> dict[str, float]:
        """Return the clip range ε at this progress."""
        return {"clip_range": self.clip_range * decay_factor(self.clip_range_decay, progress, 0.0)}

    def symptom(self, means: Mapping[str, float], action: Space) -> str:
        """Return a warning if the KL divergence is far too large or the entropy is 0; else ""."""
        remedy = "Start again with a lower learning_rate, or set target_kl (for example 0.05)."
        if (divergence := means.get(DIVERGENCE, 0.0)) > MAX_DIVERGENCE:
            return (
                f"learn/approx_kl is {divergence:.3g} (usual: 0.001 to 0.1). Updates are too large for the policy to "
                f"learn. {remedy}"
            )
        numbers = any(isinstance(part, Box) for _, part in named_parts(action))  # a Box's entropy may be negative
        if not numbers and max(choice_sizes(action), default=1) > 1 and means.get("entropy", 1.0) < MIN_ENTROPY:
            return f"learn/entropy is 0. The policy always selects the same action and no longer learns. {remedy}"
        return ""

    # ------------------------------------------------------------------------------------------------ acting
    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """Return sampled actions, or the policy's mode if `noise` is None."""
        policy, _ = nets.agent(obs)
        return policy.mode() if noise is None else policy.sample(noise)

    def collect(self, nets: Any, obs: Tree, noise: Array) -> tuple[Array, dict[str, Array]]:
        """Return sampled actions, their log-probabilities, and the values of the observations."""
        policy, value = nets.agent(obs)
        action = policy.sample(noise)
        # Compute log π from `action`, not from `noise`: losses know only the stored action, rounded to float32.
        return action, {"log_prob": policy.log_prob(action), "value": value}

    def value(self, nets: Any, obs: Tree) -> Array:
        """Return the state values (N,)."""
        return nets.agent(obs)[1]

    def explorer(self) -> PolicySampling:
        """Return exploration by sampling the policy."""
        return PolicySampling(self.stochastic_evaluation)

    @override
    def observation_scaling(self) -> ObservationScaling:
        mode = self.observation_statistics if self.normalize_observations else "off"
        return ObservationScaling(mode, self.observation_clip, self.normalization_prior)

    @override
    def reward_scaling(self) -> RewardScaling | None:
        return RewardScaling(self.normalization_prior) if self.normalize_rewards else None

    # -------------------------------------------------------------------------------------------------------- specs
    def check_spaces(self, observation: Space, action: Space, environment: str) -> None:
        """Accept every space."""

    def networks(self, observation: Space, action: Space) -> dict[str, AnyNetworkSpec]:
        """Return the spec of one network, "agent", with two heads: policy and value."""
        memory = None
        if self.recurrent != "none":
            memory = RecurrentSpec(self.recurrent, self.recurrent_size, self.recurrent_layers, action, orthogonal=True)
        torso = Torso(observation, self.image_features, self.hidden, self.activation, memory, self.network)
        heads = (PolicyHead(action, self.policy_gain, self.initial_log_std), StateValueHead())
        init = Initializer("orthogonal", math.sqrt(2), zero_biases=self.zero_biases)  # as in OpenAI Baselines
        return {
            "agent": NetworkSpec(torso, heads, shared=self.shared_torso, initializer=init, custom=self.agent_network)
        }

    def optimizers(self) -> dict[str, OptimizerSpec]:
        """Return one Adam for policy and value."""
        spec = OptimizerSpec(
            self.learning_rate,
            self.learning_rate_decay,
            self.learning_rate_final,
            self.max_grad_norm,
            weight_decay=0.0,
            decoupled=False,
            epsilon=self.adam_epsilon,
            kl=self.learning_rate_kl,
        )
        return {"agent": spec}

    def memory(self) -> RolloutSpec:
        """Return the spec of the rollout."""
        return RolloutSpec(
            steps=self.rollout_steps,
            epochs=self.epochs,
            minibatches=self.minibatches,
            discount=self.discount,
            trace=self.gae_lambda,
            recompute_advantages=self.recompute_advantages,
            recurrent=self.recurrent != "none",
            target_kl=self.target_kl,
        )
