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
        """Add a notice if the run from `step` on makes no update, or if all of its actions are random."""
        parts, algorithm, steps = self._components, self._algorithm, self._options.steps
        if step >= steps:
            return
        num_envs, spec, reasons = parts.stepper.num_envs, algorithm.memory(), list[str]()
        first, because = spec.first_update(num_envs)
        left = math.ceil((steps - step) / num_envs) * num_envs  # the last vector step may go beyond
        if self._stored() + left < first and not (
            parts.learner.updates and spec.on_policy
        ):  # a rollout's rest is normal
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
        """Add a notice if a line of metrics shows a collapsed policy; only the first time."""
        means = {name.removeprefix("learn/"): value for name, value in line.items() if name.startswith("learn/")}
        if self._components.stepper.masked:  # where a mask allows one action, entropy is 0 without a collapse
            means.pop("entropy", None)
        symptom = self._algorithm.symptom(means, self._components.stepper.action_space)
        if symptom and not self._collapsed:
            self._collapsed = True
            self._notices.append(f"Step {line['step']:,}: {symptom}")

    def after_run(self, step: int, episodes: int) -> None:
        """Add a notice if the run made no update until `step`, unless `before_run` predicted that."""
        predicted = self._stored() < self._algorithm.memory().first_update(self._components.stepper.num_envs)[0]
        if not (self._components.learner.updates or predicted):
            ended = "" if episodes else " No episode ended: give the environment a time limit (max_episode_steps)."
            self._notices.append(
                f"The run made no update in {step:,} steps.{ended} Updates wait for learning_starts and train_every; "
                "with train_at_episode_end and hindsight for the end of an episode; and sequences, unless "
                "learn_from_start is true, for an episode of burn_in and unroll steps."
            )

    def _stored(self) -> int:
        """Steps that count for the next update: those since the last rollout, or all that were ever stored."""
        memory = self._components.memory
        return len(memory) if self._components.learner.on_policy else int(memory.written.sum())


def check_finite(parameters: Parameters) -> None:
    """Raise NonFiniteError if a parameter is NaN or infinite."""
    for network, values in parameters.items():
        for name, value in values.items():
            if not np.isfinite(value).all():
                raise NonFiniteError(f"{network}'s {name} is not finite: learning has diverged. {ADVICE}")
