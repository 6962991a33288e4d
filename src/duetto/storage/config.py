"""The full description of a run: `config.yaml` holds it, and from that file alone the run can be made again."""

from __future__ import annotations

import dataclasses
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml

from duetto import own_files
from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.fields import Count, CountOrZero, NonNegative, Within, check_fields
from duetto.algorithms.nearest import nearest, units
from duetto.errors import CheckpointError, DuettoError, UsageError
from duetto.networks.specs import CustomNetwork
from duetto.processor import processor
from duetto.storage import disk, trust
from duetto.storage.history import KEY, History
from duetto.storage.migration import FORMAT, migrated
from duetto.storage.origin import Origin
from duetto.storage.yaml_files import read_yaml, to_yaml

RECORDED = (
    "duetto",
    "numpy",
    "gymnasium",
    "torch",
    "jax",
    "equinox",
    "optax",
    "mujoco",
    "ale-py",
    "opencv-python-headless",
    "pybullet",
    "safetensors",
)


@dataclass(frozen=True)
class RunOptions:
    """The options of a run that are the same for every algorithm. Steps are agent decisions, over all environments."""

    steps: Count = 1_000_000
    """Steps in all."""
    seed: Annotated[int, Within(0)] = 0
    """Seed of everything random; environment i gets seed + i, evaluation gets its own."""
    backend: Literal["auto", "torch", "jax"] = "auto"
    """Framework; auto takes the measured faster one of those installed, for a GPU one that sees it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where learning runs."""
    precision: Literal["float32", "bf16"] = "float32"
    """bf16 computes networks in bfloat16 from float32 parameters: faster on some machines, less exact."""
    threads: CountOrZero = 0
    """Threads on a CPU. 0: on JAX one a core; on PyTorch as many as help without changing a number."""
    learners: Count = 1
    """Processes (JAX without a cluster: devices) that share each batch equally; the same numbers, to rounding."""
    act_behind: bool = False
    """Act in NumPy with parameters one step old while the next update is made: faster, and not the same numbers."""
    num_envs: Count = 1
    """Environments stepped side by side."""
    vectorization: Literal["sync", "subprocess"] = "sync"
    """Step them one after another, or each in a process of its own."""
    worker_timeout: NonNegative = 300.0
    """With vectorization subprocess: seconds without an answer after which the run ends; 0 waits for ever."""
    engine: Literal["auto", "native", "gymnasium", "envpool"] = "auto"
    """Who makes the environments; auto takes ale-py's own vector environment for Atari, Gymnasium for all others."""
    evaluate_every: CountOrZero = 5_000
    """Steps between evaluations; 0 turns them off."""
    evaluation_episodes: Count = 10
    """Episodes of each evaluation."""
    checkpoint_every: CountOrZero = 10_000
    """Steps between checkpoints; 0 writes one at the end only."""
    keep: Count = 2
    """How many of the newest checkpoints are kept; they share one copy of the replay memory."""
    log_every: Count = 1_000
    """Steps between two lines of metrics."""
    schedule_steps: CountOrZero = 0
    """Steps after which schedules, such as a learning rate's, reach their end; 0: the run's length."""

    @property
    def horizon(self) -> int:
        """See `schedule_steps`."""
        return self.schedule_steps or self.steps

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Config:
    """Everything that a run is made from, and the circumstances that it was made in."""

    algorithm: Algorithm
    environment: str  # an id, or a description of what was handed over
    run: RunOptions
    remakeable: bool = True  # whether `environment` is an id, from which it can be made again
    environment_options: dict[str, Any] = field(default_factory=dict)
    preset: str = "default"
    command: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    signature: str | None = None  # of the environment, where making it imports what it names; see `trust`
    checksum: str = ""  # SHA-256 of the environment's file, or the fingerprint of the function or class that makes it
    origin: Origin | None = None  # of an algorithm that is not Duetto's own
    networks: dict[str, str] = field(default_factory=dict)  # fingerprints of a user's own, when the run was begun
    cluster: dict[str, Any] = field(default_factory=dict)  # what of one decides the numbers; see `cluster.options`
    began_from: dict[str, Any] | None = None  # another run, whose networks it began with; see `runs.beginning`
    beside: tuple[int, ...] = ()  # seeds that were computed in one program with it
    history: History = field(default_factory=History)

    def save(self, path: Path) -> None:
        """Write `config.yaml`, whole or not at all. Raises DuettoError if the disk refuses."""
        try:
            disk.publish_file(path, self.to_yaml().encode())
        except OSError as error:
            raise DuettoError(f"{path} cannot be written: {error.strerror}. Put that right and try again.") from error

    def to_yaml(self) -> str:
        """The contents of `config.yaml`. Raises UsageError for options that it cannot hold."""
        try:
            return to_yaml(self.to_dict())
        except yaml.YAMLError as error:
            raise UsageError(
                f"An option of this run cannot be written to its config.yaml ({error}). Use numbers, texts, lists and "
                "dicts, or hand over the environment as a factory that needs no options."
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """The config as YAML values, in the order in which a person would want to read them."""
        return (
            {
                "algorithm": {"name": self.algorithm.name()}
                | ({"from": self.origin.to_dict()} if self.origin else {})
                | _plain(self.algorithm),
                "environment": {
                    "id": self.environment,
                    "options": self.environment_options,
                    "remakeable": self.remakeable,
                }
                | ({"sha256": self.checksum} if self.checksum else {})
                | ({"signature": self.signature} if self.signature else {}),
                "run": _plain(self.run),
            }
            | ({"networks": self.networks} if self.networks else {})
            | ({"cluster": self.cluster} if self.cluster else {})
            | ({"from": self.began_from} if self.began_from else {})
            | ({"beside": list(self.beside)} if self.beside else {})
            | ({KEY: self.history.to_dict()} if self.history != History() else {})
            | {
                "preset": self.preset,
                "command": self.command,
                "versions": self.versions,
                "format": FORMAT,
            }
        )

    def signed(self) -> Config:
        """A copy with this user's signatures: of the code of environment and algorithm, of the run it begins from."""
        environment = trust.signature(self.environment, self.environment_options) if self.remakeable else None
        began = self.began_from and self.began_from | {"signature": trust.folder_signature(str(self.began_from["run"]))}
        origin = self.origin and self.origin.signed()
        return dataclasses.replace(self, signature=environment, origin=origin, began_from=began)

    @property
    def lacks_signature(self) -> bool:
        """Whether resuming will need `--trust`, since no key could be made."""
        named = self.remakeable and trust.needs_trust(self.environment, self.environment_options)
        return bool(
            (named and not self.signature)
            or (self.origin and self.origin.file and not self.origin.signature)
            or (self.began_from and not self.began_from.get("signature"))
        )

    @classmethod
    def load(
        cls,
        path: Path,
        networks: dict[str, CustomNetwork] | None = None,
        algorithm: type[Algorithm] | None = None,
        trusted: bool = False,
    ) -> Config:
        """Read `config.yaml`. A run with networks of the user's own needs them handed over as `networks`.

        An algorithm of the user's own is handed over as its class, or comes from the file that the run was started
        with: that file is executed, if this user began the run, or with `trusted`.
        """
        if not path.is_file():
            raise UsageError(f"{path.parent} is no run folder: it has no {path.name}.")
        if algorithm is not None and not (isinstance(algorithm, type) and issubclass(algorithm, Algorithm)):
            raise UsageError(f"algorithm is {algorithm!r}; it must be the class of one that is not Duetto's own.")
        if not isinstance(networks, dict | None):
            raise UsageError(f"networks is {networks!r}; they must be networks by their options' names.")
        try:
            values = read_yaml(path)
            return cls._from_values(
                values, networks or {}, lambda name, origin: _kind(name, origin, algorithm, trusted)
            )
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, OSError, yaml.YAMLError) as error:
            raise CheckpointError(
                f"{path} cannot be read ({_shortened(repr(error))}): was it changed by hand?"
            ) from error

    @classmethod
    def _from_values(cls, values: dict[str, Any], networks: dict[str, CustomNetwork], find: Finder) -> Config:
        _check_keys("", values, _KEYS)
        values = migrated(values)
        fields, environment = dict(values["algorithm"]), values["environment"]
        name, origin = fields.pop("name"), fields.pop("from", None)
        kind, origin = find(name, origin and Origin.from_dict(origin))
        _check_keys("algorithm.", fields, kind.options())
        began, cluster = _checked(values)
        run = RunOptions(**values["run"])
        if "auto" in (run.backend, run.device):  # what it was made with decides how it goes on
            raise UsageError("run.backend must be torch or jax, and run.device cpu or cuda. Put in what the run used.")
        return cls(
            algorithm=kind().with_options(**_restored(fields, kind().custom_networks() | networks)),
            origin=origin,
            environment=environment["id"],
            environment_options=environment["options"],
            remakeable=environment["remakeable"],
            signature=environment.get("signature"),
            # Of a file as it is now; a function or class that was handed over is not here.
            checksum=own_files.checksum(environment["id"])
            if environment["remakeable"]
            else str(environment.get("sha256", "")),
            networks=values.get("networks") or {},
            cluster=cluster,
            began_from=began or None,
            beside=tuple(values.get("beside") or ()),
            history=History.of(values),
            run=run,
            preset=values["preset"],
            command=values["command"],
            versions=values["versions"],
        )


Finder = Callable[[str, Origin | None], tuple[type[Algorithm], Origin | None]]


def _kind(
    name: str, origin: Origin | None, given: type[Algorithm] | None, trusted: bool
) -> tuple[type[Algorithm], Origin | None]:
    """The algorithm's class of that name, and its origin; None for one of Duetto's own."""
    if given is not None:
        if given.name() != name:
            raise UsageError(f"it is of the algorithm {name!r}, and {given.__qualname__} is {given.name()!r}.")
        return given, origin or Origin.of(given)
    if origin is not None:
        return origin.load("it", trusted)
    if name not in ALGORITHMS:
        raise UsageError(
            f"there is no algorithm {name!r}{_nearest(name, ALGORITHMS)}. If it is one of your own, hand its class "
            "over in Python: duetto.Run(path, algorithm=...)."
        )
    return ALGORITHMS[name], None


_MOST = 60  # characters of what was found instead
_ENVIRONMENT = {
    "id": (str, "a text"),
    "options": (dict, "options by their names"),
    "remakeable": (bool, "true or false"),
}


_KEYS = ("algorithm", "environment", "run", "networks", "cluster", "from", "beside", KEY)
_KEYS += ("preset", "command", "versions", "format")
_SAID = {"preset": (str, "a name"), "command": (str, "a text"), "versions": (dict, "versions by package")}


def _checked(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a run began from, and its cluster's options. UsageError if a key other than the algorithm's is wrong."""
    environment = values["environment"]
    _check_keys("environment.", environment, ("id", "options", "remakeable", "sha256", "signature"))
    for key, (form, wanted) in _ENVIRONMENT.items():
        if not isinstance(environment[key], form):
            raise UsageError(f"environment.{key} is {environment[key]!r}; it must be {wanted}.")
    if strange := [key for key in environment["options"] if not isinstance(key, str)]:
        raise UsageError(f"environment.options has {strange[0]!r}, which is no name of an option. Take it out.")
    for key, (form, wanted) in _SAID.items():
        if not isinstance(values[key], form):
            raise UsageError(f"{key} is {values[key]!r}; it must be {wanted}.")
    _check_keys("run.", values["run"], [entry.name for entry in dataclasses.fields(RunOptions)])
    if not isinstance(began := values.get("from") or {}, dict) or (began and not isinstance(began.get("run"), str)):
        raise UsageError(f"from is {began!r}; it must be what a run began with: run (its folder), checkpoint, step.")
    if not _seeds(values.get("beside") or []):
        raise UsageError(f"beside is {values['beside']!r}; it must be a list of seeds.")
    if not isinstance(cluster := values.get("cluster") or {}, dict):
        raise UsageError(f"cluster is {cluster!r}; it must be options by their names.")
    return began, cluster


def _seeds(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in given)


def _check_keys(where: str, values: dict[str, Any], known: Iterable[str]) -> None:
    """Raise UsageError for an unknown key: the mistake would go unnoticed. Keys that are left out have defaults."""
    if not isinstance(values, dict):
        raise TypeError(f"{values!r} where keys should be")
    for key in values:
        if key not in known:
            raise UsageError(f"nothing is called {where}{key}{_nearest(key, known)}. Correct it, or take it out.")


def _nearest(name: Any, known: Iterable[str]) -> str:
    known = list(known)
    near = nearest(name, known)
    return f" (did you mean {near[0]!r}{units(str(name))}?)" if near else f"; there are {', '.join(known)}"


def _shortened(text: str) -> str:
    """The text, cut to what a sentence can hold: a file that cannot be read may be any file."""
    return text if len(text) <= _MOST else f"{text[:_MOST]} ..."


def circumstances() -> dict[str, str]:
    """The versions of Python and packages that matter, the processor, and the commit if Duetto runs from a checkout."""
    own = {"python": platform.python_version(), "platform": platform.platform(), "processor": str(processor())}
    found = own | versions(RECORDED)
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return found
    return found | ({"git": commit.stdout.strip()} if commit.returncode == 0 else {})


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those of these packages that are installed."""
    return {package: found for package in packages if (found := _version(package))}


@cache
def _version(package: str) -> str:
    """The version of a package, "" if it is not installed; looked up once, as that takes 10 ms."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def command_line() -> str:
    """The command that is running, as a person would type it."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv else ""


def _plain(value: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in (entry.name for entry in dataclasses.fields(value)):
        held = getattr(value, name)
        if isinstance(held, CustomNetwork):
            held = {"custom": {kind: _qualified(getattr(held, kind)) for kind in ("torch", "jax")} | {"arguments": ...}}
            held["custom"]["arguments"] = getattr(value, name).arguments
        held = held.item() if isinstance(held, np.generic) else held
        fields[name] = list(held) if isinstance(held, tuple) else held
    return fields


def _qualified(network: type | None) -> str | None:
    return f"{network.__module__}.{network.__qualname__}" if network else None


def _restored(fields: dict[str, Any], networks: dict[str, CustomNetwork]) -> dict[str, Any]:
    restored = dict(fields)
    for name, value in fields.items():
        if isinstance(value, dict) and "custom" in value:
            if name not in networks:  # importing the class by its recorded name would run a stranger's choice of code
                raise UsageError(
                    f"the run has a network of its own, {value['custom']}. Hand it over in Python: "
                    f"networks={{{name!r}: CustomNetwork(...)}}."
                )
            restored[name] = networks[name]
    return restored
