"""What decides a run's numbers, whether a folder has the same run, and the command that repeats it.

Checkpoints keep the options that decide the numbers, so that a changed `config.yaml` is noticed: all hyper-parameters,
the environment's options, and those of `RunOptions` that are not in FREE.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from duetto.errors import CheckpointError, UsageError, few
from duetto.storage import user_code
from duetto.storage.config import RECORDED, Config, History, networks_source, versions
from duetto.storage.dict_diff import SHOWN, Diff, dict_diff, flat, sentence, text
from duetto.storage.safe_yaml import read_yaml

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
    options = {f"{part}.{name}": value for part in parts for name, value in values[part].items()}
    options["environment.options"] = config.environment_options
    if config.origin and config.origin.checksum:
        options["algorithm.from.sha256"] = config.origin.checksum
    if config.checksum:
        options["environment.sha256"] = config.checksum
    return {key: text(value) for key, value in options.items() if key not in _NOT_DECIDING}


def changes(now: Mapping[str, str], saved: Mapping[str, str]) -> Diff:
    """Return the entries of `now` that a checkpoint has with another text."""
    return dict_diff({key: saved.get(key, now[key]) for key in now}, now)


def packages(backend: str) -> dict[str, str]:
    """Return the installed versions of the packages that affect results with this backend."""
    return versions(name for name in RECORDED if name not in _IDLE[backend])


# ---------------------------------------------------------------------------------------------------- the same run?
class HinderedError(UsageError):
    """A run cannot continue: its folder contains another run, or one of its files was edited."""


def check_same_run(folder: Path, config: Config) -> None:
    """Raise HinderedError if the run in a folder was started with other options than `config` has.

    Raises CheckpointError if its config cannot be read.
    """
    if changed := changed_since(folder / "config.yaml", config.to_dict(), _flat):
        raise HinderedError(
            f"{folder} was started otherwise: {changed}. Give the same options to continue, and put back what was "
            "edited; or choose another --output."
        )


def changed_since(path: Path, now: dict[str, Any], flat: Callable[[dict[str, Any]], dict[str, str]]) -> str:
    """Return a sentence on what differs between a YAML file and `now`, made `flat`, except in threads; or "".

    Raises CheckpointError if the file cannot be read.
    """
    try:
        before = flat(read_yaml(path))
    except (OSError, KeyError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise CheckpointError(f"{path} cannot be read ({error!r}): was it changed by hand?") from error
    return sentence(dict_diff(before, flat(now), ignore=("run.threads",)))


def _flat(values: dict[str, Any]) -> dict[str, str]:
    """Return what a `config.yaml` says of the run and its code, as a flat dict of texts."""
    algorithm = values["algorithm"] | {"from": user_code.algorithm_source(values["algorithm"])}
    environment = {key: values["environment"].get(key) for key in ("id", "options", "sha256")}
    parts = {"algorithm": algorithm, "environment": environment, "run": values["run"]}
    return flat(parts | {"from": networks_source(values)})


# ---------------------------------------------------------------------------------------------------- repeat a run
# The contents of `config.yaml` may be a stranger's.
def repeat_command(values: Mapping[str, Any], config: str) -> str:
    """Return the command that repeats the run of the `config.yaml` with contents `values` and path `config`.

    It is "" if the networks are Python classes.
    """
    if _networks(values):
        return ""
    first = str(values["algorithm"].get("name"))
    if origin := values["algorithm"].get("from"):
        first = f"{origin.get('file') or 'FILE.py'}:{_class(origin)}"
    environment = ["ENVIRONMENT"] if values["environment"].get("remakeable") is False else []
    cluster = ["--cluster"] if values.get("cluster") else []
    return shlex.join(["duetto", "train", first, "--config", config, *environment, *cluster])


def needed(values: Mapping[str, Any]) -> list[str]:
    """Return a sentence on each thing that `config.yaml` names but does not contain; of a path the last name."""
    origin, start = values["algorithm"].get("from") or {}, values.get("from") or {}
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
    changed, inexact = (few(events, SHOWN, "; ") for events in History.of(values))
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


def _class(origin: Mapping[str, Any]) -> str:
    return str(origin.get("class")).rpartition(".")[2]


def _name(path: object) -> str:
    return Path(str(path)).name
