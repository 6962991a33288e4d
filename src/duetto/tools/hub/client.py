"""Send requests to the Hugging Face Hub, and explain its errors.

`HF_ENDPOINT` may name another server. Only this file imports huggingface_hub. The server is not trusted: Duetto checks
names and sizes, and shows the server's words only in parentheses.
"""

from __future__ import annotations

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

_SILENT = 50  # the highest logging level, CRITICAL
_HINTS = {
    401: "It does not know your token. Log in again with `hf auth login`, or check HF_TOKEN.",
    403: "Your token may not do that. Create one with write access, or choose your own repository.",
    404: "It is missing, or hidden from your token. Check the name.",
}


class Listing(NamedTuple):
    """The files of a repository at one commit."""

    commit: str
    private: bool
    files: dict[str, int]  # size in bytes by name, with "/" between folders


class _LimitedFile(io.FileIO):
    """A new file that raises DuettoError before it becomes larger than `most` bytes."""

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
    """A client of the Hub's server, with the token that huggingface_hub finds."""

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
        """Return the list of a repository's files; None if the repository is missing or hidden from this token."""
        from huggingface_hub.errors import RepositoryNotFoundError

        with self._request(repository):
            try:
                about = self._api.model_info(repository, files_metadata=True)
            except RepositoryNotFoundError:
                return None
            files: dict[str, int] = {}
            for file in about.siblings or []:
                name, size = file.rfilename, file.size
                if type(name) is not str or type(size) is not int or size < 0:
                    raise ValueError("a file without a name or a size")
                files[name] = size
            return Listing(str(about.sha), bool(about.private), files)

    def download(self, repository: str, commit: str, name: str, size: int, path: Path) -> None:
        """Download the file `name` to the new `path`. Raise DuettoError if it does not have `size` bytes."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers

        with self._request(f"{name} of {repository}"):
            url = hf_hub_url(repository, name, revision=commit, endpoint=self._api.endpoint)
            headers = build_hf_headers(library_name="duetto") | {"Accept-Encoding": "identity"}
            with _LimitedFile(path, size) as opened:
                http_get(url, opened, headers=headers, expected_size=size)
                os.fsync(opened.fileno())

    def upload(self, repository: str, folder: Path, deleted: list[str], message: str, private: bool) -> str:
        """Send a folder's files in one commit, and return the repository's address.

        The commit also deletes other files that match the patterns `deleted`. A missing repository is created.
        """
        with self._request(repository):
            self._api.create_repo(repository, private=True if private else None, exist_ok=True)
            self._api.upload_folder(
                repo_id=repository, folder_path=folder, commit_message=message, delete_patterns=deleted
            )
        return f"{self._api.endpoint}/{repository}"

    @contextmanager
    def _request(self, what: str) -> Iterator[None]:
        """Turn every error of a request into a DuettoError, and silence the logging of huggingface_hub.

        All exceptions are caught, since an untrusted answer may cause any of them in the client.
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
        if isinstance(error, OSError) and error.strerror:  # an error of the disk
            return f"{what} cannot be read or written here: {error.strerror}."
        words = f"{type(error).__name__}: {_first_line(str(error))}"
        return f"{self.host} cannot be reached, or its answer to {what} cannot be used ({words}). Try again later."


def _first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[0][:200] if lines else ""
