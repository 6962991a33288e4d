"""Fine-tuning: start a run with the networks of another one."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from duetto.algorithms import Algorithm
from duetto.errors import CheckpointError, DuettoError, UsageError
from duetto.functional import state_schema
from duetto.runs.checkpoints import chosen
from duetto.storage.checkpoint import Best, Loaded
from duetto.storage.config import Config
from duetto.storage.reproducibility import changes
from duetto.training.resume_checks import ACTING
from duetto.training.trainer import Trainer


@dataclass(frozen=True)
class WarmStart:
    """The run that another one starts from, and what it takes over; `from` in `config.yaml`."""

    run: str  # the other run's folder
    checkpoint: str = "last"  # or "best", or a step
    optimizers: bool = False
    memory: bool = False
    step: int | None = None  # that of the checkpoint, once it is known

    @classmethod
    def asked_for(cls, run: str | None, checkpoint: str, optimizers: bool, memory: bool) -> Self | None:
        """Return it for the arguments of a call; None without `run`. UsageError if only the others are given."""
        if run is not None:
            return cls(str(Path(run).absolute()), checkpoint, optimizers, memory)
        given = {"checkpoint": checkpoint != "last", "optimizers": optimizers, "memory": memory}
        if how := [f"--from-{name}" for name, is_given in given.items() if is_given]:
            raise UsageError(
                f"{' and '.join(how)}: of which run? Say from which one to start, with --from RUN (in Python from_run)."
            )
        return None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Undo `to_dict`. Raises CheckpointError for anything else."""
        kinds = {
            "run": str,
            "checkpoint": str,
            "optimizers": bool,
            "memory": bool,
            "step": state_schema.OptionalOf(int),
        }
        state_schema.check(values, kinds, "from")
        return cls(**{name: values[name] for name in ("run", "checkpoint", "optimizers", "memory", "step")})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as YAML values."""
        return dict(vars(self))

    def __str__(self) -> str:
        return self.run if self.step is None else f"step {self.step} of {self.run}"

    def check(self) -> None:
        """Raise UsageError or CheckpointError if there is no such run or checkpoint; its memory is not read."""
        replace(self, memory=False)._loaded(Path(self.run))

    def planned(self, config: Config) -> Config:
        """Return the config of a run that will start from this one. Raises as `check` does."""
        self.check()
        return replace(config, began_from=self.to_dict()).signed()

    def begin(self, trainer: Trainer) -> Self:
        """Load the other run's networks into the trainer; return a copy with the step, for the config.

        Raises:
            UsageError: The other run's networks, spaces, statistics or memory do not fit.
            CheckpointError: The step is known, and the other run no longer has that checkpoint.
        """
        folder = Path(self.run)
        if self.checkpoint == "best" and (self.optimizers or self.memory):
            raise UsageError("The best checkpoint has networks only: take --from-checkpoint last, or a step.")
        loaded = self._loaded(folder)
        state_schema.check(loaded.state, ACTING, "acting")
        try:
            trainer.components.begin_from(loaded.state, self.optimizers)
            if self.memory:
                assert isinstance(loaded, Loaded)
                trainer.components.remember(loaded)
        except CheckpointError as error:
            others = "".join(f"{difference}. " for difference in _differences(trainer, loaded.state))
            raise UsageError(f"This run cannot start from {loaded.path}: {others}{error}") from error
        algorithm = trainer.config.algorithm
        if random := algorithm.first_random_steps():
            trainer.notices.append(
                f"It starts with what {folder} has learned, but its first {random:,} actions are random. With "
                "--random-steps 0 they are the policy's."
            )
        return type(self)(self.run, self.checkpoint, self.optimizers, self.memory, loaded.step)

    def _loaded(self, folder: Path) -> Loaded | Best:
        """Load the checkpoint; if the step is known, CheckpointError unless it is of that step."""
        which = self.checkpoint if self.step is None or self.checkpoint == "best" else self.step
        try:
            if not (folder / "checkpoints").is_dir():
                raise UsageError(f"{folder} is no run to start from: it has no checkpoints.")
            loaded = chosen(folder, which, memory=self.memory)
            if self.step not in (None, loaded.step):
                raise CheckpointError(f"Its {self.checkpoint} checkpoint is of step {loaded.step} now.")
        except DuettoError as error:
            if self.step is None:
                raise
            raise CheckpointError(
                f"The run started with {self}, which cannot be had: {error} Put it back, or start a new run that says "
                "with --from RUN what it starts with."
            ) from error
        return loaded


def _differences(trainer: Trainer, theirs: dict[str, Any]) -> list[str]:
    """The differences of the other run, of whose acting or whole state `theirs` is, that make its networks others."""
    ours = trainer.config.algorithm
    name = theirs["run"]["algorithm"] if "run" in theirs else ours.name()
    if name != ours.name():
        return [f"That run is of {name}, this one of {ours.name()}, whose networks are others"]
    spaces = trainer.stepper.observation_space, trainer.stepper.action_space
    networks = ours.networks(*spaces)
    found: list[str] = []
    for key, (old, new) in changes(trainer.config, theirs.get("config", {})).items():
        part, _, option = key.partition(".")
        if part == "algorithm" and _with(ours, option, old).networks(*spaces) != networks:
            found.append(f"Its {option} is {old}, here {new}")
    return found


def _with(algorithm: Algorithm, option: str, value: str) -> Algorithm:
    """A copy with an option's value, JSON from a checkpoint; unchanged if the algorithm does not take it."""
    try:
        return algorithm.with_options(**{option: json.loads(value)})
    except (UsageError, ValueError):
        return algorithm
