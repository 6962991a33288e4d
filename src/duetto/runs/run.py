"""Start runs, resume them, and read the results in their folders.

`runs/<algorithm>-<environment>-s<seed>/` contains everything about a run, in open formats: `config.yaml`,
`metrics.jsonl`, `evaluations.csv`, TensorBoard events, `checkpoints/`, `videos/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from duetto import environments, trackers
from duetto.algorithms import Algorithm
from duetto.algorithms.suggestions import did_you_mean
from duetto.cluster import Cluster, check_cluster
from duetto.environments import Episode
from duetto.errors import ShardLostError, UsageError
from duetto.learners import Precision
from duetto.learners.runtime import jax_threads
from duetto.networks.specs import CustomNetwork
from duetto.runs.agent import Agent, load
from duetto.runs.argument_checks import whole
from duetto.runs.spec import RunSpec, new_folder
from duetto.runs.trainer_setup import existing_trainer, new_trainer
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.config import Config, RunOptions
from duetto.storage.logs import Csv, JsonLines
from duetto.storage.reproducibility import sentence
from duetto.storage.run_folder import folder_lock
from duetto.trackers import Tracker
from duetto.training import callbacks as given
from duetto.training.callbacks import AnyCallback
from duetto.training.evaluation import PARALLEL, Evaluation, check_same_spaces, evaluate, watch
from duetto.training.progress import watched
from duetto.training.trainer import Trainer
from duetto.training.video import place, record

MOST_RETURNS = 3  # times that a run may return to one checkpoint after it lost a process


class Run:
    """A run in its folder. The run may still be training.

    Attributes:
        path: The folder.
        config: The run's config.
        notices: Messages for the user from `duetto.pull`, and from loading this run's agents.
    """

    def __init__(
        self,
        path: str | Path,
        environment: Any = None,
        networks: dict[str, CustomNetwork] | None = None,
        trust: bool = False,
        algorithm: type[Algorithm] | None = None,
    ) -> None:
        """Open the folder. `environment`, `networks` and `algorithm` are the objects that were passed to `train`.

        Args:
            path: The folder.
            environment: The environment; needed if `train` did not get an id.
            networks: Custom networks by option, as in `duetto.load`.
            trust: Import the package of an environment "package:id", and run the file of a custom algorithm, even if
                another user started the run.
            algorithm: The class of a custom algorithm.

        Raises:
            UsageError: The folder has no run, or an object is missing.
            CheckpointError: The config cannot be read.
        """
        self.path: Path = Path(path).absolute()  # the working directory may change
        self.config: Config = Config.load(self.path / "config.yaml", networks, algorithm, trust)
        self.notices: list[str] = []
        self._given, self._networks, self._algorithm, self._trust = environment, networks, algorithm, trust

    def __fspath__(self) -> str:
        """Return the run's folder, so that a run can be passed as a path: `duetto.load(run)`, `duetto.plot(runs)`."""
        return str(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def resume(
        self,
        steps: int | None = None,
        callbacks: Sequence[AnyCallback] = (),
        accept_changes: bool = False,
        progress: bool = True,
        cluster: Cluster | None = None,
        track: Sequence[str | Tracker] = (),
        **options: Any,
    ) -> Run:
        """Resume exactly from the last good checkpoint. Signals have the same effect as in `duetto.train`.

        Args:
            steps: Total number of steps; None: as in the config. With more steps, schedules that end with the run also
                end later, and a notice reports this. Set `schedule_steps` to prevent it.
            callbacks: As in `duetto.train`; their states are restored.
            accept_changes: Accept options in `config.yaml` that changed since the checkpoint and affect results.
            progress: As in `duetto.train`.
            cluster: Required if the run started on a cluster; None for other runs.
            track: As in `duetto.train`; the tracked run continues.
            options: New values of hyperparameters and fields of `RunOptions`, such as `learning_rate=1e-4`, as if
                `config.yaml` had been edited and `accept_changes` given.

        Raises:
            UsageError: The call has a mistake; or options changed, and `accept_changes` is false.
            CheckpointError: No checkpoint can be read.
        """
        given.check(callbacks)
        check_cluster(cluster)
        callbacks = [*callbacks, *trackers.callbacks(track)]
        accept_changes |= bool(options)
        if steps is not None:
            options["steps"] = steps
        with watched(progress, f"{self.path}: reading the checkpoint, making environments and networks") as (
            display,
            ended,
        ):
            if display is not None:
                callbacks = [display, *callbacks]
            self.resume_with(callbacks, options, accept_changes, cluster)
            ended([self.path])
        return self

    def resume_with(
        self,
        callbacks: Sequence[AnyCallback],
        options: Mapping[str, Any] | None = None,
        accept_changes: bool = False,
        cluster: Cluster | None = None,
        lost: ShardLostError | None = None,
    ) -> None:
        """Resume without a display. A signal ends the run and is not raised again: callers handle it themselves.

        If the run loses a replay shard, it continues from its newest checkpoint, as after kill -9. `lost` is the error
        of a loss that happened before this call. Raises ShardLostError after three attempts from the same checkpoint.
        """
        tried: list[int] = []
        while True:
            if lost is not None:
                tried.append(max(CheckpointStore(self.path / "checkpoints").steps(), default=0))
                if tried.count(tried[-1]) > MOST_RETURNS:
                    raise lost
            try:
                with self._restored(callbacks, options or {}, accept_changes, cluster) as trainer:
                    if lost is not None:
                        trainer.notices.append(_returned(lost, trainer))
                    trainer.run(callbacks)
                return
            except ShardLostError as error:
                lost = error

    @contextmanager
    def _restored(
        self,
        callbacks: Sequence[AnyCallback],
        options: Mapping[str, Any],
        accept_changes: bool,
        cluster: Cluster | None,
    ) -> Iterator[Trainer]:
        """Yield the run's trainer, restored from its last good checkpoint, while the folder is locked."""
        with folder_lock(self.path):
            # Read the file again: it may have been edited since this object was made.
            self.config = config = Config.load(self.path / "config.yaml", self._networks, self._algorithm, self._trust)
            if options:
                config = _changed(config, options)
            placed = cluster and cluster.resuming(config.cluster, config.run.num_envs).execution()
            made = existing_trainer(config, self.path, self._environment(), placed, accept_changes, self._trust)
            with closing(made) as trainer:
                trainer.notices += trackers.note_of_others(self.path, callbacks)
                resumed = trainer.checkpoints.resumed
                what = [sentence({key: change}) for key, change in resumed.changed.items()]
                what += [resumed.schedules] if resumed.schedules else []
                history = config.history.after_resume(trainer.step, what, resumed.inexact)
                config = replace(config, history=history)
                if self._trust:  # with this user's signature, later commands need no --trust
                    config = config.signed()
                files = config.origin or (config.remakeable and config.checksum)  # they may have been edited
                if config != self.config or files:
                    config.save(self.path / "config.yaml")
                    self.config = config
                trainer.diagnostics.before_run(trainer.step)
                yield trainer

    def agent(
        self, checkpoint: str | int = "last", backend: str | None = None, precision: Precision | None = None
    ) -> Agent:
        """Load the agent of the "last" or "best" checkpoint, or of a step. The arguments are those of `duetto.load`."""
        agent = load(self.path, checkpoint, backend, self._networks, self._algorithm, self._trust, precision)
        self.notices += agent.notices
        return agent

    def evaluate(
        self,
        episodes: int = 10,
        checkpoint: str | int = "last",
        seed: int | None = None,
        tell: Callable[[str], None] = lambda _: None,
        environment: Any = None,
        environment_options: dict[str, Any] | None = None,
        stochastic: bool = False,
    ) -> Evaluation:
        """Evaluate the agent on whole episodes, as the evaluations during training do.

        Args:
            episodes: Number of episodes.
            checkpoint: "last", "best", or a step.
            seed: Seed of the initial states; None: the run's seed. The "best" checkpoint was selected with the run's
                seed, so its result is unbiased only with another seed.
            tell: Callable that gets short texts on progress.
            environment: Another environment with the same spaces.
            environment_options: Options of `environment`; without `environment`, they override the run's options.
            stochastic: Explore as in training; PPO and SAC sample.
        """
        episodes, seed = whole("episodes", episodes), self._seed(seed)
        agent = self.agent(checkpoint)
        policy = agent.policy
        policy.explores = stochastic
        num_envs = min(episodes, PARALLEL)
        made = self.stepper(num_envs, agent=agent, environment=environment, environment_options=environment_options)
        with closing(made) as stepper:
            return evaluate(policy, stepper, episodes, seed, tell)

    def video(
        self,
        output: str | Path | None = None,
        checkpoint: str | int = "last",
        seed: int | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> Path:
        """Record an mp4 of one episode, and return its path.

        Args:
            output: The path of the file; None: a file in the run's folder `videos/`.
            checkpoint: "last", "best", or a step.
            seed: Seed of the initial state; None: the run's seed.
            tell: Callable that gets short texts on progress.
        """
        seed = self._seed(seed)
        agent = self.agent(checkpoint)
        path = Path(output).absolute() if output else place(self.path, agent.step)
        with closing(self.stepper(1, "rgb_array", agent)) as stepper:
            record(agent.policy, stepper, seed, path, tell)
        return path

    def watch(
        self,
        episodes: int = 1,
        checkpoint: str | int = "last",
        seed: int | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> list[Episode]:
        """Show the agent live in the environment's window for `episodes` episodes; 0: until Ctrl-C."""
        episodes = whole("episodes", episodes, least=0)
        seed = self._seed(seed)
        agent = self.agent(checkpoint)
        policy, seen = agent.policy, list[Episode]()
        with closing(self.stepper(1, "human", agent)) as stepper:
            while not episodes or len(seen) < episodes:
                policy.forget()
                seen.append(watch(policy, stepper, seed + len(seen)))
                tell(f"episode {len(seen)}: return {seen[-1].total_reward:.2f}, {seen[-1].length} steps")
        return seen

    def metrics(self) -> list[dict[str, Any]]:
        """Return the lines of `metrics.jsonl`."""
        return JsonLines.read(self.path / "metrics.jsonl")

    def evaluations(self) -> list[dict[str, float]]:
        """Return the rows of `evaluations.csv`, each as a dict of numbers by column, without empty cells."""
        return Csv.read(self.path / "evaluations.csv")

    def _seed(self, seed: int | None) -> int:
        """Return `seed`, or the run's seed if it is None. Raises UsageError unless it is a whole number >= 0."""
        return self.config.run.seed if seed is None else whole("seed", seed, least=0)

    def _environment(self) -> Any:
        if self._given is not None:
            return self._given
        if not self.config.remakeable:
            raise UsageError(
                f"{self.path} was trained on {self.config.environment}, an object that its config cannot make again: "
                "in Python, pass it with duetto.Run(path, environment=...); for duetto evaluate, give --environment "
                "FILE.py:CLASS."
            )
        self.config.check_trust("environment", self.path, self._trust)
        return self.config.environment

    def stepper(
        self,
        num_envs: int,
        render_mode: str | None = None,
        agent: Agent | None = None,
        environment: Any = None,
        environment_options: Mapping[str, Any] | None = None,
    ) -> environments.VecEnv:
        """Make a vector environment from the run's environment or from `environment`. The caller must close it.

        Raises UsageError if the `agent` that will act in it was trained with other spaces.
        """
        options = environment_options or {}
        if environment is None:
            environment, options = self._environment(), self.config.environment_options | dict(options)
        made = environments.make_eval(environment, num_envs=num_envs, render_mode=render_mode, kwargs=dict(options))
        try:
            if agent is not None:
                check_same_spaces(made, agent.observation_space, agent.action_space)
        except UsageError:
            made.close()
            raise
        return made


def start(spec: RunSpec, callbacks: Sequence[AnyCallback] = ()) -> Run:
    """Make a run's folder and train to the end. If the run cannot start, the folder is deleted.

    Args:
        spec: The run.
        callbacks: As in `duetto.train`.
    """
    parent = Path(spec.runs_dir).absolute()  # now: an environment may change the working directory as it is made
    config = spec.config()
    placed = spec.cluster and spec.cluster.execution()
    path = new_folder(parent, spec.folder_name)
    try:
        with new_trainer(spec, config, path, placed) as trainer:
            trainer.diagnostics.before_run(trainer.step)
            trainer.run(callbacks)
    except ShardLostError as lost:
        if not path.exists():  # the run had not started
            raise
        # Without a key the run is not signed. Trust it, because this process started it.
        run = run_of(spec, path, config, trust=config.lacks_signature)
        run.resume_with(callbacks, cluster=spec.cluster, lost=lost)
        return run
    return run_of(spec, path, config)


def _changed(config: Config, options: Mapping[str, Any]) -> Config:
    """Return `config` with new values of hyperparameters and `RunOptions`. Raises UsageError for other options."""
    own, run = config.algorithm.options(), [field.name for field in fields(RunOptions)]
    known = [*own, *run]
    if unknown := next((name for name in options if name not in known), None):
        raise UsageError(f"resume has no option {unknown!r}.{did_you_mean(unknown, known)}")
    algorithm = config.algorithm.with_options(**{name: options[name] for name in options if name in own})
    ours = replace(config.run, **{name: options[name] for name in options if name in run})
    elsewhere = (ours.backend, ours.device) != (config.run.backend, config.run.device)
    if elsewhere and "threads" not in options:  # the old number was chosen for the old backend
        ours = replace(ours, threads=jax_threads() if (ours.backend, ours.device) == ("jax", "cpu") else 0)
    if "auto" in (ours.backend, ours.device):
        raise UsageError("backend and device cannot be auto in a resumed run: give torch or jax, and cpu or cuda.")
    return replace(config, algorithm=algorithm, run=ours)


def _returned(lost: ShardLostError, trainer: Trainer) -> str:
    where = f"from its checkpoint of step {trainer.step:,}" if trainer.step else "from its start"
    gone = trainer.config.cluster.get("mode") == "async" and lost.step > trainer.step
    steps = f"; {lost.step - trainer.step:,} steps are lost" if gone else ""
    return f"{lost} The run continues {where}{steps}."


def run_of(spec: RunSpec, path: Path, config: Config, trust: bool = False) -> Run:
    """Return the run in `path`, started from `spec` with the config `config`."""
    environment = None if config.remakeable else spec.environment
    algorithm = type(spec.algorithm) if config.origin else None
    return Run(path, environment, spec.algorithm.custom_networks(), trust, algorithm)
