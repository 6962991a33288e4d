"""A run as a job that can be sent to another process, which begins it, or resumes it if its folder is there."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from duetto import environments
from duetto.algorithms import Algorithm
from duetto.errors import DuettoError, EnvironmentFailedError, NonFiniteError, RunInUseError
from duetto.runs.same_run import HinderedError, check_alike, recorded
from duetto.storage import user_code
from duetto.storage.config import Config, RunOptions
from duetto.storage.lock import FolderLock
from duetto.storage.run_folder import clear, foreign
from duetto.storage.user_code import Origin, from_file

if TYPE_CHECKING:  # a framework comes with them, and the process may be about to end
    from duetto.training.callbacks import AnyCallback
    from duetto.training.trainer import Trainer

PATIENCE = 10.0  # seconds for the process that worked on a run before this one to be gone
CLAIMS = ".beginning"  # the folder of the locks of runs that are being begun
DIVERGED, FAILED = "diverged", "failed"
HINDERED, IN_USE = "hindered", "in use"  # by what is around the run: it is as good as it was


@dataclass(frozen=True)
class Job:
    """A run to begin, or to resume if its folder is there."""

    parent: Path
    name: str
    algorithm: Algorithm | dict[str, Any]  # the options alone, where the class comes from a file
    environment: Any
    run: RunOptions
    preset: str
    record: dict[str, Any]  # see `runs.same_run`
    environment_options: dict[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    registration: Any = None  # of an environment whose id a script has registered
    waits: bool = False  # after each evaluation, for what whoever handed it out says
    contested: bool = False  # others may begin the same run at the same time
    track: tuple[str, ...] = ()  # names of trackers
    environment_file: str = ""  # the checksum of the user's file that the environment's id names

    @classmethod
    def of(cls, config: Config, environment: Any, parent: Path, name: str, **how: Any) -> Self:
        """The job for a config's run; `environment` is the environment that the config describes."""
        algorithm, in_file = config.algorithm, bool(config.origin and config.origin.file)
        return cls(
            parent=parent,
            name=name,
            algorithm={option: getattr(algorithm, option) for option in algorithm.options()} if in_file else algorithm,
            environment=environment,
            run=config.run,
            preset=config.preset,
            environment_options=config.environment_options,
            origin=config.origin,
            registration=environments.registration(environment),
            environment_file=config.checksum,
            record=recorded(config),
            **how,
        )

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.parent / self.name

    def work(self, callbacks: Sequence[AnyCallback] = (), on_start: Callable[[Trainer], None] = lambda _: None) -> None:
        """Train to the end.

        Raises as `duetto.train` does; RunInUseError if another process works on the run; HinderedError if its folder
        has a run of other options, or a file that it is made of was edited since the job was made.
        """
        from duetto import trackers
        from duetto.runs.run import GoingOn, Run, start
        from duetto.runs.spec import RunSpec

        environments.register(self.registration)
        algorithm, origin = self._made()
        if self.environment_file and user_code.checksum(self.environment) != self.environment_file:
            raise _edited(self.environment)
        callbacks = [*callbacks, *trackers.callbacks(self.track)]
        with ExitStack() as beginning:
            if self.contested:
                claim = self.parent / CLAIMS / self.name
                claim.mkdir(parents=True, exist_ok=True)
                _patiently(lambda: beginning.enter_context(FolderLock(claim)))

            def begun(trainer: Trainer) -> None:
                beginning.close()  # from here on the run's own lock says it
                on_start(trainer)

            if not (self.folder / "config.yaml").is_file():
                if not foreign(self.folder):
                    clear(self.folder)
                if os.path.lexists(self.folder):
                    raise HinderedError(
                        f"{self.folder} is no run: it has no config.yaml. Put that back, or move it away."
                    )
                spec = RunSpec(
                    algorithm,
                    self.environment,
                    self.run,
                    self.preset,
                    self.environment_options,
                    origin,
                    runs_dir=self.parent,
                    name=self.name,
                )
                start(spec, callbacks, begun)
                return
        check_alike(self.folder, self.record)
        in_file = origin is not None and origin.file  # which is read again, to see whether it was edited
        own = type(algorithm) if origin and not in_file else None
        given = None if isinstance(self.environment, str) else self.environment
        run = Run(self.folder, environment=given, networks=algorithm.custom_networks(), algorithm=own)
        _patiently(lambda: run.go_on(GoingOn(callbacks=callbacks, on_start=on_start)))

    def _made(self) -> tuple[Algorithm, Origin | None]:
        if isinstance(self.algorithm, Algorithm):
            return self.algorithm, self.origin
        assert self.origin is not None
        kind, origin = from_file(Path(self.origin.file), self.origin.kind)
        if origin.checksum != self.origin.checksum:
            raise _edited(f"{origin.file}:{origin.kind}")
        return kind(**self.algorithm), origin


def outcome(
    job: Job, callbacks: Sequence[AnyCallback] = (), on_start: Callable[[Trainer], None] = lambda _: None
) -> tuple[Any, ...]:
    """Train, and return the outcome: ("ended", whether it was stopped, notices), or ("failed", kind, sentence, trace),
    where the kind is DIVERGED, FAILED, HINDERED or IN_USE.
    """
    trainers: list[Trainer] = []

    def begun(trainer: Trainer) -> None:
        trainers.append(trainer)
        on_start(trainer)

    try:
        job.work(callbacks, begun)
        trainer = trainers[-1]  # one that goes on after it lost a part of itself has a new one
        return "ended", trainer.stopped, list(trainer.notices)
    except NonFiniteError as error:
        return "failed", DIVERGED, str(error), ""
    except EnvironmentFailedError as error:
        return "failed", FAILED, error.sentence, error.trace
    except RunInUseError as error:
        return "failed", IN_USE, str(error), ""
    except DuettoError as error:
        return "failed", _fault(error), str(error), ""
    except Exception as error:  # of one run, which is no reason to end the others
        return "failed", _fault(error), f"{type(error).__name__}: {error}", traceback.format_exc()


def _fault(error: BaseException | None) -> str:
    """HINDERED if the error comes from the machine, such as a full disk, or from what was changed; else FAILED."""
    while error is not None and not isinstance(error, EnvironmentFailedError):
        if isinstance(error, OSError | HinderedError):
            return HINDERED
        error = error.__cause__
    return FAILED


def _edited(name: str) -> HinderedError:
    return HinderedError(
        f"{name} was edited while runs of it wait for their turn: this one would be of other code than those before "
        "it. Put the file back, and give the same command again; or begin all runs anew, with another --output."
    )


def _patiently(work: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            work()
            return
        except RunInUseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
