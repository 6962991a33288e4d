"""A run at work: the parts joined by one loop.

    while steps remain:
        experience = collect one step of every environment
        memory.add(experience)
        for each batch that is due: learner.update(batch), and its priorities back to the memory
        at their steps: a line of metrics, an evaluation, a checkpoint; then the user's callbacks

Everything that decides how the loop goes on is in `state_dict`, so a run that is killed goes on exactly from its last
checkpoint.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from duetto import demonstrations, environments, learners, memory
from duetto.algorithms.base import SequenceBatch
from duetto.errors import CheckpointError, NonFiniteError
from duetto.functional import forms
from duetto.functional.forms import ANY, Optional
from duetto.functional.randomness import generator
from duetto.learners.base import Parameters, on_host
from duetto.networks import spaces
from duetto.storage.checkpoint import CheckpointStore, Loaded
from duetto.storage.config import Config
from duetto.storage.records import Csv
from duetto.training.collector import Collector
from duetto.training.evaluation import PARALLEL, Evaluation, evaluate
from duetto.training.metrics import ADVICE, MetricLog
from duetto.training.normalizer import AnyBatch, Normalizer
from duetto.training.policy import Policy

EVALUATION_FIELDS = (
    "step",
    "mean_return",
    "std_return",
    "min_return",
    "max_return",
    "mean_length",
    "episodes",
    "seconds",
)

Callback = Callable[["Session"], None]


class Session:
    """One run while it is running. Callbacks get it after every vector step.

    Attributes:
        step: Steps made so far, over all environments.
        learner, memory, stepper, log, config: The parts; read them, and leave changing them to the loop.
        last_evaluation: The newest and the step that it was made at, or None.
        notices: Sentences for the user, in order; whoever shows the run shows them.
    """

    def __init__(self, config: Config, folder: Path, environment: Any) -> None:
        self.config, self.folder, self._environment = config, folder, environment
        with ExitStack() as opened:  # what is open already is closed if a later part cannot be made
            self._make_parts(opened)
            self._opened = opened.pop_all()
        self.step = 0
        self.last_evaluation: tuple[int, Evaluation] | None = None
        self.notices: list[str] = []
        self._best: float | None = None
        self._evaluator: environments.Stepper | None = None
        self._seconds = 0.0  # of earlier processes
        self._began = time.perf_counter()
        self._stop = False
        self._saved: tuple[int, int] | None = None  # step and updates of the last checkpoint

    def _make_parts(self, opened: ExitStack) -> None:
        options, algorithm = self.config.run, self.config.algorithm
        self.stepper = environments.make(
            self._environment,
            num_envs=options.num_envs,
            vectorization=options.vectorization,
            engine=options.engine,
            kwargs=self.config.environment_options,
        )
        if not is_instance(self._environment):  # that one is the user's to close
            opened.callback(self.stepper.close)
        observation, action = self.stepper.observation_space, self.stepper.action_space
        algorithm.check_spaces(observation, action, self.config.environment)
        assert options.backend != "auto"
        assert options.device != "auto"
        self.learner = learners.build(
            options.backend,
            algorithm,
            observation,
            action,
            seed=options.seed,
            device=options.device,
            precision=options.precision,
            threads=options.threads,
        )
        self.memory = memory.build(
            algorithm.memory(),
            observation,
            action,
            self.stepper.num_envs,
            generator(options.seed, "memory"),
            lambda obs: self.learner.value(self.normalizer.scaled(obs)),
            stacked=self.stepper.stacked,
            demonstrations=self._demonstrations(),
        )
        self.normalizer = Normalizer(observation, algorithm.observation_scaling())
        self.collector = Collector(algorithm, self.stepper, self.learner, self.normalizer, options.seed)
        self.store = CheckpointStore(self.folder / "checkpoints", num_envs=self.stepper.num_envs)
        self.log = MetricLog(self.folder)
        opened.callback(self.log.close)
        self.evaluations = opened.enter_context(Csv(self.folder / "evaluations.csv", EVALUATION_FIELDS))

    def _demonstrations(self) -> memory.Episodes | None:
        folder, seed = self.config.algorithm.demonstration_folder(), self.config.run.seed
        if not folder:
            return None
        found, stepper = demonstrations.load(folder), self.stepper
        spaces_here = (stepper.observation_space, stepper.action_space)
        demonstrations.check_fits(found, *spaces_here, self.config.environment, self.config.environment_options)
        randoms = (generator(seed, "demonstrations"), generator(seed, "which demonstrations"))
        return memory.Episodes(found.episodes, *randoms, found.lengths.tolist())

    # ------------------------------------------------------------------------------------------------ the loop
    def run(self, callbacks: Sequence[Callback] = ()) -> None:
        """Go on to the configured number of steps, or until `stop` or Ctrl-C. A checkpoint is the last thing made."""
        with self._interruptible():
            try:
                for _ in self._steps():
                    for callback in callbacks:
                        callback(self)
                if self._saved != (self.step, self.learner.updates):
                    self.checkpoint()
            except NonFiniteError as error:
                raise NonFiniteError(f"{error} {self._where_it_stopped()}") from error

    def _where_it_stopped(self) -> str:
        where = f"The run on {self.config.environment} stopped at step {self.step}"
        if self._saved is None:
            return f"{where}, before its first checkpoint."
        return f"{where}; its checkpoint of step {self._saved[0]} is kept for evaluate and resume in {self.folder}."

    def stop(self) -> None:
        """End the loop after this step, with a checkpoint."""
        self._stop = True

    @property
    def stopped(self) -> bool:
        """Whether the loop ended, or is about to end, before its last step because it was asked to."""
        return self._stop and self.step < self.config.run.steps

    @property
    def seconds(self) -> float:
        """Time spent on the run, earlier processes included."""
        return self._seconds + time.perf_counter() - self._began

    def _steps(self) -> Iterator[None]:
        options = self.config.run
        if self._saved is None:  # a new run, not one that goes on from a checkpoint
            self.stepper.reset(options.seed)
            if options.evaluate_every:
                self.evaluate()
        yield from self._pretrain()
        while self.step < options.steps and not self._stop:
            experience, episodes = self.collector.collect(self.step, options.steps)
            self.memory.add(experience)
            before, self.step = self.step, self.step + len(experience.reward)
            self.log.add_episodes(episodes)
            sample = None
            for sample in self.memory.due():
                self._learn(sample)
            if sample is not None:
                self.normalizer.after_learning(sample.batch)
            if _crossed(before, self.step, options.log_every):
                self._write_metrics()
            if _crossed(before, self.step, options.evaluate_every):
                self.evaluate()
            if _crossed(before, self.step, options.checkpoint_every):
                self.checkpoint()
            yield

    def _pretrain(self) -> Iterator[None]:
        """Learn from demonstrations before the first step. All that is written down is of step 0.

        An update counts as a step does in `checkpoint_every`; metrics and an evaluation come at the end.
        """
        options = self.config.run
        for sample in self.memory.pretraining():
            self._learn(sample)
            updates = self.learner.updates
            if updates % options.log_every == 0:
                self.log.look()  # until then, what each update reports stays in the device's memory
            ended = not self.memory.pretraining_left
            if ended:
                self._write_metrics()
                if options.evaluate_every:
                    self.evaluate()
            if options.checkpoint_every and (ended or updates % options.checkpoint_every == 0):
                self.checkpoint()
            yield
            if self._stop:
                return

    def _learn(self, sample: memory.Sample) -> None:
        progress = (self.step - sample.age) / self.config.run.steps
        metrics = self.learner.update(self._prepared(sample.batch), progress)
        self._report_back(sample, metrics)
        self.log.add(self.step, metrics, sample.info)

    def _prepared(self, batch: AnyBatch) -> AnyBatch:
        """The batch as networks see it."""
        if isinstance(batch, SequenceBatch):
            seen = self.config.algorithm.seen_reward(batch.obs.previous_reward)
            batch = batch._replace(obs=batch.obs._replace(previous_reward=seen))
        return self.normalizer.batch(batch)

    def _report_back(self, sample: memory.Sample, metrics: learners.Metrics) -> None:
        if self.memory.needs_priorities:
            self.memory.feedback(sample, on_host(metrics.priority))
        if self.memory.needs_divergence:
            self.memory.note_divergence(metrics.value("approx_kl"))

    def _write_metrics(self) -> None:
        rates = self.learner.learning_rates(self.step / self.config.run.steps)
        extra: dict[str, Any] = {f"learn/{name}_learning_rate": rate for name, rate in rates.items()}
        extra["learn/updates"] = self.learner.updates
        self.log.look()  # wait for the device before the clock is read
        extra |= {"time/seconds": self.seconds}
        self.log.write(self.step, extra)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the loop after the current step; a second one ends the process at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int, _: Any) -> None:
            self.stop()
            signal.signal(number, earlier[number])

        earlier: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in earlier:
            signal.signal(number, on_signal)
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)

    # ------------------------------------------------------------------------------------------------ evaluation
    def evaluate(self) -> Evaluation:
        """Evaluate the policy now, write it down, and keep the parameters if they are the best so far."""
        options = self.config.run
        if self._evaluator is None:
            self._evaluator = environments.separate(
                self._environment,
                num_envs=min(options.evaluation_episodes, PARALLEL),
                kwargs=self.config.environment_options,
            )
            self._opened.callback(self._evaluator.close)
        result = evaluate(self.policy, self._evaluator, options.evaluation_episodes, options.seed)
        self.last_evaluation = (self.step, result)
        row = {
            "step": self.step,
            "mean_return": result.mean_return,
            "std_return": result.std_return,
            "min_return": float(result.returns.min()),
            "max_return": float(result.returns.max()),
            "mean_length": float(result.lengths.mean()),
            "episodes": len(result.returns),
            "seconds": round(self.seconds, 1),
        }
        self.evaluations.append(row)
        self.log.to_board(self.step, {f"evaluation/{name}": row[name] for name in ("mean_return", "mean_length")})
        if self._best is None or result.mean_return > self._best:
            self._best = result.mean_return
            self.store.save_best(self.step, self.acting_state(), {"mean_return": result.mean_return})
        return result

    @property
    def policy(self) -> Policy:
        """The policy as it is evaluated, from here on: on raw observations (N, ...)."""
        return Policy(self.learner, self.normalizer, self.stepper.action_space, self.config.run.seed)

    # ------------------------------------------------------------------------------------------------ checkpoints
    def checkpoint(self) -> Path:
        """Write everything down. Raises NonFiniteError, and writes nothing, if learning has diverged."""
        state = self.state_dict()
        _check_finite(state["learner"]["parameters"])
        window = (self.memory.written, self.memory.rows)
        path = self.store.save(self.step, state, self.memory.segment(self.store.covered), window)
        self._saved = (self.step, self.learner.updates)
        return path

    def acting_state(self) -> dict[str, Any]:
        """What acting needs: parameters, observation scaling and spaces."""
        return {
            "learner": {"parameters": self.learner.parameters()},
            "normalizer": self.normalizer.state_dict(),
            "spaces": {
                "observation": spaces.to_json(self.stepper.observation_space),
                "action": spaces.to_json(self.stepper.action_space),
            },
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on, but the memory's transitions."""
        return self.acting_state() | {
            "log": self.log.state_dict(),  # first: it waits for the device and finds a divergence
            "learner": self.learner.state_dict(),
            "memory": self.memory.state_dict(),
            "collector": self.collector.state_dict(),
            "stepper": self.stepper.state_dict(),
            "evaluations": self.evaluations.position,
            "session": {"step": self.step, "best": self._best, "seconds": self.seconds},
            "run": {"algorithm": self.config.algorithm.name(), "environment": self.config.environment},
        }

    def load(self, loaded: Loaded) -> None:
        """Go on from a checkpoint. What logs and tables hold from after it is dropped."""
        state = loaded.state
        forms.check(state, _FORM, "state")
        if state["session"]["step"] != loaded.step:
            raise CheckpointError(f"{loaded.path} was changed: its state is of step {state['session']['step']}.")
        self._check_same_run(state["run"])
        self._check_spaces(state["spaces"])
        self.learner.load_state_dict(state["learner"])
        self.memory.load_state_dict(state["memory"])
        for segment in loaded.segments:
            self.memory.load_segment(segment)
        self.collector.load_state_dict(state["collector"])
        self.normalizer.load_state_dict(state["normalizer"])
        self.stepper.load_state_dict(state["stepper"])
        self.log.load_state_dict(state["log"])
        self.evaluations.truncate(state["evaluations"])
        self.step, self._best = state["session"]["step"], state["session"]["best"]
        self._seconds, self._began = state["session"]["seconds"], time.perf_counter()
        self._saved = (self.step, self.learner.updates)
        self.notices += loaded.problems
        if not self.stepper.resumed_exactly:
            self.memory.interrupt()
            self.collector.interrupt()
            self.notices.append(
                f"The state of {self.stepper.name} could not be restored: the run goes on with new episodes, so from "
                "here it is not the same, number by number, as one that was never interrupted."
            )

    def _check_same_run(self, saved: dict[str, str]) -> None:
        ours = {"algorithm": self.config.algorithm.name(), "environment": self.config.environment}
        for kind, name in ours.items():
            if saved[kind] != name:
                raise CheckpointError(
                    f"The checkpoints in {self.folder} are of the {kind} {saved[kind]}, but its config.yaml says "
                    f"{name}. Put that back, or start a new run."
                )

    def _check_spaces(self, saved: dict[str, Any]) -> None:
        for kind, ours in (("observation", self.stepper.observation_space), ("action", self.stepper.action_space)):
            if spaces.from_json(saved[kind]) != ours:
                raise CheckpointError(
                    f"The run was made with the {kind} space {spaces.from_json(saved[kind])}; "
                    f"{self.stepper.name} has {ours} now. Resume it with the environment that it was started with."
                )

    def close(self) -> None:
        """Release environments and files."""
        self._opened.close()


ACTING: dict[str, Any] = {  # the form of what acting needs
    "learner": {"parameters": ANY},
    "normalizer": ANY,
    "spaces": {"observation": ANY, "action": ANY},
}
_FORM = ACTING | {
    "learner": ANY,
    "log": ANY,
    "memory": ANY,
    "collector": ANY,
    "stepper": ANY,
    "evaluations": int,
    "session": {"step": int, "best": Optional(float), "seconds": float},
    "run": {"algorithm": str, "environment": str},
}


def is_instance(environment: Any) -> bool:
    """Whether it is an environment or vector environment made by the user, not an id, a class or another factory."""
    return hasattr(environment, "step") and not isinstance(environment, type)


def _check_finite(parameters: Parameters) -> None:
    for network, values in parameters.items():
        for name, value in values.items():
            if not np.isfinite(value).all():
                raise NonFiniteError(f"{network}'s {name} is not finite: learning has diverged. {ADVICE}")


def _crossed(before: int, now: int, every: int) -> bool:
    return every > 0 and before // every < now // every
