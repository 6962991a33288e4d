"""The options that decide a run's numbers: checkpoints keep them, so that a changed `config.yaml` is noticed.

They are all hyper-parameters, the environment's options, and those of `RunOptions` that are not in FREE.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from duetto.errors import CheckpointError
from duetto.storage import user_code
from duetto.storage.config import RECORDED, Config, versions
from duetto.storage.dict_diff import Diff, dict_diff, text

FREE = {
    "steps",  # a run may always continue for longer; `resume` warns if that stretches schedules
    "schedule_steps",
    "evaluate_every",  # evaluations have separate environments and random numbers
    "evaluation_episodes",
    "keep",
    "checkpoint_every",
    "log_every",
    "threads",  # the learner warns if they change the numbers
    "vectorization",  # the same environments, in one process or several
    "worker_timeout",
}
FILE = "algorithm.from.sha256"  # of a custom algorithm
ENVIRONMENT_FILE = "environment.sha256"  # of a custom environment
# An environment's saved state would bring the old values of these back.
ENVIRONMENT = {ENVIRONMENT_FILE, "environment.options"}
# `demonstrations` is only a path; the memory has a checksum of their content.
_NOT_DECIDING = {"algorithm.name", "algorithm.from", "algorithm.demonstrations"} | {f"run.{name}" for name in FREE}
_FRAMEWORKS = {"torch": {"torch"}, "jax": {"jax", "equinox", "optax"}}


def deciding(config: Config) -> dict[str, str]:
    """Return the options that decide the numbers, as JSON by dotted key, such as `algorithm.discount`."""
    values = config.to_dict()
    flat = {f"{part}.{name}": value for part in ("algorithm", "run") for name, value in values[part].items()}
    flat |= {f"cluster.{name}": value for name, value in config.cluster.items()}
    flat["environment.options"] = values["environment"]["options"]
    if config.origin and config.origin.checksum:
        flat[FILE] = config.origin.checksum
    if config.checksum:
        flat[ENVIRONMENT_FILE] = config.checksum
    return {key: text(_without_modules(value)) for key, value in flat.items() if key not in _NOT_DECIDING}


def changes(config: Config, saved: Any) -> Diff:
    """Return the changes of the config since a checkpoint with the options `saved`. CheckpointError if malformed."""
    if not isinstance(saved, dict):
        raise CheckpointError("The checkpoint's record of its config is damaged. Use another checkpoint.")
    now = deciding(config)
    return dict_diff({key: saved.get(key, now[key]) for key in now}, now)


def where(config: Config, path: Path, changed: Diff) -> str:
    """Return the names of the edited files: `config.yaml`, which is at `path`, and files of the user."""
    files = [str(config.origin.file)] if config.origin and FILE in changed else []
    files += [str(user_code.parts(config.environment)[0])] if ENVIRONMENT_FILE in changed else []
    return " with ".join(([str(path)] if len(changed) > len(files) else []) + files)


def packages(backend: str) -> dict[str, str]:
    """The installed versions of the packages that compute the numbers with this backend."""
    idle = {name for other, names in _FRAMEWORKS.items() if other != backend for name in names}
    return versions(name for name in RECORDED if name not in idle | {"safetensors"})


def other_versions(saved: Mapping[str, str], now: Mapping[str, str]) -> Diff:
    """Return the packages that had another version when a checkpoint was written."""
    return dict_diff({name: saved.get(name, now[name]) for name in now}, now)


def _without_modules(value: Any) -> Any:
    """Return a custom network's option without module names: a script's differs after an import."""
    if not (isinstance(value, dict) and "custom" in value):
        return value
    network = value["custom"]
    names = {kind: network[kind] and network[kind].rpartition(".")[2] for kind in ("torch", "jax")}
    return {"custom": names | {"arguments": network["arguments"]}}
