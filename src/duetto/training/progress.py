"""The progress display of a run: two live lines on a terminal, plain lines elsewhere."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from duetto.errors import near, to_resume
from duetto.install_hint import is_installed
from duetto.storage import user_code
from duetto.training import signals
from duetto.training.callbacks import Callback
from duetto.training.notices import shown_elsewhere
from duetto.training.progress_lines import LINE_SECONDS, LiveDisplay, clock, is_watched

if TYPE_CHECKING:  # the import takes a second, and the display should appear before that
    from pathlib import Path

    from duetto.training.trainer import Trainer

REFRESH_SECONDS = 0.5


class ProgressDisplay(LiveDisplay, Callback):
    """A callback that shows steps/s, time left, the last evaluation, the training return and the critic's loss.

    Before the first step it shows the current activity and the remaining updates of pre-training. For several seeds in
    this process it shows sums of steps and means of returns.
    """

    def __init__(self, console: Console, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self._next = self._next_line = 0.0
        self._speed: float | None = None  # steps per second
        self._counting = False  # whether the measurement of steps/s restarted after the last evaluation
        self.trainers: list[Trainer] = []
        self._evaluated = -1  # the step of the last evaluation that was shown
        self._shown: tuple[int, object] | None = None  # this evaluation, if there is a single run
        self._results: list[str] = []

    def stop(self) -> None:
        """Stop the live lines, and remove them if the run has not started."""
        self._activity = ""
        self._progress.live.transient = not self.trainers
        super().stop()

    def doing(self, text: str) -> None:
        """Print new notices, and show an activity in the status line; "" ends the activity."""
        self._show_news()
        super().doing(text)

    def on_start(self, trainer: Trainer) -> None:
        """Announce the run, unless `announce` was called before."""
        if trainer not in self.trainers:
            self.announce([trainer])

    def announce(self, trainers: Sequence[Trainer]) -> None:
        """Print the first lines of a run, or of several seeds in this process: algorithm, backend, folder ..."""
        self.trainers, self._activity = list(trainers), ""
        for trainer in trainers:
            trainer.on_activity = self.doing
        first = trainers[0]
        config, options = first.config, first.config.run
        # After a lost shard, the run continues with a new trainer, whose last evaluation was shown before.
        self._counting, self._shown = False, first.last_evaluation
        self._evaluated = -1 if self._shown is None else self._shown[0]
        seeds = ", ".join(str(trainer.config.run.seed) for trainer in trainers)
        several, environment = len(trainers) > 1, user_code.short(config.environment)
        random = 0 if first.step else min(config.algorithm.first_random_steps(), options.steps)
        self.say(
            f"{config.algorithm.name()} on {environment}, {options.backend} on {options.device}, "
            f"seed{'s' * several} {seeds}{' side by side' * several}, preset {config.preset}, "
            f"{options.steps:,} steps{' each' * several}"
            + (f", random actions in the first {random:,}" if random else "")
        )
        for trainer in trainers:
            self.say(f"{near(trainer.folder)}/")
        if first.step >= options.steps:
            self.say(f"All {options.steps:,} steps are done. To continue: {to_resume(first.folder)} --steps N")
        elif first.step:
            self.say(f"Resuming at step {first.step:,}.")
        if config.cluster:  # tell now: if a raylet dies, Ray ends this process without a message
            self.say(f"If the cluster fails and ends this process, continue with: {to_resume(first.folder)}")
        self._show_news()

    def on_step(self, trainer: Trainer) -> None:
        """Update the display, if REFRESH_SECONDS have passed since the last update."""
        now = time.perf_counter()
        self._activity = ""
        self._show_news()
        if self._counting and now < self._next and trainer.step < trainer.config.run.steps:
            return
        self._next = now + REFRESH_SECONDS
        trainers, config = self.trainers, trainer.config
        several = f" × {len(trainers)} seeds" if len(trainers) > 1 else ""
        self._results = self._learned()
        rate = self._count(
            f"{config.algorithm.name()} {user_code.short(config.environment)}{several}",
            sum(one.step for one in trainers),
            sum(one.config.run.steps for one in trainers),
        )
        if not self._live_lines and now >= self._next_line and (self._speed or trainer.memory.pretraining_left):
            self._next_line = now + LINE_SECONDS
            parts = [f"step {trainer.step:>9,}", rate and f"{rate}{' of all seeds' * bool(several)}", *self._results]
            self.say("  ".join(filter(None, parts)))

    def _count(self, name: str, step: int, steps: int) -> str:
        """Update the row; return the steps/s as text, or "" before they are known."""
        row = self._row(name, step, steps)
        if not self._counting:  # steps/s exclude the time of evaluations
            self._progress.reset(row, completed=step)
            self._progress.advance(row, 0)  # Rich measures the rate from this point
            self._counting = True
        self._speed = speed = self._progress.tasks[0].speed or self._speed
        known = speed is not None and speed >= 1  # a lower speed is measured while JAX compiles
        left = 0.0 if step >= steps else max(0, steps - step) / speed if speed and known else None
        rate = f"{speed:,.0f} steps/s" if known else ""
        self._row(name, step, steps, note=rate, left=clock(left))
        return rate

    def _status(self) -> list[str]:
        return self._results

    def finish(self, *paths: Path) -> None:
        """Stop the live lines, and print the results. For a stopped run, print how to continue it."""
        self._show_news()
        self.stop()
        trainers, several = self.trainers, len(self.trainers) > 1
        if stopped := [path for path, trainer in zip(paths, trainers, strict=True) if trainer.stopped]:
            which = (
                f"{len(stopped)} of {len(paths)} seeds stopped" if several else f"Stopped at step {trainers[0].step:,}"
            )
            self.say(f"{which}. Continue with: {' && '.join(map(to_resume, stopped))}")
            if not several:
                return
        if returns := self._returns():
            each = f"{spread(returns)} over {len(returns)} seeds ({', '.join(f'{value:,.1f}' for value in returns)})"
            last = trainers[0].last_evaluation
            self.say(f"Last evaluation: {each if several or last is None else last[1]}")
        steps, updates = sum(one.step for one in trainers), sum(one.learner.updates for one in trainers)
        self.say(f"{steps:,} steps and {updates:,} updates in {clock(max(one.seconds for one in trainers))}.")
        filmed = not several and _can_film(trainers[0])
        self.say(f"See it: duetto {'video' if filmed else 'plot'} {' '.join(str(near(path)) for path in paths)}")

    def summaries(self, paths: Sequence[Path]) -> list[dict[str, object]]:
        """Return the results of each run as JSON values."""
        return [
            {
                "run": str(path),
                "step": trainer.step,
                "updates": trainer.learner.updates,
                "seconds": round(trainer.seconds, 3),
                "stopped": trainer.stopped,
                "evaluation": trainer.last_evaluation
                and {"step": trainer.last_evaluation[0], **trainer.last_evaluation[1].to_dict()},
                "notices": list(trainer.notices),
            }
            for trainer, path in zip(self.trainers, paths, strict=True)
        ]

    def _show_news(self) -> None:
        """Print new notices. Print the evaluations at a step once every seed that still trains has evaluated there."""
        waited_for = [trainer for trainer in self.trainers if not trainer.stopped] or self.trainers
        step = min((one.last_evaluation[0] if one.last_evaluation else -1 for one in waited_for), default=-1)
        only = self.trainers[0].last_evaluation if len(self.trainers) == 1 else None
        if step > self._evaluated or (only and only is not self._shown):  # pre-training ends at step 0, like a start
            self._evaluated, self._shown, self._counting = step, only, False
            last = [trainer.last_evaluation for trainer in self.trainers]
            results = [evaluation[1] for evaluation in last if evaluation is not None and evaluation[0] == step]
            if len(self.trainers) == 1:
                self.say(f"step {step:>9,}  evaluation {results[0]}")
            else:
                returns = [result.mean_return for result in results]
                self.say(f"step {step:>9,}  evaluations {spread(returns)} over {len(returns)} seeds")
        for trainer in self.trainers:
            seed = f"Seed {trainer.config.run.seed}: " if len(self.trainers) > 1 else ""
            self._show_notices(trainer.notices, seed)

    def _learned(self) -> list[str]:
        """Return the parts of the status line: means over the seeds, ± standard deviations if there are several."""
        trainers, parts = self.trainers, list[str]()
        if left := trainers[0].memory.pretraining_left:
            parts.append(f"pre-training: {left:,} updates left")
        if returns := self._returns():
            parts.append(f"evaluation {spread(returns)}")
        if training := [one.log.recent_return for one in trainers if one.log.recent_return is not None]:
            parts.append(f"training {spread(training)}")
        losses = [one.log.last_line.get("learn/critic_loss") for one in trainers]
        if found := [loss for loss in losses if loss is not None]:
            parts.append(f"critic loss {statistics.fmean(found):,.3g}")
        return parts

    def _returns(self) -> list[float]:
        """Return the mean returns of the trainers' last evaluations."""
        return [one.last_evaluation[1].mean_return for one in self.trainers if one.last_evaluation is not None]


def _can_film(trainer: Trainer) -> bool:
    """Return whether the environment draws images, and the packages for a video are installed."""
    from duetto.environments.env_registry import family_of  # slow to import, so the display starts first

    family = family_of(str(trainer.config.environment))
    modes = (trainer.stepper.engine.metadata or {}).get("render_modes", ())
    return "rgb_array" in modes and all(map(is_installed, ("video", *([family.extra] if family else []))))


def spread(values: Sequence[float]) -> str:
    """Format a single value, or several as mean ± standard deviation."""
    deviation = f" ± {statistics.pstdev(values):,.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):,.1f}{deviation}"


@contextmanager
def watched(
    progress: bool, beginning: str
) -> Iterator[tuple[ProgressDisplay | None, Callable[[Sequence[Path]], None]]]:
    """Yield the display of `train` or `resume`, and a function to call at the end with the runs' folders.

    The display first shows the text `beginning`, and the function prints the results. If `progress` is false, or stdout
    is neither a terminal nor a notebook, the display is None, and the function only logs how to continue after a
    signal. Signals that end a run are raised again after the block, as in `signals.passed_on`.
    """
    console = Console()
    with signals.passed_on() as came:
        if not (progress and is_watched(console)):
            yield (
                None,
                lambda folders: signals.say_how(
                    came, f"Continue with: {', '.join(f'duetto.Run({str(path)!r}).resume()' for path in folders)}"
                ),
            )
            return
        with shown(console, beginning) as display:
            yield display, lambda folders: display.finish(*folders)


@contextmanager
def shown(console: Console, beginning: str, quiet: bool = False) -> Iterator[ProgressDisplay]:
    """Yield a progress display, which shows `beginning` until the run is announced."""
    with shown_elsewhere(), ProgressDisplay(console, quiet) as display:
        display.doing(beginning)
        yield display
