"""The origin of an algorithm that is not Duetto's own: a class in a file, or one that was handed over in Python.

`duetto train ./my_algorithm.py:MyAlgorithm` runs the user's file, and so does resuming such a run. In a folder from
elsewhere that is a stranger's choice of code: like the id of an environment that names a package, file and class are
signed (`trust`), and only runs that this user began are resumed without asking. The file may be edited in between: its
checksum, in `config.yaml` and in each checkpoint, shows that.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import cloudpickle

from duetto import own_files
from duetto.algorithms import ALGORITHMS, Algorithm, declaring
from duetto.errors import UsageError
from duetto.fingerprints import fingerprint
from duetto.own_files import run
from duetto.storage import trust


@dataclass(frozen=True)
class Origin:
    """An algorithm's origin, as `config.yaml` has it under `algorithm: from:`."""

    kind: str  # the class
    file: str = ""  # its absolute path; "" for a class that was handed over in Python
    checksum: str = ""  # SHA-256 of the file, or the class's fingerprint
    signature: str | None = None  # of the file's path and the class

    @classmethod
    def of(cls, kind: type[Algorithm]) -> Self | None:
        """The origin of a class that is handed over in Python; None for one of Duetto's own, which its name finds."""
        name = f"{kind.__module__}.{kind.__qualname__}"
        return None if kind in ALGORITHMS.values() else cls(name, checksum=fingerprint(kind))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Undo `to_dict`. Raises KeyError or TypeError for anything else."""
        return cls(values["class"], values.get("file", ""), values.get("sha256", ""), values.get("signature"))

    def to_dict(self) -> dict[str, Any]:
        """The origin as YAML values. Its key in `config.yaml`, `from`, can be no option's name."""
        values = {"class": self.kind, "file": self.file, "sha256": self.checksum, "signature": self.signature}
        return {key: value for key, value in values.items() if value}

    def signed(self) -> Self:
        """A copy with this user's signature, if it has a file and there is a key."""
        return dataclasses.replace(self, signature=trust.file_signature(self.file, self.kind)) if self.file else self

    def let_travel(self, kind: type[Algorithm]) -> None:
        """Have the class pickled by value for other processes, which cannot import the module of its file."""
        if self.file:
            cloudpickle.register_pickle_by_value(sys.modules[kind.__module__])

    def load(self, where: object, trusted: bool = False) -> tuple[type[Algorithm], Origin]:
        """Load the class as its file has it now; also return the origin with the file's checksum of now.

        Raises:
            UsageError: It was handed over in Python, is not trusted, or the file is not there or does not run.
        """
        if not self.file:
            raise UsageError(
                f"its algorithm is {self.kind}, a class that was handed over in Python. Hand it over again: "
                f"duetto.Run(path, algorithm={self.kind.rpartition('.')[2]}). The command line takes classes from "
                "files: duetto train ./my_algorithm.py:MyAlgorithm."
            )
        trust.check_file(self.file, self.kind, self.signature, where, trusted)
        if not Path(self.file).is_file():
            raise UsageError(
                f"its algorithm's file {self.file} is not there. Put it back; or write into this config.yaml where it "
                "is now, and give --trust; or hand the class over in Python: duetto.Run(path, algorithm=...)."
            )
        kind, found = from_file(Path(self.file), self.kind)
        return kind, dataclasses.replace(found, signature=self.signature)


def is_file(name: str) -> bool:
    """Whether a name on the command line means a file, not one of Duetto's algorithms."""
    return ":" in name or name.endswith(".py")


def named(text: str) -> tuple[type[Algorithm], Origin]:
    """Load the class that "my_algorithm.py:MyAlgorithm" names, with its origin. UsageError if it names none."""
    file, _, kind = text.rpartition(":") if not text.endswith(".py") else (text, "", "")
    return from_file(own_files.expanded(file), kind)


def from_file(path: Path, name: str) -> tuple[type[Algorithm], Origin]:
    """Run the file, and return its class of that name, with the origin. UsageError if it has none."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The algorithm's file {path} cannot be read: {error.strerror}.") from error
    path = path.resolve()
    module = run(path, source)
    kind = _class(module, name, path)
    return kind, Origin(name, str(path), hashlib.sha256(source).hexdigest())


def _class(module: ModuleType, name: str, path: Path) -> type[Algorithm]:
    own = [
        key
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Algorithm) and value.__module__ == module.__name__
    ]
    there = f"It has: {', '.join(own)}." if own else "It has none; docs/extending.md has an example."
    if not name:
        raise UsageError(f"Say which class of {path.name} is the algorithm: {path.name}:CLASS. {there}")
    kind = vars(module).get(name)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        near = difflib.get_close_matches(name, own, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        what = "has no class" if kind is None else "has no algorithm (a subclass of duetto.algorithms.Algorithm)"
        raise UsageError(f"{path} {what} {name!r}. {hint}{there}")
    try:
        declaring.check(kind)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    try:
        kind()
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise UsageError(f"{name} in {path} cannot be made without arguments: {said}") from error
    return kind
