"""Compare configurations and runs, and write the command that repeats a run.

A resume compares the options that affect numbers: all hyperparameters, the environment's options, and the fields of
`RunOptions` that are not in FREE. Each checkpoint stores these options, so that a resume notices a changed
`config.yaml`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from duetto.errors import CheckpointError, UsageError, few
from duetto.storage import user_code
from duetto.storage.config import RECORDED, Config, History, networks_source, versions
from duetto.storage.safe_yaml import read_yaml

FREE = {  # the fields of `RunOptions` that `deciding` leaves out
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
# Options that an environment's saved state would reset to their old values.
ENVIRONMENT = {"environment.sha256", "environment.options"}
# `demonstrations` is only a path; the replay buffer's state has a checksum of their content.
_NOT_DECIDING = {"algorithm.name", "algorithm.from", "algorithm.demonstrations"} | {f"run.{name}" for name in FREE}
_IDLE = {"torch": {"jax", "equinox", "optax"}, "jax": {"torch"}}  # packages that a backend does not use
SHOWN = 5  # max differences or events in a sentence

Diff = dict[str, tuple[str, str]]  # the old and the new text of each key that differs


def deciding(config: Config) -> dict[str, str]:
    """Return the options that affect results, as JSON texts by dotted key, such as `algorithm.discount`."""
    values = config.to_dict() | {"cluster": config.cluster}
    parts = ("algorithm", "run", "cluster")
    options = {f"{part}.{name}": value for part in parts for name, value in values[part].items()}
    options["environment.options"] = config.environment_options
    if config.origin and config.origin.checksum:
        options["algorithm.from.sha256"] = config.origin.checksum
    if config.checksum:
        options["environment.sha256"] = config.checksum
    return {key: json_text(value) for key, value in options.items() if key not in _NOT_DECIDING}


def changes(now: Mapping[str, str], saved: Mapping[str, str]) -> Diff:
    """Return the options whose values in `now` differ from those in `saved`, which is from a checkpoint."""
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
            f"{folder} was started with other options or files: {changed}. To continue it, give the same options and "
            "restore edited files; or choose another --output."
        )


def changed_since(path: Path, now: dict[str, Any], flat: Callable[[dict[str, Any]], dict[str, str]]) -> str:
    """Return the differences between a YAML file and `now` as text; "" if there are none.

    `flat` flattens both to texts. `run.threads` is ignored. Raises CheckpointError if the file cannot be read.
    """
    try:
        before = flat(read_yaml(path))
    except (OSError, KeyError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise CheckpointError(f"{path} cannot be read ({error!r}): was it changed by hand?") from error
    return sentence({key: pair for key, pair in dict_diff(before, flat(now)).items() if key != "run.threads"})


def _flat(values: dict[str, Any]) -> dict[str, str]:
    """Return the parts of a `config.yaml` that define the run and its code, as flat texts."""
    algorithm = values["algorithm"] | {"from": user_code.algorithm_source(values["algorithm"])}
    environment = {key: values["environment"].get(key) for key in ("id", "options", "sha256")}
    parts = {"algorithm": algorithm, "environment": environment, "run": values["run"]}
    return flat(parts | {"from": networks_source(values)})


# ---------------------------------------------------------------------------------------------------- differences
def flat(values: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Flatten nested dicts to dotted keys with JSON texts: `{"run": {"seed": 1}}` becomes `{"run.seed": "1"}`."""
    texts: dict[str, str] = {}
    for key, value in values.items():
        texts |= (
            flat(value, f"{above}{key}.") if isinstance(value, dict) and value else {f"{above}{key}": json_text(value)}
        )
    return texts


def json_text(value: Any) -> str:
    """Return a value as JSON with sorted keys, so that equal values give equal texts."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def dict_diff(before: Mapping[str, str], now: Mapping[str, str]) -> Diff:
    """Return the old and the new text of every key that differs; a missing key's text is "null"."""
    pairs = {key: (str(before.get(key, "null")), str(now.get(key, "null"))) for key in {**before, **now}}
    return {key: (old, new) for key, (old, new) in pairs.items() if old != new}


def sentence(diff: Diff) -> str:
    """Return the differences as text: `run.steps was 100, is now 200; ...`."""
    return few([f"{key} was {old}, is now {new}" for key, (old, new) in diff.items()], SHOWN, "; ")


# ---------------------------------------------------------------------------------------------------- repeat a run
# `values` may come from a stranger's folder.
def repeat_command(values: Mapping[str, Any], config: str) -> str:
    """Return the command that repeats a run, given the content and the path of its `config.yaml`.

    Return "" if a network is a Python class, which no command can name.
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
    """Return a sentence for each thing that is needed to repeat a run and that its `config.yaml` only names.

    A path is shortened to its last part.
    """
    origin, start = values["algorithm"].get("from") or {}, values.get("from") or {}
    environment, by_object = values["environment"]["id"], values["environment"].get("remakeable") is False
    demonstrations, seeds = values["algorithm"].get("demonstrations"), _seeds(values)
    sentences = {
        f"Networks: {', '.join(_networks(values))} are Python classes; pass them to duetto.train.": _networks(values),
        f"Algorithm: the class {_class(origin)} in {_name(origin.get('file') or 'a file, FILE.py')}.": origin,
        f"Environment: {environment} was a Python object; ENVIRONMENT is its id or FILE.py:NAME.": by_object,
        f"Environment: {user_code.short(environment)}.": ":" in environment and not by_object,
        f"First networks: step {start.get('step')} of the run {_name(start.get('run'))}; give it with --from RUN "
        f"--from-checkpoint {start.get('step')}.": start,
        f"Seeds: {seeds} were trained in one program. --seeds {seeds} repeats its numbers exactly; --seed "
        "repeats them up to rounding.": seeds,
        "Cluster: it ran on Ray actors, which affect its numbers.": values.get("cluster"),
        f"Demonstrations: {_name(demonstrations)}; give them with --demonstrations.": demonstrations,
    }
    return [sentence for sentence, is_needed in sentences.items() if is_needed]


def of_its_history(values: Mapping[str, Any]) -> list[str]:
    """Return sentences on the events in the run's `History`. The options alone do not repeat these events."""
    changed, inexact = (few(events, SHOWN, "; ") for events in History.of(values))
    sentences = {
        f"Changed during the run: {changed}. config.yaml has the new values; to repeat the run, train with the old "
        "values until that step, then resume with the new ones.": changed,
        f"Not repeatable exactly: {inexact}": inexact,
    }
    return [sentence for sentence, happened in sentences.items() if happened]


def _networks(values: Mapping[str, Any]) -> list[str]:
    return [str(key) for key, value in values["algorithm"].items() if isinstance(value, dict) and "custom" in value]


def _seeds(values: Mapping[str, Any]) -> str:
    """Return the seeds that were trained together, in the form of --seeds; "" for a single run."""
    others, seed = values.get("other_seeds"), values["run"].get("seed")
    numbers = [number for number in others if type(number) is int] if isinstance(others, list) else []
    return ",".join(map(str, sorted({*numbers, seed}))) if numbers and type(seed) is int else ""


def _class(origin: Mapping[str, Any]) -> str:
    return str(origin.get("class")).rpartition(".")[2]


def _name(path: object) -> str:
    return Path(str(path)).name
