"""A Python file of the user's own, which a text names as `FILE.py:CLASS`: what such a text says, and how it is run.

Whether it may be run is `storage.trust`'s to say: a text that names a file is one that needs trust.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from duetto.errors import UsageError

PREFIX = "_duetto_"  # of the names that such files have as modules


def is_file(text: str) -> bool:
    """Whether this is FILE.py:CLASS, or FILE.py without what has to follow."""
    return _parts(text)[0].endswith(".py")


def parts(text: str) -> tuple[Path, str]:
    """The file's absolute path and the name behind it, "" where none is."""
    file, name = _parts(text)
    return Path(file).expanduser().resolve(), name


def absolute(text: str) -> str:
    """With the file's absolute path, found again from elsewhere; every other text as it is."""
    if not is_file(text):
        return text
    file, name = parts(text)
    return f"{file}:{name}" if name else str(file)


def short(text: str) -> str:
    """With the file's name alone, for the names of folders; every other text as it is."""
    file, separator, name = absolute(text).rpartition(":")
    return f"{Path(file).name}{separator}{name}" if is_file(text) and separator else text


def checksum(text: str) -> str:
    """SHA-256 of the file that a text names; "" where it names none, or none that can be read."""
    if not is_file(text) or not (file := parts(text)[0]).is_file():
        return ""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def run(path: Path, source: bytes) -> ModuleType:
    """As `import` would, but from these bytes, and under a name that hides no package; `path` is absolute.

    What lies beside the file can be imported from it, here and in the processes that are made from here on; it hides
    nothing that is installed.
    """
    if (folder := str(path.parent)) not in sys.path:
        sys.path.append(folder)
    module = ModuleType(f"{PREFIX}{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and type hints look there
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} does not run{_line(path, error)}: {type(error).__name__}: {error}") from error
    return module


def _parts(text: str) -> tuple[str, str]:
    file, _, name = text.rpartition(":")
    return (text, "") if text.endswith(".py") else (file, name)


def _line(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return ""  # its text has the line
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""
