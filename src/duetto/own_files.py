"""A Python file of the user's own, which a text names as `FILE.py:CLASS`: what such a text says, and how it is run.

Whether it may be run is `storage.trust`'s to say: a text that names a file is one that needs trust.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import traceback
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from duetto.errors import UsageError

PREFIX = "_duetto_"  # of the names that such files have as modules
_BESIDE: set[str] = set()  # folders that Python looks into because such a file lies there


def is_file(text: str) -> bool:
    """Whether `text` is FILE.py:CLASS, or FILE.py without the name that has to follow."""
    return _parts(text)[0].endswith(".py")


def parts(text: str) -> tuple[Path, str]:
    """The file's absolute path and the name after the colon, "" where there is none."""
    file, name = _parts(text)
    return expanded(file).resolve(), name


def expanded(file: str) -> Path:
    """The path with a leading ~ replaced by the home folder. Raises UsageError where there is no user of that name."""
    try:
        return Path(file).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{file} begins with the home folder of somebody who is not known here.") from error


def absolute(text: str) -> str:
    """The text with its file's absolute path, so that it is found from elsewhere; any other text unchanged."""
    if not is_file(text):
        return text
    file, name = parts(text)
    return f"{file}:{name}" if name else str(file)


def short(text: str) -> str:
    """The text with its file's name in place of the path, for names of folders; any other text unchanged."""
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
    """Run a file from its bytes `source` as `import` would, under a name that hides no package; `path` is absolute.

    Modules beside the file can be imported from it, here and in processes that start from here on.

    Raises:
        UsageError: The file does not run, or it imports a module beside it for which Python has another of that name.
    """
    _look_beside(str(path.parent))
    _check_beside(path.parent, path, source, set())
    module = ModuleType(f"{PREFIX}{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and type hints look there
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} does not run{_line(path, error)}: {type(error).__name__}: {error}") from error
    return module


def where(error: BaseException) -> str:
    """The last line in a file of the user's own that an error passed: "own.py, line 4, in update"; "" for none."""
    files = {getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith(PREFIX)}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f"{frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name}" if frames else ""


def stand_in(kind: type) -> None:
    """Fill the modules of a class with the globals that its methods use, where those modules are files or scripts.

    Such a class is sent to another process whole, but pickles of things from the same module only say where they are.
    """
    for one in kind.__mro__:
        if not (one.__module__.startswith(PREFIX) or one.__module__ == "__main__"):
            continue
        module = sys.modules.setdefault(one.__module__, ModuleType(one.__module__))
        for function in vars(one).values():
            for name, value in getattr(function, "__globals__", {}).items():
                vars(module).setdefault(name, value)


def _look_beside(folder: str) -> None:
    """Add a folder to `sys.path`, after all that Python looks into by itself, and before earlier ones of these."""
    first = min((sys.path.index(one) for one in _BESIDE if one in sys.path), default=len(sys.path))
    if folder in _BESIDE and folder in sys.path:
        sys.path.remove(folder)
    if folder not in sys.path:
        sys.path.insert(first, folder)
        _BESIDE.add(folder)


def _check_beside(folder: Path, path: Path, source: bytes, seen: set[Path]) -> None:
    """Raise UsageError where a file, or one that it imports from its folder, would get another module of that name."""
    for name in _imported(source) - sys.stdlib_module_names:
        choices = (folder / f"{name}.py", folder / name / "__init__.py")
        beside = next((choice for choice in choices if choice.is_file()), None)
        if beside is None or beside in seen:
            continue
        seen.add(beside)
        loaded = getattr(sys.modules.get(name), "__file__", None)
        spec = None if loaded else PathFinder.find_spec(name)
        found = loaded or (spec.origin if spec else None)
        if found and Path(found).resolve() != beside.resolve():
            raise UsageError(
                f"{path} imports {name}, and beside it lies {beside}; but Python has another {name}, {found}. Give one "
                "of them another name, or use each in a process of its own."
            )
        _check_beside(folder, beside, beside.read_bytes(), seen)


def _imported(source: bytes) -> set[str]:
    """Top-level names of all modules that `source` imports; none where it is not valid Python."""
    with suppress(SyntaxError, ValueError):
        nodes = list(ast.walk(ast.parse(source)))
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
        return {name.partition(".")[0] for name in names}
    return set()


def _parts(text: str) -> tuple[str, str]:
    file, _, name = text.rpartition(":")
    return (text, "") if text.endswith(".py") else (file, name)


def _line(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return ""  # its text has the line
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""
