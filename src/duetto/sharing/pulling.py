"""Pulling a run from the Hub. Neither its author nor the server is trusted.

First the listing is checked: names, sizes, checksums. Then every file is written under a new name, none larger than
listed, and compared with its checksum; the folder gets its name when all are there and hold a checkpoint. Nothing that
was there before is touched, and nothing is left of a download that ends early.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from duetto.algorithms import Algorithm
from duetto.errors import DuettoError, UsageError, few
from duetto.networks.specs import CustomNetwork
from duetto.runs.run import Run
from duetto.sharing import form
from duetto.sharing.hub import Hub, Listing, RemoteFile
from duetto.storage import segments, snapshot
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.unseen import publish, unseen

AT_MOST = 5.0  # GB
_QUIETLY = (".gitattributes", ".gitignore")  # left out without a word
_SHOWN = 5  # names in a sentence


class Pulled(NamedTuple):
    """A run that was fetched."""

    path: Path
    commit: str
    files: dict[str, int]  # bytes by name
    notices: list[str]


def pull(
    repository: str,
    output: str | Path | None = None,
    *,
    revision: str | None = None,
    at_most: float = AT_MOST,
    networks: dict[str, CustomNetwork] | None = None,
    algorithm: type[Algorithm] | None = None,
    trust: bool = False,
) -> Run:
    """Fetch a run from the Hub into a new folder. It is a stranger's: SECURITY.md says what that means.

    Args:
        repository: "user/name".
        output: The folder, which must not exist; by default `runs/NAME`.
        revision: A branch, a tag, or a commit.
        at_most: Largest total size in GB; a larger run is refused.
        networks, algorithm, trust: As `duetto.Run` takes them.

    Raises:
        UsageError: There is no such repository, it holds no run, or something is at `output`.
        DuettoError: The server refuses, fails, or sends something else than it lists. Then nothing is left of it.

    If the run needs `networks` or `algorithm` and they are not given, UsageError says so, but the folder stays.
    """
    found = fetch(repository, output, revision=revision, at_most=at_most)
    run = Run(found.path, networks=networks, trust=trust, algorithm=algorithm)
    run.notices += found.notices
    return run


def fetch(
    repository: str,
    output: str | Path | None = None,
    *,
    revision: str | None = None,
    at_most: float = AT_MOST,
    tell: Callable[[str], None] = lambda _: None,
) -> Pulled:
    """Fetch a run as `pull` does, without opening it. `tell` gets a few words now and then on the progress."""
    form.check_repository(repository)
    path = Path("runs") / repository.rpartition("/")[2] if output is None else Path(output)
    _check_free(path)
    tell("asking the Hub")
    hub = Hub()
    listing = hub.look(repository, revision)
    if listing is None:
        wanted = f"{repository} at {revision}" if revision else repository
        raise UsageError(
            f"{hub.host} has no {wanted}, or none that your token may see. Look at the name; for a private one log in "
            "with `hf auth login`."
        )
    files, notices = _chosen(repository, listing, at_most)
    with unseen(path) as folder:
        _check_room(folder, sum(file.size for file in files))
        _download(hub, repository, listing.commit, files, folder, tell)
        notices += _check_run(repository, folder)
        _check_free(path)
        try:
            publish(folder, path)
        except OSError as error:
            raise DuettoError(f"{path} cannot be made: {error.strerror}. Choose another --output.") from error
    return Pulled(path, listing.commit, {file.name: file.size for file in files}, notices)


def _check_free(path: Path) -> None:
    if os.path.lexists(path):
        raise UsageError(f"{path} is there already, and nothing is overwritten. Choose another --output.")


def _chosen(repository: str, listing: Listing, at_most: float) -> tuple[list[RemoteFile], list[str]]:
    """The listed files that belong to a run, and a sentence on the others. Raises for a listing that is not safe."""
    names = [file.name for file in listing.files]
    if outside := [name for name in names if form.leaves(name)]:
        raise DuettoError(
            f"{repository} lists {_shown(outside)}, which would be written outside of the run's folder. Nothing was "
            "fetched: do not trust it."
        )
    if len(set(names)) < len(names):
        raise DuettoError(f"{repository} lists a name twice. Nothing was fetched: do not trust it.")
    files = [file for file in listing.files if form.belongs(file.name)]
    others = [name for name in names if not form.belongs(name) and name not in _QUIETLY]
    if form.CONFIG not in names:
        raise UsageError(f"{repository} holds no run of Duetto: it has no {form.CONFIG}.")
    size = sum(file.size for file in files)
    if size > at_most * 1e9:
        raise UsageError(
            f"{repository} has {size / 1e9:,.2f} GB, more than the {at_most:g} GB that are fetched at most. If it is "
            f"meant to: --at-most {size / 1e9 + 0.1:.1f}."
        )
    if not others:
        return files, []
    return files, [f"Left out, since they belong to no run: {_shown(others)}."]


def _shown(names: list[str]) -> str:
    return few([repr(name[:80]) for name in names], _SHOWN)


def _check_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DuettoError(f"It needs {size / 1e9:.2f} GB, and {folder.parent} has {free / 1e9:.2f} GB. Make room.")


def _download(
    hub: Hub, repository: str, commit: str, files: list[RemoteFile], folder: Path, tell: Callable[[str], None]
) -> None:
    for number, file in enumerate(files, start=1):
        tell(f"fetching {number} of {len(files)} files: {file.name} ({file.size / 1e6:.1f} MB)")
        target = folder.joinpath(*file.name.split("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        hub.download(repository, commit, file, target)


def _check_run(repository: str, folder: Path) -> list[str]:
    """Raise DuettoError unless there is a whole checkpoint; return a sentence if its replay memory is missing."""
    checkpoints = folder / "checkpoints"
    try:
        loaded = CheckpointStore(checkpoints).load_latest(memory=False)
    except DuettoError as error:
        said = str(error).replace(str(folder), repository)
        raise DuettoError(f"{repository} holds no run that can be used. {said}") from error
    manifest, _ = snapshot.read(loaded.path)
    needed = {record.file.name for record in segments.needed(manifest)}
    if needed <= segments.present(checkpoints / "memory"):
        return []
    return [
        "Its replay memory was not sent along: to go on with the run, give --without-memory, which begins with an "
        "empty one."
    ]
