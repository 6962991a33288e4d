"""A study's folder: it records once what is tuned, and refuses any other study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from duetto.display import sources
from duetto.errors import CheckpointError, UsageError
from duetto.storage import disk
from duetto.storage.differences import differences, flat
from duetto.storage.yaml_files import read_yaml, to_yaml
from duetto.tuning.study import Plan

FORMAT = 2
_ENVIRONMENT = ("id", "options", "sha256")
# What is taken to be as it is now: what earlier versions did not write, and how many threads there are here.
_LATER = ("algorithm.from", "environment.sha256", "networks")
_FREE = ("run.threads",)


def settle(plan: Plan, folder: Path) -> None:
    """Write down what is tuned in a new folder; in an existing one, check that it is the same.

    Raises:
        UsageError: The folder is of another study, or holds something else.
    """
    path = folder / "study.yaml"
    told = _told(plan)
    if not path.exists():
        if folder.exists() and any(not child.name.startswith(".") for child in folder.iterdir()):
            raise UsageError(f"{folder} is there and no study: it has no study.yaml. Choose another --output.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            disk.publish_file(path, to_yaml(told).encode())
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be made: {error.strerror}. Put that right, or choose another --output."
            ) from error
        return
    try:
        before = flat(read_yaml(path))
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}): was it changed by hand?") from error
    _check_scores(before, folder)
    now = flat(told)
    if sources.is_older(str(before.get("algorithm.from")), now["algorithm.from"]):
        before["algorithm.from"] = now["algorithm.from"]
    known = {key: now[key] for key in now if key.startswith(_LATER)} | before | {"format": FORMAT}
    if changed := differences(*({key: told[key] for key in told if key not in _FREE} for told in (known, now))):
        raise UsageError(
            f"{folder} is of another study: {changed}. Give the same options to go on with it (more --trials and "
            "other --jobs are free), and put back what was edited; or begin another one with --output."
        )


def _check_scores(before: dict[str, Any], folder: Path) -> None:
    """Raise UsageError for trials with other scores: format 1 cut a quarter of the seeds, one of them in part."""
    seeds = before.get("seeds")
    if before.get("format") == 1 and isinstance(seeds, int) and seeds > 2 and seeds % 4:
        raise UsageError(
            f"{folder} is of an earlier version, whose scores of {seeds} seeds are others, so that its trials cannot "
            "be compared with new ones. Begin another study with --output."
        )


def _told(plan: Plan) -> dict[str, Any]:
    """Everything that decides the trials and their scores, as `study.yaml` has it."""
    config = plan.config.to_dict()
    return {
        "search": {name: one.to_dict() for name, one in plan.space.items()},
        "seeds": plan.seeds,
        "prune": plan.prune,
        "algorithm": config["algorithm"] | {"from": str(sources.of_algorithm(config["algorithm"]))},
        "environment": {key: value for key, value in config["environment"].items() if key in _ENVIRONMENT},
        "run": config["run"],
        "networks": config.get("networks", {}),
        "format": FORMAT,
    }
