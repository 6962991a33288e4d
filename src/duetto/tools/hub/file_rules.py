"""Names of repositories on the Hub, and of the files in a run's repository."""

from __future__ import annotations

import re

from duetto.errors import UsageError

CARD, CONFIG, RESULTS, VIDEO = "README.md", "config.yaml", "results.json", "replay.mp4"
EVALUATIONS, METRICS = "evaluations.csv", "metrics.jsonl"

_STATE = r"(state\.(json|safetensors)|manifest\.json"
_NAMES = re.compile(
    r"README\.md|config\.yaml|results\.json|replay\.mp4|evaluations\.csv|metrics\.jsonl"
    rf"|checkpoints/step-[0-9]{{12,15}}/{_STATE})"
    rf"|checkpoints/best/[0-9]{{1,15}}/{_STATE}|info\.(json|safetensors))"
    r"|checkpoints/memory/segment-[0-9]{12,15}\.safetensors"
)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def belongs(name: str) -> bool:
    """Return whether a file of this name, with "/" between folders, is part of a run's repository."""
    return _NAMES.fullmatch(name) is not None


def leaves(name: str) -> bool:
    """Return whether a file of this name would be outside of its folder, on any system."""
    parts = re.split(r"[/\\]", name)
    return not name or "\0" in name or parts[0] == "" or ".." in parts or ":" in parts[0]


def check_repository(name: str) -> None:
    """Raise UsageError unless the name is USER/NAME as the Hub has them."""
    if not _REPOSITORY.fullmatch(name) or ".." in name or "--" in name or name.endswith((".git", ".", "-")):
        raise UsageError(
            f"{name!r} is no repository: it must be USER/NAME, of letters, digits, '.', '-' and '_', such as "
            "me/td3-HalfCheetah-v5."
        )
