"""Checks that a checkpoint and the run that goes on from it agree, and notices where they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from duetto.algorithms.base import ReplaySpec, RolloutSpec
from duetto.algorithms.exploration import ActionNoise
from duetto.buffers import MixedReplay, Replay, Rollout, SequenceReplay, ShardedReplay
from duetto.cpu import cores, processor
from duetto.environments import VecEnv
from duetto.errors import CheckpointError, UsageError
from duetto.functional import state_schema
from duetto.functional.schedules import linear
from duetto.functional.state_schema import ANY, DictOf, OptionalOf
from duetto.learners import Learner
from duetto.networks import spaces
from duetto.storage.checkpoint import Loaded
from duetto.storage.config import Config
from duetto.storage.dict_diff import Diff, sentence
from duetto.storage.reproducibility import ENVIRONMENT, changes, other_versions, where

AnyMemory = Replay | Rollout | SequenceReplay | MixedReplay | ShardedReplay

ACTING: dict[str, Any] = {  # the form of what acting needs
    "learner": {"parameters": ANY},
    "normalizer": ANY,
    "config": ANY,
    "spaces": {"observation": ANY, "action": ANY, "action_dtype": str, "action_mask": bool, "action_structure": ANY},
}
FORM: dict[str, Any] = ACTING | {  # of a whole state
    "learner": ANY,
    "log": ANY,
    "memory": ANY,
    "collector": ANY,
    "stepper": {},
    "evaluations": ANY,
    "trainer": {"step": int, "best": OptionalOf(float), "seconds": float, "under_way": bool},
    "run": {"algorithm": str, "environment": str, "processor": str, "threads": int, "horizon": int},
    "versions": DictOf(str),
}


BACKEND = "run.backend"
SOMETIMES: dict[tuple[str, str], Any] = {  # keys that not every state has
    ("run", "seeds"): int,
}


def run_state(config: Config, learner: Learner) -> dict[str, Any]:
    """The part of a checkpoint that describes its run, for `accepted` and `notes_of_run`."""
    return (
        {"algorithm": config.algorithm.name(), "environment": config.environment, "threads": learner.threads}
        | {"processor": processor(), "horizon": config.run.horizon}
        | ({"seeds": learner.seeds} if learner.seeds > 1 else {})
    )


def accepted(loaded: Loaded, config: Config, folder: Path, accept_changes: bool) -> Diff:
    """The config's changes since the checkpoint, in what decides the numbers.

    Raises:
        UsageError: There are some, and `accept_changes` is not given.
        CheckpointError: It is no checkpoint of this run.
    """
    state = loaded.state
    _check_form(state, str(loaded.path / "state.json"))
    if state["trainer"]["step"] != loaded.step:
        raise CheckpointError(f"{loaded.path} was changed: its state is of step {state['trainer']['step']}.")
    _check_same_run(state["run"], config, folder)
    changed = changes(config, state["config"])
    if changed and not accept_changes:
        raise _refusal(loaded, changed, config, folder)
    return changed


def _check_form(state: dict[str, Any], file: str) -> None:
    """Raise CheckpointError if a whole state does not have the form that its readers rely on."""
    state_schema.check(state, FORM, file)
    for (part, name), form in SOMETIMES.items():
        if name in state[part]:
            state_schema.check(state[part][name], form, f"{file}/{part}/{name}")


def _check_same_run(saved: dict[str, str], config: Config, folder: Path) -> None:
    """Raise CheckpointError if the checkpoint is of another algorithm or environment."""
    ours = {"algorithm": config.algorithm.name(), "environment": config.environment}
    for kind, name in ours.items():
        if saved[kind] != name:
            raise CheckpointError(
                f"The checkpoints in {folder} are of the {kind} {saved[kind]}, but its config.yaml says "
                f"{name}. Put that back, or start a new run."
            )


def check_spaces(
    saved: dict[str, Any], stepper: VecEnv, instead: str = "Resume it with the environment that it was started with."
) -> None:
    """Raise CheckpointError if the environment has other spaces now; its last sentence is `instead`."""
    for kind, ours in (("observation", stepper.observation_space), ("action", stepper.action_space)):
        if apart := spaces.describe_difference(kind, spaces.from_json(saved[kind]), ours):
            raise CheckpointError(
                f"The run was made with the {kind} space {apart[0]}; {stepper.name} has {apart[1]}. {instead}"
            )


def _refusal(loaded: Loaded, changed: Diff, config: Config, folder: Path) -> UsageError:
    """The error for changes that were not accepted."""
    edited = where(config, folder / "config.yaml", changed)
    return UsageError(
        f"{edited} has changed {_since(loaded)}, in what decides the numbers: {sentence(changed)}. "
        "To go on with what it says now, give --accept-changes (in Python accept_changes=True); else put the "
        "old values back."
    )


def notes_of_changes(loaded: Loaded, changed: Diff, threads: int) -> list[str]:
    """Notices on changes that were accepted; `threads` are those of the config."""
    notes = []
    if changed:
        afresh = not ENVIRONMENT.isdisjoint(changed)
        notes.append(
            f"Changed {_since(loaded)}: {sentence(changed)}. The run goes on with the new values"
            + (", and with new episodes." if afresh else ".")
        )
    if threads and changed.get(BACKEND, ("", ""))[1] == '"torch"':
        notes.append(
            f"`threads: {threads}` in its config.yaml is what it had on JAX; with 0 PyTorch has its own default."
        )
    return notes


def notes_of_others(loaded: Loaded, versions: dict[str, str]) -> list[str]:
    """Notices on packages that are installed in another version now."""
    if others := other_versions(loaded.state["versions"], versions):
        return [
            f"Installed in another version {_since(loaded)}: {sentence(others)}. From here the numbers may differ from "
            "those of a run that was never interrupted."
        ]
    return []


def _since(loaded: Loaded) -> str:
    return f"since the checkpoint at step {loaded.step:,}"


def notes_of_stretching(config: Config, learner: Learner, step: int, before: int, kept: bool) -> list[str]:
    """Notices if schedules that ended at step `before` end elsewhere now, or leave all learning rates at 0.

    `kept`: This call asked for the schedules to be kept, not an earlier one.
    """
    horizon = config.run.horizon
    if config.run.steps > horizon and not any(learner.learning_rates(1.0).values()):
        otherwise = "Without --keep-schedule they would" if kept else "With `schedule_steps: 0` in its config.yaml they"
        return [
            f"All learning rates are 0 from step {horizon:,} on, where the schedules end: nothing is learned after it. "
            f"{otherwise} end with the run."
        ]
    was, now = (_scheduled(config, learner, step, steps) for steps in (before, horizon))
    moved = [f"{name} is {now[name]:.3g} now, not {was[name]:.3g}" for name in was if now[name] != was[name]]
    if not moved:
        return []
    return [
        f"Schedules end at step {horizon:,} now, not at {before:,}: {'; '.join(moved)}. With --keep-schedule "
        "(keep_schedule=True) they stay what they were."
    ]


def _scheduled(config: Config, learner: Learner, step: int, steps: int) -> dict[str, float]:
    """All scheduled numbers at step `step`, if the schedules end at step `steps`, by name."""
    progress, explorer = min(1.0, step / steps), config.algorithm.explorer()
    rates = {f"{name}'s learning rate": rate for name, rate in learner.learning_rates(progress).items()}
    if isinstance(explorer, ActionNoise) and not explorer.scale_steps:
        rates["the exploration's scale"] = linear(step, steps, explorer.scale, explorer.final_scale)
    return rates | config.algorithm.scheduled(progress)


def notes_of_run(saved: dict[str, Any], learner: Learner, wanted: int, same: bool = True) -> list[str]:
    """Notices if the run is not computed as the checkpoint says, so that its numbers may differ.

    `wanted` are the threads that its config asks for; the learner has others if JAX had begun before. `same`: It goes
    on on the same framework.
    """
    return [
        *_notes_of_processors(saved["processor"], processor()),
        *_notes_of_threads(saved["threads"] if same else 0, learner.threads, wanted),
        *_notes_of_seeds(saved.get("seeds", 1), learner.seeds),
    ]


def _notes_of_processors(saved: str, now: str) -> list[str]:
    """A notice if the checkpoint was made on a processor of another kind."""
    if saved == now:
        return []
    return [
        f"The checkpoint was made on another processor, {saved}, and the run goes on on {now}: from here its numbers "
        "may differ in their last bits from those of a run that was never interrupted."
    ]


def _notes_of_threads(saved: int, now: int, wanted: int) -> list[str]:
    """A notice if the number of threads (0: unknown) is not the checkpoint's, or is more than there are cores."""
    here = cores()
    if saved and now and saved != now:
        return [
            f"The checkpoint was made with {saved} thread{'s' * (saved > 1)}, and the run goes on with {now}: from "
            "here its numbers may differ in their last bits from those of a run that was never interrupted."
            + f" With `threads: {saved}` in its config.yaml they are the same."
            * (wanted != saved)
        ]
    if now > here:
        return [
            f"The run goes on with its {now} threads, so that its numbers stay the same, but there are {here} "
            f"cores here: it is slow. With `threads: {here}` in its config.yaml it is faster, and its last bits "
            "may differ."
        ]
    return []


def _notes_of_seeds(saved: int, now: int) -> list[str]:
    """A notice if another number of seeds was computed side by side until the checkpoint."""
    if saved == now:
        return []
    return [
        f"The checkpoint was made side by side with {saved - 1} other seed{'s' * (saved > 2)}, and the run goes on "
        "alone: from here its numbers may differ in their last bits from those of a run that was never interrupted."
    ]


def with_empty_memory(state: dict[str, Any], config: Config, memory: AnyMemory) -> tuple[dict[str, Any], str]:
    """The state with an empty memory, and a notice on it.

    Its environments begin new episodes: a memory may need them whole.
    """
    spec = config.algorithm.memory()
    if isinstance(spec, RolloutSpec):
        name = config.algorithm.name()
        return state, f"{name} has no replay memory: nothing was left out, and the run goes on exactly."
    first = spec.waits_for if isinstance(spec, ReplaySpec) else spec.learning_starts
    note = (
        "The run goes on with an empty memory and new episodes: what it remembered is left out. Learning waits for "
        f"{first:,} steps, as at the run's start. From here the run is not the same, number by number, as one that was "
        "never interrupted."
    )
    return with_new_episodes(state) | {"memory": memory.emptied(state["memory"])}, note


def with_new_episodes(state: dict[str, Any]) -> dict[str, Any]:
    """The state without the environments' states, so that new episodes begin."""
    return state | {"stepper": state["stepper"] | {"environments": None}}
