"""What is needed besides `config.yaml` to make a run again. The file may be a stranger's: no value in it is trusted."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from duetto import own_files
from duetto.errors import UsageError
from duetto.storage.differences import listed
from duetto.storage.history import History


def command(values: Mapping[str, Any], config: str, names_all: bool = False) -> str:
    """The command that makes a run again, "" if none does.

    Args:
        values: The contents of `config.yaml`.
        config: The path of that file.
        names_all: Name the files, packages and runs, too, that are only trusted in a folder of the user's own.
    """
    if _own_networks(values):
        return ""
    algorithm, environment, began = _algorithm(values), values["environment"], _beginning(values)
    first = [f"FILE.py:{_kind(algorithm)}"] if algorithm and not algorithm.get("file") else []
    last = [] if _remakeable(values) else ["ENVIRONMENT"]
    if names_all and algorithm.get("file"):
        first = [f"{_name(algorithm['file'])}:{_kind(algorithm)}"]
    if names_all and not last and ":" in environment["id"]:
        last = [own_files.short(environment["id"])]
    if names_all and began:
        which = [] if began.get("checkpoint") == "best" else ["--from-checkpoint", str(began.get("step"))]
        last += ["--from", _name(began["run"]), *which]
    if _pace(values):
        last.append("--cluster")
    return shlex.join(["duetto", "train", *first, "--config", config, *last])


def needed(values: Mapping[str, Any], place: Callable[[str], str] = str) -> list[str]:
    """Sentences for the things that `config.yaml` names but does not hold; `place` gives how a path is written."""
    algorithm, environment, began = _algorithm(values), values["environment"], _beginning(values)
    sentences: list[str] = []
    if networks := _own_networks(values):
        sentences.append(
            f"Its networks ({', '.join(networks)}) are classes that were handed over in Python, so no command repeats "
            "it: duetto.train does, with them."
        )
    if algorithm.get("file"):
        file = place(str(algorithm["file"]))
        sentences.append(f"Its algorithm is the class {_kind(algorithm)} of the file {file}, which is needed too.")
    elif algorithm:
        sentences.append(
            f"Its algorithm is the class {_kind(algorithm)}, which was handed over in Python and is needed too: "
            "FILE.py stands for a file that has it."
        )
    if not _remakeable(values):
        sentences.append(
            f"Its environment, {environment['id']}, was handed over as an object, which config.yaml cannot make again: "
            "ENVIRONMENT stands for the id of the same one, or for FILE.py:CLASS."
        )
    elif own_files.is_file(environment["id"]):
        file, _, kind = environment["id"].rpartition(":")
        sentences.append(f"Its environment is the class {kind} of the file {place(file)}, which is needed too.")
    if began:
        sentences.append(
            f"It began with the networks of another run, step {began.get('step')} of {place(began['run'])}, which is "
            f"needed too: --from RUN --from-checkpoint {began.get('step')} say where it is."
        )
    if seeds := _side_by_side(values):
        sentences.append(
            f"It was one of the seeds {seeds} in one program: with --seeds {seeds} in place of --seed its numbers are "
            "the same again, one seed alone is so to rounding only."
        )
    if pace := _pace(values):
        sentences.append(f"It ran on a cluster at the pace {pace}, which decides its numbers: Ray is needed, too.")
    if folder := values["algorithm"].get("demonstrations"):
        sentences.append(
            f"It learned from the demonstrations in {place(str(folder))}, which are needed too: --demonstrations says "
            "where they are."
        )
    return sentences


def of_its_history(values: Mapping[str, Any]) -> list[str]:
    """Sentences on what was done to the run after it had begun, which its options alone do not repeat."""
    try:
        history = History.of(values)
    except UsageError:
        return []
    sentences = []
    if history.changed:
        sentences.append(
            f"It was changed after it had begun ({listed(history.changed)}): config.yaml has the new values. Its "
            "numbers need the old ones until there, and a resume with the new ones."
        )
    if history.attributes:
        sentences.append(
            f"Callbacks set {listed(history.attributes)} of its environments, which config.yaml does not hold: "
            "duetto.train does, with them."
        )
    if history.inexact:
        sentences.append(f"Its numbers are not the same again: {listed(history.inexact)}")
    return sentences


def _algorithm(values: Mapping[str, Any]) -> dict[str, Any]:
    """The algorithm's origin; empty for one of Duetto's own."""
    found = values["algorithm"].get("from")
    return found if isinstance(found, dict) else {}


def _kind(algorithm: Mapping[str, Any]) -> str:
    """The name of the algorithm's class."""
    return str(algorithm.get("class")).rpartition(".")[2]


def _remakeable(values: Mapping[str, Any]) -> bool:
    return values["environment"].get("remakeable") is not False


def _beginning(values: Mapping[str, Any]) -> dict[str, Any]:
    """The other run that it began from; empty for a run that began from none."""
    found = values.get("from")
    return found if isinstance(found, dict) and isinstance(found.get("run"), str) else {}


def _side_by_side(values: Mapping[str, Any]) -> str:
    """The seeds that were computed together, its own among them, as --seeds takes them; "" for a run alone."""
    found = values.get("beside")
    numbers = [one for one in found if type(one) is int] if isinstance(found, list) else []
    own = values["run"].get("seed")
    return ",".join(map(str, sorted({*numbers, own}))) if numbers and type(own) is int else ""


def _pace(values: Mapping[str, Any]) -> str:
    """The pace of the cluster, if the run's numbers depend on it; else ""."""
    found = values.get("cluster")
    pace = found.get("pace") if isinstance(found, dict) else None
    return pace if isinstance(pace, str) and pace.isalpha() else ""


def _own_networks(values: Mapping[str, Any]) -> list[str]:
    return [str(key) for key, value in values["algorithm"].items() if isinstance(value, dict) and "custom" in value]


def _name(path: object) -> str:
    return Path(str(path)).name
