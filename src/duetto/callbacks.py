"""Ready callbacks: `duetto.train(..., callbacks=[duetto.callbacks.StopAtReturn(200)])`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

from duetto.algorithms.fields import Count, Within, check_fields
from duetto.display import video
from duetto.functional import forms
from duetto.functional.forms import Optional
from duetto.training.callbacks import Callback
from duetto.training.session import Session

__all__ = ["Callback", "KeepCheckpoints", "RecordVideo", "StopAtReturn", "StopWithoutImprovement", "TimeLimit"]


def _say_if_nothing_is_evaluated(callback: Callback, session: Session) -> None:
    if not session.config.run.evaluate_every:
        session.notices.append(
            f"{type(callback).__name__} goes by evaluations, and evaluate_every is 0: there are none but those that "
            "something calls session.evaluate() for."
        )


@dataclass
class StopAtReturn(Callback):
    """End the run where an evaluation's mean return is at least `value`, in the environment's own rewards."""

    value: Annotated[float, Within(endless=True)]

    def __post_init__(self) -> None:
        check_fields(self)

    def on_start(self, session: Session) -> None:
        """Add a notice where nothing is evaluated."""
        _say_if_nothing_is_evaluated(self, session)

    def on_evaluation(self, session: Session) -> None:
        """See the class."""
        _, result = session.last_evaluation or (0, None)
        if result is not None and result.mean_return >= self.value:
            session.stop(f"The evaluation's mean return, {result.mean_return:.6g}, has reached {self.value:g}.")


@dataclass
class StopWithoutImprovement(Callback):
    """End the run after so many evaluations in a row that were no better than the best one before them.

    Better is a mean return that is higher by more than `least`. A resumed run goes on counting.
    """

    evaluations: Count
    least: Annotated[float, Within(0.0)] = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        self._begin()

    def _begin(self) -> None:
        self._best: float | None = None
        self._without = 0
        self._taken_up = False

    def on_start(self, session: Session) -> None:
        """Add a notice where nothing is evaluated; in a new run, forget the state of an earlier one."""
        _say_if_nothing_is_evaluated(self, session)
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
                f"{self._without} evaluations, one after another, were no better than the mean return "
                f"{self._best:.6g} before them."
            )

    def state_dict(self) -> dict[str, Any]:
        """The best return, and how many evaluations since then."""
        return {"best": self._best, "without": self._without}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. Raises CheckpointError where its form is another."""
        forms.check(state, {"best": Optional(float), "without": int}, "callbacks/StopWithoutImprovement")
        self._best, self._without, self._taken_up = state["best"], state["without"], True


@dataclass
class TimeLimit(Callback):
    """End the run after so many seconds of work, those before a resume included; time spent on steps that were lost and
    are made again does not count.

    The step that is under way, a checkpoint, and an evaluation of the last policy come on top. The checkpoint comes
    first: ending the process during that evaluation loses nothing.
    """

    seconds: Annotated[float, Within(0.0, above=True, endless=True)]

    def __post_init__(self) -> None:
        check_fields(self)

    def on_step(self, session: Session) -> None:
        """See the class."""
        if session.seconds >= self.seconds:
            session.stop(
                f"It has worked for {self.seconds:g} seconds, its time limit. It goes on with a longer one, or without."
            )


@dataclass
class KeepCheckpoints(Callback):
    """Keep every `every`-th checkpoint of the timetable for good, beside the newest: to evaluate, to fine-tune from.

    They share their memory with the others, of which nothing is removed that a kept one holds.
    """

    every: Count

    def __post_init__(self) -> None:
        check_fields(self)

    def on_start(self, session: Session) -> None:
        """Add a notice where `checkpoint_every` is 0, so there is no timetable of checkpoints."""
        if not session.config.run.checkpoint_every:
            session.notices.append("KeepCheckpoints goes by checkpoint_every, which is 0: it keeps none for good.")

    def on_checkpoint(self, session: Session) -> None:
        """See the class."""
        interval = session.config.run.checkpoint_every
        if not interval:
            return
        number, since = divmod(session.step, interval)
        # The first step at or behind the timetable's: a checkpoint where the run was stopped is not counted.
        if number and number % self.every == 0 and since < session.stepper.num_envs:
            session.checkpoints.store.keep_for_good(session.step)


@dataclass
class RecordVideo(Callback):
    """Record an episode of the policy, as it acts in evaluations, before the first step and every `steps` steps.

    The videos are in the run's folder `videos/`, as those of `duetto video`. Learning does not see the episodes.
    UsageError where imageio or ffmpeg is missing, or the environment gives no pictures.
    """

    steps: Count

    def __post_init__(self) -> None:
        check_fields(self)
        video.imageio()  # what is missing shows now

    def on_start(self, session: Session) -> None:
        """Record the first episode of a new run, which also shows early whether the environment can be recorded."""
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
