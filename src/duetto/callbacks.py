"""Ready callbacks: `duetto.train(..., callbacks=[duetto.callbacks.StopAtReturn(200)])`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

from duetto.algorithms.option_bounds import Bounds, Count, check_fields
from duetto.functional import state_schema
from duetto.functional.state_schema import OptionalOf
from duetto.training import video
from duetto.training.callbacks import Callback
from duetto.training.session import Session

__all__ = ["Callback", "KeepCheckpoints", "RecordVideo", "StopAtReturn", "StopWithoutImprovement", "TimeLimit"]


def _warn_without_evaluations(callback: Callback, session: Session) -> None:
    if not session.config.run.evaluate_every:
        session.notices.append(
            f"{type(callback).__name__} needs evaluations, and evaluate_every is 0: only session.evaluate() makes some."
        )


@dataclass
class StopAtReturn(Callback):
    """End the run once an evaluation's mean return is at least `value`, in the environment's rewards."""

    value: Annotated[float, Bounds(endless=True)]

    def __post_init__(self) -> None:
        check_fields(self)

    def on_start(self, session: Session) -> None:
        """Warn if nothing is evaluated."""
        _warn_without_evaluations(self, session)

    def on_evaluation(self, session: Session) -> None:
        """See the class."""
        _, result = session.last_evaluation or (0, None)
        if result is not None and result.mean_return >= self.value:
            session.stop(f"The evaluation's mean return, {result.mean_return:.6g}, has reached {self.value:g}.")


@dataclass
class StopWithoutImprovement(Callback):
    """End the run after so many evaluations in a row without a new best mean return.

    A new best is higher by more than `least`. A resumed run continues to count.
    """

    evaluations: Count
    least: Annotated[float, Bounds(0.0)] = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        self._begin()

    def _begin(self) -> None:
        self._best: float | None = None
        self._without = 0
        self._taken_up = False

    def on_start(self, session: Session) -> None:
        """Warn if nothing is evaluated; in a new run, forget the state of an earlier run."""
        _warn_without_evaluations(self, session)
        if not self._taken_up:
            self._begin()
        self._taken_up = False

    def on_evaluation(self, session: Session) -> None:
        """See the class."""
        _, result = session.last_evaluation or (0, None)
        if result is None:
            return
        if self._best is None or result.mean_return > self._best + self.least:
            self._best, self._without = result.mean_return, 0
            return
        self._without += 1
        if self._without >= self.evaluations:
            session.stop(
                f"{self._without} evaluations in a row were no better than the mean return {self._best:.6g} before."
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the best mean return, and the number of evaluations since then."""
        return {"best": self._best, "without": self._without}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of `state_dict`. Raises CheckpointError if it is malformed."""
        state_schema.check(state, {"best": OptionalOf(float), "without": int}, "callbacks/StopWithoutImprovement")
        self._best, self._without, self._taken_up = state["best"], state["without"], True


@dataclass
class TimeLimit(Callback):
    """End the run after so many seconds of work, including those before a resume, but not the steps that a kill lost.

    The current step, a checkpoint and an evaluation of the last policy follow. Ending the process during that
    evaluation loses nothing.
    """

    seconds: Annotated[float, Bounds(0.0, above=True, endless=True)]

    def __post_init__(self) -> None:
        check_fields(self)

    def on_step(self, session: Session) -> None:
        """See the class."""
        if session.seconds >= self.seconds:
            session.stop(
                f"It has worked for {self.seconds:g} seconds, its time limit. Resume it with a longer one, or without."
            )


@dataclass
class KeepCheckpoints(Callback):
    """Keep every `every`-th scheduled checkpoint for good, to evaluate or to fine-tune from.

    Checkpoints share the files of their replay memory; those of a kept checkpoint are not removed.
    """

    every: Count

    def __post_init__(self) -> None:
        check_fields(self)

    def on_start(self, session: Session) -> None:
        """Warn if `checkpoint_every` is 0, so no checkpoint is scheduled."""
        if not session.config.run.checkpoint_every:
            session.notices.append(
                "KeepCheckpoints needs checkpoint_every, which is 0: it keeps no checkpoint for good."
            )

    def on_checkpoint(self, session: Session) -> None:
        """See the class."""
        interval = session.config.run.checkpoint_every
        if not interval:
            return
        number, since = divmod(session.step, interval)
        # The first step at or after a scheduled one: a checkpoint of a run that was stopped does not count.
        if number and number % self.every == 0 and since < session.stepper.num_envs:
            session.checkpoints.store.keep_for_good(session.step)


@dataclass
class RecordVideo(Callback):
    """Record an episode of the policy, as it acts in evaluations, before the first step and every `steps` steps.

    The videos are in the run's folder `videos/`, as those of `duetto video`. The episodes are not learned from.
    UsageError if imageio or ffmpeg is missing, or the environment renders no pictures.
    """

    steps: Count

    def __post_init__(self) -> None:
        check_fields(self)
        video.imageio()  # raise now if it is missing

    def on_start(self, session: Session) -> None:
        """Record the first episode of a new run, so that an environment without pictures fails early."""
        self._before = session.step
        if not session.step:
            self._record(session)

    def on_step(self, session: Session) -> None:
        """See the class."""
        before, self._before = self._before, session.step
        if before // self.steps < session.step // self.steps:
            self._record(session)

    def _record(self, session: Session) -> None:
        with session.in_its_folder(), closing(session.another_environment(render_mode="rgb_array")) as stepper:
            path = video.place(session.folder, session.step)
            video.record(session.policy, stepper, session.config.run.seed, path, tell=session.on_activity)
