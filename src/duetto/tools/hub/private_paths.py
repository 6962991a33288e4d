"""Shorten paths on the user's machine, which often contain the user's name.

Only the last name of every absolute path in a text is kept; the user's home folder becomes "~".
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

# A path within a text: it starts after a separator, and is no part of an address (https://...).
_POSIX = re.compile(r"(?<![\w./\\~-])(?:~[\w.-]*)?/(?!/)[^\s'\"`,;:()\[\]{}<>|]+")
_WINDOWS = re.compile(r"(?<![\w])(?:[A-Za-z]:[\\/]|\\\\)[^\s'\"`,;:()\[\]{}<>|]+")
_CLUSTER = ("--cluster",)  # the option of a command whose value is a machine's address


def without_places(value: Any) -> Any:
    """Return the value with paths shortened in every text of nested dicts and lists."""
    match value:
        case str():
            return _bare(value)
        case dict():
            return {key: without_places(inner) for key, inner in value.items()}
        case list():
            return [without_places(inner) for inner in value]
    return value


def bare_command(command: str) -> str:
    """Return a command line with paths shortened, and without the address of a cluster."""
    try:
        words = shlex.split(command)
    except ValueError:  # no command line of a shell
        return _bare(command)
    for i, word in enumerate(words):
        if i and words[i - 1] in _CLUSTER and not word.startswith("-"):
            words[i] = "ADDRESS"
        elif word.startswith("--cluster="):
            words[i] = "--cluster=ADDRESS"
    return shlex.join([_bare_word(word) for word in words])


def _bare_word(word: str) -> str:
    option, equals, value = word.partition("=")
    return f"{option}={_bare(value)}" if equals and option.startswith("-") else _bare(word)


def _bare(text: str) -> str:
    if _is_place(text):
        return _last(text)
    home = _home()
    text = text.replace(home, "~") if home else text
    return _WINDOWS.sub(lambda match: _last(match[0]), _POSIX.sub(lambda match: _last(match[0]), text))


def _is_place(text: str) -> bool:
    one_line = "\n" not in text and "//" not in text[1:]
    return one_line and (PurePosixPath(text).is_absolute() or PureWindowsPath(text).is_absolute() or text[:2] == "~/")


def _last(path: str) -> str:
    return re.split(r"[/\\]+", path.rstrip("/\\"))[-1]


def _home() -> str:
    try:
        home = Path.home()
    except RuntimeError:
        return ""
    return str(home) if len(home.parts) > 2 else ""  # "/" and "/root" also occur in other paths
