"""Pull a run from the Hub. Neither its author nor the server is trusted.

The server lists names and sizes. Duetto checks them, then writes the files into a temporary folder; no file may be
larger than listed. If all files are there and include a checkpoint with the right checksums, the folder gets its final
name. A download that ends early leaves no files.
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
from duetto.tools.hub.client import Hub, Listing

AT_MOST = 5.0  # GB


class Pulled(NamedTuple):
    """A fetched run."""

    path: Path
    commit: str
    files: dict[str, int]  # size in bytes by name
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
    """Fetch a run from the Hub into a new folder. No code from it is executed (see SECURITY.md).

    Args:
        repository: "user/name".
        output: The folder, which must not exist; by default `runs/NAME`.
        at_most: Largest total size in GB; a larger run is refused.
        networks, algorithm, trust: As for `duetto.Run`.

    Raises:
        UsageError: The repository is missing, contains no run or is too large, or `output` exists. Or the run needs
            `networks` or `algorithm`: then the error names them, and the fetched folder stays.
        DuettoError: The server refuses or fails, or files are damaged or not as listed. Then no file is left.
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
    """Fetch a run as `pull` does, without opening it. `tell` is called with short texts about the progress."""
    file_rules.check_repository(repository)
    path = Path("runs") / repository.rpartition("/")[2] if output is None else Path(output)
    if os.path.lexists(path):
        raise UsageError(f"{path} exists already, and pull overwrites nothing. Choose another --output.")
    tell("asking the Hub")
    hub = Hub()
    listing = hub.list_files(repository)
    if listing is None:
        raise UsageError(
            f"{hub.host} has no repository {repository}, or hides it from you. Check the name; for a private "
            "repository, log in with `hf auth login`."
        )
    files = _chosen(repository, listing, at_most)
    with staging_folder(path) as folder:
        for number, (name, size) in enumerate(files.items(), start=1):
            tell(f"fetching {number} of {len(files)} files: {name} ({size / 1e6:.1f} MB)")
            target = folder.joinpath(*name.split("/"))
            target.parent.mkdir(parents=True, exist_ok=True)
            hub.download(repository, listing.commit, name, size, target)
        notices = _check_run(repository, folder)
    return Pulled(path, listing.commit, files, notices)


def _chosen(repository: str, listing: Listing, at_most: float) -> dict[str, int]:
    """Return the files of the run in a repository. Raise UsageError if there is no run, or if it is too large."""
    files = {name: size for name, size in listing.files.items() if file_rules.belongs(name)}
    if file_rules.CONFIG not in files:
        raise UsageError(f"{repository} contains no Duetto run: it has no {file_rules.CONFIG}.")
    size = sum(files.values())
    if size > at_most * 1e9:
        raise UsageError(
            f"{repository} has {size / 1e9:,.2f} GB, more than the limit of {at_most:g} GB. To fetch it: "
            f"--at-most {size / 1e9 + 0.1:.1f}."
        )
    return files


def _check_run(repository: str, folder: Path) -> list[str]:
    """Raise DuettoError if there is no valid checkpoint; return a notice if its replay buffer is missing."""
    checkpoints = folder / "checkpoints"
    try:
        loaded = CheckpointStore(checkpoints).load_latest(memory=False)
    except DuettoError as error:
        reason = str(error).replace(str(folder), repository)
        raise DuettoError(f"{repository} contains no usable run. {reason}") from error
    if all((checkpoints / "memory" / record.file.name).exists() for record in Manifest.read(loaded.path).segments):
        return []
    return [
        "The run's author did not send its replay buffer, so it cannot be resumed. To continue training, start a run "
        "from its networks: duetto train --from RUN."
    ]
