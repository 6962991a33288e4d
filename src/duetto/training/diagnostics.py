"""Diagnostics: a run too short to learn, a run that made no update, a collapsed policy, and NaN.

before the run     it ends before its first update, or all of its actions are random       a notice
while it runs      entropy or KL divergence shows a collapsed policy (`Algorithm.symptom`)  a notice, once
                   a parameter or a metric is NaN or infinite                               NonFiniteError
after the run      no update was made, for example because no episode ended                 a notice
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from duetto.algorithms.base import Algorithm, MemorySpec, ReplaySpec, SequenceSpec
from duetto.errors import NonFiniteError
from duetto.learners.parameters import Parameters
from duetto.storage.config import Config, RunOptions
from duetto.training.components import Components
from duetto.training.metrics import ADVICE


class Diagnostics:
    """Notices about a run that does not learn.

    Attributes:
        symptom: The notice that the policy has collapsed; "" while it has not.
    """

    def __init__(self, config: Config, components: Components, notices: list[str]) -> None:
        self._algorithm, self._options = config.algorithm, config.run
        self._components, self._notices = components, notices
        self.symptom: str = ""

    def before_run(self, step: int) -> None:
        """Add a notice if the run from `step` on makes no update, or if all of its actions are random."""
        parts = self._components
        self._notices += too_short(
            self._algorithm,
            self._options,
            parts.stepper.num_envs,
            step,
            self._stored(),
            updated=bool(parts.learner.updates),
            pretraining=bool(parts.memory.pretraining_left),
        )

    def on_metrics(self, line: Mapping[str, Any]) -> None:
        """Add a notice if a line of metrics shows a collapsed policy; only the first time."""
        means = {name.removeprefix("learn/"): value for name, value in line.items() if name.startswith("learn/")}
        if self._components.stepper.masked:  # where a mask allows one action, entropy is 0 without a collapse
            means.pop("entropy", None)
        symptom = self._algorithm.symptom(means, self._components.stepper.action_space)
        if symptom and not self.symptom:
            self.symptom = f"Step {line['step']:,}: {symptom}"
            self._notices.append(self.symptom)

    def after_run(self, step: int, episodes: int) -> None:
        """Add a notice if the run made no update until `step`, unless `before_run` predicted that."""
        spec = self._algorithm.memory()
        predicted = self._stored() < spec.first_update(self._components.stepper.num_envs)[0]
        if not (self._components.learner.updates or predicted):
            self._notices.append(nothing_learned(spec, step, episodes))

    def _stored(self) -> int:
        """Steps that count for the next update: those since the last rollout, or all that were ever stored."""
        memory = self._components.memory
        return len(memory) if self._components.learner.on_policy else int(memory.written.sum())


def too_short(
    algorithm: Algorithm,
    options: RunOptions,
    num_envs: int,
    step: int,
    stored: int,
    updated: bool,
    pretraining: bool = False,
) -> list[str]:
    """Return a notice if the run from `step` on makes no update, or acts only at random; else nothing.

    Args:
        algorithm: The algorithm.
        options: The run's options.
        num_envs: Number of environments.
        step: Steps made so far.
        stored: Steps that count for the next update, also those of the run that this one started from.
        updated: Whether an update was made.
        pretraining: Whether the run learns from demonstrations before the next step.
    """
    if step >= options.steps:
        return []
    spec, reasons = algorithm.memory(), []
    first, because = spec.first_update(num_envs)
    left = math.ceil((options.steps - step) / num_envs) * num_envs  # the last vector step may go beyond
    if stored + left < first and not (updated and spec.on_policy):  # the rest of a rollout is normal
        reasons.append(f"there will be no update{' after pre-training' * pretraining}, because {because}")
    if options.steps <= (random := algorithm.first_random_steps()):
        reasons.append(f"all actions will be random, because random_steps is {random:,}")
    if not reasons:
        return []
    which = f"From step {step:,} on, {options.steps - step:,}" if step else f"{options.steps:,}"
    are = "step is" if options.steps - step == 1 else "steps are"
    return [f"{which} {are} too few: {', and '.join(reasons)}. Increase --steps, or lower these options."]


def nothing_learned(spec: MemorySpec, steps: int, episodes: int) -> str:
    """Return the notice for a run that made no update in `steps` steps, in which `episodes` episodes ended."""
    if isinstance(spec, SequenceSpec):
        cause = (
            f"No episode was long enough for a sequence (burn_in is {spec.burn_in:,}, unroll is {spec.unroll:,}). "
            "Lower these options, or set learn_from_start to true."
        )
    elif isinstance(spec, ReplaySpec) and not episodes and (spec.train_at_episode_end or spec.hindsight is not None):
        waits = "train_at_episode_end" if spec.train_at_episode_end else "hindsight"
        cause = (
            f"No episode ended, and with {waits} updates wait for the end of an episode. Give the environment a time "
            "limit (Gymnasium's max_episode_steps or TimeLimit)."
        )
    else:
        cause = "Check learning_starts and train_every in its config.yaml."
    return f"The run made no update in {steps:,} steps. {cause}"


def check_finite(parameters: Parameters) -> None:
    """Raise NonFiniteError if a parameter is NaN or infinite."""
    for network, values in parameters.items():
        for name, value in values.items():
            if not np.isfinite(value).all():
                raise NonFiniteError(f"{network}'s {name} is not finite: learning has diverged. {ADVICE}")
