"""Checks that a checkpoint and the resumed run agree, and notices if they differ."""

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
from duetto.storage.checkpoint import Loaded
from duetto.storage.config import Config
from duetto.storage.dict_diff import Diff, sentence
from duetto.storage.reproducibility import ENVIRONMENT, changes, deciding, packages
from duetto.training.callbacks import CallbackList
from duetto.training.components import Components
from duetto.training.evaluator import Evaluator
from duetto.training.metrics import MetricLog
from duetto.training.normalizer import Normalizer

ACTING: dict[str, Any] = {  # what acting needs
    "learner": {"parameters": PARAMETERS},
    "normalizer": Normalizer.STATE,
    "config": DictOf(str),
    "spaces": {"observation": ANY, "action": ANY, "action_dtype": str, "action_mask": bool, "action_structure": ANY},
}
STATE: dict[str, Any] = ACTING | {  # what resuming needs
    "learner": ANY,
    "log": MetricLog.STATE,
    "memory": ANY,
    "collector": ANY,  # that of the source, here or on a cluster
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
        changed: The options that differ from those of the checkpoint; this was accepted.
        schedules: A sentence if they end elsewhere now.
        inexact: Sentences on why the run does not continue as one that was never interrupted.
        notices: Sentences for the user.
    """

    state: dict[str, Any] = field(default_factory=dict)
    changed: Diff = field(default_factory=dict)
    schedules: str = ""
    inexact: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def run_state(config: Config, learner: Learner) -> dict[str, Any]:
    """The part of a checkpoint that describes its run, versions and processor."""
    threads = {"threads": str(learner.threads)} if learner.threads else {}  # else unknown
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
    """Check a whole checkpoint before anything is loaded from it, and return how the run continues.

    Raises:
        UsageError: The config decides other numbers than the checkpoint's, and `accept_changes` is not given.
        CheckpointError: It is no checkpoint of this run.
    """
    state = {"callbacks": {}} | loaded.state  # of a run that was pushed, which has none
    state_schema.check(state, STATE | {"collector": components.collector.STATE}, str(loaded.path / "state.json"))
    if state["trainer"]["step"] != loaded.step:
        raise CheckpointError(f"{loaded.path} was changed: its state is of step {state['trainer']['step']}.")
    for kind, name in (("algorithm", config.algorithm.name()), ("environment", config.environment)):
        if (before := state["run"][kind]) != name:
            raise CheckpointError(
                f"The checkpoints in {folder} are of the {kind} {before}, but its config.yaml says {name}. Put that "
                "back, or start a new run."
            )
    changed = changes(deciding(config), state["config"])
    if changed and not accept_changes:
        raise UsageError(
            f"{folder / 'config.yaml'} or a custom file has changed since the checkpoint at step "
            f"{loaded.step:,}, in what decides the numbers: {sentence(changed)}. To continue with what it says now, "
            "give --accept-changes (in Python accept_changes=True); else put the old values back."
        )
    components.check_spaces(state["spaces"])
    plan = Resumption(state, changed)
    since = f"since the checkpoint at step {loaded.step:,}"
    if changed:
        end = "."
        if not ENVIRONMENT.isdisjoint(changed):  # the saved state would bring the old values back
            plan.state = state | {"stepper": state["stepper"] | {"environments": None}}
            end = ", and with new episodes."
        plan.notices.append(f"Changed {since}: {sentence(changed)}. The run continues with the new values{end}")
    horizon, before = config.run.horizon, state["run"]["horizon"]
    if _scheduled(config, components, loaded.step, horizon) != _scheduled(config, components, loaded.step, before):
        plan.schedules = f"schedules end at step {horizon:,}, not at {before:,}"
        plan.notices.append(f"From here, {plan.schedules}. Set schedule_steps to {before} in config.yaml to keep them.")
    if others := changes(run_state(config, components.learner)["versions"], state["versions"]):
        plan.inexact.append(
            f"Computed otherwise {since}: {sentence(others)}. From here the numbers may differ from those of a "
            "run that was never interrupted."
        )
    plan.notices += [*plan.inexact, *loaded.problems]
    return plan


def _scheduled(config: Config, components: Components, step: int, horizon: int) -> tuple[Any, ...]:
    """Return all scheduled numbers at a step, if the schedules end at `horizon`."""
    algorithm, progress = config.algorithm, min(1.0, step / horizon)
    exploring = algorithm.explorer().schedule(step, horizon, components.stepper.num_envs).tolist()
    return components.learner.learning_rates(progress), algorithm.scheduled(progress), exploring


def new_episodes(stepper: VecEnv) -> str:
    """Say which environments could not be restored, and why."""
    lost, n = int((~stepper.restored).sum()), stepper.num_envs
    which = stepper.name if lost == n else f"{lost} of the {n} environments {stepper.name}"
    because = f" ({'; '.join(stepper.not_restored)})" if stepper.not_restored else ""
    return (
        f"The state of {which} could not be restored{because}: the run continues with new episodes, so from here it "
        "is not the same, number by number, as one that was never interrupted."
    )
