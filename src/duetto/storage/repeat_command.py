"""The command that repeats a run, and what it needs besides `config.yaml`; the file may be a stranger's."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from duetto.errors import UsageError, few
from duetto.storage import user_code
from duetto.storage.dict_diff import SHOWN
from duetto.storage.resume_history import History


def command(values: Mapping[str, Any], config: str) -> str:
    """Return the command that repeats the run of these contents of `config.yaml`, which is at the path `config`.

    It is "" if the networks are Python classes.
    """
    if _networks(values):
        return ""
    first = str(values["algorithm"].get("name"))
    if origin := _dict(values["algorithm"].get("from")):
        first = f"{origin.get('file') or 'FILE.py'}:{_class(origin)}"
    environment = ["ENVIRONMENT"] if values["environment"].get("remakeable") is False else []
    cluster = ["--cluster"] if values.get("cluster") else []
    return shlex.join(["duetto", "train", first, "--config", config, *environment, *cluster])


def needed(values: Mapping[str, Any]) -> list[str]:
    """Return a sentence on each thing that `config.yaml` names but does not contain; of a path the last name."""
    origin, start = _dict(values["algorithm"].get("from")), _dict(values.get("from"))
    environment, by_object = values["environment"]["id"], values["environment"].get("remakeable") is False
    demonstrations, seeds = values["algorithm"].get("demonstrations"), _seeds(values)
    sentences = {
        f"Networks: {', '.join(_networks(values))} are Python classes; pass them to duetto.train.": _networks(values),
        f"Algorithm: the class {_class(origin)} in {_name(origin.get('file') or 'a file, FILE.py')}.": origin,
        f"Environment: {environment} was a Python object; ENVIRONMENT is its id or FILE.py:CLASS.": by_object,
        f"Environment: {user_code.short(environment)}.": ":" in environment and not by_object,
        f"First networks: step {start.get('step')} of the run {_name(start.get('run'))}; give it with --from RUN "
        f"--from-checkpoint {start.get('step')}.": start,
        f"Seeds: {seeds} were trained in one program. --seeds {seeds} repeats its numbers exactly, --seed up to "
        "rounding.": seeds,
        "Cluster: it ran on Ray actors, which decide its numbers.": values.get("cluster"),
        f"Demonstrations: {_name(demonstrations)}; give them with --demonstrations.": demonstrations,
    }
    return [sentence for sentence, is_needed in sentences.items() if is_needed]


def of_its_history(values: Mapping[str, Any]) -> list[str]:
    """Return sentences on changes during the run, which its options alone do not repeat."""
    try:
        changed, inexact = (few(events, SHOWN, "; ") for events in History.of(values))
    except UsageError:
        return []
    sentences = {
        f"Changed during the run: {changed}. config.yaml has the new values; to repeat the run, train with the old "
        "ones until there and resume with the new ones.": changed,
        f"Not repeatable exactly: {inexact}": inexact,
    }
    return [sentence for sentence, happened in sentences.items() if happened]


def _networks(values: Mapping[str, Any]) -> list[str]:
    return [str(key) for key, value in values["algorithm"].items() if isinstance(value, dict) and "custom" in value]


def _seeds(values: Mapping[str, Any]) -> str:
    """Return the seeds that were trained together, as --seeds takes them; "" for a run alone."""
    others, seed = values.get("other_seeds"), values["run"].get("seed")
    numbers = [number for number in others if type(number) is int] if isinstance(others, list) else []
    return ",".join(map(str, sorted({*numbers, seed}))) if numbers and type(seed) is int else ""


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _class(origin: Mapping[str, Any]) -> str:
    return str(origin.get("class")).rpartition(".")[2]


def _name(path: object) -> str:
    return Path(str(path)).name
