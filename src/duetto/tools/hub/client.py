"""Requests to the Hugging Face Hub, or to the server of `HF_ENDPOINT`; its refusals as sentences.

Only this file imports huggingface_hub. Answers are not trusted: names, sizes and checksums are checked, and the
server's words are shown as such.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from duetto.errors import DuettoError, UsageError
from duetto.install_hint import install

MOST_FILES = 10_000  # of a repository
TRIES, PAUSE = 4, 1.0  # of a download; seconds before the second one, then twice as many
_PATIENCE = 30.0  # seconds without a byte
_SILENT = 50  # above all logging levels
_TRY_AGAIN = (408, 429, 500, 502, 503, 504)
_HINTS = {
    401: "it does not know your token. Log in again with `hf auth login`, or check HF_TOKEN.",
    403: "your token may not do that. Create one with write access, or choose your own repository.",
    404: "it is missing, or hidden from your token. Check the name.",
    409: "somebody else changed it meanwhile. Try again.",
    412: "somebody else changed it meanwhile. Try again.",
    429: "it got too many requests. Try again later.",
}


class RemoteFile(NamedTuple):
    """A file as the server lists it."""

    name: str  # with "/" between folders
    size: int  # bytes
    sha256: str | None  # of the content of a large file
    sha1: str  # git's, of a small file


class Listing(NamedTuple):
    """A repository at one commit."""

    commit: str
    private: bool
    files: tuple[RemoteFile, ...]


class BrokenOffError(DuettoError):
    """A download ended early, or the server is busy."""


class Hub:
    """The server of `HF_ENDPOINT`, by default huggingface.co, with the token that huggingface_hub finds."""

    def __init__(self) -> None:
        """Raise UsageError if huggingface_hub is not installed."""
        if find_spec("huggingface_hub") is None:
            raise UsageError(f"The Hub needs huggingface_hub. Install: {install('hub')}")
        from huggingface_hub import HfApi

        self._api = HfApi(library_name="duetto")
        self.host: str = urlsplit(self._api.endpoint).netloc or self._api.endpoint

    def check_token(self) -> None:
        """Raise UsageError if there is no token, and DuettoError if the server rejects it."""
        from huggingface_hub import get_token

        with self._request("your account"):
            if get_token() is None:
                raise UsageError(
                    "There is no token for the Hub. Log in with `hf auth login`, or put a token with write access into "
                    "HF_TOKEN."
                )
            str(self._api.whoami()["name"])

    def list_files(self, repository: str, revision: str | None = None) -> Listing | None:
        """List a repository's files; None if the repository or the revision is missing or hidden from this token."""
        from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

        with self._request(repository):
            try:
                about = self._api.model_info(repository, revision=revision, files_metadata=True, timeout=_PATIENCE)
            except (RepositoryNotFoundError, RevisionNotFoundError):
                return None
            if about.sha is None:
                return Listing("", bool(about.private), ())
            listed = about.siblings or []
            if len(listed) > MOST_FILES:
                raise DuettoError(f"{repository} has more than {MOST_FILES:,} files: it is no run.")
            return Listing(str(about.sha), bool(about.private), tuple(map(_file, listed)))

    def download(self, repository: str, commit: str, file: RemoteFile, path: Path) -> None:
        """Write a file to a new path. DuettoError unless it has the listed size and checksum."""
        for attempt in range(TRIES):
            try:
                with self._request(f"{file.name} of {repository}"):
                    return self._download(repository, commit, file, path)
            except BrokenOffError:
                if attempt == TRIES - 1:
                    raise
            path.unlink(missing_ok=True)
            time.sleep(PAUSE * 2**attempt)
        return None

    def upload(
        self,
        repository: str,
        files: Mapping[str, Path],
        deleted: Sequence[str],
        message: str,
        private: bool,
    ) -> str:
        """Add files and delete others in one commit; return the address. Create the repository if it is missing."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        operations: list[Any] = [CommitOperationAdd(name, path) for name, path in files.items()]
        operations += [CommitOperationDelete(name, is_folder=False) for name in deleted]
        with self._request(repository):
            self._api.create_repo(repository, private=True if private else None, exist_ok=True)
            self._api.create_commit(repository, operations, commit_message=message)
        return f"{self._api.endpoint}/{repository}"

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
                kind = BrokenOffError if response.status_code in _TRY_AGAIN else DuettoError
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
        expected, digest = (file.sha256, digests[0]) if file.sha256 else (file.sha1, digests[1])
        if expected != digest.hexdigest():
            raise DuettoError(f"{file.name} of {repository} is not what {self.host} lists: its checksum is wrong.")

    @contextmanager
    def _request(self, what: str) -> Iterator[None]:
        """Turn every error of a request into a DuettoError, and print none of the server's words.

        All kinds of exceptions are caught: a server's answer may cause any of them in the client.
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
            return UsageError("HF_HUB_OFFLINE is set. Unset it to use the Hub.")
        if isinstance(error, HfHubHTTPError):
            return DuettoError(self._refused(error.response.status_code, what, _first_line(error.server_message)))
        if _is_transport(error):
            return BrokenOffError(
                f"{self.host} cannot be reached, or broke off ({type(error).__name__}: {_first_line(str(error))}). "
                "Check the connection, and try again."
            )
        cause = error.__cause__
        if isinstance(cause, Exception) and (_is_transport(cause) or isinstance(cause, HfHubHTTPError)):
            return self._sentence(cause, what)
        if isinstance(error, OSError) and error.strerror:  # the disk's
            return DuettoError(f"{what} cannot be read or written here: {error.strerror}.")
        words = _first_line(str(error))
        return DuettoError(f"The answer of {self.host} to {what} cannot be used ({type(error).__name__}: {words}).")

    def _refused(self, status: int, what: str, message: str = "") -> str:
        words = f"{self.host} answers {status} to {what}" + (f" ({message})" if message else "")
        hint = _HINTS.get(status, "the server failed. Try again later." if status >= 500 else "")
        return f"{words}: {hint}" if hint else f"{words}."


def _is_transport(error: Exception) -> bool:
    """Return whether the connection failed, whichever HTTP client this version of huggingface_hub uses."""
    from huggingface_hub.errors import HfHubHTTPError

    client_error = HfHubHTTPError.__bases__[0]
    return isinstance(error, client_error | ConnectionError | TimeoutError) and not isinstance(error, HfHubHTTPError)


def _file(listed: Any) -> RemoteFile:
    """Return a file of the server's listing. ValueError if its name, size or checksum is missing."""
    large = listed.lfs
    file = RemoteFile(listed.rfilename, listed.size, large.sha256 if large else None, listed.blob_id)
    texts = (file.name, file.sha1, file.sha256 or "")
    if not all(isinstance(text, str) for text in texts) or type(file.size) is not int or file.size < 0:
        raise ValueError(f"a file without a name, a size or a checksum: {file.name!r}")
    return file


def _first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[0][:200] if lines else ""
