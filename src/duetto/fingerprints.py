"""Whether two functions or classes that were handed over are the same, as far as their code and what they hold tell.

A sweep that goes on, and a study, must not take runs on one environment, or by one algorithm, for runs on another that
has the same name, as all lambdas have and a class that was edited. An id is known by itself, and `FILE.py:CLASS` by its
file.
"""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from duetto.own_modules import checksum_now, installed

PLAIN = bool | int | float | complex | str | bytes | None


def fingerprint(given: Any) -> str:
    """SHA-256 of a function or class, or of several in a tuple, 64 hexadecimal digits: the same in every process of one
    Python version.

    A class counts with its code, or with its whole file where that is an imported module. A function counts with its
    code and file, and with what it refers to: functions and classes likewise, plain data and arrays by value. Anything
    else is known by its class, and by its attributes where that is the user's own.
    """
    try:
        parts = list(_parts(given, set()))
    except RecursionError:
        parts = [f"{type(given).__qualname__} {getattr(given, '__module__', '')}.{getattr(given, '__qualname__', '')}"]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, PLAIN):
        yield repr(value)
    elif id(value) in seen:
        yield "again"
    else:
        seen.add(id(value))
        yield from _parts_once(value, seen)
        if isinstance(value, Mapping | list | tuple):  # equal ones may be one object or two
            seen.discard(id(value))


def _parts_once(value: Any, seen: set[int]) -> Iterator[str]:
    match value:
        case np.ndarray():
            content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            yield f"array {value.dtype} {value.shape} {content}"
        case partial():
            yield from _several(("partial", value.func, value.args, value.keywords), seen)
        case Mapping():
            yield "mapping"
            yield from _several([part for pair in value.items() for part in pair], seen)
        case list() | tuple():
            yield f"{type(value).__name__} {len(value)}"
            yield from _several(value, seen)
        case set() | frozenset():
            yield from sorted(repr(part) if isinstance(part, PLAIN) else type(part).__qualname__ for part in value)
        case ModuleType():
            yield value.__name__
        case FunctionType():
            yield from _function(value, seen)
        case type():
            yield from _class(value, seen)
        case _:
            yield from _object(value, seen)


def _object(value: Any, seen: set[int]) -> Iterator[str]:
    if inside := [held for name in _HELD if callable(held := getattr(value, name, None))]:
        yield from _several([f"{type(value).__qualname__} of", *inside], seen)
        return
    yield from _parts(type(value), seen)
    if _is_own(_module(type(value))):
        yield from _parts(getattr(value, "__dict__", None), seen)


# Where methods hold functions: static ones, properties, those that are cached, or compiled by JAX.
_HELD = ("__func__", "__wrapped__", "func", "fget", "fset", "fdel")


def _several(values: Any, seen: set[int]) -> Iterator[str]:
    for value in values:
        yield from _parts(value, seen)


def _function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    module = _module(function)
    yield f"{module}.{function.__qualname__} {_file(module)}"
    if not _is_own(module):
        return
    yield from _code(function.__code__)
    yield from _parts((function.__defaults__, function.__kwdefaults__), seen)
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]
    yield from _several(cells, seen)
    used = sorted((_names(function.__code__) - _set(function.__code__)) & function.__globals__.keys())
    yield from _several([part for name in used for part in (name, function.__globals__[name])], seen)


def _class(kind: type, seen: set[int]) -> Iterator[str]:
    module = _module(kind)
    file = _file(module)
    yield f"{module}.{kind.__qualname__} {file}"
    if not _is_own(module):
        return
    yield from _several(kind.__bases__, seen)
    if file:  # says it all; what is counted in its attributes is no difference
        return
    for name, value in sorted(vars(kind).items()):
        if not (name.startswith("__") and isinstance(value, PLAIN)) and name not in _OF_EVERY_CLASS:
            yield name
            yield from _parts(value, seen)


_OF_EVERY_CLASS = {"__dict__", "__weakref__", "__annotations__", "__abstractmethods__", "_abc_impl"} | {
    "__static_attributes__",  # in any order
    "__slotnames__",  # kept there once an object of it was copied
}


def _code(code: CodeType) -> Iterator[str]:
    """What a code object computes, without names of files and numbers of lines."""
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} {code.co_cellvars}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield from _parts(constant, set())


def _names(code: CodeType) -> set[str]:
    inside = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inside)


def _set(code: CodeType) -> set[str]:
    """Names of the globals that the code sets itself, such as a counter: they are not what it is made with."""
    return {str(one.argval) for one in dis.get_instructions(code) if one.opname == "STORE_GLOBAL"}


def _is_full(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _module(thing: FunctionType | type) -> str:
    """Name of the module it was written in; `__main__` also where `exec` ran it in a namespace without a `__name__`."""
    if isinstance(thing, type):  # a class statement there gives "builtins"
        nowhere = thing.__module__ == "builtins" and bool(thing.__flags__ & _MADE_AS_IT_RAN)
    else:
        nowhere = thing.__module__ is None
    return "__main__" if nowhere else thing.__module__


_MADE_AS_IT_RAN = 1 << 9  # CPython's Py_TPFLAGS_HEAPTYPE: not one of the interpreter's own


def _is_own(module: str) -> bool:
    """Whether a module is the user's own: what is installed, and Python's own, is known by its name."""
    top = module.partition(".")[0]
    if top in ("__main__", "__mp_main__"):
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return top not in sys.stdlib_module_names and top != "duetto" and not (file and installed(Path(file)))


def _file(module: str) -> str:
    """SHA-256 of the file of an imported module of the user's; "" for scripts, which change for many reasons.

    In a notebook there is no file, either.
    """
    return checksum_now(module) if _is_own(module) and module not in ("__main__", "__mp_main__") else ""
