"""The Hub, or a server that speaks as it does (`HF_ENDPOINT`): all that is asked of it, and sentences for its refusals.

This is the one file that imports huggingface_hub. Nothing that a server answers is trusted: callers compare names,
sizes and checksums, and its words are shown as the words of a stranger.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from duetto.errors import DuettoError, UsageError
from duetto.extras import install

MOST_FILES = 10_000  # that are listed of a repository
TRIES, PAUSE = 4, 1.0  # of a download that breaks off; seconds before the second one, then twice as many
_PATIENCE = 30.0  # seconds without a byte
_SILENT = 50  # above all that is logged
_AGAIN = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class RemoteFile:
    """A file as the server lists it."""

    name: str  # with "/" between folders
    size: int  # bytes
    sha256: str | None  # of its content, where it is a large file
    sha1: str  # of a small one, as git has it


@dataclass(frozen=True)
class Listing:
    """A repository at one commit."""

    commit: str
    private: bool
    files: tuple[RemoteFile, ...]


class BrokenOffError(DuettoError):
    """A download ended early, or the server asked to come again."""


class Hub:
    """The server that `HF_ENDPOINT` names, huggingface.co by default, and the token that huggingface_hub finds."""

    def __init__(self) -> None:
        """Raise UsageError if huggingface_hub is not installed."""
        if find_spec("huggingface_hub") is None:
            raise UsageError(f"The Hub needs huggingface_hub. Install: {install('hub')}")
        from huggingface_hub import HfApi

        self._api = HfApi(library_name="duetto")
        self.host: str = urlsplit(self._api.endpoint).netloc or self._api.endpoint

    def user(self) -> str:
        """The name of the token's user. UsageError if there is no token; DuettoError if the server rejects it."""
        from huggingface_hub import get_token

        with self._asked("your account"):
            if get_token() is None:
                raise UsageError(
                    "There is no token for the Hub. Log in with `hf auth login`, or put one that may write into "
                    "HF_TOKEN."
                )
            return str(self._api.whoami()["name"])

    def look(self, repository: str, revision: str | None = None) -> Listing | None:
        """List a repository; None if there is no such repository or revision, or none that this token may see."""
        from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

        with self._asked(repository):
            try:
                about = self._api.model_info(repository, revision=revision, timeout=_PATIENCE)
            except (RepositoryNotFoundError, RevisionNotFoundError):
                return None
            if about.sha is None:
                return Listing("", bool(about.private), ())
            tree = self._api.list_repo_tree(repository, recursive=True, revision=about.sha)
            found = list(islice(tree, MOST_FILES + 1))
            if len(found) > MOST_FILES:
                raise DuettoError(f"{repository} has more than {MOST_FILES:,} files: it is no run.")
            files = tuple(_file(entry) for entry in found if hasattr(entry, "blob_id"))
            return Listing(str(about.sha), bool(about.private), files)

    def download(self, repository: str, commit: str, file: RemoteFile, path: Path) -> None:
        """Write a file to a new path. DuettoError unless it has the size and the checksum that were listed."""
        for pause in (*(PAUSE * 2**attempt for attempt in range(TRIES - 1)), None):
            try:
                with self._asked(f"{file.name} of {repository}"):
                    return self._download(repository, commit, file, path)
            except BrokenOffError:
                if pause is None:
                    raise
            path.unlink(missing_ok=True)
            time.sleep(pause)
        return None

    def create(self, repository: str, private: bool) -> None:
        """Make the repository, unless it is there."""
        with self._asked(repository):
            self._api.create_repo(repository, private=True if private else None, exist_ok=True)

    def branch(self, repository: str, name: str) -> None:
        """Make a branch, unless it is there."""
        with self._asked(repository):
            self._api.create_branch(repository, branch=name, exist_ok=True)

    def commit(
        self,
        repository: str,
        files: Mapping[str, Path],
        deleted: Sequence[str],
        message: str,
        revision: str | None = None,
    ) -> str:
        """Add files and delete others in one commit; return the address of the repository."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        operations: list[Any] = [CommitOperationAdd(name, path) for name, path in files.items()]
        operations += [CommitOperationDelete(name, is_folder=False) for name in deleted]
        with self._asked(repository), _over_http():
            self._api.create_commit(repository, operations, commit_message=message, revision=revision)
        return f"{self._api.endpoint}/{repository}" + (f"/tree/{revision}" if revision else "")

    def _download(self, repository: str, commit: str, file: RemoteFile, path: Path) -> None:
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers

        url = hf_hub_url(repository, file.name, revision=commit, endpoint=self._api.endpoint)
        headers = build_hf_headers(library_name="duetto") | {"Accept-Encoding": "identity"}
        digests = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
        size = 0
        with (
            get_session().stream("GET", url, headers=headers, timeout=_PATIENCE) as response,
            path.open("xb") as opened,
        ):
            if response.status_code != 200:
                kind = BrokenOffError if response.status_code in _AGAIN else DuettoError
                raise kind(self._refused(response.status_code, f"{file.name} of {repository}"))
            for chunk in response.iter_bytes():
                size += len(chunk)
                if size > file.size:
                    raise DuettoError(f"{self.host} sends more of {file.name} than the {file.size:,} bytes it lists.")
                for digest in digests:
                    digest.update(chunk)
                opened.write(chunk)
            opened.flush()
            os.fsync(opened.fileno())
        if size != file.size:
            raise BrokenOffError(f"{self.host} sends {size:,} bytes of {file.name}, and lists {file.size:,}.")
        wanted = (file.sha256, digests[0]) if file.sha256 else (file.sha1, digests[1])
        if wanted[0] != wanted[1].hexdigest():
            raise DuettoError(f"{file.name} of {repository} is not what {self.host} lists: its checksum is wrong.")

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        """Turn every error of asking the server into a DuettoError, and print nothing that it says.

        All kinds of exceptions are caught, since a server's answer may lead the client into any of them.
        """
        from huggingface_hub.utils import (
            are_progress_bars_disabled,
            disable_progress_bars,
            enable_progress_bars,
            logging,
        )

        shown, verbosity = not are_progress_bars_disabled(), logging.get_verbosity()
        disable_progress_bars()
        logging.set_verbosity(_SILENT)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except DuettoError:
            raise
        except Exception as error:
            raise self._sentence(error, what) from error
        finally:
            logging.set_verbosity(verbosity)
            if shown:
                enable_progress_bars()

    def _sentence(self, error: Exception, what: str) -> DuettoError:
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

        if isinstance(error, OfflineModeIsEnabled):
            return UsageError("HF_HUB_OFFLINE is set, so nothing is asked of the Hub. Unset it.")
        if isinstance(error, HfHubHTTPError):
            return DuettoError(self._refused(error.response.status_code, what, _first_line(error.server_message)))
        if _is_transport(error):
            return BrokenOffError(
                f"{self.host} cannot be reached, or broke off ({type(error).__name__}: {_first_line(str(error))}). "
                "Look at the connection, and try again."
            )
        cause = error.__cause__
        if isinstance(cause, Exception) and (_is_transport(cause) or isinstance(cause, HfHubHTTPError)):
            return self._sentence(cause, what)
        if isinstance(error, OSError) and error.strerror:  # the disk's
            return DuettoError(f"{what} cannot be read or written here: {error.strerror}. Put that right.")
        said = _first_line(str(error))
        return DuettoError(f"What {self.host} answers to {what} cannot be used ({type(error).__name__}: {said}).")

    def _refused(self, status: int, what: str, said: str = "") -> str:
        words = f"{self.host} answers {status} to {what}"
        words += f" ({said})" if said else ""
        match status:
            case 401:
                return f"{words}: it does not know your token. Log in anew with `hf auth login`, or look at HF_TOKEN."
            case 403:
                return f"{words}: your token may not do that. Make one that may, or choose a repository of your own."
            case 404:
                return f"{words}: there is nothing, or nothing that your token may see. Look at the name."
            case 409 | 412:
                return f"{words}: somebody else has changed it meanwhile. Try again."
            case 429:
                return f"{words}: too much was asked of it. Try again later."
            case _ if status >= 500:
                return f"{words}: it fails. Try again later."
        return f"{words}. Nothing came of it."


@contextmanager
def _over_http() -> Iterator[None]:
    """Send files by HTTP requests of this process, not by hf_xet.

    hf_xet has a client of its own, with other time limits, minutes of retries, and other error messages. What it saves,
    sending again what is there already, is little for a run. The Hub keeps both ways open, and moves what came by HTTP
    itself.
    """
    from huggingface_hub import constants

    before, constants.HF_HUB_DISABLE_XET = constants.HF_HUB_DISABLE_XET, True
    try:
        yield
    finally:
        constants.HF_HUB_DISABLE_XET = before


def _is_transport(error: Exception) -> bool:
    """Whether the connection failed, whichever HTTP client this version of huggingface_hub uses."""
    from huggingface_hub.errors import HfHubHTTPError

    of_client = HfHubHTTPError.__bases__[0]  # the client's own base class of errors
    return isinstance(error, of_client | ConnectionError | TimeoutError) and not isinstance(error, HfHubHTTPError)


def _file(entry: Any) -> RemoteFile:
    """A file of the server's listing. ValueError or AttributeError if its name, size or checksum is missing."""
    large = entry.lfs
    found = RemoteFile(entry.path, entry.size, large.sha256 if large else None, entry.blob_id)
    texts = (found.name, found.sha1, found.sha256 or "")
    if not all(isinstance(text, str) for text in texts) or type(found.size) is not int or found.size < 0:
        raise ValueError(f"a file without a name, a size or a checksum: {entry.path!r}")
    return found


def _first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[0][:200] if lines else ""
