"""Load classes from the user's Python files. A class is given as `FILE.py:CLASS`.

`storage.signing` decides whether a file may be run. The SHA-256 of the file, in `config.yaml` and in each checkpoint,
shows whether it was edited between a run and its resume. This checksum does not cover modules that the file imports.
"""

from __future__ import annotations

import hashlib
import os
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import cloudpickle

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.options import check_declared_options
from duetto.algorithms.suggestions import did_you_mean
from duetto.errors import DuettoError, UsageError
from duetto.storage.safe_open import read_file

LARGEST_SOURCE = 16 << 20  # bytes
PREFIX = "_duetto_"  # of the module names of user files


@dataclass(frozen=True)
class Origin:
    """A custom algorithm's class and file, stored in `config.yaml` under `algorithm: from:`."""

    kind: str  # the class's name
    file: str = ""  # the file's absolute path; "" for a class that was passed in Python
    checksum: str = ""  # SHA-256 of the file

    @classmethod
    def of(cls, kind: type[Algorithm]) -> Self | None:
        """Return the origin of a class that is passed in Python; None for Duetto's own classes."""
        return None if kind in ALGORITHMS.values() else cls(f"{kind.__module__}.{kind.__qualname__}")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Undo `to_dict`. Raises KeyError or TypeError if `values` is malformed."""
        texts = (values["class"], values.get("file", ""), values.get("sha256", ""))
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{texts} where texts should be")
        return cls(*texts)

    def to_dict(self) -> dict[str, Any]:
        """Return YAML values for the key `from` of `config.yaml`. No option has this name, as it is a keyword."""
        values = {"class": self.kind, "file": self.file, "sha256": self.checksum}
        return {key: value for key, value in values.items() if value}

    def __str__(self) -> str:
        name = f"{Path(self.file).name}:{self.kind}" if self.file else self.kind
        return f"{name} (sha256 {self.checksum[:8]})" if self.checksum else name


def algorithm_source(algorithm: dict[str, Any]) -> str:
    """Return "Duetto" or, for a custom algorithm, its `Origin` as text. Raises the errors of `Origin.from_dict`.

    `algorithm` is the entry `algorithm` of a `config.yaml`.
    """
    return str(Origin.from_dict(algorithm["from"])) if algorithm.get("from") else "Duetto"


def named(text: str) -> tuple[type[Algorithm], Origin]:
    """Return the class and the origin of "my_algorithm.py:MyAlgorithm". Raises UsageError if it cannot be loaded."""
    path, name = parts(text)
    kind, checksum = load(text, "algorithm", Algorithm)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise UsageError(f"{path} has no algorithm (a subclass of duetto.algorithms.Algorithm) {name!r}.")
    try:
        check_declared_options(kind)
        kind()
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise UsageError(f"{name} in {path} cannot be made without arguments: {said}") from error
    return kind, Origin(name, str(path), checksum)


def load(text: str, role: str, base: type = object) -> tuple[Any, str]:
    """Run the file of "FILE.py:NAME"; return the class or function NAME, and the file's SHA-256.

    A file is run once per process, and again after an edit. Its classes are pickled by value, for processes that
    cannot import them.

    Args:
        text: The file, and the class or function in it.
        role: Its use, for messages: "algorithm", "environment" or "expert".
        base: If NAME is missing, the error lists the file's subclasses of this class.

    Raises:
        UsageError: The file cannot be read, does not run, or has no such class.
    """
    path, name = parts(text)
    try:
        source = path.read_bytes()
    except OSError as error:
        again = " A run that was started with it needs it." if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"The {role}'s file {path} cannot be read: {error.strerror}.{again}") from error
    module = _run_once(path, source)
    if not callable(loaded := vars(module).get(name)):
        names = [
            key
            for key, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__
            and (issubclass(value, base) if isinstance(value, type) else isfunction(value) and role == "environment")
        ]
        kind = "class or function" if role == "environment" else "class"
        there = did_you_mean(name, names) if names else f" It has no subclass of {base.__name__}."
        if not name:
            raise UsageError(f"Say which {kind} of {path.name} is the {role}: {path.name}:NAME.{there}")
        raise UsageError(f"{path} has no {kind} {name!r}.{there}")
    return loaded, hashlib.sha256(source).hexdigest()


def is_file(text: str) -> bool:
    """Return whether `text` is FILE.py:CLASS, or FILE.py without a name."""
    return _split(text)[0].endswith(".py")


def parts(text: str) -> tuple[Path, str]:
    """Split "FILE.py:NAME" into the absolute path of the file and the name, which may be ""."""
    file, name = _split(text)
    return Path(os.path.expanduser(file)).resolve(), name  # noqa: PTH111 - pathlib raises for an unknown user


def absolute(text: str) -> str:
    """Return "FILE.py:CLASS" with the file's absolute path, and any other text unchanged."""
    if not is_file(text):
        return text
    file, name = parts(text)
    return f"{file}:{name}" if name else str(file)


def short(text: str) -> str:
    """Return "FILE.py:CLASS" without the file's folder, and any other text unchanged."""
    file, name = _split(text)
    return f"{Path(file).name}:{name}" if name and is_file(text) else text


def checksum(text: str) -> str:
    """Return the SHA-256 of the file of "FILE.py:CLASS"; "" for another text or an unreadable file."""
    with suppress(OSError, DuettoError):  # a stranger's text may name a pipe
        return hashlib.sha256(read_file(parts(text)[0], LARGEST_SOURCE)).hexdigest() if is_file(text) else ""
    return ""


@lru_cache(maxsize=16)
def _run_once(path: Path, source: bytes) -> ModuleType:
    """Run a file from its bytes as `import` would, under a module name that no package has.

    Its folder is added to `sys.path`, so it can import modules of the folder, in this process and in those that start
    later. Raises UsageError if the file does not run.
    """
    folder = str(path.parent)
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)  # first, as Python does for a script
    module = ModuleType(f"{PREFIX}{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and type hints look there
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        line = "" if isinstance(error, SyntaxError) else where(error).removeprefix(str(path)).partition(", in ")[0]
        raise UsageError(f"{path} does not run{line}: {type(error).__name__}: {error}") from error
    cloudpickle.register_pickle_by_value(module)
    return module


def where(error: BaseException) -> str:
    """Return the innermost line of a user's file in a traceback, "own.py, line 4, in update", or ""."""
    files = {getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith(PREFIX)}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f"{frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name}" if frames else ""


def _split(text: str) -> tuple[str, str]:
    file, _, name = text.rpartition(":")
    return (text, "") if text.endswith(".py") else (file, name)
