"""A run at work: the parts joined by one loop.

    while steps remain:
        experience = collect one step of every environment
        memory.take(experience), wherever that lies
        for each batch that is due: learner.update(batch), and its priorities back to the memory (`learner.at_once` of
            them at a time, where none depends on what was learned from the one before)
        at their steps: a line of metrics, an evaluation, a checkpoint; around it the user's callbacks

Everything that decides how the loop goes on is in its checkpoints, so a run that is killed goes on exactly from the
last one.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from duetto import buffers, environments, learners
from duetto.algorithms.base import DIVERGENCE, SequenceBatch
from duetto.errors import DuettoError, EnvironmentFailedError, NonFiniteError, PartLostError, UsageError, near
from duetto.learners.base import on_host
from duetto.storage import resume_history
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.config import Config
from duetto.storage.lock import FolderLock
from duetto.storage.logs import Csv
from duetto.training import evaluations, resume_checks
from duetto.training.callbacks import FUNCTIONS, AnyCallback, CallbackList
from duetto.training.checkpoints import Checkpoints
from duetto.training.collector import Source
from duetto.training.components import Components
from duetto.training.diagnostics import Diagnostics, check_finite
from duetto.training.evaluation import Evaluation
from duetto.training.evaluations import Evaluations
from duetto.training.execution import Execution, LocalExecution
from duetto.training.folder_guard import check_folder
from duetto.training.metrics import MetricLog
from duetto.training.normalizer import AnyBatch, Normalizer
from duetto.training.notices import Notices
from duetto.training.policy import EvaluationPolicy
from duetto.training.signals import interruptible


class Trainer:
    """A run at work. Callbacks get it: read its parts, and leave changing them to the loop.

    Attributes:
        step: Steps made so far, over all environments.
        config: All that the run is made from, as in `config.yaml`: `config.algorithm`, `config.environment`,
            `config.run` (the `RunOptions`).
        folder: The run's folder.
        learner: The learner. `learner.updates` is the number of updates; `learner.parameters()` copies all parameters,
            by network and name.
        memory: The memory that is learned from. `len(memory)` counts what it holds: steps, or sequences.
        stepper: The environments that are learned from: `num_envs`, `observation_space`, `action_space`, and `obs`
            (N, ...), which is acted on next.
        log: The log of metrics. `log.scalar(name, value)` gives the next line a number of your own;
            `log.recent_return` is the mean return of the last 100 training episodes, None before the first.
        notices: Sentences for the user, in order; whoever shows the run shows them.
    """

    config: Config
    folder: Path
    parts: Components
    stepper: environments.VecEnv
    learner: learners.Learner
    normalizer: Normalizer
    collector: Source
    log: MetricLog
    diagnostics: Diagnostics
    checkpoints: Checkpoints

    def __init__(
        self,
        config: Config,
        folder: Path,
        environment: Any,
        lock: FolderLock | None = None,
        place: Execution | None = None,
        build_learner: Callable[..., learners.Learner] = learners.build,
    ) -> None:
        """`lock` is the folder's; without one it goes unnoticed if the folder is moved meanwhile.

        `place` is where the environments live that are learned from; None: in this process.
        """
        self.folder, self._environment = folder, environment
        self._lock = lock or FolderLock(folder)
        self.notices: Notices = Notices()
        self._callbacks = CallbackList(self.notices)
        with ExitStack() as opened:  # what is open already is closed if a later part cannot be made
            self._open(config, place or LocalExecution(), build_learner, opened)
            self._opened = opened.pop_all()
        self.step: int = 0
        self.seconds = 0.0  # from now on
        self._stop = self._waited_for = False
        self._learns = False  # within the updates that are due
        self._hooks: list[str] = []  # those that are being called, one within the other
        self._set: set[str] = set()  # attributes that callbacks have set
        self._asked = False  # whether a hook of this step wants a checkpoint
        self._concluded = False  # whether a run that was stopped has its last checkpoint
        self.on_activity: Callable[[str], None] = lambda _: None  # whoever shows the run shows what takes long in it

    def _open(
        self, config: Config, place: Execution, build_learner: Callable[..., learners.Learner], opened: ExitStack
    ) -> None:
        self.parts = parts = Components(config, self._environment, place, build_learner, self.notices)
        opened.callback(parts.close)
        self.stepper, self.learner = parts.stepper, parts.learner
        self.normalizer, self.collector = parts.normalizer, parts.collector
        self.config = dataclasses.replace(config, cluster=place.decided(self.stepper))
        self.diagnostics = Diagnostics(self)
        self.log = MetricLog(self.folder)
        opened.callback(self.log.close)
        table = opened.enter_context(Csv(self.folder / "evaluations.csv", evaluations.FIELDS))
        beside = place.make_evaluator(self.config, self._environment, self.stepper)
        self._evaluations = Evaluations(self, table, beside, lambda: self._call("on_evaluation"))
        opened.callback(self._evaluations.close)
        store = CheckpointStore(self.folder / "checkpoints", config.run.keep, self.stepper.num_envs)
        self.checkpoints = Checkpoints(self, store, self._callbacks, self._evaluations)

    @property
    def memory(self) -> resume_checks.AnyMemory:
        """The memory that is learned from; another one, once environments turn out to give masks of actions."""
        return self.parts.memory

    # ------------------------------------------------------------------------------------------------ the loop
    def run(self, callbacks: Sequence[AnyCallback] = ()) -> None:
        """Run to the configured number of steps, or until `stop` or Ctrl-C. The end is always a checkpoint."""
        self._callbacks.take(callbacks)
        before = self.step
        with interruptible(self.interrupt, lambda: self.unfinished), self._saying_where_it_stopped():
            self._call("on_start")
            if self.checkpoints.changed:  # a plain resume of what is killed before the next one would be refused
                self.checkpoint()
            elif self.checkpoints.last:
                self._call("on_checkpoint")
            for _ in self._steps():
                self._call(FUNCTIONS)
            self._evaluations.finish()
            if self._asked or not self.checkpoints.up_to_date:
                self.checkpoint()
            self._conclude()
            if before < self.step:
                self.diagnostics.after_run()
            self._check_folder()
            self._call("on_end")
            self.log.write_own(self.step)

    @contextmanager
    def _saying_where_it_stopped(self) -> Iterator[None]:
        try:
            yield
        except NonFiniteError as error:
            raise NonFiniteError(f"{error} {self._where_it_stopped()}") from error
        except EnvironmentFailedError as error:
            # In the middle of a step, so nothing is written: the last checkpoint is whole, and this state is not.
            sentence = f"{error.sentence} {self._where_it_stopped()}"
            raise EnvironmentFailedError(sentence, error.trace) from error.__cause__
        except PartLostError as error:
            error.step = self.step
            raise

    def _where_it_stopped(self) -> str:
        where = f"The run on {self.config.environment} stopped at step {self.step}"
        if self.checkpoints.last is None:
            return f"{where}, before its first checkpoint."
        place = near(self.folder) if self._lock.is_in_place() else f"its folder, which is no longer {self.folder}"
        return f"{where}; its checkpoint of step {self.checkpoints.step} is kept for evaluate and resume in {place}."

    def _call(self, hook: str) -> None:
        self._hooks.append(hook)
        try:
            self._callbacks.call(hook, self)
        except DuettoError:
            raise
        except Exception as error:  # the user's own, with its own traceback
            error.add_note(f"A callback raised this. {self._where_it_stopped()}")
            raise
        finally:
            self._hooks.pop()
        if self._asked and not self._hooks and hook != "on_evaluation":  # on_step comes behind that
            self.checkpoint()

    def _conclude(self) -> None:
        """Evaluate the last policy, and write the last line of metrics, if none is due at this step.

        This comes after the last checkpoint: a run that is resumed there drops both again, and has the rows and lines
        of one that never ended here; and killing the process meanwhile loses nothing.
        """
        self._concluded = self.stopped
        if self.stopped and self.config.run.evaluate_every and not self._waited_for:
            self._evaluations.conclude(lambda: self._waited_for)
        if self.log.last != (self.step, self.learner.updates):
            self._write_metrics()
        self.log.write_own(self.step)  # what came behind the last line

    def stop(self, because: str = "", evaluates: bool = True) -> None:
        """End the loop after this step, with a checkpoint; and with an evaluation of the last policy, if the run makes
        any and `evaluates` is True. `because`, a sentence, is added to the notices.
        """
        if because and not self._stop:
            self.notices.append(f"The run stops at step {self.step:,}. {because}")
        self._stop = True
        self._waited_for |= not evaluates

    def interrupt(self) -> None:
        """Stop as Ctrl-C does: since somebody waits, no more evaluation begins, and one under way is broken off."""
        self.stop(evaluates=False)
        self._evaluations.interrupted = True

    def when_closed(self, act: Callable[[], None]) -> None:
        """Have `act` called when the trainer is closed, whatever ended it."""
        self._opened.callback(act)

    @property
    def stopped(self) -> bool:
        """Whether the loop ended, or is about to end, before its last step because `stop` was called."""
        return self._stop and self.step < self.config.run.steps

    @property
    def unfinished(self) -> bool:
        """Whether a resume would have something to do: a step, or the evaluation that a signal broke off."""
        return self.stopped or self.evaluating is not None

    @property
    def seconds(self) -> float:
        """Seconds spent on the run, earlier processes included."""
        return time.perf_counter() - self._began

    @seconds.setter
    def seconds(self, spent: float) -> None:
        self._began = time.perf_counter() - spent

    def _steps(self) -> Iterator[None]:
        options, new = self.config.run, self.checkpoints.last is None
        if new:  # not one that goes on from a checkpoint
            self.parts.reset()
        if self._evaluations.go_on() or (new and options.evaluate_every and not self.last_evaluation):
            self._evaluate()
            if self._asked:
                self.checkpoint()
        yield from self._pretrain()
        while self.step < options.steps and not self._stop:
            experience, episodes = self.collector.collect(self.step, options.horizon)
            if self.stepper.aborted is not None:
                self.parts.interrupt(self.stepper.aborted)
                what = f"environments lost with their actor began new episodes ({int(self.stepper.aborted.sum())})"
                self._note(inexact=resume_history.Event(self.step, what))
            self.memory.take(experience)
            before, self.step = self.step, self.step + len(experience.env)
            self.log.add_episodes(episodes)
            last = self._learn_what_is_due()
            if last is not None:
                self.normalizer.after_learning(last.batch)
            if _crossed(before, self.step, options.log_every):
                self._write_metrics()
            self._evaluations.look()
            ended = bool(options.evaluate_every) and self.step >= options.steps  # the last policy, wherever that is
            if ended or _crossed(before, self.step, options.evaluate_every):
                self._evaluate()
            if ended:
                self._evaluations.finish()
            self._call("on_step")
            if self._checkpoint_is_due(before) and not self.checkpoints.up_to_date:
                self.checkpoint()
            yield

    def _checkpoint_is_due(self, before: int) -> bool:
        """Whether a checkpoint is due at this step; `before` is the last one.

        With shards, which may be lost, the first one is written after the random steps.
        """
        every = self.config.run.checkpoint_every
        first = self.config.algorithm.first_random_steps() if every and self.parts.shards is not None else 0
        return _crossed(before, self.step, every) or before < first <= self.step

    def _pretrain(self) -> Iterator[None]:
        """Learn from demonstrations before the first step. Everything written meanwhile is of step 0.

        An update counts as a step does in `checkpoint_every`; metrics and an evaluation come at the end.
        """
        options = self.config.run
        for sample in self.memory.pretraining():
            self._learn([sample])
            updates = self.learner.updates
            if updates % options.log_every == 0:
                self.log.look()  # until then, what each update reports stays in the device's memory
            ended = not self.memory.pretraining_left
            if ended:
                self._write_metrics()
                if options.evaluate_every:
                    self._evaluate()
            self._call("on_step")
            due = options.checkpoint_every and (ended or updates % options.checkpoint_every == 0)
            if due and not self.checkpoints.up_to_date:
                self.checkpoint()
            yield
            if self._stop:
                return

    def _learn_what_is_due(self) -> buffers.Sample | None:
        """Make all updates that are due; the last sample that was learned from, or None."""
        last, due = None, self.memory.due()
        # Where the next sample depends on what was learned from the one before, it is drawn behind that.
        source = self.memory
        alone = source.needs_priorities or source.needs_divergence or source.needs_values
        self._learns = True
        try:
            while samples := list(islice(due, 1 if alone else self.learner.at_once)):
                self._learn(samples)
                last = samples[-1]
        finally:
            self._learns = False
        return last

    def _learn(self, samples: list[buffers.Sample]) -> None:
        if not self.learner.updates:
            self.on_activity("compiling the first update" if self.config.run.backend == "jax" else "first update")
        batches: list[AnyBatch] = []
        for number, sample in enumerate(samples):
            again = number > 0 and sample.batch is samples[number - 1].batch  # another epoch of a rollout
            batches.append(batches[-1] if again else self._prepared(sample.batch))
        made = self.learner.update_each(batches, [self._progress(self.step - sample.age) for sample in samples])
        for sample, metrics in zip(samples, made, strict=True):
            self._report_back(sample, metrics)
            self.log.add(self.step, metrics, sample.info)
            self._call("on_update")

    def _progress(self, step: int) -> float:
        """How far the schedules are at this step, in [0, 1]."""
        return min(1.0, step / self.config.run.horizon)

    def _prepared(self, batch: AnyBatch) -> AnyBatch:
        """The batch as networks see it: with scaled observations, and previous rewards as the algorithm sees them."""
        if isinstance(batch, SequenceBatch):
            seen = self.config.algorithm.seen_reward(batch.obs.previous_reward)
            batch = batch._replace(obs=batch.obs._replace(previous_reward=seen))
        return self.normalizer.batch(batch)

    def _report_back(self, sample: buffers.Sample, metrics: learners.Metrics) -> None:
        if self.memory.needs_priorities:
            self.memory.feedback(sample, on_host(metrics.priority))
        if self.memory.needs_divergence:
            self.memory.note_divergence(metrics.value(DIVERGENCE))

    def _write_metrics(self) -> None:
        rates = self.learner.learning_rates(self._progress(self.step))
        extra: dict[str, Any] = {f"learn/{name}_learning_rate": rate for name, rate in rates.items()}
        extra["learn/updates"] = self.learner.updates
        self.log.look()  # wait for the device before the clock is read
        extra |= {"time/seconds": self.seconds} | self.stepper.engine.numbers()
        with self.in_its_folder():
            line = self.log.write(self.step, extra)
        self.diagnostics.on_metrics(line)

    # ------------------------------------------------------------------------------------------------ evaluation
    def evaluate(self) -> Evaluation:
        """Evaluate the policy now, write it down, and keep the parameters if they are the best so far.

        Raises:
            NonFiniteError: Learning has diverged; nothing is written.
            UsageError: It is called in `on_evaluation`, which it would call again: use `last_evaluation` there.
        """
        if "on_evaluation" in self._hooks:
            raise UsageError(
                "evaluate() in on_evaluation would lead to on_evaluation again: trainer.last_evaluation has the result."
            )
        self._evaluate(whole=True)
        self._evaluations.finish()
        assert self.last_evaluation is not None
        return self.last_evaluation[1]

    def _evaluate(self, whole: bool = False) -> None:
        """Evaluate as `evaluate` does; but beside the run if that is possible and no callback has `on_evaluation`, and
        a signal may break it off unless it is `whole`.
        """
        self.log.look()
        check_finite(self.learner.parameters())
        self._evaluations.begin(whole)
        if self._callbacks.listens("on_evaluation"):
            self._evaluations.finish()

    @property
    def last_evaluation(self) -> tuple[int, Evaluation] | None:
        """The step of the newest evaluation, and its result; None before the first."""
        return self._evaluations.last

    @property
    def evaluating(self) -> int | None:
        """The step of an evaluation that is under way beside the run, or None."""
        return self._evaluations.under_way

    def another_environment(self, **how: Any) -> environments.VecEnv:
        """Make environments that learning does not see; the caller closes them.

        Args:
            how: Arguments of `environments.separate`: `num_envs`, `render_mode="rgb_array"`, `vectorization`,
                `worker_timeout`, `engine`.

        Raises:
            UsageError: The environment was handed over as an object, and can be neither copied nor made anew.
        """
        made = environments.make_eval(self._environment, kwargs=self.config.environment_options, **how)
        self.notices += [notice for notice in made.notices if notice not in self.notices]
        return made

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of every environment that is learned from, in whichever process it lives: a curriculum.

        The environment or one of its wrappers must have it already; of several, the outermost gets it. It takes effect
        at once. Values of numbers, texts, arrays, lists and dicts of these are in checkpoints, and are set before a
        resumed run's episodes begin; set others, such as functions, again in `on_start`. The environment that hindsight
        asks for rewards gets it, too. Evaluations are in environments of their own, which do not get it (but copies of
        an environment that was handed over as an object have what that has).

        Raises:
            UsageError: An environment has no such attribute; or they are on a cluster or in a vector environment made
                elsewhere, where they cannot be reached one by one.
            EnvironmentFailedError: An environment does not take the value.
        """
        self.parts.set_attr(name, value)
        if name not in self._set:
            self._set.add(name)
            self._note(attribute=name)

    @property
    def is_object(self) -> bool:
        """Whether the environment was handed over as an object; training then uses that object itself."""
        return environments.is_instance(self._environment)

    @property
    def policy(self) -> EvaluationPolicy:
        """The policy as evaluations use it, for raw observations (N, ...); it follows the learner's updates.

        Its actions are those of the networks, numbers in [-1, 1]; `Agent.act` gives them in the environment's units.
        """
        return EvaluationPolicy(self.learner, self.normalizer, self.stepper.action_space, self.config.run.seed)

    # ------------------------------------------------------------------------------------------------ its folder
    @contextmanager
    def in_its_folder(self) -> Iterator[None]:
        """Guard all writing in the run's folder, so that a folder that was moved or deleted is never made again.

        Raises FolderLostError if it is gone, also if only an error of the disk shows that.
        """
        self._check_folder()
        try:
            yield
        except (DuettoError, OSError):
            self._check_folder()
            raise

    def _note(self, **what: Any) -> None:
        """Note something in the run's history; see `history.note`."""
        with self.in_its_folder():
            resume_history.note(self.folder / "config.yaml", **what)

    def _check_folder(self) -> None:
        check_folder(self.folder, self._lock, self.step, self.checkpoints.step)

    # ------------------------------------------------------------------------------------------------ checkpoints
    def checkpoint(self) -> Path:
        """Write a checkpoint, and return its folder.

        From `on_evaluation` and `on_step` it is written once all callbacks have had that step, or it would lack what
        they learn from it; the folder is the one that it will have.

        After the last checkpoint of a run that was stopped, none is written, and the folder is that last one's: a run
        that goes on from it drops what came after.

        Raises:
            NonFiniteError: Learning has diverged; nothing is written.
            CheckpointError: It cannot be written; earlier checkpoints are as they were.
            FolderLostError: The run's folder was moved or deleted.
            UsageError: It is called in `on_update`, in the middle of learning, from where no run could go on; in
                `on_checkpoint`, which it would call again; or in `on_start`, before the first observation.
        """
        if self._learns:
            raise UsageError("A checkpoint in on_update would be of half of what is learned now: make it in on_step.")
        if "on_checkpoint" in self._hooks:
            raise UsageError("checkpoint() in on_checkpoint would lead to on_checkpoint again, and there is one now.")
        if not self.stepper.begun:
            raise UsageError(
                "A checkpoint in on_start of a new run would hold nothing, since no environment has begun: make it in "
                "on_step."
            )
        if self._concluded and self.checkpoints.newest is not None:
            return self.checkpoints.newest
        if not {"on_evaluation", "on_step"}.isdisjoint(self._hooks):
            self._asked = True
            return self.checkpoints.store.new_path(self.step)
        path = self.checkpoints.make()
        self._asked = False
        self._call("on_checkpoint")
        return path

    def close(self) -> None:
        """Release environments and files."""
        self._opened.close()


def _crossed(before: int, now: int, every: int) -> bool:
    return every > 0 and before // every < now // every
