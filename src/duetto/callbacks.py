"""Ready-made callbacks: `duetto.train(..., callbacks=[duetto.callbacks.StopAtReturn(200)])`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Annotated

from duetto.algorithms.options import Bounds, Count, Positive, check_fields
from duetto.training import video
from duetto.training.callbacks import Callback
from duetto.training.trainer import Trainer

__all__ = ["Callback", "RecordVideo", "StopAtReturn", "TimeLimit"]


@dataclass
class StopAtReturn(Callback):
    """End the run once an evaluation's mean return is at least `value`, in unscaled rewards."""

    value: Annotated[float, Bounds()]

    def __post_init__(self) -> None:
        check_fields(self)

    def on_start(self, trainer: Trainer) -> None:
        """Warn if evaluations are off."""
        if not trainer.config.run.evaluate_every:
            trainer.notices.append("StopAtReturn needs evaluations, and evaluate_every is 0.")

    def on_evaluation(self, trainer: Trainer) -> None:
        """Stop the run if the mean return has reached the value."""
        _, result = trainer.last_evaluation or (0, None)
        if result is not None and result.mean_return >= self.value:
            trainer.stop(f"The evaluation's mean return, {result.mean_return:.6g}, has reached {self.value:g}.")


@dataclass
class TimeLimit(Callback):
    """End the run with a checkpoint after `seconds` of work, summed over all resumes.

    The time of steps that were lost in a crash is not included.
    """

    seconds: Positive

    def __post_init__(self) -> None:
        check_fields(self)

    def on_step(self, trainer: Trainer) -> None:
        """Stop the run after its time limit."""
        if trainer.seconds >= self.seconds:
            trainer.stop(
                f"It has reached its time limit of {self.seconds:g} seconds. Resume it with a longer limit or none."
            )


@dataclass
class RecordVideo(Callback):
    """Record an episode of the evaluation policy before the first step and every `steps` steps.

    Videos go to `videos/` in the run's folder, like those of `duetto video`. The agent does not learn from these
    episodes.

    Raises:
        UsageError: imageio or ffmpeg is missing, or the environment cannot render images.
    """

    steps: Count

    def __post_init__(self) -> None:
        check_fields(self)
        video.imageio()  # raises now if imageio is missing

    def on_start(self, trainer: Trainer) -> None:
        """Record an episode at step 0. So an environment that cannot render raises an error before training."""
        self._before = trainer.step
        if not trainer.step:
            self._record(trainer)

    def on_step(self, trainer: Trainer) -> None:
        """Record an episode if it is due."""
        before, self._before = self._before, trainer.step
        if before // self.steps < trainer.step // self.steps:
            self._record(trainer)

    def _record(self, trainer: Trainer) -> None:
        with closing(trainer.make_eval_env(render_mode="rgb_array")) as stepper:
            path = video.place(trainer.folder, trainer.step)
            video.record(trainer.policy, stepper, trainer.config.run.seed, path, tell=trainer.on_activity)
