"""Files that a command was asked for: whole or not at all."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from duetto.errors import DuettoError, UsageError


def check_name(output: str | Path, ending: str, what: str) -> Path:
    """The file's path. Raises UsageError unless it ends so, and is no folder."""
    path = Path(output)
    if path.suffix.lower() != ending or path.is_dir():
        raise UsageError(f"{output} is no name for {what}: end it in {ending}.")
    return path


def publish(path: Path, content: str) -> None:
    """Write a text; what was there before stays until it is complete, and a command that is ended leaves nothing.

    It is written in a new folder beside: in a stranger's folder there may be a link of any name that can be foreseen.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{path.stem}-", dir=path.parent) as folder:
            temporary = Path(folder) / path.name
            temporary.write_bytes(content.encode())
            temporary.replace(path)
    except OSError as error:
        raise DuettoError(f"{path} cannot be written: {error.strerror}. Give another --output.") from error
