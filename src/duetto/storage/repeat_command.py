"""The command that repeats a run, and what it needs besides `config.yaml`; the file may be a stranger's."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from duetto.errors import UsageError, few
from duetto.storage import user_code
from duetto.storage.dict_diff import SHOWN
from duetto.storage.resume_history import History


def command(values: Mapping[str, Any], config: str, names_all: bool = False) -> str:
    """Return the command that repeats a run, or "" if its networks are Python classes.

    Args:
        values: The contents of `config.yaml`.
        config: The path of that file.
        names_all: Whether to name the files and runs that `config.yaml` refers to; a pulled run is not trusted to.
    """
    if _networks(values):
        return ""
    origin, environment, start = (
        _dict(values["algorithm"].get("from")),
        values["environment"],
        _dict(values.get("from")),
    )
    first, last = str(values["algorithm"].get("name")), []
    if origin:
        file = str(origin.get("file") or "FILE.py")
        first = f"{_name(file) if names_all else file}:{_class(origin)}"
    if environment.get("remakeable") is False:
        last = ["ENVIRONMENT"]
    elif names_all and ":" in environment["id"]:
        last = [user_code.short(environment["id"])]
    if names_all and start:
        checkpoint = [] if start.get("checkpoint") == "best" else ["--from-checkpoint", str(start.get("step"))]
        last += ["--from", _name(start.get("run")), *checkpoint]
    cluster = ["--cluster"] if values.get("cluster") else []
    return shlex.join(["duetto", "train", first, "--config", config, *last, *cluster])


def needed(values: Mapping[str, Any], place: Callable[[str], str] = str) -> list[str]:
    """Return a sentence on each thing that `config.yaml` names but does not contain; `place` formats a path."""
    origin, environment, start = (
        _dict(values["algorithm"].get("from")),
        values["environment"],
        _dict(values.get("from")),
    )
    file, by_object = str(origin.get("file") or ""), environment.get("remakeable") is False
    seeds, demonstrations = _seeds(values), values["algorithm"].get("demonstrations")
    sentences = {
        f"Networks: {', '.join(_networks(values))} are Python classes; pass them to duetto.train.": _networks(values),
        f"Algorithm: the class {_class(origin)} in {place(file)}.": file,
        f"Algorithm: the Python class {_class(origin)}; FILE.py is a file that contains it.": origin and not file,
        f"Environment: {environment['id']} was a Python object; ENVIRONMENT is its id or FILE.py:CLASS.": by_object,
        f"Environment: the class {environment['id'].rpartition(':')[2]} in "
        f"{place(environment['id'].rpartition(':')[0])}.": user_code.is_file(environment["id"]) and not by_object,
        f"First networks: step {start.get('step')} of the run {place(str(start.get('run')))}; give it with --from RUN "
        f"--from-checkpoint {start.get('step')}.": start,
        f"Seeds: {seeds} were trained in one program. --seeds {seeds} repeats its numbers exactly, --seed up to "
        "rounding.": seeds,
        "Cluster: it ran on Ray actors, which decide its numbers.": values.get("cluster"),
        f"Demonstrations: {place(str(demonstrations))}; give them with --demonstrations.": demonstrations,
    }
    return [sentence for sentence, is_needed in sentences.items() if is_needed]


def of_its_history(values: Mapping[str, Any]) -> list[str]:
    """Return sentences on changes during the run, which its options alone do not repeat."""
    try:
        history = History.of(values)
    except UsageError:
        return []
    changed, inexact = (few(events, SHOWN, "; ") for events in history)
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
