"""The training loop.

    while steps remain:
        collect one step of every environment, and store it
        learn from each batch that is due
        if due: write metrics
        if due: evaluate
        if due: write a checkpoint

The trainer calls the user's callbacks after each part. A checkpoint contains everything that decides how the loop
continues. So a killed run resumes exactly from its last checkpoint.
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
from duetto.errors import DuettoError, EnvironmentFailedError, NonFiniteError, ShardLostError, UsageError, near
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
    """A training run in this process. Callbacks receive the trainer; they may read its parts, but not change them.

    Attributes:
        step: Number of steps so far, summed over the environments.
        config: The run's configuration, as in `config.yaml`: `config.algorithm`, `config.environment`,
            `config.run` (the `RunOptions`).
        folder: The run's folder.
        learner: The learner. `learner.updates` is the number of updates; `learner.parameters()` copies all parameters,
            by network and name.
        memory: The replay buffer or rollout. `len(memory)` is the number of stored steps, or of stored sequences.
        stepper: The `VecEnv` of the training environments: `num_envs`, `observation_space`, `action_space`, and,
            without a cluster or compiled loop, `obs` (N, ...), the observations for the next actions.
        log: The log of metrics. `log.scalar(name, value)` adds a custom number to the next line;
            `log.recent_return` is the mean return of the last 100 training episodes, None before the first.
        checkpoints: Writes checkpoints, and resumes the run from one.
        notices: Messages for the user, in order; the display shows them.
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
        """Create all parts of the run.

        Args:
            config: The run's configuration.
            folder: The run's folder.
            environment: The environment: an id, a class, a function, or an object.
            place: Creates the environments and replay shards, by default in this process.
            group: The seeds that train side by side in this process; None for a single seed.
        """
        self.folder: Path = folder
        self._environment = environment
        self.notices: Notices = Notices()
        self._callbacks = CallbackList(self.notices)
        self.step: int = 0
        self._stop = False
        self._asked = False  # whether a hook of this step has called `checkpoint`
        self.on_activity: Callable[[str], None] = lambda _: None  # the display shows the text during a long step
        place = place or Execution()
        with ExitStack() as opened:  # if a later part cannot be created, this closes the earlier parts
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
            self._evaluator = Evaluator(config.run, self.make_eval_env, folder, store)
            opened.callback(self._evaluator.close)
            self.diagnostics: Diagnostics = Diagnostics(self.config, made, self.notices)
            kept = (made, self.log, self._evaluator, self._callbacks)
            self.checkpoints: Checkpoints = Checkpoints(store, self.config, *kept)
            self._opened = opened.pop_all()
        self.seconds = 0.0  # start the clock

    @property
    def memory(self) -> AnyMemory:
        """The replay buffer or rollout. It is replaced once if the environments return action masks."""
        return self.components.memory

    # ------------------------------------------------------------------------------------------------ the loop
    def run(self, callbacks: Sequence[AnyCallback] = ()) -> None:
        """Train until `config.run.steps`, `stop` or Ctrl-C, then write a checkpoint."""
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
            if self.log.last != (self.step, self.learner.updates):  # after the checkpoint: a resume removes this line
                self._write_metrics()
            if first < self.step and not self.stopped:
                self.diagnostics.after_run(self.step, self.log.episodes)
            self._call("on_end")
            self.log.write_own(self.step)

    def _begin(self) -> None:
        """Reset the environments of a new run, and make its first evaluation."""
        self._call("on_start")
        new = self.checkpoints.last is None
        if self.checkpoints.resumed.changed:  # so that a later resume does not require --accept-changes again
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
        if checkpoint_is_due and not self.checkpoints.has(self.step):  # a callback may have written one
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
        """Learn from demonstrations before the first step.

        `checkpoint_every` is a number of updates here. The trainer writes metrics and evaluates once, after the last
        update. All files record step 0.
        """
        options = self.config.run
        for sample in self.memory.pretraining():
            self._learn([sample])
            updates = self.learner.updates
            if updates % options.log_every == 0:
                self.log.look()  # frees the device memory of the metrics that updates returned
            ended = not self.memory.pretraining_left
            if ended:
                self._write_metrics()
                if options.evaluate_every:
                    self.evaluate()
            due = options.checkpoint_every and (ended or updates % options.checkpoint_every == 0)
            self._end_step(bool(due))
            if self._stop:
                return

    def _write_metrics(self) -> None:
        rates = self.learner.learning_rates(self._progress(self.step))
        extra: dict[str, Any] = {f"learn/{name}_learning_rate": rate for name, rate in rates.items()}
        extra["learn/updates"] = self.learner.updates
        self.log.look()  # waits for the device, so that `seconds` includes all updates
        extra |= {"time/seconds": self.seconds} | self.stepper.engine.numbers()
        self.diagnostics.on_metrics(self.log.write(self.step, extra))

    # ------------------------------------------------------------------------------------------------ learning
    def _due(self) -> Iterator[list[Sample]]:
        """Yield lists of samples for the updates that are due, drawing each list only when it is requested.

        A list has up to `learner.at_once` samples; only one if the memory needs an update's results for the next draw.
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
        """Update with each sample, then pass the results to the memory, the log and the callbacks."""
        if not self.learner.updates:
            self.on_activity("compiling the first update" if self.learner.backend == "jax" else "first update")
        batches: list[AnyBatch] = []
        for number, sample in enumerate(samples):
            again = number > 0 and sample.batch is samples[number - 1].batch  # the next epoch of the same rollout
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
        """Return the batch as networks see it: with the normalizations and transformations of rewards that are on."""
        if isinstance(batch, SequenceBatch):
            seen = self.config.algorithm.seen_reward(batch.obs.previous_reward)
            batch = batch._replace(obs=batch.obs._replace(previous_reward=seen))
        batch, rewards = self.normalizer.batch(batch), self.collector.rewards
        return batch if rewards is None else rewards.batch(batch)

    def _progress(self, step: int) -> float:
        """Return the progress of the schedules at this step, in [0, 1]."""
        return min(1.0, step / self.config.run.horizon)

    # ------------------------------------------------------------------------------------------------ the end
    def stop(self, because: str = "") -> None:
        """End the loop after this step, with a checkpoint. Duetto shows `because`, a sentence, as a notice."""
        if because and not self._stop:
            self.notices.append(f"The run stops at step {self.step:,}. {because}")
        self._stop = True

    def when_closed(self, act: Callable[[], object]) -> None:
        """Call `act` when the trainer is closed."""
        self._opened.callback(act)

    def close(self) -> None:
        """Release environments and files."""
        self._opened.close()

    @property
    def stopped(self) -> bool:
        """Whether a call of `stop` has ended or will end the loop before the last step."""
        return self._stop and self.step < self.config.run.steps

    @contextmanager
    def _explaining_errors(self) -> Iterator[None]:
        """Add the run's step and its last checkpoint to the message of an error that the block raises."""
        try:
            yield
        except Exception as error:
            saved, where = self.checkpoints.step, f"The run on {self.config.environment} stopped at step {self.step}"
            kept = f"; its checkpoint of step {saved} is kept for evaluate and resume in {near(self.folder)}."
            where += ", before its first checkpoint." if saved is None else kept
            match error:
                case ShardLostError():
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
        """Seconds spent on the run, including the time before resumes."""
        return time.perf_counter() - self._began

    @seconds.setter
    def seconds(self, spent: float) -> None:
        self._began = time.perf_counter() - spent

    # ------------------------------------------------------------------------------------------------ callbacks
    def _call(self, hook: str) -> None:
        self._callbacks.call(hook, self)
        if self._asked and hook in ("on_step", FUNCTIONS, "on_end"):
            self.checkpoint()

    def make_eval_env(self, **how: Any) -> environments.VecEnv:
        """Create separate environments, which do not affect training. The caller closes them.

        Args:
            how: Arguments of `environments.make_eval`: `num_envs`, `render_mode="rgb_array"`, `vectorization`,
                `worker_timeout`.

        Raises:
            UsageError: The environment was passed as an object, which cannot be copied.
        """
        return environments.make_eval(self._environment, kwargs=self.config.environment_options, **how)

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of every training environment, for example for a curriculum.

        The environment or one of its wrappers must already have the attribute. If several have it, the outermost gets
        the value. The value takes effect at once, also in other processes, but not in evaluations. A resumed run sets
        the attribute again if the value is plain (numbers, strings, arrays, lists, dicts). Set other values, such as
        functions, in `on_start`.

        Raises:
            UsageError: An environment does not have the attribute; or Duetto cannot reach single environments (on a
                cluster, in Atari, EnvPool, JAX and your own vector environments).
            EnvironmentFailedError: An environment rejects the value.
        """
        self.components.set_attr(name, value)

    # ------------------------------------------------------------------------------------------------ evaluation
    def evaluate(self) -> Evaluation:
        """Evaluate the policy now, record the result, and save the parameters if they are the best so far.

        This calls `on_evaluation`. Do not call `evaluate` in that hook; read `last_evaluation` instead.

        Raises:
            NonFiniteError: Learning has diverged; no file is changed.
        """
        self.log.look()
        acting = self.checkpoints.acting_state()
        check_finite(acting["learner"]["parameters"])
        result = self._evaluator.evaluate(self.policy, self.step, self.seconds, acting, self._tell_evaluation)
        self.log.publish(self.step, {f"evaluation/{name}": value for name, value in result.numbers().items()})
        self._call("on_evaluation")
        return result

    def _tell_evaluation(self, progress: str) -> None:
        self.on_activity(progress + "; the run stops afterwards (Ctrl-C again: at once)" * self._stop)

    @property
    def last_evaluation(self) -> tuple[int, Evaluation] | None:
        """The step and the result of this process's latest evaluation; None before."""
        return self._evaluator.last

    @property
    def policy(self) -> EvaluationPolicy:
        """The policy for evaluations, a function of raw observations (N, ...). It uses the current parameters.

        It returns actions as the networks do: numbers in [-1, 1], or integers. `Agent.act` returns actions in the
        environment's units.
        """
        return EvaluationPolicy(self.learner, self.normalizer, self.stepper.action_space, self.config.run.seed)

    # ------------------------------------------------------------------------------------------------ checkpoints
    def checkpoint(self) -> Path:
        """Write a checkpoint, and return its folder.

        If a hook calls this, the trainer writes the checkpoint after the step's last hook. So the checkpoint contains
        the state of all callbacks after this step.

        Raises:
            NonFiniteError: Learning has diverged; no checkpoint is written.
            CheckpointError: The checkpoint cannot be written; earlier checkpoints are unchanged.
        """
        if self._callbacks.running:
            self._asked = True
            return self.checkpoints.store.new_path(self.step)
        path = self.checkpoints.save(self.step, self.seconds)
        self._asked = False
        self._call("on_checkpoint")
        return path

    def resume(self, loaded: Loaded, accept_changes: bool = False) -> None:
        """Continue from a checkpoint. Raises as `Checkpoints.load` does."""
        self.step, self.seconds = self.checkpoints.load(loaded, self.folder, accept_changes)
        self.notices += self.checkpoints.resumed.notices
