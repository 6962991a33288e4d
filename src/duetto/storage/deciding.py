"""The part of a run's config that decides its numbers: checkpoints keep it, so that a changed `config.yaml` is noticed.

It holds all hyper-parameters, the environment's options, and those of `RunOptions` that are not in FREE.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from duetto import own_files
from duetto.errors import CheckpointError
from duetto.storage.config import RECORDED, Config, versions

FREE = {
    "steps",  # a run may always go on for longer; `resume --steps` says that it stretches schedules
    "schedule_steps",  # and `resume --keep-schedule` that it does not
    "evaluate_every",  # evaluations have environments and random numbers of their own
    "evaluation_episodes",
    "keep",
    "checkpoint_every",  # what only looks on
    "log_every",
    "threads",  # the learner's to answer for: where their number shows in the numbers, it says so
    "learners",  # as for threads
    "vectorization",  # the same environments, one after another or side by side
    "worker_timeout",
}
FILE = "algorithm.from.sha256"  # of an algorithm of the user's own: its equations decide too
ENVIRONMENT_FILE = "environment.sha256"  # as for the algorithm
ENVIRONMENT = {
    ENVIRONMENT_FILE,
    "environment.options",
    "run.engine",
}  # a state saved with other ones would bring these back
# `demonstrations` is only where they lie: of what lies there, the memory has a fingerprint.
_NOT_DECIDING = {"algorithm.name", "algorithm.from", "algorithm.demonstrations"} | {f"run.{name}" for name in FREE}
_FRAMEWORKS = {"torch": {"torch"}, "jax": {"jax", "equinox", "optax"}}


class Change(NamedTuple):
    """A changed key that decides numbers, and its old and new value as JSON."""

    key: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.key} was {self.old}, is now {self.new}"


def deciding(config: Config) -> dict[str, str]:
    """The part of the config that decides the numbers: "algorithm.discount" to its value as JSON, and so on."""
    values = config.to_dict()
    flat = {f"{part}.{name}": value for part in ("algorithm", "run") for name, value in values[part].items()}
    flat |= {f"cluster.{name}": value for name, value in config.cluster.items()}
    flat["environment.options"] = values["environment"]["options"]
    if config.origin and config.origin.checksum:
        flat[FILE] = config.origin.checksum
    if config.checksum:
        flat[ENVIRONMENT_FILE] = config.checksum
    return {key: _as_json(value) for key, value in flat.items() if key not in _NOT_DECIDING}


def changes(config: Config, kept: Any) -> list[Change]:
    """The differences of the config from `kept`, the `deciding` of the config that a checkpoint was made with.

    A key that only the record has is no change. One that the record lacks, since an earlier version did not have the
    option, counts as its default there, with which the run goes on as it did. An empty record has no differences.

    Raises:
        CheckpointError: `kept` is no such record.
    """
    if not isinstance(kept, dict):
        raise CheckpointError("The checkpoint's record of its config is damaged. Use another checkpoint.")
    ours = deciding(config)
    before = {key: str(value) for key, value in ((_by_default(config) if kept else {}) | kept).items()}
    return [Change(key, before[key], ours[key]) for key in ours if before.get(key, ours[key]) != ours[key]]


def _by_default(config: Config) -> dict[str, str]:
    """Every option's default as JSON; not None, the default of the user's own networks, which had other names."""
    return {
        f"{part}.{field.name}": _as_json(field.default)
        for part, options in (("algorithm", config.algorithm), ("run", config.run))
        for field in dataclasses.fields(options)
        if field.default is not dataclasses.MISSING and field.default is not None
    }


def where(config: Config, path: Path, changed: list[Change]) -> str:
    """The files that were edited, in words: `config.yaml`, which is at `path`, the user's own files, or several."""
    keys = {change.key for change in changed}
    files = [str(config.origin.file)] if config.origin and FILE in keys else []
    files += [str(own_files.parts(config.environment)[0])] if ENVIRONMENT_FILE in keys else []
    return " with ".join(([str(path)] if len(changed) > len(files) else []) + files)


def listed(changed: list[Change]) -> str:
    """The changes as one part of a sentence."""
    return "; ".join(map(str, changed))


def packages(backend: str) -> dict[str, str]:
    """The installed versions of the packages that compute the numbers with this backend."""
    idle = {name for other, names in _FRAMEWORKS.items() if other != backend for name in names}
    return versions(name for name in RECORDED if name not in idle | {"safetensors"})


def other_versions(kept: Mapping[str, Any], now: Mapping[str, str]) -> str:
    """The packages that had another version when a checkpoint was made, in words; "" if none had."""
    return "; ".join(
        f"{name} was {kept[name]}, is now {now[name]}" for name in now if kept.get(name, now[name]) != now[name]
    )


def _as_json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, sort_keys=True, default=str)


def _plain(value: Any) -> Any:
    """The value with text for keys, as JSON wants, and without the modules of networks' classes: a script's own module
    has another name where the script is imported.
    """
    if isinstance(value, dict) and "custom" in value:
        given = value["custom"]
        names = {kind: given[kind] and given[kind].rpartition(".")[2] for kind in ("torch", "jax")}
        return {"custom": names | {"arguments": _plain(given["arguments"])}}
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
