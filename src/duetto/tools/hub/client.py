"""Requests to the Hugging Face Hub, or to the server of `HF_ENDPOINT`; its refusals as sentences.

Only this file imports huggingface_hub. Answers are not trusted: names, sizes and checksums are checked, and the
server's words are shown as such.
"""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from typing_extensions import override

from duetto.errors import DuettoError, UsageError
from duetto.install_hint import install

_SILENT = 50  # above all logging levels
_HINTS = {
    401: "It does not know your token. Log in again with `hf auth login`, or check HF_TOKEN.",
    403: "Your token may not do that. Create one with write access, or choose your own repository.",
    404: "It is missing, or hidden from your token. Check the name.",
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


class _LimitedFile(io.FileIO):
    """A new file that refuses to become larger than listed."""

    def __init__(self, path: Path, most: int) -> None:
        super().__init__(path, "xb")
        self._most = most

    @override
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self._most:
            raise DuettoError(
                f"The Hub sends more of {Path(str(self.name)).name} than the {self._most:,} bytes it lists."
            )
        return super().write(data)


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
            self._api.whoami()

    def list_files(self, repository: str) -> Listing | None:
        """List a repository's files; None if it is missing or hidden from this token."""
        from huggingface_hub.errors import RepositoryNotFoundError

        with self._request(repository):
            try:
                about = self._api.model_info(repository, files_metadata=True)
            except RepositoryNotFoundError:
                return None
            return Listing(str(about.sha), bool(about.private), tuple(map(_file, about.siblings or [])))

    def download(self, repository: str, commit: str, file: RemoteFile, path: Path) -> None:
        """Write a file to a new path. DuettoError unless it has the listed size and checksum."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers

        with self._request(f"{file.name} of {repository}"):
            url = hf_hub_url(repository, file.name, revision=commit, endpoint=self._api.endpoint)
            headers = build_hf_headers(library_name="duetto") | {"Accept-Encoding": "identity"}
            with _LimitedFile(path, file.size) as opened:
                http_get(url, opened, headers=headers, expected_size=file.size)
                os.fsync(opened.fileno())
            if _checksum(path, file) != (file.sha256 or file.sha1):
                raise DuettoError(f"{file.name} of {repository} is not what {self.host} lists: its checksum is wrong.")

    def upload(self, repository: str, folder: Path, deleted: list[str], message: str, private: bool) -> str:
        """Add a folder's files, and delete other files by patterns, in one commit; return the address.

        Create the repository if it is missing.
        """
        with self._request(repository):
            self._api.create_repo(repository, private=True if private else None, exist_ok=True)
            self._api.upload_folder(
                repo_id=repository, folder_path=folder, commit_message=message, delete_patterns=deleted
            )
        return f"{self._api.endpoint}/{repository}"

    @contextmanager
    def _request(self, what: str) -> Iterator[None]:
        """Turn every error of a request into a DuettoError, and print none of the server's words.

        All kinds of exceptions are caught: a server's answer may cause any of them in the client.
        """
        from huggingface_hub.utils import disable_progress_bars, logging

        disable_progress_bars()
        verbosity = logging.get_verbosity()
        logging.set_verbosity(_SILENT)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except DuettoError:
            raise
        except Exception as error:
            raise DuettoError(self._sentence(error, what)) from error
        finally:
            logging.set_verbosity(verbosity)

    def _sentence(self, error: Exception, what: str) -> str:
        from huggingface_hub.errors import HfHubHTTPError

        refused = next((each for each in (error, error.__cause__) if isinstance(each, HfHubHTTPError)), None)
        if refused is not None:
            status, words = refused.response.status_code, _first_line(refused.server_message)
            message = f" ({words})" if words else ""
            return f"{self.host} answers {status} to {what}{message}. {_HINTS.get(status, 'Try again later.')}"
        if isinstance(error, OSError) and error.strerror:  # the disk's
            return f"{what} cannot be read or written here: {error.strerror}."
        words = f"{type(error).__name__}: {_first_line(str(error))}"
        return f"{self.host} cannot be reached, or its answer to {what} cannot be used ({words}). Try again later."


def _checksum(path: Path, file: RemoteFile) -> str:
    if file.sha256:
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    return hashlib.sha1(b"blob %d\0" % file.size + path.read_bytes(), usedforsecurity=False).hexdigest()


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
