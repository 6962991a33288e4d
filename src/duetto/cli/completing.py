"""The words that can follow on a command line, read from the annotations that the parser is made of."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from tyro.conf import FlagCreatePairsOff, Positional, arg

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.cli import COMMANDS, demos, sweep, train, tune
from duetto.environments import FAMILIES
from duetto.networks.specs import CustomNetwork
from duetto.presets import presets
from duetto.storage.config import RunOptions
from duetto.trackers import TRACKERS

OF_ALGORITHMS = {"train": train, "tune": tune, "sweep": sweep}  # whose options depend on the algorithm
_FLAG_ALONE: Any = get_args(FlagCreatePairsOff[bool])[1]
_POSITIONAL: Any = get_args(Positional[str])[1]
_ARG: type = type(arg())


class Argument(NamedTuple):
    """An option with its flags, or a positional argument, which has none; and the words that its value can be."""

    flags: tuple[str, ...]
    words: tuple[str, ...] = ()


def algorithm_free() -> dict[str, list[Argument]]:
    """The arguments of every command whose options are the same for all algorithms, by its words: "demos record"."""
    names = {name: name for name in COMMANDS if name not in (*OF_ALGORITHMS, "demos")}
    names |= {f"demos {part}": f"demos_{part}" for part in demos.COMMANDS}
    return {words: list(_of_function(import_module(f"duetto.cli.{name}"))) for words, name in names.items()}


def of_algorithm(command: str, name: str) -> list[Argument]:
    """The arguments of `duetto COMMAND ALGORITHM`, ENVIRONMENT among them."""
    kind = ALGORITHMS[name]
    found = list(_of_hints(OF_ALGORITHMS[command]._command(kind, kind(), RunOptions()), _known(name)))
    if command == "train":
        return [Argument(("--config",)), *found]
    refused = [] if command == "tune" else ["--seed"]  # a sweep has seeds alone
    return [one for one in found if not set(one.flags) & set(refused)]


def environments() -> tuple[str, ...]:
    """Environment ids to suggest."""
    return tuple(example for family in FAMILIES for example in family.examples)


def _known(algorithm: str) -> dict[str, tuple[str, ...]]:
    """Words, by argument, for arguments that are mere text to the parser."""
    own = {"preset": ("default", *presets(algorithm))} if algorithm else {}
    return own | {"track": tuple(TRACKERS), "environment": environments()}


def _of_function(module: ModuleType) -> Iterator[Argument]:
    """The arguments of a module's command: the first public function after its `main`."""
    functions = [value for value in vars(module).values() if inspect.isfunction(value)]
    own = [one.__name__ for one in functions if one.__module__ == module.__name__]
    command = next(name for name in own if name != "main" and not name.startswith("_"))
    yield from _of_hints(getattr(module, command), _known(""))


def _of_hints(described: Any, known: dict[str, tuple[str, ...]]) -> Iterator[Argument]:
    for name, hint in get_type_hints(described, include_extras=True).items():
        if name != "return":
            yield from _of_hint(name, hint, known)


def _of_hint(name: str, hint: Any, known: dict[str, tuple[str, ...]]) -> Iterator[Argument]:
    parts = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    inner, about = parts[0], parts[1:]
    if isinstance(inner, type) and issubclass(inner, RunOptions | Algorithm):
        hints = get_type_hints(inner, include_extras=True)
        for field in (entry.name for entry in dataclasses.fields(inner)):
            if CustomNetwork not in get_args(hints[field]):  # which no command line can give
                yield from _of_hint(field, hints[field], known)
        return
    settings = next((one for one in about if isinstance(one, _ARG)), None)
    words = known.get(name) or tuple(_words(inner)) or _of_metavar(getattr(settings, "metavar", None) or "")
    if _POSITIONAL in about:
        yield Argument((), words)
        return
    flag = (getattr(settings, "name", None) or name).replace("_", "-")
    pair = inner is bool and _FLAG_ALONE not in about
    yield Argument((f"--{flag}", f"--no-{flag}") if pair else (f"--{flag}",), words)


def _words(hint: Any) -> Iterator[str]:
    """The choices of a Literal, wherever it is in a type."""
    if get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
    elif get_origin(hint) in (Union, UnionType, tuple, Annotated):
        for part in get_args(hint):
            yield from _words(part)


def _of_metavar(text: str) -> tuple[str, ...]:
    """The literal words of a metavar: "last" and "best" of "last|best|STEP"."""
    return tuple(word for word in text.split("|") if re.fullmatch(r"[a-z]+", word))
