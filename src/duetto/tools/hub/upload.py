"""Push a run to the Hub with an evaluation of its agent."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from duetto.errors import DuettoError, UsageError, near
from duetto.runs.run import Run
from duetto.storage import atomic_io
from duetto.storage.run_folder import free_folder
from duetto.tools.hub import file_rules, model_card
from duetto.tools.hub.bundle import pack
from duetto.tools.hub.client import Hub, Listing
from duetto.tools.hub.private_paths import without_places
from duetto.training.evaluation import Evaluation
from duetto.training.notices import Notices

_IGNORED = (".gitattributes", ".gitignore", file_rules.CARD, "LICENSE", "LICENSE.md")  # of a new repository


class Pushed(NamedTuple):
    """The files that were sent, or would be, and their evaluation."""

    where: str  # the repository's address; of a dry run the folder
    files: dict[str, int]  # bytes by name
    deleted: list[str]  # files of an earlier push
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
    memory: bool = False,
    private: bool = False,
    dry_run: bool = False,
    output: str | Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Pushed:
    """Evaluate the agent, record a video, and send the run to the Hub with a model card.

    A repository that holds a run already is updated in one commit; its history keeps the earlier files. The token is
    the one that huggingface_hub finds. Nothing is sent before the evaluation is done.

    Args:
        run: A run, or its folder.
        repository: "user/name". A new one is created.
        checkpoint: The agent: "last", "best", or a step. A whole checkpoint is sent in any case.
        episodes: Number of episodes of the evaluation on the card.
        seed: Seed of that evaluation; by default the run's own.
        video: Record an episode; if that is impossible, the card says why.
        memory: Send the replay memory: without it, the run cannot be resumed from there.
        private: Make a new repository private.
        dry_run: Write all files into a folder, and send nothing. No server is contacted.
        output: That folder, a new one; by default `hub/NAME`.
        tell: Gets a few words now and then on the progress.

    Raises:
        UsageError: A mistake in the call, no token, or a repository that holds something else.
        DuettoError: The server refuses or fails. Then the repository is unchanged; a new one may be empty.
    """
    file_rules.check_repository(repository)
    if output is not None and not dry_run:
        raise UsageError("--output is where a --dry-run writes. Give both, or none.")
    if output is not None and Path(output).exists():
        raise UsageError(f"{output} exists already. Choose another --output.")
    run = run if isinstance(run, Run) else Run(run)
    hub = None if dry_run else Hub()
    listing = None
    if hub is not None:
        tell("asking the Hub")
        hub.check_token()
        listing = hub.list_files(repository)
        _check_repository_free(repository, listing, private)
    with TemporaryDirectory(prefix="duetto-push-") as temporary:
        bundle = Path(temporary)
        notices, step = _pack(run, bundle, checkpoint, memory)
        agent = step if checkpoint == "last" else checkpoint  # a running run may make newer ones
        evaluation = run.evaluate(episodes, agent, seed, tell)
        without_video = _record(run, bundle / file_rules.VIDEO, agent, seed, tell) if video else "it was not asked for."
        if video and without_video:
            notices.append(f"There is no video: {without_video}")
        if run.agent(agent).step != step:
            raise DuettoError(f"{run.path} continued while it was sent, and its agent is another one now. Try again.")
        used_seed = run.config.run.seed if seed is None else seed
        result = model_card.CardResult(evaluation, str(checkpoint), step, used_seed)
        text = model_card.card(run.config, repository, result, str(without_places(without_video)))
        atomic_io.write_file(bundle / file_rules.CARD, text.encode())
        atomic_io.write_file(bundle / file_rules.RESULTS, model_card.results(run.config, result).encode())
        paths = (path for path in sorted(bundle.rglob("*")) if path.is_file())
        files = {path.relative_to(bundle).as_posix(): path for path in paths}
        sizes = {name: path.stat().st_size for name, path in files.items()}
        deleted: list[str] = []
        if hub is None:
            where = str(near(_written(bundle, output, repository)))
        else:
            earlier = [file.name for file in listing.files] if listing else []
            deleted = sorted(name for name in earlier if file_rules.belongs(name) and name not in files)
            tell(f"sending {sum(sizes.values()) / 1e6:.1f} MB to {repository}")
            message = f"{run.config.algorithm.name()}: mean return {evaluation}"
            where = hub.upload(repository, files, deleted, message, private)
        return Pushed(where, sizes, deleted, evaluation, [*notices, *dict.fromkeys(run.notices)])


def _written(bundle: Path, output: str | Path | None, repository: str) -> Path:
    """Copy all files into a new folder, and return it."""
    try:
        if output is None:
            folder = free_folder(Path("hub").absolute(), repository.rpartition("/")[2])
        else:
            folder = Path(output).absolute()
        shutil.copytree(bundle, folder, dirs_exist_ok=output is None)
    except OSError as error:
        raise UsageError(f"{output or 'hub'} cannot be written: {error.strerror}. Choose another --output.") from error
    return folder


def _check_repository_free(repository: str, listing: Listing | None, private: bool) -> None:
    """Raise UsageError if the repository is public though `private`, or holds something other than a run."""
    if listing is None:
        return
    if private and not listing.private:
        raise UsageError(
            f"{repository} exists, and everybody can read it. Make it private on its page first, or choose another "
            "name."
        )
    names = {file.name for file in listing.files}
    if file_rules.CONFIG not in names and (others := sorted(names - set(_IGNORED))):
        raise UsageError(
            f"{repository} holds something else than a run ({', '.join(others[:3])}), which would be mixed with this "
            "one. Choose another name."
        )


def _pack(run: Run, folder: Path, checkpoint: str | int, memory: bool) -> tuple[Notices, int]:
    """Write the run's files into an empty folder; return notices for the user, and the agent's step."""
    try:
        step, notices = pack(run, folder, checkpoint, memory)
    except OSError as error:
        raise DuettoError(f"{folder} cannot be written: {error.strerror}.") from error
    return Notices(notices), step


def _record(run: Run, path: Path, agent: str | int, seed: int | None, tell: Callable[[str], None]) -> str:
    """Record an episode; return the reason if there is no video, else ""."""
    try:
        run.video(path, agent, seed, tell=tell)
    except DuettoError as error:
        return str(error)
    return ""
