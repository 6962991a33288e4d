"""A running training: one loop over the components.

    while steps remain:
        collect one step of every environment, and store it
        learn from each batch that is due
        at their steps: write metrics, evaluate, write a checkpoint; around it the user's callbacks

A checkpoint holds everything that decides how the loop continues, so a run that is killed resumes exactly from the
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

from duetto import environments, learners
from duetto.algorithms.base import DIVERGENCE, SequenceBatch
from duetto.buffers.base import Sample
from duetto.errors import DuettoError, EnvironmentFailedError, NonFiniteError, PartLostError, UsageError, near
from duetto.learners.base import on_host
from duetto.learners.multi_seed import SeedGroup
from duetto.storage.checkpoint import CheckpointStore, Loaded
from duetto.storage.config import Config, note_inexact
from duetto.training.callbacks import FUNCTIONS, AnyCallback, CallbackList
from duetto.training.checkpoints import Checkpoints, crossed
from duetto.training.collector import Source
from duetto.training.components import AnyMemory, Components, Execution
from duetto.training.diagnostics import Diagnostics, check_finite
from duetto.training.evaluation import Evaluation, Evaluator
from duetto.training.metrics import MetricLog
from duetto.training.normalizer import AnyBatch, Normalizer
from duetto.training.notices import Notices
from duetto.training.policy import EvaluationPolicy
from duetto.training.signals import interruptible


class Trainer:
    """A running training. Callbacks get it: read its parts, but do not change them.

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
        log: The log of metrics. `log.scalar(name, value)` gives the next line a custom number;
            `log.recent_return` is the mean return of the last 100 training episodes, None before the first.
        checkpoints: The checkpoints, and how the run continues from one.
        notices: Sentences for the user, in order; the display shows them.
    """

    components_type: type[Components] = Components

    def __init__(
        self,
        config: Config,
        folder: Path,
        environment: Any,
        place: Execution | None = None,
        group: SeedGroup | None = None,
    ) -> None:
        """`place`: the processes of the environments; None: this process. `group`: the seeds that train with it."""
        self.folder: Path = folder
        self._environment = environment
        self.notices: Notices = Notices()
        self._callbacks = CallbackList(self.notices)
        self.step: int = 0
        self._stop = False
        self._asked = False  # whether a hook of this step wants a checkpoint
        self.on_activity: Callable[[str], None] = lambda _: None  # the display's: shows a step that takes long
        place = place or Execution()
        with ExitStack() as opened:  # what is open already is closed if a later part cannot be made
            made = self.components_type(config, environment, place, group, self.notices)
            self.components: Components = made
            opened.callback(made.close)
            self.stepper: environments.VecEnv = made.stepper
            self.learner: learners.Learner = made.learner
            self.normalizer: Normalizer = made.normalizer
            self.collector: Source = made.collector
            self.config: Config = dataclasses.replace(config, cluster=place.decided())
            self.log: MetricLog = MetricLog(folder)
            opened.callback(self.log.close)
            store = CheckpointStore(folder / "checkpoints", config.run.keep, self.stepper.num_envs)
            self._evaluator = Evaluator(config.run, self.another_environment, folder, store)
            opened.callback(self._evaluator.close)
            self.diagnostics: Diagnostics = Diagnostics(self.config, made, self.notices)
            kept = (made, self.log, self._evaluator, self._callbacks)
            self.checkpoints: Checkpoints = Checkpoints(store, self.config, *kept)
            self._opened = opened.pop_all()
        self.seconds = 0.0  # from now on

    @property
    def memory(self) -> AnyMemory:
        """The replay buffer or rollout; replaced if the environments return action masks."""
        return self.components.memory

    # ------------------------------------------------------------------------------------------------ the loop
    def run(self, callbacks: Sequence[AnyCallback] = ()) -> None:
        """Run to the configured number of steps, or until `stop` or Ctrl-C. The end is always a checkpoint."""
        self._callbacks.take(callbacks)
        first, options = self.step, self.config.run
        with interruptible(self.stop), self._explaining_errors():
            self._begin()
            self._pretrain()
            while self.step < options.steps and not self._stop:
                before = self.step
                self._collect()
                for samples in self._due():
                    self._learn(samples)
                if crossed(before, self.step, options.log_every):
                    self._write_metrics()
                last = self.step >= options.steps
                if options.evaluate_every and (last or crossed(before, self.step, options.evaluate_every)):
                    self.evaluate()
                self._end_step(self.checkpoints.is_due(before, self.step))
            if self._asked or not self.checkpoints.has(self.step):
                self.checkpoint()
            if self.log.last != (self.step, self.learner.updates):  # a resume from the checkpoint drops this line
                self._write_metrics()
            if first < self.step and not self.stopped:
                self.diagnostics.after_run(self.step, self.log.episodes)
            self._call("on_end")
            self.log.write_own(self.step)

    def _begin(self) -> None:
        """Reset the environments of a new run, and make its first evaluation."""
        self._call("on_start")
        new = self.checkpoints.last is None
        if self.checkpoints.resumed.changed:  # or a plain resume would be refused after a kill
            self.checkpoint()
        elif not new:
            self._call("on_checkpoint")
        if new:
            self.components.reset()
        if new and self.config.run.evaluate_every and not self.last_evaluation:
            self.evaluate()
        if self._asked:
            self.checkpoint()

    def _end_step(self, checkpoint_is_due: bool) -> None:
        self._call("on_step")
        if checkpoint_is_due:
            self.checkpoint()
        self._call(FUNCTIONS)

    def _collect(self) -> None:
        """Step every environment and store the transitions."""
        experience, episodes = self.collector.collect(self.step, self.config.run.horizon)
        if self.stepper.aborted is not None:
            self.components.interrupt(self.stepper.aborted)
            what = f"environments lost with their actor started new episodes ({int(self.stepper.aborted.sum())})"
            note_inexact(self.folder / "config.yaml", self.step, what)
        self.memory.add(experience)
        self.step += len(experience.env)
        self.log.add_episodes(episodes)

    def _pretrain(self) -> None:
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
                    self.evaluate()
            due = options.checkpoint_every and (ended or updates % options.checkpoint_every == 0)
            self._end_step(bool(due) and not self.checkpoints.has(self.step))
            if self._stop:
                return

    def _write_metrics(self) -> None:
        rates = self.learner.learning_rates(self._progress(self.step))
        extra: dict[str, Any] = {f"learn/{name}_learning_rate": rate for name, rate in rates.items()}
        extra["learn/updates"] = self.learner.updates
        self.log.look()  # wait for the device before the clock is read
        extra |= {"time/seconds": self.seconds} | self.stepper.engine.numbers()
        self.diagnostics.on_metrics(self.log.write(self.step, extra))

    # ------------------------------------------------------------------------------------------------ learning
    def _due(self) -> Iterator[list[Sample]]:
        """Yield the samples of all updates that are due. The caller learns from each draw before it takes the next one.

        A draw has `learner.at_once` samples, or one if it depends on what was learned from another.
        """
        memory, samples = self.memory, []
        alone = memory.needs_priorities or memory.needs_divergence or memory.needs_values
        at_once, due = 1 if alone else self.learner.at_once, memory.due()
        while drawn := list(islice(due, at_once)):
            samples = drawn
            yield samples
        if samples:
            self.normalizer.after_learning(samples[-1].batch)

    def _learn(self, samples: list[Sample]) -> None:
        """Update with each sample, and tell memory, log and callbacks of each update."""
        if not self.learner.updates:
            self.on_activity("compiling the first update" if self.learner.backend == "jax" else "first update")
        batches: list[AnyBatch] = []
        for number, sample in enumerate(samples):
            again = number > 0 and sample.batch is samples[number - 1].batch  # another epoch of a rollout
            batches.append(batches[-1] if again else self._prepared(sample.batch))
        progress = [self._progress(self.step - sample.age) for sample in samples]
        for sample, metrics in zip(samples, self.learner.update_each(batches, progress), strict=True):
            if self.memory.needs_priorities:
                self.memory.feedback(sample, on_host(metrics.priority))
            if self.memory.needs_divergence:
                self.memory.note_divergence(metrics.value(DIVERGENCE))
            self.log.add(self.step, metrics, sample.info)
            self._call("on_update")

    def _prepared(self, batch: AnyBatch) -> AnyBatch:
        """The batch as networks see it: with scaled observations, and previous rewards as the algorithm sees them."""
        if isinstance(batch, SequenceBatch):
            seen = self.config.algorithm.seen_reward(batch.obs.previous_reward)
            batch = batch._replace(obs=batch.obs._replace(previous_reward=seen))
        batch, rewards = self.normalizer.batch(batch), self.collector.rewards
        return batch if rewards is None else rewards.batch(batch)

    def _progress(self, step: int) -> float:
        """How far the schedules are at this step, in [0, 1]."""
        return min(1.0, step / self.config.run.horizon)

    # ------------------------------------------------------------------------------------------------ its end
    def stop(self, because: str = "") -> None:
        """End the loop after this step, with a checkpoint. `because` is a sentence for the notices."""
        if because and not self._stop:
            self.notices.append(f"The run stops at step {self.step:,}. {because}")
        self._stop = True

    def when_closed(self, act: Callable[[], object]) -> None:
        """Have `act` called when the trainer is closed."""
        self._opened.callback(act)

    def close(self) -> None:
        """Release environments and files."""
        self._opened.close()

    @property
    def stopped(self) -> bool:
        """Whether the loop ended, or is about to end, before its last step because `stop` was called."""
        return self._stop and self.step < self.config.run.steps

    @contextmanager
    def _explaining_errors(self) -> Iterator[None]:
        """Add to an error the step of the run and its last checkpoint."""
        try:
            yield
        except Exception as error:
            saved, where = self.checkpoints.step, f"The run on {self.config.environment} stopped at step {self.step}"
            kept = f"; its checkpoint of step {saved} is kept for evaluate and resume in {near(self.folder)}."
            where += ", before its first checkpoint." if saved is None else kept
            match error:
                case PartLostError():
                    error.step = self.step
                case EnvironmentFailedError():
                    error.sentence += f" {where}"
                case NonFiniteError():
                    error.args = (f"{error.args[0]} {where}",)
                case UsageError() if saved is not None:
                    error.args = (f"{error.args[0]} {where}",)
                case DuettoError():
                    pass
                case _:
                    error.add_note(where)
            raise

    @property
    def seconds(self) -> float:
        """Seconds spent on the run, earlier processes included."""
        return time.perf_counter() - self._began

    @seconds.setter
    def seconds(self, spent: float) -> None:
        self._began = time.perf_counter() - spent

    # ------------------------------------------------------------------------------------------------ callbacks
    def _call(self, hook: str) -> None:
        self._callbacks.call(hook, self)
        if self._asked and hook in ("on_step", FUNCTIONS, "on_end"):
            self.checkpoint()

    def another_environment(self, **how: Any) -> environments.VecEnv:
        """Make environments that learning does not see; the caller closes them.

        Args:
            how: Arguments of `environments.make_eval`: `num_envs`, `render_mode="rgb_array"`, `vectorization`,
                `worker_timeout`.

        Raises:
            UsageError: The environment was handed over as an object, and cannot be copied.
        """
        return environments.make_eval(self._environment, kwargs=self.config.environment_options, **how)

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of every training environment, in any process, as for a curriculum.

        The environment or one of its wrappers must have it already; of several, the outermost gets it. It takes effect
        at once. Checkpoints contain plain values (numbers, strings, arrays, lists, dicts), and a resume sets them
        again; set others, such as functions, in `on_start`. Evaluations do not get it.

        Raises:
            UsageError: An environment has no such attribute; or they are on a cluster or in a vector environment made
                elsewhere, where they cannot be reached one by one.
            EnvironmentFailedError: An environment does not take the value.
        """
        self.components.set_attr(name, value)

    # ------------------------------------------------------------------------------------------------ evaluation
    def evaluate(self) -> Evaluation:
        """Evaluate the policy now, write it down, and keep the parameters if they are the best so far.

        Not in `on_evaluation`, which it calls: `last_evaluation` has the result there. Raises NonFiniteError if
        learning has diverged; nothing is written then.
        """
        self.log.look()
        acting = self.checkpoints.acting_state()
        check_finite(acting["learner"]["parameters"])
        result = self._evaluator.evaluate(self.policy, self.step, self.seconds, acting, self._tell_evaluation)
        self.log.publish(self.step, {f"evaluation/{name}": value for name, value in result.numbers().items()})
        self._call("on_evaluation")
        return result

    def _tell_evaluation(self, progress: str) -> None:
        self.on_activity(progress + "; the run stops after it (Ctrl-C again: at once)" * self._stop)

    @property
    def last_evaluation(self) -> tuple[int, Evaluation] | None:
        """The step of the newest evaluation, and its result; None before the first."""
        return self._evaluator.last

    @property
    def policy(self) -> EvaluationPolicy:
        """The policy as evaluations use it, for raw observations (N, ...); it follows the learner's updates.

        Its actions are those of the networks, numbers in [-1, 1]; `Agent.act` gives them in the environment's units.
        """
        return EvaluationPolicy(self.learner, self.normalizer, self.stepper.action_space, self.config.run.seed)

    # ------------------------------------------------------------------------------------------------ checkpoints
    def checkpoint(self) -> Path:
        """Write a checkpoint, and return its folder.

        Called in a hook, it is written after the step's last hook, with what the other callbacks learn from the step.

        Raises:
            NonFiniteError: Learning has diverged; nothing is written.
            CheckpointError: It cannot be written; earlier checkpoints are as they were.
        """
        if self._callbacks.running:
            self._asked = True
            return self.checkpoints.store.new_path(self.step)
        path = self.checkpoints.save(self.step, self.seconds)
        self._asked = False
        self._call("on_checkpoint")
        return path

    def resume(self, loaded: Loaded, accept_changes: bool = False) -> None:
        """Continue from a checkpoint; see `Checkpoints.load`."""
        self.step, self.seconds = self.checkpoints.load(loaded, self.folder, accept_changes)
        self.notices += self.checkpoints.resumed.notices
