"""Pushing a run to the Hub, with an evaluation of its agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from duetto.errors import DuettoError, UsageError
from duetto.runs.run import Run
from duetto.sharing import card, form
from duetto.sharing.hub import Hub, Listing
from duetto.sharing.packing import pack
from duetto.sharing.places import without_places
from duetto.storage import disk
from duetto.storage.aside import free_folder
from duetto.training.evaluation import Evaluation
from duetto.training.notices import Notices

_OTHERS = (".gitattributes", ".gitignore", form.CARD, "LICENSE", "LICENSE.md")  # of a repository that holds nothing yet


@dataclass(frozen=True)
class What:
    """The agent that is sent, how it is evaluated, and what goes along; see `push`."""

    checkpoint: str | int
    episodes: int
    seed: int | None
    video: bool
    metrics: bool
    memory: bool


class Pushed(NamedTuple):
    """The files that were sent, or would be, and their evaluation."""

    where: str  # the repository's address; of a trial run the folder
    files: dict[str, int]  # bytes by name
    deleted: list[str]  # of what an earlier push had left there
    evaluation: Evaluation
    notices: list[str]


def push(
    run: Run | str | Path,
    repository: str,
    *,
    checkpoint: str | int = "last",
    episodes: int = 10,
    seed: int | None = None,
    video: bool = True,
    metrics: bool = True,
    memory: bool = False,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
    dry_run: bool = False,
    output: str | Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Pushed:
    """Evaluate the agent, film it, and send the run to the Hub with a model card.

    A repository that holds a run already is updated in one commit; its history keeps what was there. The token is the
    one that huggingface_hub finds. Nothing is sent before the evaluation is done.

    Args:
        run: A run, or its folder.
        repository: "user/name". It is made if it is not there.
        checkpoint: Which agent: "last", "best", or a step. A whole checkpoint goes along in any case.
        episodes: Number of episodes of the evaluation on the card.
        seed: Seed of that evaluation; by default the run's own.
        video: Film an episode; if the environment cannot be filmed, the card says why.
        metrics: Send metrics.jsonl, too.
        memory: Send the replay memory, too: without it, resuming the run begins with an empty one.
        private: Make a new repository private.
        revision: A branch other than main; it is made if it is not there.
        message: The commit's message.
        dry_run: Write all that would be sent into a folder, and send nothing: no server is asked anything.
        output: That folder, a new one; by default `hub/NAME`.
        tell: Gets a few words now and then on the progress.

    Raises:
        UsageError: A mistake in the call, no token, or a repository that holds something else.
        DuettoError: The server refuses or fails. Then the repository is as it was; a new one may be empty.
    """
    form.check_repository(repository)
    if output is not None and not dry_run:
        raise UsageError("--output is where a --dry-run writes. Give both, or none.")
    run = run if isinstance(run, Run) else Run(run)
    what = What(checkpoint, episodes, seed, video, metrics, memory)
    if dry_run:
        with _new_folder(output, repository) as folder:
            evaluation, notices = _assemble(run, folder, repository, what, tell)
            return Pushed(str(folder), _sizes(_files(folder)), [], evaluation, notices)
    tell("asking the Hub")
    hub = Hub()
    hub.user()
    there = hub.look(repository, revision) or (hub.look(repository) if revision else None)
    _check_there(repository, there, private)
    with TemporaryDirectory(prefix="duetto-push-") as temporary:
        evaluation, notices = _assemble(run, Path(temporary), repository, what, tell)
        files = _files(Path(temporary))
        old = [file.name for file in there.files] if there else []
        deleted = sorted(name for name in old if form.belongs(name) and name not in files)
        tell(f"sending {sum(_sizes(files).values()) / 1e6:.1f} MB to {repository}")
        hub.create(repository, private)
        if revision is not None:
            hub.branch(repository, revision)
        words = message or f"{run.config.algorithm.name()}: mean return {evaluation}"
        where = hub.commit(repository, files, deleted, words, revision)
        return Pushed(where, _sizes(files), deleted, evaluation, notices)


@contextmanager
def _new_folder(output: str | Path | None, repository: str) -> Iterator[Path]:
    """Make a new folder, and remove it again if the block raises. UsageError if it exists."""
    if output is None:
        folder = free_folder(Path("hub"), repository.rpartition("/")[2])
    else:
        folder = Path(output)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise UsageError(f"{folder} exists already. Choose another --output.") from None
        except OSError as error:
            raise UsageError(f"{folder} cannot be made: {error.strerror}. Choose another --output.") from error
    try:
        yield folder
    except BaseException:
        disk.remove(folder)
        raise


def _check_there(repository: str, there: Listing | None, private: bool) -> None:
    """Raise UsageError if the repository is public though `private`, or holds something other than a run."""
    if there is None:
        return
    if private and not there.private:
        raise UsageError(
            f"{repository} is there already, and everybody can read it. Make it private on its page first, or choose "
            "another name."
        )
    names = {file.name for file in there.files}
    if form.CONFIG not in names and (others := sorted(names - set(_OTHERS))):
        raise UsageError(
            f"{repository} holds something else than a run ({', '.join(others[:3])}), which would be mixed with this "
            "one. Choose another name."
        )


def _assemble(
    run: Run, folder: Path, repository: str, what: What, tell: Callable[[str], None]
) -> tuple[Evaluation, list[str]]:
    """Write all that is to be sent into an empty folder; return the evaluation, and sentences for the user."""
    notices = Notices()
    try:
        step, others = pack(run, folder, what.checkpoint, what.metrics, what.memory)
    except OSError as error:
        raise DuettoError(f"{folder} cannot be written: {error.strerror}. Put that right.") from error
    notices += others
    agent = step if what.checkpoint == "last" else what.checkpoint  # the run may be alive, and make newer ones
    evaluation = run.evaluate(what.episodes, agent, what.seed, tell)
    unfilmed = _filmed(run, folder / form.VIDEO, agent, what, tell)
    if what.video and unfilmed:
        notices.append(f"There is no video: {unfilmed}")
    if run.agent(agent).step != step:
        raise DuettoError(f"{run.path} went on while it was sent, and its agent is another one now. Try again.")
    seed = run.config.run.seed if what.seed is None else what.seed
    result = card.Result(evaluation, str(what.checkpoint), step, seed)
    text = card.card(run.config, repository, result, str(without_places(unfilmed)))
    disk.write_file(folder / form.CARD, text.encode())
    disk.write_file(folder / form.RESULTS, card.results(run.config, result).encode())
    return evaluation, [*notices, *dict.fromkeys(run.notices)]


def _filmed(run: Run, path: Path, agent: str | int, what: What, tell: Callable[[str], None]) -> str:
    """Film an episode; return why there is no video, "" if there is one."""
    if not what.video:
        return "it was not asked for."
    try:
        run.video(path, agent, what.seed, tell=tell)
    except DuettoError as error:
        return str(error)
    return ""


def _files(folder: Path) -> dict[str, Path]:
    """All files in the folder, by their names in a repository."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _sizes(files: dict[str, Path]) -> dict[str, int]:
    return {name: path.stat().st_size for name, path in files.items()}
