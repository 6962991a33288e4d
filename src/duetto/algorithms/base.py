"""The base class of algorithms, the batches that they learn from, and the specs of buffers and optimizers.

An algorithm is a frozen dataclass. Its fields are the hyperparameters (on the command line, in Python and in
`config.yaml`). Its methods are the equations, pure functions of PyTorch or JAX arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from array_api_compat import array_namespace

from duetto.algorithms.exploration import Exploration
from duetto.algorithms.options import Options
from duetto.errors import UsageError
from duetto.functional.array_ops import check_same_shape
from duetto.functional.policy_gradient import weighted_mean
from duetto.functional.schedules import Decay
from duetto.networks.layers import SequenceInput
from duetto.networks.preprocessing import seen_reward
from duetto.networks.spaces import Space
from duetto.networks.specs import AnyNetworkSpec

Array = Any  # an array of NumPy, PyTorch or JAX
# Observations: an Array; a dict of arrays for Dict observations or with action masks (`networks.masks`); a
# SequenceInput for recurrent networks.
Tree = Any

# The loss, a scalar; and metrics by name. `learners.base` logs a scalar x as learn/x, and an array x as learn/x_mean,
# learn/x_min and learn/x_max.
LossAndInfo = tuple[Array, dict[str, Array]]

# Training itself uses two of the metrics.
PRIORITY = "priority"  # |δ| of each item of a replay batch, (B,), or of each step, (B, L); not logged
DIVERGENCE = "approx_kl"  # a scalar, which can end a rollout's epochs (target_kl) and adapt learning rates


class OneStep(NamedTuple):
    """The first step of each n-step transition, for a loss with one-step and n-step targets."""

    reward: Array  # (B,) or (B, L)
    discount: Array  # γ, or 0 where the episode terminated
    ahead: Tree  # the next observations (B, ...); in a SequenceBatch their positions (B, L)


class Batch(NamedTuple):
    """B transitions over n' steps each; n' is n, or less at the end of an episode or of the data."""

    obs: Tree  # (B, ...)
    action: Array  # (B, A) in [-1, 1], or (B,) or (B, A) integers
    reward: Array  # (B,), the sum of n' discounted rewards
    discount: Array  # (B,), γ^n', or 0 where the episode terminated
    next_obs: Tree  # (B, ...), the observation after the n' steps
    weight: Array  # (B,), importance weights; 1 with uniform sampling
    expert: Array | None = None  # (B,) float, 1 for demonstrations, else 0; None without demonstrations
    one_step: OneStep | None = None  # if the buffer's spec has `one_step`

    def first_step(self) -> tuple[Array, Array, Tree]:
        """Return reward, discount and next observation of each transition's first step, which may be its only step."""
        return (self.reward, self.discount, self.next_obs) if self.one_step is None else tuple(self.one_step)

    def of_experts(self, x: Array) -> Array:
        """Return x (B,), but 0 for the transitions that are not demonstrations."""
        assert self.expert is not None, "a buffer without demonstrations"
        return x * self.expert

    def mean(self, x: Array) -> Array:
        """Return the mean of x (B,)."""
        return array_namespace(x).mean(x)

    def weighted_mean(self, x: Array) -> Array:
        """Return the mean of weight · x, for x (B,) and the importance weights (B,)."""
        check_same_shape(x=x, weight=self.weight)
        return array_namespace(x).mean(self.weight * x)


class RolloutBatch(NamedTuple):
    """B steps of a rollout.

    With recurrent networks, B counts environments, and every array has a second axis of T steps.
    """

    obs: Tree  # (B, ...), or a SequenceInput
    action: Array  # (B, A), not yet clipped to the environment's bounds; Discrete (B,)
    log_prob: Array  # (B,), log π_old(a|s)
    value: Array  # (B,), V_old(s)
    advantage: Array  # (B,)
    returns: Array  # (B,), advantage + V_old(s)
    weight: Array  # (B,), 1 for steps, 0 for padding


class SequenceBatch(NamedTuple):
    """B sequences of L = burn_in + unroll steps. Shorter sequences are padded, with mask 0."""

    obs: SequenceInput  # S = L + 1 observations; `query_steps` is 0 .. L-1
    action: Array  # (B, L, A) or (B, L)
    reward: Array  # (B, L), the sum of n' discounted rewards, as in Batch
    discount: Array  # (B, L), γ^n', or 0 where the episode terminated
    ahead: Array  # (B, L) int, the position after the n' steps, t + n'
    weight: Array  # (B,), importance weights
    mask: Array  # (B, L) float, 1 for steps in the loss, 0 for burn-in and padding
    expert: Array | None = None  # (B,) float, 1 for demonstrations, else 0; None without demonstrations
    one_step: OneStep | None = None  # if the buffer's spec has `one_step`

    def first_step(self) -> tuple[Array, Array, SequenceInput]:
        """Return one-step rewards and discounts (B, L), and `obs` with `query_steps` one step after each step."""
        if self.one_step is None:
            return self.reward, self.discount, self.next_obs
        return self.one_step.reward, self.one_step.discount, self.obs._replace(query_steps=self.one_step.ahead)

    def of_experts(self, x: Array) -> Array:
        """Return x (B, L), but 0 for the sequences that are not demonstrations."""
        assert self.expert is not None, "a buffer without demonstrations"
        return x * self.expert[:, None]

    @property
    def next_obs(self) -> SequenceInput:
        """The same sequences as `obs`, with `ahead` as `query_steps` (the positions of network outputs)."""
        return self.obs._replace(query_steps=self.ahead)

    def mean(self, x: Array) -> Array:
        """Return the mean of x (B, L) over the steps with mask 1."""
        return weighted_mean(x, self.mask)

    def weighted_mean(self, x: Array) -> Array:
        """Return the mean of weight · m, where m (B,) is each sequence's mean of x (B, L) over steps with mask 1."""
        check_same_shape(x=x, mask=self.mask)
        xp = array_namespace(x)
        steps = xp.clip(xp.sum(self.mask, axis=1), 1.0, None)
        return xp.mean(self.weight * xp.sum(self.mask * x, axis=1) / steps)


@dataclass(frozen=True)
class Prioritization:
    """Proportional prioritized replay (Schaul et al., 2016, arXiv:1511.05952, section 3.3)."""

    exponent: float  # α in P(i) = p_i^α / Σ p^α
    importance_exponent: float  # β of the importance weights at the start; 0 turns them off
    importance_anneal_samples: int  # β rises linearly to 1 over this many sampled batches; 0 keeps it constant
    epsilon: float  # added to every |δ|, so that no priority is 0


@dataclass(frozen=True)
class DemonstrationSpec:
    """The share of demonstrations in the batches of a replay buffer, and their priorities."""

    share: float  # ρ: each item of a batch is a demonstration with this probability, independently
    by_priority: bool = False  # ignore `share`: sample demonstrations and the agent's experience by priority (DQfD)
    priority_epsilon: float = 0.0  # added to |δ| of demonstrations; 0 means the buffer's epsilon
    pretraining: int = 0  # updates before the first step, on demonstrations only


@dataclass(frozen=True)
class HindsightSpec:
    """Replacement of desired goals by achieved goals (Andrychowicz et al., 2017, arXiv:1707.01495)."""

    strategy: str  # the steps that new goals come from: "future", "final" or "episode"
    share: float  # the probability that an item of a batch gets a new goal


@dataclass(frozen=True, kw_only=True)
class StoredSpec:
    """Spec of a replay buffer and of the schedule of updates. All environments' steps count together."""

    capacity: int  # steps
    batch_size: int  # of transitions, or of sequences
    discount: float  # γ
    n_step: int
    learning_starts: int  # steps before the first batch
    train_every: int  # steps between updates
    gradient_steps: int  # updates every `train_every` steps, one batch each
    prioritization: Prioritization | None  # None: uniform sampling
    one_step: bool = False  # batches also contain the first step of each n-step transition (`OneStep`)
    demonstrations: DemonstrationSpec | None = None
    on_policy: ClassVar[bool] = False

    def first_update(self, num_envs: int) -> tuple[int, str]:
        """Return the step of the earliest possible update, and the options that determine it, for messages.

        With recurrent layers, the first update can be later, because it also waits for a complete sequence.
        """
        phase = 1 if getattr(self, "train_at_episode_end", False) else self.train_every
        every = f" and train_every is {phase:,}" if phase > 1 else ""
        return self.learning_starts + phase, f"learning_starts is {self.learning_starts:,}{every}"


@dataclass(frozen=True, kw_only=True)
class ReplaySpec(StoredSpec):
    """Spec of a replay buffer of transitions."""

    train_at_episode_end: bool  # delay updates until an episode ends
    hindsight: HindsightSpec | None = None


@dataclass(frozen=True, kw_only=True)
class SequenceSpec(StoredSpec):
    """Spec of a replay buffer of sequences: `burn_in` + `unroll` steps of one episode (Kapturowski et al., 2019, R2D2).

    steps of an episode     0 1 2 3 4 5 6 7 8 9 ...      burn_in 2, unroll 4, overlap 2: a sequence every 4 steps
    first sequence          b b L L L L                  b: burn-in, updates the hidden state only; L: in the loss
    second                          b b L L L L
    """

    burn_in: int
    unroll: int
    overlap: int  # steps that a sequence shares with the next
    stored_carry: bool  # start from the hidden state at collection instead of from zeros
    learn_from_start: bool  # no burn-in in an episode's first sequence
    priority_mix: float  # η: a sequence's priority is η max |δ| + (1 - η) mean |δ|


@dataclass(frozen=True)
class RolloutSpec:
    """Spec of a rollout: the last `steps` steps of every environment, used for several epochs and then discarded."""

    steps: int  # of each environment
    epochs: int
    minibatches: int  # per epoch; a divisor of num_envs · steps, and with `recurrent` a divisor of num_envs
    discount: float  # γ
    trace: float  # λ of the generalized advantages
    recompute_advantages: bool  # before each epoch except the first
    recurrent: bool  # for recurrent networks: each row of a batch has all T steps of one environment
    target_kl: float  # skip the remaining epochs once an epoch's mean KL divergence exceeds this; 0 for no limit
    on_policy: ClassVar[bool] = True  # act in the updates' precision, because the loss compares both log-probabilities

    def first_update(self, num_envs: int) -> tuple[int, str]:
        """Return the step that completes the first rollout, and the options that determine it."""
        return self.steps * num_envs, f"rollout_steps is {self.steps:,} in {num_envs:,} environment(s)"


MemorySpec = ReplaySpec | SequenceSpec | RolloutSpec


@dataclass(frozen=True)
class OptimizerSpec:
    """Adam (Kingma & Ba, 2015) as PyTorch and Optax define it, and gradient clipping."""

    learning_rate: float
    decay: Decay  # of the learning rate over the run
    final_rate: float  # factor of the learning rate at the end of the run
    max_grad_norm: float  # global L2 norm to clip the gradient to; 0 for no clipping
    weight_decay: float
    decoupled: bool  # AdamW's decoupled decay (Loshchilov & Hutter, 2019) instead of L2 added to the gradient
    epsilon: float = 1e-8
    beta1: float = 0.9  # Adam's decay of the first moment; --adam-beta1 sets it for CrossQ
    horizon: float = 1.0  # length of the decay / length of the run; with 2, the run ends halfway through the decay
    kl: float = 0.0  # if above 0, the rate also adapts to the metric DIVERGENCE (`schedules.kl_adaptive`)


class ObservationScaling(NamedTuple):
    """Options of `training.normalizer` for scaling observations by their running mean and std."""

    mode: str = "off"  # which observations update the statistics (the modes of `Normalizer`)
    clip: float = 5.0  # scaled observations are clipped to ± this
    prior: float = 1.0  # weight of the initial mean 0 and variance 1, in samples


class RewardScaling(NamedTuple):
    """Options of `training.normalizer` for dividing rewards by the running std of their discounted sums."""

    prior: float = 1.0  # weight of the initial mean 0 and variance 1, in samples
    sampled: bool = False  # scale the rewards of sampled batches; the buffer stores them unscaled
    bound: float = 0.0  # if `sampled`: divide further, so that no past discounted sum exceeds `bound`; 0: none


class Updater(Protocol):
    """The learner's methods and data that an algorithm's `update` uses."""

    scheduled: dict[str, Array]  # the scalars of `Algorithm.scheduled`

    def minimize(self, name: str, loss: Any, *args: Any) -> dict[str, Array]:
        """Make one optimizer step of network `name` on `loss(nets, *args) -> (scalar, info)`.

        No other network's parameters change. If the loss calls this network with `train=True`, the last such call also
        updates the network's running statistics (`networks.batch_norm`).

        Returns:
            `info` without gradients, for use in later losses. Duetto logs all of its entries except PRIORITY.
        """
        ...

    def track(self, target: str, source: str, tau: float) -> None:
        """Move a target network: target ← τ source + (1 - τ) target, so τ = 1 copies the source.

        Running statistics are always copied.
        """
        ...


class Algorithm(Options):
    """Base of all algorithms.

    Subclasses are frozen dataclasses. Their fields are the hyperparameters, their methods the equations. In shapes, B
    is the batch size, N the number of environments, and A the size of a Box action. Arrays are PyTorch's, JAX's or
    NumPy's.

    Attributes:
        acting_networks: Names of the networks that `act` calls.
        observations: The supported observation spaces, in words.
        actions: The supported action spaces, in words.
        small: Options that make a trial of `duetto.testing` quick.
        alternatives: Values with which `duetto.testing` checks that a custom option has an effect. An entry is (value,
            options): `value` has an effect together with the other `options` ({} if it needs none). An entry None
            skips the option. For an option without an entry, `duetto.testing` chooses a value.
    """

    acting_networks: ClassVar[tuple[str, ...]]
    observations: ClassVar[str]
    actions: ClassVar[str]
    small: ClassVar[dict[str, Any]] = {}
    alternatives: ClassVar[dict[str, tuple[Any, dict[str, Any]] | None]] = {}

    def check_spaces(self, observation: Space, action: Space, environment: str) -> None:
        """Raise UsageError, naming the environment, if the algorithm cannot use the spaces.

        Spaces are plain data (`networks.spaces`): Box, Discrete, MultiDiscrete, or a Dict of these.
        """
        raise NotImplementedError

    def check_masks(self, environment: str) -> None:
        """Raise UsageError if the algorithm cannot learn with action masks."""
        if self.demonstration_folder():
            raise UsageError(
                f"{environment} has action masks (info['action_mask']), but demonstrations contain none, so "
                f"{self.name()} would also learn about forbidden actions. Use dqn or r2d2."
            )

    def networks(self, observation: Space, action: Space) -> dict[str, AnyNetworkSpec]:
        """Return the specs of the learned networks by name (`networks.specs`).

        Each network's initial parameters depend on the seed and on its name, not on the order of the dict.
        """
        raise NotImplementedError

    def targets(self) -> dict[str, str]:
        """Return the name of each target network, mapped to the name of the network that it follows."""
        return {}

    def optimizers(self) -> dict[str, OptimizerSpec]:
        """Return the optimizer of each network by name; a network without optimizer stays constant."""
        raise NotImplementedError

    def memory(self) -> MemorySpec:
        """Return the spec of the buffer, which stores transitions, sequences or a rollout."""
        raise NotImplementedError

    def split(self, random: np.random.Generator, size: int) -> np.ndarray | None:
        """Return the row indices (M, B) of an epoch's M minibatches, one step each; None: one step on all rows."""
        return None

    def draw(self, random: np.random.Generator, batch: Any) -> Any:
        """Draw the random numbers of an update, which `update` gets as `noise`.

        Returns:
            A NumPy float32 array, or a (named) tuple or dict of arrays. They must be new at each call, because a
            learner may still read the arrays of earlier calls.
        """
        return ()

    def scheduled(self, progress: float) -> dict[str, float]:
        """Return the numbers that depend on the run's progress in [0, 1], by name. `Updater.scheduled` has them."""
        return {}

    def phase(self, update: int) -> int:
        """Return the kind of an update, such as 0 for updates that include the actor and 1 for the others.

        `update` is the update's number in the run; the first is 1. The method `update` is compiled once for each kind,
        so it may branch on the kind.
        """
        return 0

    def update(self, learner: Updater, batch: Any, noise: Any, phase: int) -> None:
        """Make one update of the kind `phase`.

        Args:
            learner: `minimize` and `track` change networks; `scheduled` has the numbers of `Algorithm.scheduled`.
            batch: A `Batch`, `SequenceBatch` or `RolloutBatch`, depending on the buffer.
            noise: The result of `draw`.
            phase: The result of the method `phase`.
        """
        raise NotImplementedError

    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """Return actions for N observations.

        Args:
            nets: The networks, by name as attributes.
            obs: (N, ...), or a dict of such arrays by part; for recurrent networks a `SequenceInput`.
            noise: (N, ...), drawn by the explorer; None for deterministic actions.

        Returns:
            (N, A) for a Box, later scaled from [-1, 1] to the Box's bounds and clipped to them; (N,) integers for
            Discrete, (N, n) for MultiDiscrete; for a Dict (N, columns), the concatenated parts.
        """
        raise NotImplementedError

    def collect(self, nets: Any, obs: Tree, noise: Array | None) -> tuple[Array, dict[str, Array]]:
        """Return actions with exploration, and further arrays (N,) by name to store with the actions."""
        return self.act(nets, obs, noise), {}

    def value(self, nets: Any, obs: Tree) -> Array:
        """Return state values (N,), for algorithms with rollouts."""
        raise NotImplementedError

    def observation_scaling(self) -> ObservationScaling:
        """Return the options for scaling observations; by default, observations are not scaled."""
        return ObservationScaling()

    def symptom(self, means: Mapping[str, float], action: Space) -> str:
        """Return a warning if `means`, the metrics since the last logged line, show a collapsed policy; else ""."""
        return ""

    def first_random_steps(self) -> int:
        """Return the option `random_steps`; 0 for algorithms without the option."""
        return getattr(self, "random_steps", 0)

    def demonstration_folder(self) -> str:
        """Return the option `demonstrations`, a folder; "" for algorithms without the option.

        Raises:
            UsageError: The algorithm needs demonstrations and was given none.
        """
        folder = getattr(self, "demonstrations", None)
        if folder == "":
            raise UsageError(
                f"{self.name()} learns from demonstrations. Give --demonstrations FOLDER (duetto demos record)."
            )
        return folder or ""

    def seen_reward(self, reward: np.ndarray) -> np.ndarray:
        """Return the previous reward (N,), transformed by the option `previous_reward`."""
        return seen_reward(getattr(self, "previous_reward", "raw"), reward)

    def reward_scaling(self) -> RewardScaling | None:
        """Return the options for scaling rewards; None, the default, if rewards are not scaled."""
        return None

    def explorer(self) -> Exploration:
        """Return the exploration (`algorithms.exploration`), which draws the `noise` of `act`."""
        raise NotImplementedError
