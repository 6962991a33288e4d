"""The base class of algorithms, the batches that they learn from, and the specs of their buffers and optimizers.

An algorithm is a frozen dataclass. Its fields are the hyper-parameters (in the command line, in Python and in
`config.yaml`); its methods are the equations, pure functions of arrays of either framework.
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
# An Array; for Dict observations and those with a mask (`networks.masks`) a dict of arrays; for recurrent networks a
# SequenceInput.
Tree = Any

# A scalar; and arrays by name. `learners.base` logs an array x as learn/x, or as learn/x_mean, _min and _max.
LossAndInfo = tuple[Array, dict[str, Array]]

# Two entries of a loss's info have a meaning.
PRIORITY = "priority"  # (B,), updates the replay buffer's priorities and is not logged
DIVERGENCE = "approx_kl"  # a scalar: ends a rollout's epochs early, and adapts learning rates


class OneStep(NamedTuple):
    """The single steps of n-step transitions, for a loss that learns from both."""

    reward: Array  # (B,) or (B, L)
    discount: Array  # γ, or 0 where the episode terminated
    ahead: Tree  # the next observations (B, ...); of sequences their positions (B, L)


class Batch(NamedTuple):
    """B transitions. `discount` contains the power of γ and the end of the episode."""

    obs: Tree  # (B, ...)
    action: Array  # (B, action size), in [-1, 1]
    reward: Array  # (B,), the sum of up to n discounted rewards
    discount: Array  # (B,), γ^n', or 0 where the episode terminated
    next_obs: Tree  # (B, ...), the observation after the n' steps
    weight: Array  # (B,), importance weights; 1 with uniform sampling
    expert: Array | None = None  # (B,) float, 1 for demonstrations; None without demonstrations
    one_step: OneStep | None = None  # only if the buffer's spec asks for it

    def first_step(self) -> tuple[Array, Array, Tree]:
        """Return reward, discount and next observations of the single steps."""
        return (self.reward, self.discount, self.next_obs) if self.one_step is None else tuple(self.one_step)

    def of_experts(self, x: Array) -> Array:
        """Return x (B,) of demonstrations, 0 for the agent's transitions."""
        assert self.expert is not None, "a memory without demonstrations"
        return x * self.expert

    def mean(self, x: Array) -> Array:
        """Return the mean of x (B,)."""
        return array_namespace(x).mean(x)

    def weighted_mean(self, x: Array) -> Array:
        """Return the mean of w x, for x (B,)."""
        check_same_shape(x=x, weight=self.weight)
        return array_namespace(x).mean(self.weight * x)


class RolloutBatch(NamedTuple):
    """B steps of a rollout; for recurrent networks B environments, with a second axis of T steps everywhere."""

    obs: Tree  # (B, ...), or a SequenceInput
    action: Array  # (B, A) before it is clipped to the environment's bounds; Discrete (B,)
    log_prob: Array  # (B,), log π_old(a|s)
    value: Array  # (B,), V_old(s)
    advantage: Array  # (B,)
    returns: Array  # (B,), advantage + V_old(s)
    weight: Array  # (B,), 1; 0 for padding


class SequenceBatch(NamedTuple):
    """B sequences of L = burn_in + unroll steps each; shorter ones are padded, with mask 0."""

    obs: SequenceInput  # S = L + 1 observations; `query_steps` is 0 .. L-1
    action: Array  # (B, L, A) or (B, L)
    reward: Array  # (B, L), the sum of up to n discounted rewards
    discount: Array  # (B, L), γ^n', or 0 where the episode terminated
    ahead: Array  # (B, L) int, the position after the n' steps, t + n'
    weight: Array  # (B,), importance weights
    mask: Array  # (B, L) float, 1 for steps that count in the loss
    expert: Array | None = None  # (B,) float, 1 for demonstrations; None without demonstrations
    one_step: OneStep | None = None  # only if the buffer's spec asks for it

    def first_step(self) -> tuple[Array, Array, SequenceInput]:
        """Return reward and discount (B, L) of the single steps, and the sequences at the step after each."""
        if self.one_step is None:
            return self.reward, self.discount, self.next_obs
        return self.one_step.reward, self.one_step.discount, self.obs._replace(query_steps=self.one_step.ahead)

    def of_experts(self, x: Array) -> Array:
        """Return x (B, L) of demonstrations, 0 for the agent's sequences."""
        assert self.expert is not None, "a memory without demonstrations"
        return x * self.expert[:, None]

    @property
    def next_obs(self) -> SequenceInput:
        """The sequences at the positions `ahead`."""
        return self.obs._replace(query_steps=self.ahead)

    def mean(self, x: Array) -> Array:
        """Return the mean of x (B, L) over the steps with mask 1."""
        return weighted_mean(x, self.mask)

    def weighted_mean(self, x: Array) -> Array:
        """Return the mean over the sequences of w times the mean of x (B, L) over a sequence's steps."""
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
    """How demonstrations are mixed into the batches of a replay buffer."""

    share: float  # ρ: each item of a batch is one with this probability, independently of the others
    by_priority: bool = False  # instead: in proportion to the priorities of both (DQfD)
    priority_epsilon: float = 0.0  # added to their |δ| instead of the buffer's epsilon; 0 for the same
    pretraining: int = 0  # batches of demonstrations only before the first step


@dataclass(frozen=True)
class HindsightSpec:
    """How achieved goals replace desired ones (Andrychowicz et al., 2017, arXiv:1707.01495)."""

    strategy: str  # the steps that the goals come from: "future", "final" or "episode"
    share: float  # of a batch's items, each independently of the others


@dataclass(frozen=True, kw_only=True)
class StoredSpec:
    """Spec of a replay buffer, and of when updates take place. Steps are summed over all environments."""

    capacity: int  # steps
    batch_size: int  # of transitions, or of sequences
    discount: float  # γ
    n_step: int
    learning_starts: int  # steps before the first batch
    train_every: int  # steps between two phases of learning
    gradient_steps: int  # batches in each phase
    prioritization: Prioritization | None
    one_step: bool = False  # batches also contain the single steps
    demonstrations: DemonstrationSpec | None = None
    on_policy: ClassVar[bool] = False

    def first_update(self, num_envs: int) -> tuple[int, str]:
        """Return the earliest step of an update, and the option that decides it; short sequences may delay it."""
        phase = 1 if getattr(self, "train_at_episode_end", False) else self.train_every
        every = f" and train_every is {phase:,}" if phase > 1 else ""
        return self.learning_starts + phase, f"learning_starts is {self.learning_starts:,}{every}"


@dataclass(frozen=True, kw_only=True)
class ReplaySpec(StoredSpec):
    """Spec of a replay buffer of transitions."""

    train_at_episode_end: bool  # delay the batches until an episode ends
    hindsight: HindsightSpec | None = None


@dataclass(frozen=True, kw_only=True)
class SequenceSpec(StoredSpec):
    """Spec of a replay buffer of sequences, `burn_in` + `unroll` steps of one episode (Kapturowski et al., 2019, R2D2).

    steps of an episode     0 1 2 3 4 5 6 7 8 9 ...      burn_in 2, unroll 4, overlap 2: a sequence every 4 steps
    first sequence          b b L L L L                  b: only warms the state up; L: is learned from
    second                          b b L L L L
    """

    burn_in: int
    unroll: int
    overlap: int  # steps that a sequence shares with the next
    stored_carry: bool  # start from the hidden state of the acting network instead of from zeros
    learn_from_start: bool  # no burn-in in an episode's first sequence
    priority_mix: float  # η: a sequence's priority is η max |δ| + (1 - η) mean |δ|


@dataclass(frozen=True)
class RolloutSpec:
    """Spec of a rollout: the last `steps` steps of every environment, used for several epochs and then discarded."""

    steps: int  # of each environment
    epochs: int
    minibatches: int  # of each epoch; the number of steps over all environments is a multiple of it
    discount: float  # γ
    trace: float  # λ of the generalized advantages
    recompute_advantages: bool  # before each epoch but the first
    recurrent: bool  # a batch's rows are environments (N, T), for recurrent networks
    target_kl: float  # no further epoch after one with a larger mean KL divergence; 0 for no limit
    on_policy: ClassVar[bool] = True  # collects in the precision of updates, since losses compare both

    def first_update(self, num_envs: int) -> tuple[int, str]:
        """Return the vector step at which the first rollout is complete."""
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
    beta1: float = 0.9  # of the first moment
    horizon: float = 1.0  # runs in which the learning rate decays: 2 ends in the middle of the decay
    kl: float = 0.0  # above 0: the rate also adapts to the updates' DIVERGENCE (`schedules.kl_adaptive`)


class ObservationScaling(NamedTuple):
    """How observations are scaled by their running mean and std; see `training.normalizer`."""

    mode: str = "off"  # which observations update the statistics
    clip: float = 5.0  # scaled observations are clipped to ± this
    prior: float = 1.0  # weight of the initial mean 0 and variance 1, in samples


class RewardScaling(NamedTuple):
    """How rewards are divided by the running std of their discounted sums; see `training.normalizer.RewardScaler`."""

    prior: float = 1.0  # weight of the initial mean 0 and variance 1, in samples
    sampled: bool = False  # scale the rewards of sampled batches; the buffer stores them unscaled
    bound: float = 0.0  # of sampled batches: divide so that no discounted sum until then exceeds it; 0 for no bound


class Updater(Protocol):
    """A learner as an algorithm's `update` sees it."""

    scheduled: dict[str, Array]  # the algorithm's numbers that change over the run, scalars; see `Algorithm.scheduled`

    def minimize(self, name: str, loss: Any, *args: Any) -> dict[str, Array]:
        """Make one optimizer step of network `name` on `loss(nets, *args) -> (scalar, info)`; no other network changes.

        If the loss called it with `train`, the last call also updates its running statistics; see `batch_norm`.

        Returns:
            `info` without gradients, for the next losses. It is logged, except PRIORITY.
        """
        ...

    def track(self, target: str, source: str, tau: float) -> None:
        """Polyak averaging, target ← τ source + (1 - τ) target; τ = 1 copies. Running statistics are always copied."""
        ...


class Algorithm(Options):
    """Base of all algorithms.

    Subclasses are frozen dataclasses: their fields are the hyper-parameters, their methods the equations. In shapes B
    is a batch's rows, N the environments, A the size of a Box action. Arrays are PyTorch's, JAX's or NumPy's.

    Attributes:
        acting_networks: Names of the networks that `act` calls.
        observations: The supported observation spaces, in words.
        actions: The supported action spaces, in words.
        small: For `duetto.testing`: options that make a trial quick.
        alternatives: For `duetto.testing`: another value of an option whose half has no effect, with the options that
            it needs; None if there is no other value.
    """

    acting_networks: ClassVar[tuple[str, ...]]
    observations: ClassVar[str]
    actions: ClassVar[str]
    small: ClassVar[dict[str, Any]] = {}
    alternatives: ClassVar[dict[str, tuple[Any, dict[str, Any]] | None]] = {}

    def check_spaces(self, observation: Space, action: Space, environment: str) -> None:
        """Raise UsageError that names environment and spaces if the algorithm does not support them.

        Spaces are plain data (`networks.spaces`): Box, Discrete, MultiDiscrete, or a Dict of these.
        """
        raise NotImplementedError

    def check_masks(self, environment: str) -> None:
        """Raise UsageError if the algorithm cannot learn with action masks."""
        if self.demonstration_folder():
            raise UsageError(
                f"{environment} has action masks (info['action_mask']), demonstrations have none, so {self.name()} "
                "would learn values of forbidden actions. Use dqn or r2d2."
            )

    def networks(self, observation: Space, action: Space) -> dict[str, AnyNetworkSpec]:
        """Return the specs of the learned networks by name (`networks.specs`).

        Initial parameters are drawn in their order.
        """
        raise NotImplementedError

    def targets(self) -> dict[str, str]:
        """Return the target networks, which start as copies: target's name to its source's."""
        return {}

    def optimizers(self) -> dict[str, OptimizerSpec]:
        """Return the optimizer of each network by name; a network without one stays constant."""
        raise NotImplementedError

    def memory(self) -> MemorySpec:
        """Return the spec of the buffer of `update`'s batches: transitions, sequences or rollouts."""
        raise NotImplementedError

    def split(self, random: np.random.Generator, size: int) -> np.ndarray | None:
        """Return rows (M, B) of M minibatches for successive updates; None for one batch of `size` rows."""
        return None

    def draw(self, random: np.random.Generator, batch: Any) -> Any:
        """Draw the random numbers of an update, its `noise`: a NumPy float32 array, or a (named) tuple or dict of them.

        Return new arrays each time: `update` may use them later, as arrays of its framework.
        """
        return ()

    def scheduled(self, progress: float) -> dict[str, float]:
        """Return the numbers that depend on the run's progress in [0, 1]; see `Updater.scheduled`."""
        return {}

    def phase(self, update: int) -> int:
        """Return the kind of the `update`-th update, counted from 1 over the run; each kind is compiled once."""
        return 0

    def update(self, learner: Updater, batch: Any, noise: Any, phase: int) -> None:
        """Make one update of the kind `phase`.

        Args:
            learner: Its `minimize`, `track` and `scheduled` make the update.
            batch: A `Batch`, `SequenceBatch` or `RolloutBatch`, depending on the buffer.
            noise: The result of `draw`.
            phase: The result of the method `phase`; Python may branch on it.
        """
        raise NotImplementedError

    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """Return actions for N observations.

        Args:
            nets: The networks, by name as attributes.
            obs: (N, ...), or a dict of them by part; for recurrent networks a `SequenceInput`.
            noise: (N, ...), drawn by the explorer; None for deterministic actions.

        Returns:
            (N, A) in [-1, 1] for a Box, which is scaled to its bounds; (N,) integers for Discrete, (N, n) for
            MultiDiscrete; for a Dict (N, columns), the concatenated parts.
        """
        raise NotImplementedError

    def collect(self, nets: Any, obs: Tree, noise: Array | None) -> tuple[Array, dict[str, Array]]:
        """Return exploring actions, and by name further arrays (N,) to store with them."""
        return self.act(nets, obs, noise), {}

    def value(self, nets: Any, obs: Tree) -> Array:
        """Return state values (N,), for algorithms with rollouts."""
        raise NotImplementedError

    def observation_scaling(self) -> ObservationScaling:
        """Return how observations are scaled; by default they are not."""
        return ObservationScaling()

    def symptom(self, means: Mapping[str, float], action: Space) -> str:
        """Return a sentence if the means of an update's metrics show that the policy has collapsed; else ""."""
        return ""

    def first_random_steps(self) -> int:
        """Return the number of steps with uniformly random actions at the start of a run, the option `random_steps`."""
        return getattr(self, "random_steps", 0)

    def demonstration_folder(self) -> str:
        """Return the folder of the demonstrations, the option `demonstrations`; "" for algorithms without it.

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
        """Return the previous reward (N,) as recurrent networks see it, by the option `previous_reward`."""
        return seen_reward(getattr(self, "previous_reward", "raw"), reward)

    def reward_scaling(self) -> RewardScaling | None:
        """Return how rewards are scaled; by default not at all."""
        return None

    def explorer(self) -> Exploration:
        """Return the exploration (`algorithms.exploration`), which draws the `noise` of `act`."""
        raise NotImplementedError
