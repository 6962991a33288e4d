"""Fine-tuning: start a run with the networks of another one."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from duetto.errors import CheckpointError, DuettoError, UsageError
from duetto.functional import state_schema
from duetto.runs.argument_checks import chosen
from duetto.storage.checkpoint import Loaded
from duetto.storage.config import Config
from duetto.training.checkpoints import ACTING
from duetto.training.trainer import Trainer


@dataclass(frozen=True)
class WarmStart:
    """The run whose networks another one starts with; `from` in `config.yaml`."""

    run: str  # the other run's folder
    checkpoint: str = "last"  # or "best", or a step
    step: int | None = None  # that of the checkpoint, once it is known

    @classmethod
    def asked_for(cls, run: str | os.PathLike[str] | None, checkpoint: str) -> Self | None:
        """Return the warm start that the arguments request; None without `run`."""
        if run is not None:
            return cls(str(Path(run).absolute()), checkpoint)
        if checkpoint != "last":
            raise UsageError("--from-checkpoint needs the run: give --from RUN too (in Python from_run).")
        return None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Undo `to_dict`. Raises CheckpointError for anything else."""
        state_schema.check(values, {"run": str, "checkpoint": str, "step": state_schema.OptionalOf(int)}, "from")
        return cls(values["run"], values["checkpoint"], values["step"])

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as YAML values."""
        return dict(vars(self))

    def planned(self, config: Config) -> Config:
        """Return the config of a run that will start from this one. UsageError or CheckpointError if it cannot."""
        self._loaded()
        return replace(config, began_from=self.to_dict()).signed()

    def apply(self, trainer: Trainer) -> Self:
        """Load the other run's networks into the trainer; return a copy with the step, for the config.

        Raises:
            UsageError: The other run's networks, spaces or statistics do not fit.
            CheckpointError: The step is known, and the other run no longer has that checkpoint.
        """
        loaded = self._loaded()
        state_schema.check(loaded.state, ACTING, "acting")
        try:
            trainer.components.begin_from(loaded.state)
        except CheckpointError as error:
            raise UsageError(f"This run cannot start from {loaded.path}: {error}") from error
        if random := trainer.config.algorithm.first_random_steps():
            trainer.notices.append(
                f"It starts with what {self.run} has learned, but its first {random:,} actions are random. With "
                "--random-steps 0 they are the policy's."
            )
        return replace(self, step=loaded.step)

    def _loaded(self) -> Loaded:
        """Load the checkpoint; if the step is known, CheckpointError unless it is of that step."""
        which = self.checkpoint if self.step is None or self.checkpoint == "best" else self.step
        try:
            if not (Path(self.run) / "checkpoints").is_dir():
                raise UsageError(f"{self.run} is no run to start from: it has no checkpoints.")
            loaded = chosen(Path(self.run), which)
            if self.step not in (None, loaded.step):
                raise CheckpointError(f"Its {self.checkpoint} checkpoint is of step {loaded.step} now.")
        except DuettoError as error:
            if self.step is None:
                raise
            raise CheckpointError(
                f"The run started with step {self.step} of {self.run}: {error} Put it back."
            ) from error
        return loaded
