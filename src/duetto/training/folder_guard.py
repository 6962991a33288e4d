"""The folder of a run at work: checks that it stays in its place, and the sentences on what is kept in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from duetto.errors import DuettoError, EnvironmentFailedError, FolderLostError, NonFiniteError, PartLostError, near
from duetto.storage import resume_history
from duetto.storage.lock import FolderLock


class FolderGuard:
    """Guards the writing in a run's folder, and adds to errors what the folder keeps of the run."""

    def __init__(
        self, folder: Path, lock: FolderLock, environment: str, progress: Callable[[], tuple[int, int | None]]
    ) -> None:
        """`progress` returns the run's step and that of its last checkpoint, None if there is none."""
        self._folder, self._lock, self._environment, self._progress = folder, lock, environment, progress

    def check(self) -> None:
        """Raise FolderLostError if the folder was moved, replaced or deleted since the run started in it."""
        if self._lock.is_in_place():
            return
        step, saved = self._progress()
        kept = ", before its first checkpoint" if saved is None else f"; its last checkpoint is that of step {saved}"
        raise FolderLostError(
            f"{self._folder} was moved, deleted or replaced while the run worked in it. The run stopped at step "
            f"{step}{kept}. If the folder was moved, resume the run in its new place: duetto resume FOLDER."
        )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Guard all writing in the folder. Raises FolderLostError if it was moved or deleted."""
        self.check()
        try:
            yield
        except (DuettoError, OSError):
            self.check()
            raise

    def note(self, **what: Any) -> None:
        """Note something in the run's history; see `resume_history.note`."""
        with self.writing():
            resume_history.note(self._folder / "config.yaml", **what)

    @contextmanager
    def explaining_errors(self) -> Iterator[None]:
        """Add to errors of the run where it stopped, and which checkpoint is kept."""
        try:
            yield
        except NonFiniteError as error:
            raise NonFiniteError(f"{error} {self._where_it_stopped()}") from error
        except EnvironmentFailedError as error:
            # In the middle of a step, so nothing is written: the last checkpoint is whole, and this state is not.
            sentence = f"{error.sentence} {self._where_it_stopped()}"
            raise EnvironmentFailedError(sentence, error.trace) from error.__cause__
        except PartLostError as error:
            error.step = self._progress()[0]
            raise

    @contextmanager
    def explaining_callback_errors(self) -> Iterator[None]:
        """Add to an error of a user's callback where the run stopped."""
        try:
            yield
        except DuettoError:
            raise
        except Exception as error:
            error.add_note(f"A callback raised this. {self._where_it_stopped()}")
            raise

    def _where_it_stopped(self) -> str:
        """Return a sentence with the step at which the run stopped, and the checkpoint that is kept."""
        step, saved = self._progress()
        where = f"The run on {self._environment} stopped at step {step}"
        if saved is None:
            return f"{where}, before its first checkpoint."
        place = near(self._folder) if self._lock.is_in_place() else f"its folder, which is no longer {self._folder}"
        return f"{where}; its checkpoint of step {saved} is kept for evaluate and resume in {place}."
