"""A run's checkpoints: writing them, checking that one fits the run, and resuming from it.

    save   writes components, log, evaluations, callbacks, and the trainer's step and seconds to a folder
    load   restores all of these from the folder, and removes later lines of logs and tables

Each transition of the memory is written once, in segments that all checkpoints share. A checkpoint records which
transitions belong to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duetto.cpu import processor
from duetto.environments import VecEnv
from duetto.errors import CheckpointError, UsageError
from duetto.functional import state_schema
from duetto.functional.state_schema import ANY, DictOf
from duetto.learners import Learner
from duetto.learners.policy import PARAMETERS
from duetto.storage.checkpoint import CheckpointStore, Loaded
from duetto.storage.config import Config
from duetto.storage.logs import Csv, JsonLines
from duetto.storage.reproducibility import ENVIRONMENT, Diff, changes, deciding, packages, sentence
from duetto.training.callbacks import CallbackList
from duetto.training.components import Components
from duetto.training.diagnostics import check_finite
from duetto.training.evaluation import Evaluator
from duetto.training.metrics import MetricLog
from duetto.training.normalizer import Normalizer

ACTING: dict[str, Any] = {  # the state that acting needs
    "learner": {"parameters": PARAMETERS},
    "normalizer": Normalizer.STATE,
    "config": DictOf(str),
    "spaces": {"observation": ANY, "action": ANY, "action_dtype": str, "action_mask": bool, "action_structure": ANY},
}
STATE: dict[str, Any] = ACTING | {  # the state that resuming needs
    "learner": ANY,
    "log": MetricLog.STATE,
    "memory": ANY,
    "collector": ANY,  # `resumption` replaces ANY by the `STATE` of the run's `Source`
    "stepper": {"environments": ANY},
    "evaluations": Evaluator.STATE,
    "callbacks": CallbackList.STATE,
    "trainer": {"step": int, "seconds": float},
    "run": {"algorithm": str, "environment": str, "horizon": int},
    "versions": DictOf(str),
}


@dataclass
class Resumption:
    """How a run continues from a checkpoint.

    Attributes:
        state: The state to load.
        changed: The options that differ from the checkpoint's. The user has accepted the new values.
        schedules: Text on the new end of schedules, if it changed; else "".
        inexact: Sentences that say why the numbers may differ from those of a run without an interruption.
        notices: Messages for the user.
    """

    state: dict[str, Any] = field(default_factory=dict)
    changed: Diff = field(default_factory=dict)
    schedules: str = ""
    inexact: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class Checkpoints:
    """The checkpoints of one run.

    Attributes:
        store: The files of the checkpoints.
        last: Numbers of steps and updates at the last checkpoint, or None.
        resumed: How the run continues from a checkpoint; empty in a new run.
    """

    def __init__(
        self,
        store: CheckpointStore,
        config: Config,
        components: Components,
        log: MetricLog,
        evaluator: Evaluator,
        callbacks: CallbackList,
    ) -> None:
        self.store: CheckpointStore = store
        self.last: tuple[int, int] | None = None
        self.resumed: Resumption = Resumption()
        self._config, self._components = config, components
        self._log, self._evaluator, self._callbacks = log, evaluator, callbacks

    @property
    def logs(self) -> tuple[JsonLines, Csv]:
        """The files `metrics.jsonl` and `evaluations.csv`."""
        return self._log.lines, self._evaluator.table

    @property
    def step(self) -> int | None:
        """The step of the last checkpoint, or None."""
        return None if self.last is None else self.last[0]

    def has(self, step: int) -> bool:
        """Return whether the last checkpoint was written at `step`, and no update has been made since."""
        return self.last == (step, self._components.learner.updates)

    def is_due(self, before: int, step: int) -> bool:
        """Return whether a checkpoint is due at `step` and not written yet; `before` is the loop's previous step.

        With replay shards, one more checkpoint is due after the random steps: a run that loses a shard returns to its
        last checkpoint, and would otherwise repeat these steps.
        """
        every = self._config.run.checkpoint_every
        first = self._config.algorithm.first_random_steps() if every and self._components.shards is not None else 0
        return (crossed(before, step, every) or before < first <= step) and not self.has(step)

    def save(self, step: int, seconds: float) -> Path:
        """Write a checkpoint and return its folder.

        Raises:
            NonFiniteError: Learning has diverged; no checkpoint is written.
            CheckpointError: The checkpoint cannot be written; earlier checkpoints are unchanged.
        """
        state, memory = self.state_dict(step, seconds), self._components.memory
        check_finite(state["learner"]["parameters"])
        oldest = memory.written - memory.rows if memory.rows else None
        path = self.store.save(step, state, memory.segment(self.store.covered), oldest)
        self._evaluator.keep_best()
        self.last = (step, self._components.learner.updates)
        self._components.look_at_saved(state["stepper"])
        return path

    def acting_state(self) -> dict[str, Any]:
        """Return the state that acting needs, and the options that affect results."""
        return {"config": deciding(self._config)} | self._components.acting_state()

    def state_dict(self, step: int, seconds: float) -> dict[str, Any]:
        """Return everything that the rest of the run depends on, except the memory's transitions."""
        return self.acting_state() | {
            "log": self._log.state_dict(),  # raises if a metric is NaN
            **self._components.state_dict(),
            "evaluations": self._evaluator.state_dict(),
            "callbacks": self._callbacks.state_dict(),
            "trainer": {"step": step, "seconds": seconds},
            **run_state(self._config, self._components.learner),
        }

    def load(self, loaded: Loaded, folder: Path, accept_changes: bool) -> tuple[int, float]:
        """Resume from a checkpoint; return its step and the seconds that the run had taken.

        Removes lines of logs and tables that were written after the checkpoint.

        Raises:
            UsageError: An option that affects results has changed, and `accept_changes` is false.
            CheckpointError: The checkpoint is damaged or does not fit this run, for example because of a changed option
                that a resume cannot apply.
        """
        plan = resumption(loaded, self._config, folder, self._components, accept_changes)
        try:
            self._restore(plan, loaded)
        except CheckpointError as error:
            if not plan.changed:
                raise
            raise CheckpointError(
                f"The run cannot continue with these changes: {sentence(plan.changed)}. {error} Restore the old "
                f"values, or start a new run from the networks of this run (--from {folder})."
            ) from error
        self.resumed = plan
        return plan.state["trainer"]["step"], plan.state["trainer"]["seconds"]

    def _restore(self, plan: Resumption, loaded: Loaded) -> None:
        state, components = plan.state, self._components
        step = state["trainer"]["step"]
        fixed = components.fixed()
        try:
            components.load_state_dict(state, loaded.segments)
        except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
            raise CheckpointError(f"{loaded.path} does not belong to this run, or was changed ({error!r}).") from error
        if fixed:  # these parameters are options: use the config's values, not the checkpoint's
            components.learner.load_parameters(components.learner.parameters() | fixed)
        self._callbacks.expect(state["callbacks"])
        plan.notices += self._log.load_state_dict(state["log"])
        plan.notices += self._evaluator.load_state_dict(state["evaluations"])
        self.last = (step, components.learner.updates)
        if not components.stepper.resumed_exactly:
            components.interrupt(~components.stepper.restored)
            if ENVIRONMENT.isdisjoint(plan.changed):
                plan.inexact.append(new_episodes(components.stepper))
                plan.notices.append(plan.inexact[-1])


def crossed(before: int, now: int, every: int) -> bool:
    """Return whether a multiple of `every` is in (before, now]; never if `every` is 0."""
    return every > 0 and before // every < now // every


def run_state(config: Config, learner: Learner) -> dict[str, Any]:
    """Return the part of a checkpoint that describes the run, package versions and processor."""
    threads = {"threads": str(learner.threads)} if learner.threads else {}  # otherwise the number is unknown
    return {
        "run": {
            "algorithm": config.algorithm.name(),
            "environment": config.environment,
            "horizon": config.run.horizon,
        },
        "versions": packages(config.run.backend)
        | {"processor": processor(), "seeds side by side": str(learner.seeds)}
        | threads,
    }


def resumption(
    loaded: Loaded, config: Config, folder: Path, components: Components, accept_changes: bool
) -> Resumption:
    """Check a whole checkpoint without loading it into the run; return how the run continues.

    Raises:
        UsageError: An option that affects results has changed, and `accept_changes` is false.
        CheckpointError: The checkpoint does not belong to this run.
    """
    state = {"callbacks": {}} | loaded.state  # runs from a hub have no callbacks' states
    state_schema.check(state, STATE | {"collector": components.collector.STATE}, str(loaded.path / "state.json"))
    if state["trainer"]["step"] != loaded.step:
        raise CheckpointError(f"{loaded.path} was changed: its state is of step {state['trainer']['step']}.")
    for kind, name in (("algorithm", config.algorithm.name()), ("environment", config.environment)):
        if (before := state["run"][kind]) != name:
            raise CheckpointError(
                f"The checkpoints in {folder} are of the {kind} {before}, but config.yaml says {name}. Change "
                "config.yaml back, or start a new run."
            )
    changed = changes(deciding(config), state["config"])
    if changed and not accept_changes:
        raise UsageError(
            f"{folder / 'config.yaml'} or a custom file has changed since the checkpoint at step {loaded.step:,}. The "
            f"changes affect results: {sentence(changed)}. To continue with the new values, give --accept-changes (in "
            "Python accept_changes=True); otherwise restore the old values."
        )
    components.check_spaces(state["spaces"])
    plan = Resumption(state, changed)
    since = f"since the checkpoint at step {loaded.step:,}"
    if changed:
        end = "."
        if not ENVIRONMENT.isdisjoint(changed):  # the saved environments have the old values, so leave them out
            plan.state = state | {"stepper": state["stepper"] | {"environments": None}}
            end = ", and with new episodes."
        plan.notices.append(f"Changed {since}: {sentence(changed)}. The run continues with the new values{end}")
    horizon, before = config.run.horizon, state["run"]["horizon"]
    if _scheduled(config, components, loaded.step, horizon) != _scheduled(config, components, loaded.step, before):
        plan.schedules = f"schedules end at step {horizon:,}, not at {before:,}"
        plan.notices.append(f"From here, {plan.schedules}. Set schedule_steps to {before} in config.yaml to keep them.")
    if others := changes(run_state(config, components.learner)["versions"], state["versions"]):
        plan.inexact.append(
            f"Versions or hardware changed {since}: {sentence(others)}. From here the numbers may differ from those of "
            "a run that was never interrupted."
        )
    plan.notices += [*plan.inexact, *loaded.problems]
    return plan


def _scheduled(config: Config, components: Components, step: int, horizon: int) -> tuple[Any, ...]:
    """Return all scheduled values at `step`, with schedules that end at the step `horizon`."""
    algorithm, progress = config.algorithm, min(1.0, step / horizon)
    exploring = algorithm.explorer().schedule(step, horizon, components.stepper.num_envs).tolist()
    return components.learner.learning_rates(progress), algorithm.scheduled(progress), exploring


def new_episodes(stepper: VecEnv) -> str:
    """Return a sentence that says which environments could not be restored, and why."""
    lost, n = int((~stepper.restored).sum()), stepper.num_envs
    which = stepper.name if lost == n else f"{lost} of the {n} environments {stepper.name}"
    because = f" ({'; '.join(stepper.not_restored)})" if stepper.not_restored else ""
    return (
        f"The state of {which} could not be restored{because}. The run continues with new episodes, so from here its "
        "numbers differ from those of a run that was never interrupted."
    )
