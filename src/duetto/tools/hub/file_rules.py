"""Check names of repositories and their files, and remove this machine's paths from texts."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from duetto.errors import UsageError

CARD, CONFIG, VIDEO = "README.md", "config.yaml", "replay.mp4"
EVALUATIONS, METRICS = "evaluations.csv", "metrics.jsonl"
OLD = ["checkpoints/*", VIDEO, EVALUATIONS, METRICS]  # patterns of the files that a push replaces

_STATE = r"(state\.(json|safetensors)|manifest\.json"
_NAMES = re.compile(
    r"README\.md|config\.yaml|replay\.mp4|evaluations\.csv|metrics\.jsonl"
    rf"|checkpoints/step-[0-9]{{12,15}}/{_STATE})"
    rf"|checkpoints/best/[0-9]{{1,15}}/{_STATE}|info\.(json|safetensors))"
    r"|checkpoints/memory/segment-[0-9]{12,15}\.safetensors"
)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
# A path within a text. It starts after a separator, so that a part of an address (https://...) is no path.
_REST = r"[^\s'\"`,;:()\[\]{}<>|]+"
_PATH = re.compile(rf"(?<![\w./\\~-])(?:~[\w.-]*)?/(?!/){_REST}|(?<!\w)(?:[A-Za-z]:[\\/]|\\\\){_REST}")


def belongs(name: str) -> bool:
    """Return whether a file of this name, with "/" between folders, belongs to a run."""
    return _NAMES.fullmatch(name) is not None


def check_repository(name: str) -> None:
    """Raise UsageError unless the name is USER/NAME by the Hub's rules."""
    if not _REPOSITORY.fullmatch(name) or ".." in name or "--" in name or name.endswith((".git", ".", "-")):
        raise UsageError(
            f"The repository is {name!r}; it must be USER/NAME, of letters, digits, '.', '-' and '_', such as "
            "me/td3-HalfCheetah-v5."
        )


def with_short_paths(value: Any) -> Any:
    """Shorten absolute paths in every text of nested dicts and lists.

    Such paths often contain the user's name. Only the last part of a path is kept. The home folder becomes "~".
    """
    match value:
        case str():
            return _bare(value)
        case dict():
            return {key: with_short_paths(inner) for key, inner in value.items()}
        case list():
            return [with_short_paths(inner) for inner in value]
    return value


def _bare(text: str) -> str:
    is_absolute = PurePosixPath(text).is_absolute() or PureWindowsPath(text).is_absolute() or text[:2] == "~/"
    if is_absolute and "\n" not in text and "//" not in text[1:]:
        return _last(text)
    with suppress(RuntimeError):  # no home folder
        home = Path.home()
        text = text.replace(str(home), "~") if len(home.parts) > 2 else text  # "/root" also occurs in other paths
    return _PATH.sub(lambda match: _last(match[0]), text)


def _last(path: str) -> str:
    return re.split(r"[/\\]+", path.rstrip("/\\"))[-1]
