"""Fine-tuning: start a run with the networks of another run."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from duetto.errors import CheckpointError, DuettoError, UsageError
from duetto.functional import state_schema
from duetto.runs.argument_checks import load_checkpoint
from duetto.storage.checkpoint import Loaded
from duetto.storage.config import Config
from duetto.training.checkpoints import ACTING
from duetto.training.trainer import Trainer


@dataclass(frozen=True)
class WarmStart:
    """The run whose networks a new run starts with. The new run's `config.yaml` records it as `from`."""

    run: str  # the other run's folder
    checkpoint: str = "last"  # or "best", or a step
    step: int | None = None  # the checkpoint's step, once it is known

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
        """Return the warm start from the result of `to_dict`. Raises CheckpointError for malformed values."""
        state_schema.check(values, {"run": str, "checkpoint": str, "step": state_schema.OptionalOf(int)}, "from")
        return cls(values["run"], values["checkpoint"], values["step"])

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as YAML values."""
        return dict(vars(self))

    def planned(self, config: Config) -> Config:
        """Return `config` with this warm start and its checkpoint's step.

        Raises UsageError or CheckpointError if the checkpoint cannot be loaded.
        """
        return replace(config, began_from=self.to_dict() | {"step": self._loaded().step}).signed()

    def apply(self, trainer: Trainer) -> None:
        """Load the other run's networks into the trainer.

        Raises:
            UsageError: The other run's networks, spaces or statistics do not fit.
            CheckpointError: `step` is known, but the other run no longer has this checkpoint.
        """
        loaded = self._loaded()
        state_schema.check(loaded.state, ACTING, "acting")
        try:
            trainer.components.begin_from(loaded.state)
        except CheckpointError as error:
            raise UsageError(f"This run cannot start from {loaded.path}: {error}") from error
        if random := trainer.config.algorithm.first_random_steps():
            trainer.notices.append(
                f"The run starts with the networks of {self.run}, but its first {random:,} actions are random. With "
                "--random-steps 0 the policy selects them."
            )

    def _loaded(self) -> Loaded:
        """Load the checkpoint. If `step` is known, raises CheckpointError unless the checkpoint is of this step."""
        which = self.checkpoint if self.step is None or self.checkpoint == "best" else self.step
        try:
            if not (Path(self.run) / "checkpoints").is_dir():
                raise UsageError(f"{self.run} is no run to start from: it has no checkpoints.")
            loaded = load_checkpoint(Path(self.run), which)
            if self.step not in (None, loaded.step):
                raise CheckpointError(f"Its {self.checkpoint} checkpoint is now at step {loaded.step}.")
        except DuettoError as error:
            if self.step is None:
                raise
            raise CheckpointError(
                f"The run started with step {self.step} of {self.run}: {error} Restore it."
            ) from error
        return loaded
