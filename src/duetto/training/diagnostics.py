"""Warnings and errors about a run that does not learn.

before the run     the run ends before its first update, or all actions are random          a notice
during the run     entropy or KL divergence shows a collapsed policy (`Algorithm.symptom`)  a notice, once
                   a parameter is NaN or infinite (for a metric, `MetricLog.look` checks)   NonFiniteError
after the run      no update was made, for example because no episode ended                 a notice
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from duetto.errors import NonFiniteError
from duetto.learners.policy import Parameters
from duetto.storage.config import Config
from duetto.training.components import Components
from duetto.training.metrics import ADVICE


class Diagnostics:
    """Notices about a run that does not learn."""

    def __init__(self, config: Config, components: Components, notices: list[str]) -> None:
        self._algorithm, self._options = config.algorithm, config.run
        self._components, self._notices = components, notices
        self._collapsed = False

    def before_run(self, step: int) -> None:
        """Add a notice if the run will make no update after `step`, or if all of its actions will be random."""
        parts, algorithm, steps = self._components, self._algorithm, self._options.steps
        if step >= steps:
            return
        num_envs, spec, reasons = parts.stepper.num_envs, algorithm.memory(), list[str]()
        first, because = spec.first_update(num_envs)
        left = math.ceil((steps - step) / num_envs) * num_envs  # the last vector step may exceed `steps`
        # An on-policy run that has already learned may end within a rollout.
        if self._stored() + left < first and not (parts.learner.updates and spec.on_policy):
            after = " after pre-training" if parts.memory.pretraining_left else ""
            reasons.append(f"there will be no update{after}, because {because}")
        if steps <= (random := algorithm.first_random_steps()):
            reasons.append(f"all actions will be random, because random_steps is {random:,}")
        if reasons:
            which = f"From step {step:,} on, {steps - step:,}" if step else f"{steps:,}"
            these = "these options" if len(reasons) > 1 else "this option"
            self._notices.append(
                f"{which} steps are too few: {', and '.join(reasons)}. Increase --steps, or lower {these}."
            )

    def on_metrics(self, line: Mapping[str, Any]) -> None:
        """Add a notice the first time that a line of metrics shows a collapsed policy."""
        means = {name.removeprefix("learn/"): value for name, value in line.items() if name.startswith("learn/")}
        if self._components.stepper.masked:  # if a mask allows only one action, an entropy of 0 is normal
            means.pop("entropy", None)
        symptom = self._algorithm.symptom(means, self._components.stepper.action_space)
        if symptom and not self._collapsed:
            self._collapsed = True
            self._notices.append(f"Step {line['step']:,}: {symptom}")

    def after_run(self, step: int, episodes: int) -> None:
        """Add a notice if the run made no update until `step`, unless `before_run` has warned of it."""
        predicted = self._stored() < self._algorithm.memory().first_update(self._components.stepper.num_envs)[0]
        if not (self._components.learner.updates or predicted):
            ended = "" if episodes else " No episode ended: give the environment a time limit (max_episode_steps)."
            self._notices.append(
                f"The run made no update in {step:,} steps.{ended} Updates start after learning_starts and train_every "
                "steps. With train_at_episode_end or hindsight, they also wait for the end of an episode. Recurrent "
                "networks without learn_from_start also wait for an episode of burn_in + unroll steps."
            )

    def _stored(self) -> int:
        """Return how many steps were stored: on-policy in the current rollout, off-policy in the whole run."""
        memory = self._components.memory
        return len(memory) if self._components.learner.on_policy else int(memory.written.sum())


def check_finite(parameters: Parameters) -> None:
    """Raise NonFiniteError if a parameter is NaN or infinite."""
    for network, values in parameters.items():
        for name, value in values.items():
            if not np.isfinite(value).all():
                raise NonFiniteError(f"{network}'s {name} is not finite: learning has diverged. {ADVICE}")
