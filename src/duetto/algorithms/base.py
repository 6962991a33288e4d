"""What an algorithm says about itself, in data: the batch it learns from, its networks, its memory, how it acts.

An algorithm is a frozen dataclass. Its fields are the hyper-parameters (and so the command line's options, the Python
API and the record in `config.yaml`); its methods are the equations, pure functions of arrays of either framework.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from array_api_compat import array_namespace

from duetto.algorithms import declaring
from duetto.algorithms.exploration import Exploration
from duetto.algorithms.fields import Count as Count  # these stand in an algorithm's fields, beside what is below
from duetto.algorithms.fields import CountOrZero as CountOrZero
from duetto.algorithms.fields import Fraction as Fraction
from duetto.algorithms.fields import NonNegative as NonNegative
from duetto.algorithms.fields import Positive as Positive
from duetto.algorithms.fields import Within as Within
from duetto.algorithms.fields import check_fields
from duetto.algorithms.nearest import did_you_mean
from duetto.algorithms.searching import Search
from duetto.errors import UsageError
from duetto.functional.checks import same_shape
from duetto.functional.policy_gradient import weighted_mean
from duetto.functional.schedules import Decay
from duetto.networks.spaces import Space
from duetto.networks.specs import CustomNetwork, NetworkSpec
from duetto.networks.windows import Window

Array = Any  # an array of NumPy, PyTorch or JAX
# An Array, or for Dict observations and those with a mask (`networks.masks`) a dict of them; recurrent networks read a
# Window of them.
Tree = Any

# Of what a loss reports, two names mean more than a line in the log.
PRIORITY = "priority"  # (B,), goes back to the memory instead
DIVERGENCE = "approx_kl"  # a scalar: ends a rollout's epochs early, and adapts learning rates

# Of what `collect` gives with actions, two are what priorities of new items are made of; NaN: no network was asked.
Q_TAKEN = "q_taken"  # (N,), Q(s, a) of the action that is taken
Q_BEST = "q_best"  # (N,), max_a Q(s, a)


class OneStep(NamedTuple):
    """Single steps beside n-step returns, for a loss that learns from both."""

    reward: Array  # (B,) or (B, L)
    discount: Array  # γ, or 0 where the episode terminated
    ahead: Tree  # the next observations (B, ...); of sequences their positions (B, L)


class Batch(NamedTuple):
    """B transitions to learn from. The memory owns time: γ's power and an episode's end are in `discount` already."""

    obs: Tree  # (B, ...)
    action: Array  # (B, action size), in [-1, 1]
    reward: Array  # (B,), the sum of up to n discounted rewards
    discount: Array  # (B,), γ^n' where the future counts, 0 where the episode terminated
    next_obs: Tree  # (B, ...), the observation that `discount` looks ahead from
    weight: Array  # (B,), importance weights; 1 where the memory samples uniformly
    expert: Array | None = None  # (B,) float, 1 for demonstrations; None where the memory has none
    one_step: OneStep | None = None  # where the algorithm asks for it

    def first_step(self) -> tuple[Array, Array, Tree]:
        """Reward, discount and next observations of the single steps."""
        return (self.reward, self.discount, self.next_obs) if self.one_step is None else tuple(self.one_step)

    def of_experts(self, x: Array) -> Array:
        """x (B,) of demonstrations, and 0 for the agent's own transitions."""
        assert self.expert is not None, "a memory without demonstrations"
        return x * self.expert

    def mean(self, x: Array) -> Array:
        """Mean of x (B,)."""
        return array_namespace(x).mean(x)

    def weighted_mean(self, x: Array) -> Array:
        """Mean of w x, of x (B,)."""
        same_shape(x=x, weight=self.weight)
        return array_namespace(x).mean(self.weight * x)


class RolloutBatch(NamedTuple):
    """B steps of a rollout; or for recurrent networks B environments, with a second axis of T steps everywhere."""

    obs: Tree  # (B, ...), or a Window
    action: Array  # (B, A) before it is clipped to the environment's bounds; Discrete (B,)
    log_prob: Array  # (B,), log π_old(a|s)
    value: Array  # (B,), V_old(s)
    advantage: Array  # (B,)
    returns: Array  # (B,), advantage + V_old(s)
    weight: Array  # (B,), 1; 0 for rows that are no steps


class SequenceBatch(NamedTuple):
    """B sequences to learn from, L = burn_in + unroll steps each; shorter ones are padded, with mask 0."""

    obs: Window  # S = L + 1 observations; `at` is 0 .. L-1
    action: Array  # (B, L, A) or (B, L)
    reward: Array  # (B, L), the sum of up to n discounted rewards
    discount: Array  # (B, L), γ^n' where the future counts, 0 where the episode terminated
    ahead: Array  # (B, L) int, the position that `discount` looks ahead to, t + n'
    weight: Array  # (B,), importance weights
    mask: Array  # (B, L) float, 1 for steps that are learned from
    expert: Array | None = None  # (B,) float, 1 for demonstrations; None where the memory has none
    one_step: OneStep | None = None  # where the algorithm asks for it

    def first_step(self) -> tuple[Array, Array, Window]:
        """Reward and discount (B, L) of the single steps, and the same stretch seen from the step after each."""
        if self.one_step is None:
            return self.reward, self.discount, self.next_obs
        return self.one_step.reward, self.one_step.discount, self.obs._replace(at=self.one_step.ahead)

    def of_experts(self, x: Array) -> Array:
        """x (B, L) of demonstrations, and 0 for the agent's own sequences."""
        assert self.expert is not None, "a memory without demonstrations"
        return x * self.expert[:, None]

    @property
    def next_obs(self) -> Window:
        """The same stretch, seen from where `discount` looks ahead to."""
        return self.obs._replace(at=self.ahead)

    def mean(self, x: Array) -> Array:
        """Mean of x (B, L) over the steps that are learned from."""
        return weighted_mean(x, self.mask)

    def weighted_mean(self, x: Array) -> Array:
        """Mean over the sequences of w times the mean of x (B, L) over a sequence's steps."""
        same_shape(x=x, mask=self.mask)
        xp = array_namespace(x)
        steps = xp.clip(xp.sum(self.mask, axis=1), 1.0, None)
        return xp.mean(self.weight * xp.sum(self.mask * x, axis=1) / steps)


class Prospect(NamedTuple):
    """Rewards and the value after them, by the actor's own network: what the actor's Q(s, a) is compared with."""

    reward: Array  # (B,) or (B, L), the sum of up to n discounted rewards
    discount: Array  # γ^n' where the future counts, 0 where the episode terminated
    value: Array  # max_a Q(s, a) where `discount` looks ahead to; NaN where no network was asked


# |δ| (B,) or (B, L) of steps: of their Q(s, a), the prospect after n steps, and that after one, if it is another.
Judging = Callable[[Array, Prospect, Prospect | None], Array]


@dataclass(frozen=True)
class Prioritization:
    """Proportional prioritised replay (Schaul et al., 2016, arXiv:1511.05952, section 3.3)."""

    exponent: float  # α in P(i) = p_i^α / Σ p^α
    importance_exponent: float  # β of the importance weights at the start; 0 turns them off
    importance_anneal_samples: int  # β rises linearly to 1 over this many sampled batches; 0 keeps it constant
    epsilon: float  # added to every |δ|, so that nothing has priority 0
    initial: Judging | None = None  # of new items, by what their actor knew; None: the largest |δ| so far


@dataclass(frozen=True)
class DemonstrationSpec:
    """How demonstrations are mixed into the batches of a replay memory."""

    share: float  # ρ: each item of a batch is one with this probability, independently of the others
    by_priority: bool  # instead: with the probability that its priority has among those of both (DQfD)
    priority_epsilon: float  # added to their |δ| in place of the memory's own; 0 takes that
    pretraining: int  # batches of demonstrations alone before the first step


@dataclass(frozen=True)
class HindsightSpec:
    """How goals that were reached replace those that were wanted (Andrychowicz et al., 2017, arXiv:1707.01495)."""

    strategy: str  # of which steps of the episode: "future", "final", "episode"
    share: float  # of a batch's items, each independently of the others


@dataclass(frozen=True, kw_only=True)
class StoredSpec:
    """Spec of any replay memory, and of when it is learned from. Steps are summed over all environments."""

    capacity: int  # steps
    batch_size: int  # of transitions, or of sequences
    discount: float  # γ
    n_step: int
    ignore_termination: bool  # bootstrap as if no episode ever terminated
    learning_starts: int  # no batch before this many steps
    train_every: int  # steps between two phases of learning
    gradient_steps: int  # batches in each phase
    prioritization: Prioritization | None
    compress: bool = False  # keep images compressed
    one_step: bool = False  # batches hold the single steps beside the n-step sums
    demonstrations: DemonstrationSpec | None = None
    on_policy: ClassVar[bool] = False

    def _after(self, phase: int) -> tuple[int, str]:
        every = f" and train_every is {phase:,}" if phase > 1 else ""
        return self.learning_starts + phase, f"learning_starts is {self.learning_starts:,}{every}"


@dataclass(frozen=True, kw_only=True)
class ReplaySpec(StoredSpec):
    """Spec of a replay memory of single transitions."""

    train_at_episode_end: bool  # save the batches up until an episode ends
    replacement: bool  # sample with replacement
    hindsight: HindsightSpec | None = None

    @property
    def waits_for(self) -> int:
        """Steps before the first that counts: without replacement a batch cannot be filled sooner."""
        return self.learning_starts if self.replacement else max(self.learning_starts, self.batch_size - 1)

    def first_update(self, num_envs: int) -> tuple[int, str]:
        """The step at which there can be an update at the earliest, and which setting it waits for."""
        phase = 1 if self.train_at_episode_end else self.train_every
        if self.waits_for > self.learning_starts:
            return self.waits_for + phase, f"a batch of {self.batch_size:,} is drawn without replacement"
        return self._after(phase)


@dataclass(frozen=True, kw_only=True)
class SequenceSpec(StoredSpec):
    """Spec of a replay memory of stretches, `burn_in` + `unroll` steps of one episode (Kapturowski et al., 2019, R2D2).

    steps of an episode     0 1 2 3 4 5 6 7 8 9 ...      burn_in 2, unroll 4, overlap 2: a sequence every 4 steps
    first sequence          b b L L L L                  b: only warms the state up; L: is learned from
    second                          b b L L L L
    """

    burn_in: int
    unroll: int
    overlap: int  # steps that a sequence shares with the next
    stored_carry: bool  # start from the state that the step was taken with, instead of from zeros
    learn_from_start: bool  # an episode's first sequence needs no burn-in: learn from its first step on
    priority_mix: float  # η: a sequence's priority is η max |δ| + (1 - η) mean |δ|

    def first_update(self, num_envs: int) -> tuple[int, str]:
        """See `ReplaySpec.first_update`; a sequence that is not complete by then may delay the update further."""
        return self._after(self.train_every)


@dataclass(frozen=True)
class RolloutSpec:
    """Spec of a rollout: the last `steps` steps of every environment, learned from several times and then forgotten."""

    steps: int  # of each environment
    epochs: int
    minibatches: int  # of each epoch; the number of steps over all environments is a multiple of it
    discount: float  # γ
    trace: float  # λ of the generalised advantages
    recompute_advantages: bool  # before each epoch but the first
    recurrent: bool  # rows of a batch are whole environments (N, T), for networks that carry a state
    target_kl: float  # no further epoch after one whose mean KL divergence exceeds this; 0 for no limit
    on_policy: ClassVar[bool] = True  # what was collected is compared while learning: both in the same precision

    def first_update(self, num_envs: int) -> tuple[int, str]:
        """See `ReplaySpec.first_update`; here it is the step at which the first rollout is whole."""
        return self.steps * num_envs, f"rollout_steps is {self.steps:,} in {num_envs:,} environment(s)"


MemorySpec = ReplaySpec | SequenceSpec | RolloutSpec


@dataclass(frozen=True)
class OptimizerSpec:
    """Adam (Kingma & Ba, 2015) as PyTorch and Optax define it, and what is done to the gradient before it."""

    learning_rate: float
    decay: Decay  # of the learning rate over the run
    final_rate: float  # its factor at the end of the run
    max_grad_norm: float  # global L2 norm to clip the gradient to; 0 turns clipping off
    weight_decay: float
    decoupled: bool  # AdamW's decoupled decay (Loshchilov & Hutter, 2019) instead of L2 added to the gradient
    epsilon: float = 1e-8
    beta1: float = 0.9  # of the first moment
    kl: float = 0.0  # where above 0, the rate also follows the updates' DIVERGENCE (`schedules.kl_adaptive`)


class ObservationScaling(NamedTuple):
    """How observations are scaled by their running mean and std; see `training.normalizer`."""

    mode: str = "off"  # which observations make the statistics
    clip: float = 5.0  # scaled ones are clipped to ± this
    prior: float = 1.0  # samples that the first statistics, mean 0 and variance 1, count for


class Updater(Protocol):
    """What learners of both frameworks offer to an algorithm's `update`."""

    scheduled: dict[str, Array]  # the algorithm's numbers that change over the run, scalars; see `Algorithm.scheduled`

    def minimize(self, name: str, loss: Any, *args: Any) -> dict[str, Array]:
        """Make one optimiser step of network `name` on `loss(nets, *args) -> (scalar, info)`; no other network moves.

        Where the loss called it with `train`, its running statistics move too, by the last call; see `batch_norm`.

        Returns `info`, without gradients, so that the next loss can use what this one computed. All of it is logged,
        but PRIORITY, which goes back to the memory.
        """
        ...

    def track(self, target: str, source: str, tau: float) -> None:
        """Polyak averaging, target ← τ source + (1 - τ) target; τ = 1 copies. Running statistics are always copied."""
        ...


@dataclass(frozen=True)
class Algorithm:
    """Base of all algorithms: what the training loop and the learners ask of one.

    A frozen dataclass: its fields are the hyper-parameters, its methods the equations. In the shapes below B are rows
    of a batch, N environments, A the numbers of a Box action. Arrays are the framework's that computes, or NumPy's.

    Attributes:
        acting_networks: Names of the networks that `act` calls.
        observations: The spaces of observations that it supports, in words.
        actions: The spaces of actions, in words.
        small: For `duetto.testing`: options that make a trial quick.
        alternatives: For `duetto.testing`: another value of an option where halving it changes nothing, with what it
            needs beside it; None: it can have no other.
        tuned: For `duetto tune`: how options are searched whose types do not say it; None: not unless asked for.
    """

    acting_networks: ClassVar[tuple[str, ...]]  # the networks that `act` calls
    observations: ClassVar[str]  # the spaces it supports, in words
    actions: ClassVar[str]

    # For `duetto.testing`: options that make it quick, and another value of an option where halving says nothing, with
    # what it needs beside it. Only what the tables there do not know.
    small: ClassVar[dict[str, Any]] = {}
    alternatives: ClassVar[dict[str, tuple[Any, dict[str, Any]] | None]] = {}  # None: it can have no other

    # For `duetto tune`: how options are searched whose type does not say it (`algorithms.searching`). Bases add theirs.
    tuned: ClassVar[dict[str, Search | None]] = {}  # None: not unless asked for

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Create an instance. Raises UsageError, not Python's TypeError, for an unknown hyper-parameter, with the
        nearest known one; for one without its name, which may be another than was meant; and for a class that sets an
        option without declaring it.
        """
        if args:
            raise UsageError(
                f"{cls.__name__} takes hyper-parameters by their names, and neither policy nor environment: "
                f"{cls.__name__}({cls.options()[0]}=...). Then duetto.train({cls.__name__}(...), environment)."
            )
        declaring.check(cls)
        cls._check_known(options)
        return super().__new__(cls)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, with advice for names that other libraries have on an algorithm."""
            instead = ""
            if name in ("learn", "fit", "train", "predict", "save", "load", "policy"):
                instead = (
                    " An algorithm is its options. duetto.train(it, environment) learns, duetto.load(run) then acts."
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}.{instead}")

    def __post_init__(self) -> None:
        for name in self.options():  # lists, as a person writes them and YAML has them
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        check_fields(self)

    @classmethod
    def _check_known(cls, options: Iterable[str]) -> None:
        for name in options:
            if name not in cls.options():
                raise UsageError(f"{cls.name()} has no hyper-parameter {name!r}.{did_you_mean(name, cls.options())}")

    @classmethod
    def name(cls) -> str:
        """The algorithm's name on the command line and in a run's folder."""
        return cls.__name__.lower()

    @classmethod
    def options(cls) -> list[str]:
        """The names of all hyper-parameters."""
        return [field.name for field in dataclasses.fields(cls)]

    @classmethod
    def declared_searches(cls) -> dict[str, Search | None]:
        """`tuned` of the class and all its bases, merged; what a class says counts before what its bases say."""
        tables = [vars(kind).get("tuned", {}) for kind in reversed(cls.__mro__)]
        return {name: search for table in tables for name, search in table.items()}

    def with_options(self, **options: Any) -> Self:
        """A copy with some hyper-parameters changed; an unknown name raises UsageError with the nearest known one."""
        self._check_known(options)
        return dataclasses.replace(self, **options)

    def custom_networks(self) -> dict[str, CustomNetwork]:
        """The user's own networks among the fields, by field name."""
        fields = {name: getattr(self, name) for name in self.options()}
        return {name: value for name, value in fields.items() if isinstance(value, CustomNetwork)}

    def check_spaces(self, observation: Space, action: Space, environment: str) -> None:
        """Raise UsageError that names environment and spaces where the algorithm does not support them.

        Spaces are plain data (`networks.spaces`): Box, Discrete, MultiDiscrete, or a Dict of these.
        """
        raise NotImplementedError

    def check_masks(self, environment: str) -> None:
        """Raise UsageError where the algorithm cannot learn in an environment that says which actions are allowed."""
        if self.demonstration_folder():
            raise UsageError(
                f"{environment} says in info['action_mask'] which actions are allowed; demonstrations do not, so "
                f"{self.name()} would value forbidden ones in them. Take dqn or r2d2."
            )

    def networks(self, observation: Space, action: Space) -> dict[str, NetworkSpec]:
        """The networks that learn, by name, as specs (`networks.specs`) from which both frameworks build.

        Order matters: initial parameters are drawn in it.
        """
        raise NotImplementedError

    def targets(self) -> dict[str, str]:
        """Target networks, which start as copies and only follow: target's name to its source's."""
        return {}

    def optimizers(self) -> dict[str, OptimizerSpec]:
        """An optimiser for each network that learns, by the network's name; one without stays as it is."""
        raise NotImplementedError

    def memory(self) -> MemorySpec:
        """The memory that feeds `update`: of single steps, of sequences, or of rollouts."""
        raise NotImplementedError

    def split(self, random: np.random.Generator, size: int) -> np.ndarray | None:
        """Rows (M, B) of M smaller batches to learn from one after the other; None: the batch of `size` rows whole."""
        return None

    def draw(self, random: np.random.Generator, batch: Any) -> Any:
        """The random numbers of an update, handed to it as `noise`: a NumPy float32 array, or a (named) tuple or dict
        of such trees, new ones each time. `update` gets the same tree in its framework's arrays, perhaps later.
        """
        return ()

    def scheduled(self, progress: float) -> dict[str, float]:
        """Numbers that change over the run, of which a share `progress` in [0, 1] is done; see `Updater.scheduled`."""
        return {}

    def phase(self, update: int) -> int:
        """The kind of the `update`-th update, counted from 1 over the whole run; each kind is compiled once."""
        return 0

    def update(self, learner: Updater, batch: Any, noise: Any, phase: int) -> None:
        """Make one update of the kind `phase`.

        Args:
            learner: What the update calls: `minimize`, `track`, `scheduled`.
            batch: A `Batch`, `SequenceBatch` or `RolloutBatch`, whatever the memory gives.
            noise: What `draw` returned.
            phase: What the method `phase` returned for this update; Python may branch on it.
        """
        raise NotImplementedError

    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """Actions for N observations.

        Args:
            nets: The networks, by name as attributes.
            obs: (N, ...), or a dict of them by part; for recurrent networks a `Window`.
            noise: (N, ...), what the explorer drew; None: the policy's best guess.

        Returns:
            (N, A) in [-1, 1] for a Box, which is scaled to its bounds; (N,) integers for Discrete, (N, n) for
            MultiDiscrete; for a Dict (N, columns), the parts side by side.
        """
        raise NotImplementedError

    def collect(self, nets: Any, obs: Tree, noise: Array | None) -> tuple[Array, dict[str, Array]]:
        """Actions to learn from, and what the memory keeps with them by name, (N,) each."""
        return self.act(nets, obs, noise), {}

    def unasked(self, num_envs: int) -> dict[str, np.ndarray]:
        """What the memory keeps with actions that no network chose, by the same names as `collect` returns."""
        return {}

    def value(self, nets: Any, obs: Tree) -> Array:
        """State values (N,), for algorithms that learn from rollouts."""
        raise NotImplementedError

    def observation_scaling(self) -> ObservationScaling:
        """How observations are scaled; by default not at all."""
        return ObservationScaling()

    def symptom(self, means: Mapping[str, float], action: Space) -> str:
        """A sentence on what must have gone wrong, where the means of what updates report leave no doubt; else ""."""
        return ""

    def first_random_steps(self) -> int:
        """Steps of uniformly random actions at the start of a run."""
        return 0

    def demonstration_folder(self) -> str:
        """The folder of the demonstrations that the algorithm learns from; "" for none.

        Raises:
            UsageError: The algorithm needs demonstrations and was given none.
        """
        return ""

    def seen_reward(self, reward: np.ndarray) -> np.ndarray:
        """The previous reward (N,) as recurrent networks see it."""
        return reward

    def reward_scaling(self) -> float | None:
        """Samples that the first statistics, mean 0 and variance 1, count for, where rewards are divided by the running
        std of their discounted sums; None where they are not. See `training.normalizer`.
        """
        return None

    def explorer(self) -> Exploration:
        """How it explores: what draws the numbers (`algorithms.exploration`) that `act` gets as `noise`."""
        raise NotImplementedError
