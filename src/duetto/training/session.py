"""A run at work: the parts joined by one loop.

    while steps remain:
        experience = collect one step of every environment
        memory.add(experience)
        for each batch that is due: learner.update(batch), and its priorities back to the memory
        at their steps: a line of metrics, an evaluation, a checkpoint; around it the user's callbacks

Everything that decides how the loop goes on is in `state_dict`, so a run that is killed goes on exactly from its last
checkpoint.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from duetto import demonstrations, environments, learners, memory
from duetto.algorithms.base import DIVERGENCE, SequenceBatch
from duetto.errors import CheckpointError, DuettoError, EnvironmentFailedError, NonFiniteError
from duetto.functional.randomness import generator
from duetto.learners import dealing
from duetto.learners.base import on_host
from duetto.learners.behind import Behind
from duetto.learners.parameters import Parameters
from duetto.networks import masks, spaces
from duetto.storage.aside import return_to
from duetto.storage.checkpoint import CheckpointStore, Loaded
from duetto.storage.config import Config
from duetto.storage.deciding import ENVIRONMENT, Change, changes, deciding, listed, packages
from duetto.storage.folder_lock import FolderLock
from duetto.storage.records import Csv
from duetto.training import resuming
from duetto.training.callbacks import FUNCTIONS, AnyCallback, Crew
from duetto.training.collector import Source
from duetto.training.evaluation import Evaluation
from duetto.training.evaluations import FIELDS as EVALUATION_FIELDS
from duetto.training.evaluations import Evaluations
from duetto.training.interruption import interruptible
from duetto.training.metrics import ADVICE, MetricLog
from duetto.training.normalizer import AnyBatch, Normalizer
from duetto.training.notices import Notices
from duetto.training.place import Here, Place
from duetto.training.policy import Policy
from duetto.training.whereabouts import check_folder

# Seconds that the last checkpoint waits for what the environments' rehearsal finds.
AT_THE_END, WHEN_STOPPED = 60.0, 5.0


class Session:
    """One run while it is running. Callbacks get it.

    Attributes:
        step: Steps made so far, over all environments.
        learner, memory, stepper, log, config: The parts; read them, and leave changing them to the loop.
        notices: Sentences for the user, in order; whoever shows the run shows them.
    """

    config: Config
    folder: Path
    stepper: environments.Stepper
    learner: learners.Learner
    memory: resuming.AnyMemory
    normalizer: Normalizer
    collector: Source
    store: CheckpointStore
    log: MetricLog

    def __init__(
        self,
        config: Config,
        folder: Path,
        environment: Any,
        lock: FolderLock | None = None,
        place: Place | None = None,
        build_learner: Callable[..., learners.Learner] = learners.build,
    ) -> None:
        """`lock` is that of the folder; without one nobody notices if the folder is moved away meanwhile.

        `place` is where the environments live that are learned from; None: in this process.
        """
        self._place, self._build_learner = place or Here(), build_learner
        self.config, self.folder, self._environment = config, folder, environment
        self._lock = lock or FolderLock(folder)
        self.notices: Notices = Notices()
        with ExitStack() as opened:  # what is open already is closed if a later part cannot be made
            self._make_parts(opened)
            self._opened = opened.pop_all()
        self.step: int = 0
        self._crew = Crew()
        self._seconds = 0.0  # of earlier processes
        self._began = time.perf_counter()
        self._stop = False
        self._saved: tuple[int, int] | None = None  # step and updates of the last checkpoint
        self._versions = packages(config.run.backend)
        self._diagnosed = self._said_shared = False
        self.on_activity: Callable[[str], None] = lambda _: None  # whoever shows the run shows what takes long in it

    def _make_parts(self, opened: ExitStack) -> None:
        options, algorithm = self.config.run, self.config.algorithm
        how: dict[str, Any] = {
            "num_envs": options.num_envs,
            "vectorization": options.vectorization,
            "worker_timeout": options.worker_timeout,
            "engine": options.engine,
            "kwargs": self.config.environment_options,
        }
        self.stepper = self._place.make_stepper(self.config, self._environment, self.notices, **how)
        if not is_instance(self._environment):  # that one is the user's to close
            opened.callback(self.stepper.close)
        self._rehearsal = environments.Rehearsal(self.stepper, self.notices, self._environment, **how)
        opened.callback(self._rehearsal.close)
        observation, action = self.stepper.observation_space, self.stepper.action_space
        algorithm.check_spaces(observation, action, self.config.environment)
        assert options.backend != "auto"
        assert options.device != "auto"
        dealing.check(algorithm, observation, action, options.learners, self.stepper.num_envs, options.backend)
        self.learner = self._build_learner(
            options.backend,
            algorithm,
            observation,
            action,
            seed=options.seed,
            device=options.device,
            precision=options.precision,
            threads=options.threads,
            ranks=options.learners,
            machines=self._place.machines(self.config, self.stepper) if options.learners > 1 else None,
        )
        self._behind = Behind(self.learner) if options.act_behind else None
        opened.callback(self.learner.close)
        self._masked = False
        goals, elsewhere = self._goals(opened), self._elsewhere(opened)
        self._build_memory: Callable[[spaces.Space], resuming.AnyMemory] = lambda seen: memory.build(
            algorithm.memory(),
            seen,
            action,
            self.stepper.num_envs,
            generator(options.seed, "memory"),
            lambda obs: self.learner.value(self.normalizer.scaled(obs)),
            stacked=self.stepper.stacked,
            demonstrations=self._demonstrations(),
            goals=goals,
            elsewhere=elsewhere,
        )
        self.memory = self._build_memory(observation)
        self.normalizer = Normalizer(observation, *algorithm.observation_scaling())
        acting = self._behind or self.learner
        self.collector = self._place.make_source(self.config, self.stepper, acting, self.normalizer)
        self.config = dataclasses.replace(self.config, cluster=self._place.decided(self.stepper))
        self.store = CheckpointStore(self.folder / "checkpoints", options.keep, self.stepper.num_envs)
        self.log = MetricLog(self.folder)
        opened.callback(self.log.close)
        table = opened.enter_context(Csv(self.folder / "evaluations.csv", EVALUATION_FIELDS))
        beside = self._place.make_evaluator(self.config, self._environment, self.stepper)
        self._evaluations = Evaluations(self, table, beside, lambda: self._call("on_evaluation"))
        opened.callback(self._evaluations.close)

    def _remember_masks(self) -> None:
        """The memory anew, with room for the masks of allowed actions: an environment says with its first info only
        whether it gives any. UsageError where they cannot be learned with.
        """
        self.config.algorithm.check_masks(self.config.environment)
        self._masked = True
        del self.memory  # first: two have no room, perhaps
        self.memory = self._build_memory(masks.space(self.stepper.observation_space, self.stepper.action_space))

    def _heed_masks(self) -> None:
        """Once the environments have begun."""
        allowing = self.stepper.engine.allowing
        if allowing is not None and allowing.ignored:
            self.notices.append(
                f"{self.stepper.name} gives an info['action_mask']; its actions are numbers, of which a mask says "
                "nothing: it is ignored."
            )
        if self.stepper.masked and not self._masked:
            self._remember_masks()
        elif self._masked and not self.stepper.masked:
            raise CheckpointError(
                f"What this run goes on from had masks of allowed actions; {self.stepper.name} gives no "
                "info['action_mask'] now. Give one, or begin anew."
            )

    def _goals(self, opened: ExitStack) -> environments.Goals | None:
        """Of an environment of its own: those that are learned from may live in other processes."""
        if getattr(self.config.algorithm.memory(), "hindsight", None) is None:
            return None
        goals = environments.Goals(environments.separate(self._environment, kwargs=self.config.environment_options))
        opened.callback(goals.close)
        return goals

    def _elsewhere(self, opened: ExitStack) -> memory.Elsewhere | None:
        """Where the replay memory is, if not in this process."""
        shards = self._place.make_shards(self.stepper)
        if shards is None:
            return None
        opened.callback(shards.close)
        return memory.Elsewhere(shards, self._kept)

    def _kept(self) -> memory.Kept | None:
        """What the newest checkpoint holds of the memory, for a part of it that was lost."""
        if self._saved is None or not self.store.covered.any():
            return None
        reader = CheckpointStore(self.store.folder, num_envs=self.stepper.num_envs)
        loaded = reader.load(self._saved[0])
        return memory.Kept(loaded.state["memory"], loaded.segments)

    def _demonstrations(self) -> memory.Episodes | None:
        folder, seed = self.config.algorithm.demonstration_folder(), self.config.run.seed
        if not folder:
            return None
        found, stepper = demonstrations.load(folder), self.stepper
        self.notices += found.notices
        spaces_here = (stepper.observation_space, stepper.action_space)
        demonstrations.check_fits(found, *spaces_here, self.config.environment, self.config.environment_options)
        randoms = (generator(seed, "demonstrations"), generator(seed, "which demonstrations"))
        return memory.Episodes(found.episodes, *randoms, found.lengths.tolist())

    # ------------------------------------------------------------------------------------------------ the loop
    def look_ahead(self) -> None:
        """Note where the run will end before it has begun to learn, or to act otherwise than at random."""
        options, algorithm = self.config.run, self.config.algorithm
        num_envs, reasons = self.stepper.num_envs, []
        first, because = algorithm.memory().first_update(num_envs)
        last = options.steps + num_envs - 1  # at most: the last vector step may go beyond
        if not (self.learner.updates or self.memory.pretraining_left) and last < first:
            reasons.append(f"there will be no update, because {because}")
        if options.steps <= (random := algorithm.first_random_steps()):
            reasons.append(f"all actions will be random, because random_steps is {random:,}")
        if reasons and self.step < options.steps:
            self.notices.append(
                f"{options.steps:,} steps are too few: {', and '.join(reasons)}. Give more --steps, or set these lower."
            )

    def run(self, callbacks: Sequence[AnyCallback] = ()) -> None:
        """Go on to the configured number of steps, or until `stop` or Ctrl-C. A checkpoint is the last thing made."""
        self.notices += self._crew.take(callbacks)
        with interruptible(self.stop):
            try:
                self._call("on_start")
                if self._saved is not None:
                    self._call("on_checkpoint")
                for _ in self._steps():
                    self._call(FUNCTIONS)
                self._evaluations.finish()
                if self._saved != (self.step, self.learner.updates):
                    self.checkpoint()
                self._check_folder()
                self._call("on_end")
            except NonFiniteError as error:
                raise NonFiniteError(f"{error} {self._where_it_stopped()}") from error
            except EnvironmentFailedError as error:
                # In the middle of a step, so nothing is written: the last checkpoint is whole, and this state is not.
                sentence = f"{error.sentence} {self._where_it_stopped()}"
                raise EnvironmentFailedError(sentence, error.trace) from error.__cause__

    def _where_it_stopped(self) -> str:
        where = f"The run on {self.config.environment} stopped at step {self.step}"
        if self._saved is None:
            return f"{where}, before its first checkpoint."
        place = self._lock.place() or f"its folder, which is no longer {self.folder}"
        return f"{where}; its checkpoint of step {self._saved[0]} is kept for evaluate and resume in {place}."

    def _call(self, hook: str) -> None:
        try:
            self._crew.call(hook, self)
        except DuettoError:
            raise
        except Exception as error:  # the user's own, with its own traceback
            error.add_note(f"This is of a callback. {self._where_it_stopped()}")
            raise

    def stop(self, because: str = "") -> None:
        """End the loop after this step, with a checkpoint. `because`, a sentence, is said."""
        if because and not self._stop:
            self.notices.append(f"The run stops at step {self.step:,}. {because}")
        self._stop = True

    def when_closed(self, act: Callable[[], None]) -> None:
        """Have `act` called when the session is closed, whatever ended it."""
        self._opened.callback(act)

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
            self._heed_masks()
        if self._evaluations.go_on() or (self._saved is None and options.evaluate_every):
            self._evaluate()
        yield from self._pretrain()
        while self.step < options.steps and not self._stop:
            experience, episodes = self.collector.collect(self.step, options.horizon)
            if self.stepper.lost is not None:
                self.memory.interrupt(self.stepper.lost)
                self.collector.interrupt(self.stepper.lost)
            self.memory.add(experience)
            before, self.step = self.step, self.step + len(experience.reward)
            self.log.add_episodes(episodes)
            if self._behind is not None:
                self._behind.catch_up()
            sample = None
            for sample in self.memory.due():
                self._learn(sample)
            if sample is not None:
                self.normalizer.after_learning(sample.batch)
            if _crossed(before, self.step, options.log_every):
                self._write_metrics()
            self._evaluations.look()
            ended = bool(options.evaluate_every) and self.step >= options.steps  # the last policy, wherever that is
            if ended or _crossed(before, self.step, options.evaluate_every):
                self._evaluate()
            if ended:
                self._evaluations.finish()
            self._call("on_step")
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
                    self._evaluate()
            self._call("on_step")
            if options.checkpoint_every and (ended or updates % options.checkpoint_every == 0):
                self.checkpoint()
            yield
            if self._stop:
                return

    def _learn(self, sample: memory.Sample) -> None:
        progress = self._progress(self.step - sample.age)
        if not self.learner.updates:
            self.on_activity("compiling the first update" if self.config.run.backend == "jax" else "first update")
        metrics = self.learner.update(self._prepared(sample.batch), progress)
        self._report_back(sample, metrics)
        self.log.add(self.step, metrics, sample.info)
        self._call("on_update")

    def _progress(self, step: int) -> float:
        """How much of the schedules is behind, in [0, 1]."""
        return min(1.0, step / self.config.run.horizon)

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
            self.memory.note_divergence(metrics.value(DIVERGENCE))

    def _write_metrics(self) -> None:
        rates = self.learner.learning_rates(self._progress(self.step))
        extra: dict[str, Any] = {f"learn/{name}_learning_rate": rate for name, rate in rates.items()}
        extra["learn/updates"] = self.learner.updates
        self.log.look()  # wait for the device before the clock is read
        extra |= {"time/seconds": self.seconds} | self.stepper.engine.numbers()
        with self.in_its_folder():
            line = self.log.write(self.step, extra)
        self._diagnose(line)

    def _diagnose(self, line: dict[str, Any]) -> None:
        means = {name.removeprefix("learn/"): value for name, value in line.items() if name.startswith("learn/")}
        symptom = self.config.algorithm.symptom(means, self.stepper.action_space)
        if symptom and not self._diagnosed:
            self.notices.append(f"Step {self.step:,}: {symptom}")
            self._diagnosed = True

    # ------------------------------------------------------------------------------------------------ evaluation
    def evaluate(self) -> Evaluation:
        """Evaluate the policy now, write it down, and keep the parameters if they are the best so far.

        Raises NonFiniteError, and writes nothing, if learning has diverged.
        """
        self._evaluate()
        self._evaluations.finish()
        assert self.last_evaluation is not None
        return self.last_evaluation[1]

    def _evaluate(self) -> None:
        """The same, but beside the run where that is possible and nobody listens."""
        self.log.look()
        _check_finite(self.learner.parameters())
        self._rehearsal.end()
        self._evaluations.begin()
        if self._crew.listens("on_evaluation"):
            self._evaluations.finish()

    @property
    def last_evaluation(self) -> tuple[int, Evaluation] | None:
        """The newest and the step that it was made at, or None."""
        return self._evaluations.last

    def another_environment(self, **how: Any) -> environments.Stepper:
        """Environments that learning does not see, for the caller to close. `how` is for `environments.separate`."""
        self._rehearsal.end()
        return environments.separate(self._environment, kwargs=self.config.environment_options, **how)

    @property
    def policy(self) -> Policy:
        """The policy as it is evaluated, from here on: on raw observations (N, ...)."""
        return Policy(self.learner, self.normalizer, self.stepper.action_space, self.config.run.seed)

    # ------------------------------------------------------------------------------------------------ its folder
    @contextmanager
    def in_its_folder(self) -> Iterator[None]:
        """Around all writing: a folder that was moved or deleted is never made again.

        Raises FolderLostError if it is gone, also where that shows in an error of the disk only.
        """
        self._check_folder()
        try:
            yield
        except (DuettoError, OSError):
            self._check_folder()
            raise

    def _check_folder(self) -> None:
        check_folder(self.folder, self._lock, self.step, None if self._saved is None else self._saved[0])

    # ------------------------------------------------------------------------------------------------ checkpoints
    def checkpoint(self) -> Path:
        """Write everything down. Raises NonFiniteError, and writes nothing, if learning has diverged."""
        ended = self.step >= self.config.run.steps
        self._rehearsal.look(AT_THE_END if ended else WHEN_STOPPED if self._stop else 0.0)
        state = self.state_dict()
        _check_finite(state["learner"]["parameters"])
        window = (self.memory.written, self.memory.rows)
        with self.in_its_folder():
            path = self.store.save(self.step, state, self.memory.segment(self.store.covered), window)
        self._saved = (self.step, self.learner.updates)
        if not self._draws_from_what_others_draw_from(state["stepper"]["environments"]):
            self._rehearsal.begin(state["stepper"])
        self._call("on_checkpoint")
        return path

    def _draws_from_what_others_draw_from(self, saved: Any) -> bool:
        """Whether there are others in this process that learn side by side; it is said once."""
        if self.learner.seeds == 1 or not environments.draw_globally(saved):
            return False
        if not self._said_shared:
            self._said_shared = True
            self.notices.append(
                f"{self.stepper.name} draws from Python's or NumPy's global generators, which all seeds in this "
                "process share: they are not what they would be alone. duetto sweep gives each a process of its own."
            )
        return True

    def acting_state(self) -> dict[str, Any]:
        """What acting needs: parameters, observation scaling and spaces; and the config that they came about with."""
        return {
            "config": deciding(self.config),
            "learner": {"parameters": self.learner.parameters()},
            "normalizer": self.normalizer.state_dict(),
            "spaces": {
                "observation": spaces.to_json(self.stepper.observation_space),
                "action": spaces.to_json(self.stepper.action_space),
                "action_dtype": self.stepper.action_dtype,
                "action_mask": self._masked,
                "action_structure": environments.structure(self.stepper.engine.single_action_space),
            },
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on, but the memory's transitions."""
        evaluations = self._evaluations.state_dict()  # first: it may end one, which writes and calls back
        return self.acting_state() | {
            "log": self.log.state_dict(),  # before the others: it waits for the device and finds a divergence
            "learner": self.learner.state_dict(),
            **({"acting": self._behind.state_dict()} if self._behind is not None else {}),
            "memory": self.memory.state_dict(),
            "collector": self.collector.state_dict(),
            "stepper": self._stepper_state(),
            "evaluations": self._evaluations.table.mark,
            "callbacks": self._crew.state_dict(),
            "session": {
                "step": self.step,
                **evaluations,
                "seconds": self.seconds,
                "exact": self._rehearsal.exact,
            },
            "run": {
                "algorithm": self.config.algorithm.name(),
                "environment": self.config.environment,
                "threads": self.learner.threads,
            }
            | ({"seeds": self.learner.seeds} if self.learner.seeds > 1 else {})
            | ({"learners": self.learner.ranks} if self.learner.ranks > 1 else {}),
            "versions": self._versions,
        }

    def _stepper_state(self) -> dict[str, Any]:
        state = self.stepper.state_dict()
        # Environments that would go on elsewhere are not saved: better new episodes, and a word about it.
        return state | {"environments": None} if self._rehearsal.exact is False else state

    def load(self, loaded: Loaded, without_memory: bool = False, accept_changes: bool = False) -> None:
        """Go on from a checkpoint. What logs and tables hold from after it is dropped.

        `without_memory` is for one that was loaded without its experience.

        Raises:
            UsageError: The config decides other numbers than the checkpoint's, and `accept_changes` is not given.
            CheckpointError: It changes what cannot change in a run that has begun.
        """
        state = loaded.state
        resuming.check_form(state)
        if state["session"]["step"] != loaded.step:
            raise CheckpointError(f"{loaded.path} was changed: its state is of step {state['session']['step']}.")
        resuming.check_same_run(state["run"], self.config, self.folder)
        changed = changes(self.config, state.get("config", {}))
        if changed and not accept_changes:
            raise resuming.refusal(loaded, changed, self.config, self.folder)
        self.notices += resuming.notes_of_changes(loaded, changed, self._versions)
        try:
            self._restore(loaded, changed, without_memory)
        except CheckpointError as error:
            if changed:
                raise CheckpointError(f"{error} What has changed in config.yaml: {listed(changed)}.") from error
            raise

    def begin_from(self, state: dict[str, Any], optimizers: bool) -> None:
        """Begin with the networks, and by choice the optimisers, of another run's acting or whole state.

        Raises CheckpointError where they, their spaces or their observations' statistics do not fit.
        """
        resuming.check_spaces(state["spaces"], self.stepper, "Choose an environment of the same spaces.")
        self.normalizer.load_state_dict(state["normalizer"])
        self.learner.load_parameters(state["learner"]["parameters"])
        if optimizers:
            self.learner.load_optimizer_state(state["learner"]["optimizers"])

    def remember(self, loaded: Loaded) -> None:
        """Begin with another run's memory, whose episodes are over here."""
        if loaded.state["spaces"].get("action_mask"):
            self._remember_masks()
        self.memory.load_state_dict(loaded.state["memory"])
        for segment in loaded.segments:
            self.memory.load_segment(segment)
        self.memory.interrupt()

    def _restore(self, loaded: Loaded, changed: list[Change], without_memory: bool) -> None:
        state = loaded.state
        resuming.check_spaces(state["spaces"], self.stepper)
        if without_memory:
            state, note = resuming.with_empty_memory(state, self.config, self.memory)
            self.notices.append(note)
        if state["spaces"].get("action_mask"):
            self._remember_masks()
        self.learner.load_state_dict(state["learner"])
        if self._behind is not None:
            self._behind.load_state_dict(state.get("acting", {}))  # nothing, where the run did not act so before
        self.memory.load_state_dict(state["memory"])
        for segment in loaded.segments:
            self.memory.load_segment(segment)
        self.collector.load_state_dict(state["collector"])
        self.normalizer.load_state_dict(state["normalizer"])
        another = any(change.key in ENVIRONMENT for change in changed)
        self.stepper.load_state_dict(state["stepper"] | ({"environments": None} if another else {}))
        if self.stepper.masked != self._masked:
            self._heed_masks()
            raise CheckpointError(f"{self.stepper.name} gives masks of allowed actions, and gave none before.")
        self.log.load_state_dict(state["log"])
        self._crew = Crew(state.get("callbacks"))  # none in those of earlier versions
        self.step = state["session"]["step"]
        self._seconds, self._began = state["session"]["seconds"], time.perf_counter()
        self._saved = (self.step, self.learner.updates)
        self.notices += loaded.problems
        logs = ((self.log.lines, state["log"]["position"]), (self._evaluations.table, state["evaluations"]))
        self.notices += return_to(logs, self.step)
        self.notices += self._evaluations.load_state_dict(state["session"])
        self.notices += resuming.notes_of_threads(state["run"].get("threads", 0), self.learner.threads)
        self.notices += resuming.notes_of_seeds(state["run"].get("seeds", 1), self.learner.seeds)
        self.notices += resuming.notes_of_learners(state["run"].get("learners", 1), self.learner.ranks)
        self._rehearsal.recall(state["session"].get("exact"))
        if self.stepper.resumed_exactly:
            return
        self.memory.interrupt()
        self.collector.interrupt()
        if not (another or without_memory):
            self.notices.append(
                f"The state of {self.stepper.name} could not be restored: the run goes on with new episodes, so from "
                "here it is not the same, number by number, as one that was never interrupted."
            )

    def close(self) -> None:
        """Release environments and files."""
        self._opened.close()


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
