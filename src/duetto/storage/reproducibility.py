"""The options that decide a run's numbers: checkpoints keep them, so that a changed `config.yaml` is noticed.

They are all hyper-parameters, the environment's options, and those of `RunOptions` that are not in FREE.
"""

from __future__ import annotations

from collections.abc import Mapping

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
# An environment's saved state would bring the old values of these back.
ENVIRONMENT = {"environment.sha256", "environment.options"}
# `demonstrations` is only a path; the memory has a checksum of their content.
_NOT_DECIDING = {"algorithm.name", "algorithm.from", "algorithm.demonstrations"} | {f"run.{name}" for name in FREE}
_IDLE = {"torch": {"jax", "equinox", "optax"}, "jax": {"torch"}}  # packages that a backend does not use


def deciding(config: Config) -> dict[str, str]:
    """Return the options that decide the numbers, as JSON by dotted key, such as `algorithm.discount`."""
    values = config.to_dict() | {"cluster": config.cluster}
    parts = ("algorithm", "run", "cluster")
    flat = {f"{part}.{name}": value for part in parts for name, value in values[part].items()}
    flat["environment.options"] = config.environment_options
    if config.origin and config.origin.checksum:
        flat["algorithm.from.sha256"] = config.origin.checksum
    if config.checksum:
        flat["environment.sha256"] = config.checksum
    return {key: text(value) for key, value in flat.items() if key not in _NOT_DECIDING}


def changes(now: Mapping[str, str], saved: Mapping[str, str]) -> Diff:
    """Return the entries of `now` that a checkpoint has with another text."""
    return dict_diff({key: saved.get(key, now[key]) for key in now}, now)


def packages(backend: str) -> dict[str, str]:
    """The installed versions of the packages that compute the numbers with this backend."""
    return versions(name for name in RECORDED if name not in _IDLE[backend])
