"""Pull a run from the Hub. Neither its author nor the server is trusted.

First the listing is checked: names, sizes, checksums. Then every file is written into a new folder, none larger than
listed, and compared with its checksum. The folder gets its name when all files are there and hold a checkpoint. Nothing
else is changed, and a download that ends early leaves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from duetto.algorithms import Algorithm
from duetto.errors import DuettoError, UsageError
from duetto.networks.specs import CustomNetwork
from duetto.runs.run import Run
from duetto.storage.atomic_io import staging_folder
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.manifest import Manifest
from duetto.tools.hub import file_rules
from duetto.tools.hub.client import Hub, Listing, RemoteFile

AT_MOST = 5.0  # GB


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
    at_most: float = AT_MOST,
    networks: dict[str, CustomNetwork] | None = None,
    algorithm: type[Algorithm] | None = None,
    trust: bool = False,
) -> Run:
    """Fetch a run from the Hub into a new folder. No code in it is run (see SECURITY.md).

    Args:
        repository: "user/name".
        output: The folder, which must not exist; by default `runs/NAME`.
        at_most: Largest total size in GB; a larger run is refused.
        networks, algorithm, trust: As `duetto.Run` takes them.

    Raises:
        UsageError: There is no such repository, it holds no run, or something is at `output`.
        DuettoError: The server refuses, fails, or sends something else than it lists. Then no file is left.

    If the run needs `networks` or `algorithm` and they are missing, the UsageError names them, and the folder stays.
    """
    pulled = fetch(repository, output, at_most=at_most)
    run = Run(pulled.path, networks=networks, trust=trust, algorithm=algorithm)
    run.notices += pulled.notices
    return run


def fetch(
    repository: str,
    output: str | Path | None = None,
    *,
    at_most: float = AT_MOST,
    tell: Callable[[str], None] = lambda _: None,
) -> Pulled:
    """Fetch a run as `pull` does, without opening it. `tell` gets a few words now and then on the progress."""
    file_rules.check_repository(repository)
    path = Path("runs") / repository.rpartition("/")[2] if output is None else Path(output)
    if os.path.lexists(path):
        raise UsageError(f"{path} exists already, and nothing is overwritten. Choose another --output.")
    tell("asking the Hub")
    hub = Hub()
    listing = hub.list_files(repository)
    if listing is None:
        raise UsageError(
            f"{hub.host} has no {repository}, or none that your token may see. Check the name; for a private "
            "repository, log in with `hf auth login`."
        )
    files = _chosen(repository, listing, at_most)
    with staging_folder(path) as folder:
        for number, file in enumerate(files, start=1):
            tell(f"fetching {number} of {len(files)} files: {file.name} ({file.size / 1e6:.1f} MB)")
            target = folder.joinpath(*file.name.split("/"))
            target.parent.mkdir(parents=True, exist_ok=True)
            hub.download(repository, listing.commit, file, target)
        notices = _check_run(repository, folder)
    return Pulled(path, listing.commit, {file.name: file.size for file in files}, notices)


def _chosen(repository: str, listing: Listing, at_most: float) -> list[RemoteFile]:
    """Return the files of a run, without others in the repository. UsageError if it holds no run or too large a one."""
    files = [file for file in listing.files if file_rules.belongs(file.name)]
    if file_rules.CONFIG not in [file.name for file in files]:
        raise UsageError(f"{repository} holds no run of Duetto: it has no {file_rules.CONFIG}.")
    size = sum(file.size for file in files)
    if size > at_most * 1e9:
        raise UsageError(
            f"{repository} has {size / 1e9:,.2f} GB, more than the limit of {at_most:g} GB. To fetch it: "
            f"--at-most {size / 1e9 + 0.1:.1f}."
        )
    return files


def _check_run(repository: str, folder: Path) -> list[str]:
    """Raise DuettoError unless there is a whole checkpoint; return a sentence if its replay memory is missing."""
    checkpoints = folder / "checkpoints"
    try:
        loaded = CheckpointStore(checkpoints).load_latest(memory=False)
    except DuettoError as error:
        reason = str(error).replace(str(folder), repository)
        raise DuettoError(f"{repository} holds no run that can be used. {reason}") from error
    if all((checkpoints / "memory" / record.file.name).exists() for record in Manifest.read(loaded.path).segments):
        return []
    return [
        "Its replay memory was not sent, so it cannot be resumed. To train on, start a run with its networks: --from."
    ]
