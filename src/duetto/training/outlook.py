"""Notices on a run: before it begins, of steps it will not learn from; while it runs, of signs of trouble; at its end,
if it learned nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from duetto.algorithms.base import Algorithm, MemorySpec, ReplaySpec, RolloutSpec, SequenceSpec
from duetto.algorithms.idle import notes_of_idle, notes_of_idle_run, notes_of_replaced, notes_of_spaces
from duetto.memory import Afar, Experience
from duetto.memory.kinds import rows_of
from duetto.processor import multiplies_bfloat16
from duetto.storage.config import RunOptions

if TYPE_CHECKING:
    from duetto.training.session import Session

# Steps at the end that nobody learns from are said from this share of the run on: most numbers of steps are no multiple
# of a rollout, and what less of them loses is not worth a word.
TAIL = 0.1
# Losses square sums of rewards, which are up to 1 / (1 - γ) times as large; float32 ends at 3.4e38. With γ = 0.99 PPO
# stands rewards of 1e17, and not of 1e18.
LARGEST_REWARD = 1e17
ROUNDING = 1.01  # a tanh in bfloat16 may be a little more than 1


class Outlook:
    """Notices on a session that will not learn, does not, or did not; each is given once.

    Attributes:
        cause: What may be why it diverges, if that was said; else "".
    """

    def __init__(self, session: Session, elsewhere: bool) -> None:
        """`elsewhere`: Environments are on a cluster, whose actors are told of some options, too."""
        self._session, self._elsewhere = session, elsewhere
        self.cause: str = ""
        self._diagnosed = self._clipped = False

    def ahead(self) -> None:
        """Give notice if the run will end before its first update, or will only act at random; and, if it is new, of
        options that have no effect.
        """
        session = self._session
        algorithm, options, stepper = session.config.algorithm, session.config.run, session.stepper
        notices = session.notices
        if not session.step:
            notices += notes_of_idle(algorithm)
            notices += notes_of_replaced(algorithm, stepper.observation_space, stepper.action_space)
            notices += notes_of_spaces(algorithm, stepper.observation_space, stepper.action_space)
            notices += [] if self._elsewhere else notes_of_idle_run(options)
            notices += notes_of_short_memory(algorithm.memory(), stepper.num_envs)
        place = (stepper.num_envs, session.step, self._stored())
        learns = (bool(session.learner.updates), bool(session.memory.pretraining_left))
        notices += notes_ahead(algorithm, options, *place, *learns, stepper.engine.even)
        notices += notes_of_precision(options)

    def _stored(self) -> int:
        """Steps that count for what is learned from next: those since the last rollout, or all ever written."""
        memory = self._session.memory
        return len(memory) if self._session.learner.on_policy else int(memory.written.sum())

    def of_rewards(self, experience: Experience | Afar) -> None:
        """Give notice if rewards are too large; those of experience in other processes are not known."""
        if self.cause or not isinstance(experience, Experience):
            return
        if largest := too_large(experience.reward):
            self.cause = note_of_rewards(largest, self._session.step)
            self._session.notices.append(self.cause)

    def of_metrics(self, line: dict[str, Any]) -> None:
        """Give notice of what the algorithm finds wrong in a line of metrics."""
        session = self._session
        means = {name.removeprefix("learn/"): value for name, value in line.items() if name.startswith("learn/")}
        if session.stepper.masked:  # where one action is allowed there is no choice, and no sign of anything
            means.pop("entropy", None)
        symptom = session.config.algorithm.symptom(means, session.stepper.action_space)
        if symptom and not self._diagnosed:
            session.notices.append(f"Step {session.step:,}: {symptom}")
            self._diagnosed = True

    def of_actor(self) -> None:
        """Give notice if an actor of the user's own leaves [-1, 1], where the environment's bounds are."""
        session = self._session
        if self._clipped or "actor_network" not in session.config.algorithm.custom_networks():
            return
        largest = float(np.abs(session.policy(session.stepper.obs)).max())
        if largest > ROUNDING:
            self._clipped = True
            session.notices.append(
                f"Step {session.step:,}: your actor gave {largest:.3g}, and actions are in [-1, 1], the environment's "
                "bounds: what is beyond is clipped before the environment gets it. End the actor in a tanh."
            )

    def back(self) -> None:
        """Give notice if the run is over and nothing was learned."""
        session = self._session
        spec = session.config.algorithm.memory()
        too_few = self._stored() < spec.first_update(session.stepper.num_envs)[0]  # said before they were made
        if not (session.learner.updates or session.stopped or too_few):
            session.notices.append(note_of_nothing_learned(spec, session.step, session.log.episodes))


def notes_ahead(
    algorithm: Algorithm,
    options: RunOptions,
    num_envs: int,
    step: int,
    stored: int,
    begun: bool,
    pretraining: bool = False,
    even: bool = True,
) -> list[str]:
    """Notices if the run from `step` on will learn nothing, only act at random, or not learn from its last steps.

    Args:
        algorithm: What learns.
        options: The run's options.
        num_envs: Environments that make a step at a time.
        step: Steps that were made.
        stored: Steps that count for what is learned from next; also of the run that this one began from.
        begun: Whether it has made an update.
        pretraining: Whether it will learn from demonstrations before the next step.
        even: Whether each environment makes a step each time, so that a rollout's number of steps is known.
    """
    if step >= options.steps:
        return []
    spec, reasons = algorithm.memory(), []
    first, because = spec.first_update(num_envs)
    made = math.ceil((options.steps - step) / num_envs) * num_envs  # the last vector step may go beyond
    if stored + made < first and not (begun and spec.on_policy):  # that one's tail is a part of what it was to be
        reasons.append(f"there will be no update{' after pre-training' * pretraining}, because {because}")
    if options.steps <= (random := algorithm.first_random_steps()):
        reasons.append(f"all actions will be random, because random_steps is {random:,}")
    if not reasons:
        return [] if not even else _notes_of_tail(spec, because, options.steps, step + made, stored + made, first)
    which = f"From step {step:,} on, {options.steps - step:,}" if step else f"{options.steps:,}"
    are = "step is" if options.steps - step == 1 else "steps are"
    return [f"{which} {are} too few: {', and '.join(reasons)}. Give more --steps, or set these lower."]


def _notes_of_tail(spec: MemorySpec, because: str, steps: int, end: int, stored: int, rollout: int) -> list[str]:
    """A notice if a run of `steps` steps does not learn from its tail: at its end, step `end`, `stored` steps wait for
    rollouts of `rollout` steps.
    """
    tail = stored % rollout
    if not isinstance(spec, RolloutSpec) or tail < TAIL * steps:
        return []
    return [
        f"Nothing will be learned from the last {tail:,} of {end:,} steps: {because}, and only whole rollouts are "
        f"learned from. With --steps {end - tail + rollout} (steps={end - tail + rollout}) all steps are; --steps "
        f"{end - tail} leaves these out."
    ]


def notes_of_short_memory(spec: MemorySpec, num_envs: int) -> list[str]:
    """Give notice that returns will be of fewer steps than `n_step`: the memory keeps no more of one environment."""
    if not isinstance(spec, ReplaySpec) or (rows := rows_of(spec, num_envs)) >= spec.n_step:
        return []
    return [
        f"replay_capacity keeps {rows:,} step{'s' * (rows > 1)} of each environment, so returns are of {rows:,} at "
        f"most, though n_step is {spec.n_step}. Set replay_capacity to {spec.n_step * num_envs} or more."
    ]


def note_of_nothing_learned(spec: MemorySpec, steps: int, episodes: int) -> str:
    """The notice at the end of a run that made so many `steps` without an update, while `episodes` ended."""
    return f"Nothing was learned: {steps:,} steps were made, and no update. {_cause(spec, episodes)}"


def _cause(spec: MemorySpec, episodes: int) -> str:
    waits = "no episode has ended. Give the environment a time limit (Gymnasium's max_episode_steps or TimeLimit)"
    if isinstance(spec, SequenceSpec):
        shortest = 0 if spec.learn_from_start else spec.burn_in
        if episodes and shortest:
            return (
                f"A sequence needs an episode of more than {shortest:,} steps, since burn_in is {shortest:,} and "
                "learn_from_start is off: set burn_in lower, or learn_from_start to true."
            )
        return (
            f"A sequence has {spec.burn_in + spec.unroll:,} steps of one episode, and none was whole: set unroll lower."
        )
    if isinstance(spec, ReplaySpec) and not episodes:
        if spec.train_at_episode_end:
            return f"It learns at an episode's end (train_at_episode_end), and {waits}, or leave that option out."
        if spec.hindsight is not None:
            return f"Goals in hindsight are known at an episode's end, and {waits}."
    return "Look at learning_starts and train_every in its config.yaml."


def notes_of_precision(options: RunOptions) -> list[str]:
    """A notice if the precision bf16 costs more than it saves on this processor."""
    if options.precision != "bf16" or options.device != "cpu" or multiplies_bfloat16():
        return []
    costs = {
        "torch": "in PyTorch a step takes many times as long as in float32 (ten times, of TD3 on an AMD EPYC, Zen 3). "
        "Leave --precision bf16 out, or take --backend jax, which rounds and is as fast as in float32.",
        "jax": "--precision bf16 rounds, and makes nothing faster here.",
    }
    return [f"This processor has no instructions for bfloat16: {costs[options.backend]}"]


def too_large(reward: np.ndarray) -> float:
    """The largest absolute value of rewards (K,) float32, if it is too large for losses; else 0."""
    # One dot product, as in `Stepper`: 0.5 µs where all is well; one that overflows is infinite.
    if np.vdot(reward, reward) <= LARGEST_REWARD**2:
        return 0.0
    largest = float(np.abs(reward).max())
    return largest if largest > LARGEST_REWARD else 0.0


def note_of_rewards(largest: float, step: int) -> str:
    """The notice on a reward that is too large."""
    return (
        f"Step {step:,}: a reward of {largest:.3g} in size may be too large to learn from: losses square sums of "
        f"rewards, and float32 has no room for that beyond rewards of about {LARGEST_REWARD:.0e}. Divide the rewards "
        "by a number in the environment or a wrapper (gymnasium.wrappers.TransformReward), or with ppo set "
        "normalize_rewards."
    )
