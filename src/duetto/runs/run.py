"""Runs and their folders: start one, take one up again, look at what it left.

`runs/<algorithm>-<environment>-s<seed>/` holds all there is to know about a run, in open formats: `config.yaml`,
`metrics.jsonl`, `evaluations.csv`, TensorBoard events, `checkpoints/`, `videos/`.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from duetto import environments, learners, trackers
from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.cluster import Cluster
from duetto.display.showing import shown
from duetto.display.video import place, record
from duetto.environments import Episode
from duetto.errors import DuettoError, PartLostError, UsageError
from duetto.learners import Precision, dealing
from duetto.networks.specs import CustomNetwork
from duetto.runs.agent import Agent
from duetto.runs.beginning import Beginning
from duetto.storage import trust
from duetto.storage.aside import BEFORE, free_folder
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.config import Config, RunOptions, circumstances, command_line
from duetto.storage.folder_lock import FolderLock
from duetto.storage.origin import Origin
from duetto.storage.records import Csv, JsonLines
from duetto.trackers import Tracker
from duetto.training import callbacks as given
from duetto.training.callbacks import AnyCallback
from duetto.training.evaluation import PARALLEL, Evaluation, evaluate, watch
from duetto.training.place import Place
from duetto.training.resuming import notes_of_stretching
from duetto.training.session import Session, is_instance

MOST_RETURNS = 3  # to one checkpoint, after a part of the run was lost


class Run:
    """A run's folder, while it is worked on or long after.

    Attributes:
        path: The folder.
        config: What the run is.
        notices: Sentences about damage that was found in it, and passed over, while it was read.
    """

    def __init__(
        self,
        path: str | Path,
        environment: Any = None,
        networks: dict[str, CustomNetwork] | None = None,
        trust: bool = False,
        algorithm: type[Algorithm] | None = None,
    ) -> None:
        """`environment`, `networks`, and `algorithm`, the class of one that is not Duetto's own, are what was handed to
        `train` as objects and cannot be made from the config.

        `trust` lets an environment "package:id" import its package, and an algorithm's file run, though another user,
        or nobody known, began the run.
        """
        self.path: Path = Path(path)
        self.config: Config = Config.load(self.path / "config.yaml", networks, algorithm, trust)
        self.notices: list[str] = []
        self._given, self._networks, self._algorithm, self._trust = environment, networks, algorithm, trust

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def resume(
        self,
        steps: int | None = None,
        callbacks: Sequence[AnyCallback] = (),
        on_start: Callable[[Session], None] | None = None,
        without_memory: bool = False,
        accept_changes: bool = False,
        keep_schedule: bool = False,
        progress: bool = True,
        cluster: Cluster | None = None,
        track: Sequence[str | Tracker] = (),
    ) -> Run:
        """Go on exactly where the last good checkpoint was made, to `steps` in all (default: as configured).

        More steps stretch every schedule that is measured in the run's length, and it is said what that changes; with
        `keep_schedule` they end where they would have ended, and stay at their last values. `on_start` gets the session
        before anything happens in it. `without_memory` goes on with an empty replay memory and new episodes, where the
        one in the checkpoint is damaged: then the numbers are not those of a run that was never interrupted.
        With `accept_changes` what decides the numbers may have changed in `config.yaml` since
        that checkpoint (to fine-tune, for example); without, UsageError says what has. `progress` as in `duetto.train`.
        `cluster` is where the environments live from here on; None: in this process, wherever they were.
        `callbacks` get their states back. `track` as in `duetto.train`: it goes on in the same tracked run.
        """
        given.check(callbacks)
        callbacks = [*callbacks, *trackers.callbacks(track)]
        console = Console()
        if not (progress and console.is_terminal):
            self._resume(steps, callbacks, on_start, without_memory, accept_changes, keep_schedule, cluster)
            return self
        with shown(console, f"{self.path}: reading the checkpoint, making environments and networks") as display:

            def begin(session: Session) -> None:
                display.announce(session)
                if on_start is not None:
                    on_start(session)

            self._resume(steps, [display, *callbacks], begin, without_memory, accept_changes, keep_schedule, cluster)
            display.finish(self.path)
        return self

    def _resume(
        self,
        steps: int | None,
        callbacks: Sequence[AnyCallback],
        on_start: Callable[[Session], None] | None,
        without_memory: bool,
        accept_changes: bool,
        keep_schedule: bool,
        cluster: Cluster | None,
    ) -> None:
        if keep_schedule and steps is None:
            raise UsageError(
                "Schedules change with the number of steps only: give --steps, too, or no --keep-schedule."
            )
        before = self._newest()
        try:
            self._go_on(steps, callbacks, on_start, without_memory, accept_changes, keep_schedule, cluster)
        except PartLostError as lost:
            damaged = before if without_memory else None
            self.go_back(lost, callbacks, on_start, cluster, damaged, accept_changes, steps, keep_schedule)

    def go_back(
        self,
        lost: PartLostError,
        callbacks: Sequence[AnyCallback],
        on_start: Callable[[Session], None] | None,
        cluster: Cluster | None,
        damaged: int | None = None,
        accept_changes: bool = False,
        steps: int | None = None,
        keep_schedule: bool = False,
    ) -> None:
        """Go on from the newest checkpoint, as after kill -9, and as often as a part of the run is lost.

        `damaged` is the step of one whose memory cannot be read. Raises `lost`, or what came after it, where going on
        brings no newer checkpoint three times.
        """
        tried: list[int] = []
        while True:
            tried.append(newest := self._newest())
            if tried.count(newest) > MOST_RETURNS:
                raise lost

            def begin(session: Session, what: PartLostError = lost) -> None:
                where = f"from its checkpoint of step {session.step:,}" if session.step else "from its beginning"
                session.notices.append(f"{what} The run goes on {where}.")
                if on_start is not None:
                    on_start(session)

            try:
                self._go_on(steps, callbacks, begin, newest == damaged, accept_changes, keep_schedule, cluster)
                return
            except PartLostError as another:
                lost = another

    def _newest(self) -> int:
        """The step of the newest checkpoint; 0 where there is none."""
        return max(CheckpointStore(self.path / "checkpoints").steps(), default=0)

    def _go_on(
        self,
        steps: int | None,
        callbacks: Sequence[AnyCallback],
        on_start: Callable[[Session], None] | None,
        without_memory: bool,
        accept_changes: bool,
        keep_schedule: bool,
        cluster: Cluster | None,
    ) -> None:
        with FolderLock(self.path) as lock:
            config, horizon = self.config, self.config.run.horizon
            if steps is not None:
                kept = horizon if keep_schedule else config.run.schedule_steps
                run = dataclasses.replace(config.run, steps=steps, schedule_steps=kept)
                config = dataclasses.replace(config, run=run)
            with closing(self._session(config, lock, cluster)) as session:
                self._take_up(session, without_memory, accept_changes)
                if wrapper := environments.running_statistics(self._given, session.stepper):
                    session.notices.append(_own_statistics(config.environment, wrapper, config.algorithm))
                session.notices += notes_of_stretching(config, session.learner, session.step, horizon)
                session.notices += trackers.note_of_others(self.path, callbacks)
                if self._trust:  # from here on it is this user's
                    config = config.signed()
                if config != self.config or config.origin:  # whose file may have been edited
                    config.save(self.path / "config.yaml")
                    self.config = config
                _work(session, callbacks, on_start)

    def _session(self, config: Config, lock: FolderLock, cluster: Cluster | None = None) -> Session:
        """Without a checkpoint it begins anew: what was logged until then is set aside, not dropped."""
        place = cluster and cluster.resuming(config.cluster)
        logged = [path for path in (self.path / "metrics.jsonl", self.path / "evaluations.csv") if path.exists()]
        if CheckpointStore(self.path / "checkpoints").steps() or not logged:
            return Session(config, self.path, self._environment(), lock, place)
        aside = free_folder(self.path, BEFORE)
        for path in logged:
            path.rename(aside / path.name)
        try:
            session = Session(config, self.path, self._environment(), lock, place)
        except BaseException:
            for path in logged:
                (aside / path.name).replace(path)
            aside.rmdir()
            raise
        session.notices.append(
            f"{self.path} has no checkpoint: the run begins at step 0 again. What it had logged is in {aside}."
        )
        return session

    def _take_up(self, session: Session, without_memory: bool, accept_changes: bool) -> None:
        """Load the last good checkpoint, if there is one; nothing is changed on disk if it does not fit."""
        if not session.store.steps():
            if began := self.config.began_from:
                beginning = Beginning.from_dict(began)
                trust.check_folder(beginning.run, began.get("signature"), self.path, self._trust)
                beginning.begin(session)
            return
        loaded, steps = session.store.load_latest(memory=not without_memory), session.config.run.steps
        if steps <= loaded.step - session.stepper.num_envs:  # the last vector step may go beyond the end
            raise UsageError(f"{self.path} has made {loaded.step} steps already, more than {steps}: give more --steps.")
        session.load(loaded, without_memory, accept_changes)

    def agent(
        self, checkpoint: str | int = "last", backend: str | None = None, precision: Precision | None = None
    ) -> Agent:
        """The trained agent of the "last" or "best" checkpoint or that of a step; by default in the run's precision."""
        agent = Agent.load(self.path, checkpoint, backend, self._networks, self._algorithm, self._trust, precision)
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
        """Whole episodes without exploration, from the same initial states as the run's own evaluations.

        `environment` is another one of the same spaces; `environment_options` are its own, or come on top of the run's.
        With `stochastic` the policy explores as in training: PPO and SAC sample. `tell` gets a few words now and then
        on how far it is.
        """
        if episodes < 1:
            raise UsageError(f"episodes is {episodes}; it must be at least 1.")
        _check_seed(seed)
        agent = self.agent(checkpoint)
        stepper = self._elsewhere(min(episodes, PARALLEL), environment, environment_options or {})
        policy = agent.policy
        policy.explores = stochastic
        try:
            _check_same_spaces(agent, stepper)
            return evaluate(policy, stepper, episodes, self.config.run.seed if seed is None else seed, tell)
        finally:
            stepper.close()

    def video(
        self,
        output: str | Path | None = None,
        checkpoint: str | int = "last",
        seed: int | None = None,
        frames: str | Path | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> Path:
        """An mp4 of one episode, by default in the run's folder `videos/`; with `frames`, its pictures there as PNG.

        `tell` gets a few words now and then on how far it is.
        """
        _check_seed(seed)
        if output is not None and (str(output).endswith(("/", "\\")) or Path(output).is_dir()):
            raise UsageError(
                f"{output} is a folder. Give the video a name in it, such as {Path(output) / 'video.mp4'}."
            )
        agent = self.agent(checkpoint)
        path = Path(output) if output else place(self.path, agent.step)
        stepper = self.stepper(1, render_mode="rgb_array")
        try:
            chosen = self.config.run.seed if seed is None else seed
            record(agent.policy, stepper, chosen, path, Path(frames) if frames else None, tell)
        finally:
            stepper.close()
        return path

    def watch(
        self,
        episodes: int = 1,
        checkpoint: str | int = "last",
        seed: int | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> list[Episode]:
        """Show the agent live, in the environment's own window, for so many episodes; 0 for ever, until Ctrl-C."""
        if episodes < 0:
            raise UsageError(f"episodes is {episodes}; it must be at least 0, which is without an end.")
        _check_seed(seed)
        agent = self.agent(checkpoint)
        stepper = self.stepper(1, render_mode="human")
        seen: list[Episode] = []
        try:
            while not episodes or len(seen) < episodes:
                first = (self.config.run.seed if seed is None else seed) + len(seen)
                seen.append(watch(agent.policy, stepper, first))
                tell(f"episode {len(seen)}: return {seen[-1].total_reward:.2f}, {seen[-1].length} steps")
        finally:
            stepper.close()
        return seen

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`."""
        return JsonLines.read(self.path / "metrics.jsonl")

    def evaluations(self) -> list[dict[str, float]]:
        """The rows of `evaluations.csv` as numbers."""
        path = self.path / "evaluations.csv"
        try:
            return [{name: float(value) for name, value in row.items()} for row in Csv.read(path)]
        except (TypeError, ValueError) as error:  # a cell too few is None
            raise DuettoError(f"{path} is damaged: {error}. Remove that line to read the others.") from error

    def _environment(self) -> Any:
        if self._given is not None:
            return self._given
        if not self.config.remakeable:
            raise UsageError(
                f"{self.path} was trained on {self.config.environment}, an object that its config cannot make again: "
                "in Python, hand it over with duetto.Run(path, environment=...)."
            )
        config = self.config
        trust.check(config.environment, config.environment_options, config.signature, self.path, self._trust)
        return config.environment

    def _elsewhere(self, num_envs: int, environment: Any, options: dict[str, Any]) -> environments.Stepper:
        if environment is None:
            kwargs = self.config.environment_options | options
            return environments.separate(self._environment(), num_envs=num_envs, kwargs=kwargs)
        return environments.separate(environment, num_envs=num_envs, kwargs=options)

    def stepper(self, num_envs: int, render_mode: str | None = None) -> environments.Stepper:
        """So many of its environments, side by side; close it after use."""
        options = self.config.environment_options
        return environments.separate(self._environment(), num_envs=num_envs, render_mode=render_mode, kwargs=options)


def start(
    algorithm: Algorithm,
    environment: Any,
    options: RunOptions,
    *,
    runs_dir: str | Path = "runs",
    name: str | None = None,
    preset: str = "default",
    environment_options: dict[str, Any] | None = None,
    callbacks: Sequence[AnyCallback] = (),
    on_start: Callable[[Session], None] | None = None,
    origin: Origin | None = None,
    beginning: Beginning | None = None,
    cluster: Cluster | None = None,
) -> Run:
    """Make a run's folder and train to the end. Nothing is left behind if a mistake in the call shows first."""
    given.check(callbacks)
    config = planned(algorithm, environment, options, preset, environment_options, origin)
    place = cluster and cluster.beginning(algorithm)
    label = config.environment
    path = new_folder(Path(runs_dir), run_name(algorithm, label, options.seed) if name is None else name)
    given_environment, own = (None if config.remakeable else environment), (type(algorithm) if config.origin else None)
    try:
        with begun(config, path, environment, beginning, place) as session:
            _work(session, callbacks, on_start)
    except PartLostError as lost:
        if not path.exists():  # it had not begun
            raise
        run = Run(path, given_environment, algorithm.custom_networks(), algorithm=own)
        run.go_back(lost, callbacks, on_start, cluster)
        return run
    return Run(path, given_environment, algorithm.custom_networks(), algorithm=own)


@contextmanager
def begun(
    config: Config,
    path: Path,
    environment: Any,
    beginning: Beginning | None = None,
    place: Place | None = None,
    build_learner: Callable[..., learners.Learner] = learners.build,
) -> Iterator[Session]:
    """The session of a new run in its new folder, which is removed again if the session cannot be made."""
    with FolderLock(path) as lock:
        try:
            config.save(path / "config.yaml")
            session = Session(config, path, environment, lock, place, build_learner)
            try:
                if beginning is not None:
                    began = beginning.begin(session).to_dict()
                    session.config = dataclasses.replace(session.config, began_from=began).signed()
                if session.config != config:
                    config = session.config
                    config.save(path / "config.yaml")
            except BaseException:
                session.close()
                raise
        except BaseException:
            shutil.rmtree(path)
            raise
        if config.lacks_signature:
            session.notices.append(
                f"No key can be made or read in {trust.key_path()}, so this run is not signed: resume, evaluate and "
                f"video will need --trust. Put that right, or set {trust.KEY_FILE}."
            )
        with closing(session):
            yield session


def planned(
    algorithm: Algorithm,
    environment: Any,
    options: RunOptions,
    preset: str = "default",
    environment_options: dict[str, Any] | None = None,
    origin: Origin | None = None,
) -> Config:
    """What `start` would make a run from; nothing is written.

    Raises UsageError where the parts do not fit together.
    """
    label = label_of(environment)
    config = Config(
        algorithm=algorithm,
        environment=label,
        run=_resolved(algorithm, environment, label, options, environment_options or {}),
        remakeable=isinstance(environment, str),
        environment_options=environment_options or {},
        preset=preset,
        command=command_line(),
        versions=circumstances(),
        origin=origin or Origin.of(type(algorithm)),
    ).signed()
    config.to_yaml()  # what it cannot hold shows now
    return config


def _work(session: Session, callbacks: Sequence[AnyCallback], on_start: Callable[[Session], None] | None) -> None:
    session.look_ahead()
    if on_start is not None:
        on_start(session)
    session.run(callbacks)


def _resolved(
    algorithm: Algorithm, environment: Any, label: str, options: RunOptions, kwargs: dict[str, Any]
) -> RunOptions:
    """Options without "auto", after everything was checked that needs an environment to check."""
    probe = environments.make(environment, engine=options.engine, kwargs=kwargs)
    try:
        _check_spaces(algorithm, probe, label)
        _check_masks(algorithm, probe, label, options.seed)
        if wrapper := environments.running_statistics(environment, probe):
            raise UsageError(_own_statistics(label, wrapper, algorithm))
        if options.engine == "envpool" and options.evaluate_every:
            _check_evaluations(environment, label, kwargs)
        backend, device = learners.choose(probe.observation_space, options.backend, options.device)
        spaces = (probe.observation_space, probe.action_space)
        dealing.check(algorithm, *spaces, options.learners, options.num_envs, backend)
    finally:
        if not is_instance(environment):
            probe.close()
    return dataclasses.replace(options, backend=backend, device=device)


def _check_spaces(algorithm: Algorithm, stepper: environments.Stepper, label: str) -> None:
    def refusal(candidate: Algorithm) -> UsageError | None:
        try:
            candidate.check_spaces(stepper.observation_space, stepper.action_space, label)
        except UsageError as error:
            return error

    if error := refusal(algorithm):
        others = [name for name, kind in ALGORITHMS.items() if not refusal(kind())]
        raise UsageError(f"{error} Algorithms for it: {', '.join(others)}." if others else str(error)) from error


def _check_masks(algorithm: Algorithm, stepper: environments.Stepper, label: str, seed: int) -> None:
    """An environment says with its first info only whether it has masks: it is reset where that matters."""
    try:
        algorithm.check_masks(label)
    except UsageError:
        stepper.reset(seed)
        if stepper.masked:
            raise


def _own_statistics(label: str, wrapper: str, algorithm: Algorithm) -> str:
    """What is said of a wrapper with running statistics, and what does it right."""
    wanted = "rewards" if "Reward" in wrapper else "observations"
    option = f"normalize_{wanted}"
    default = getattr(algorithm, option, None)
    instead = ""
    if default is not None:
        value = "True" if isinstance(default, bool) else "'collected'"
        instead = (
            f"Take it out, and give {algorithm.name()} {option}={value}, whose statistics are shared and saved. Or "
        )
    return (
        f"{label} has a {wrapper}: its running statistics are those of one environment, so evaluations, videos and "
        f"the trained agent elsewhere would have others than it learns with. {instead or 'Take it out, or '}"
        "set fixed statistics in it, and its update_running_mean to False."
    )


def _check_evaluations(environment: Any, label: str, kwargs: dict[str, Any]) -> None:
    try:
        environments.separate(environment, kwargs=kwargs).close()
    except UsageError as error:
        raise UsageError(
            f"Evaluations are made in Gymnasium's environment of the same id, and for {label} that fails: {error} "
            "Or train in EnvPool's without them: --evaluate-every 0."
        ) from error


def new_folder(parent: Path, name: str) -> Path:
    """A new run's folder; see `free_folder`."""
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise UsageError(
            f"{name!r} cannot be a run's name: use letters, digits, '.', '-', '_' and '+', a letter or digit first."
        )
    return free_folder(parent, name)


def _check_same_spaces(agent: Agent, stepper: environments.Stepper) -> None:
    for kind in ("observation", "action"):
        theirs, ours = getattr(stepper, f"{kind}_space"), getattr(agent, f"{kind}_space")
        if theirs != ours:
            raise UsageError(
                f"{stepper.name} has the {kind} space {theirs}; the agent was trained with {ours}. Choose an "
                "environment of the same spaces, or the run's options of it."
            )


def _check_seed(seed: int | None) -> None:
    if seed is not None and seed < 0:
        raise UsageError(f"seed is {seed}; it must be at least 0.")


def run_name(algorithm: Algorithm, label: str, seed: int) -> str:
    """What a run's folder is called where nobody says it."""
    return f"{algorithm.name()}-{slug(label)}-s{seed}"


def slug(label: str) -> str:
    """A label as a folder may be called."""
    return re.sub(r"[^\w.+-]+", "-", label).strip("-")


def label_of(environment: Any) -> str:
    """What an environment is called: its id, or the name of what makes it."""
    if isinstance(environment, str):
        return environment
    spec = None if isinstance(environment, type) else getattr(environment, "spec", None)
    if spec is not None:
        return spec.id
    return getattr(environment, "__name__", None) or type(getattr(environment, "unwrapped", environment)).__name__
