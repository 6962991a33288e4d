"""The configuration of a run, and `config.yaml`, from which the run can be repeated."""

from __future__ import annotations

import dataclasses
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.option_bounds import Bounds, Count, CountOrZero, NonNegative, check_fields
from duetto.algorithms.suggestions import nearest
from duetto.cpu import processor
from duetto.errors import CheckpointError, DuettoError, UsageError, near
from duetto.functional import state_schema
from duetto.functional.state_schema import ListOf
from duetto.networks.specs import CustomNetwork
from duetto.storage import atomic_io, signing, user_code
from duetto.storage.resume_history import KEY, History
from duetto.storage.safe_yaml import read_yaml, to_yaml
from duetto.storage.user_code import Origin

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
    "gymnax",
    "playground",
    "navix",
    "safetensors",
)


@dataclass(frozen=True)
class RunOptions:
    """The options of a run that are the same for every algorithm. Steps are agent decisions, over all environments."""

    steps: Count = 1_000_000
    """Total number of steps."""
    seed: Annotated[int, Bounds(0)] = 0
    """Seed of all random numbers. Environment i gets seed + i."""
    backend: Literal["auto", "torch", "jax"] = "auto"
    """Framework; auto selects the faster installed one, or one that finds the GPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of networks and updates."""
    precision: Literal["float32", "bf16"] = "float32"
    """bf16 computes networks in bfloat16 from float32 parameters: faster on some machines, less exact."""
    threads: CountOrZero = 0
    """Threads on a CPU. 0: on JAX one a core; on PyTorch one for vectors, for images one a core, at most 4."""
    num_envs: Count = 1
    """Number of environments."""
    vectorization: Literal["sync", "subprocess"] = "sync"
    """Step environments in one process, or each in its own process."""
    worker_timeout: NonNegative = 300.0
    """With vectorization subprocess: seconds without an answer after which the run ends; 0 waits for ever."""
    evaluate_every: CountOrZero = 5_000
    """Steps between evaluations; 0 turns them off."""
    evaluation_episodes: Count = 10
    """Episodes of each evaluation."""
    checkpoint_every: CountOrZero = 10_000
    """Steps between checkpoints; 0 writes one at the end only."""
    keep: Count = 2
    """Number of newest checkpoints to keep. They share one copy of the replay buffer."""
    log_every: Count = 1_000
    """Steps between two lines of metrics."""
    schedule_steps: CountOrZero = 0
    """Steps after which schedules, such as a learning rate's, reach their end; 0: the run's length."""

    @property
    def horizon(self) -> int:
        """Steps over which schedules run."""
        return self.schedule_steps or self.steps

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Config:
    """Everything that a run is made from: algorithm, environment, options, and the versions of packages."""

    algorithm: Algorithm
    environment: str  # an id, or the description of an object
    run: RunOptions
    remakeable: bool = True  # whether `environment` is an id
    environment_options: dict[str, Any] = field(default_factory=dict)
    preset: str = "default"
    command: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    signature: str | None = None  # of all `references`
    checksum: str = ""  # SHA-256 of the environment's file
    origin: Origin | None = None  # of a custom algorithm
    cluster: dict[str, Any] = field(default_factory=dict)  # the options that decide the numbers; see `cluster.options`
    began_from: dict[str, Any] | None = None  # the run whose networks it started with; see `runs.beginning`
    other_seeds: tuple[int, ...] = ()  # the seeds that were trained in one program with it
    history: History = field(default_factory=History)

    def save(self, path: Path) -> None:
        """Write `config.yaml`, whole or not at all. Raises DuettoError if the disk refuses."""
        try:
            atomic_io.publish_file(path, self.to_yaml().encode())
        except OSError as error:
            raise DuettoError(f"{path} cannot be written: {error.strerror}. Fix that and try again.") from error

    def to_yaml(self) -> str:
        """Return the text of `config.yaml`. Raises UsageError for options that YAML cannot hold."""
        try:
            return to_yaml(self.to_dict())
        except yaml.YAMLError as error:
            raise UsageError(
                f"An option of this run cannot be written to its config.yaml ({error}). Use numbers, texts, lists and "
                "dicts, or pass the environment as a factory that needs no options."
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the config as YAML values, the most important first."""
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
                | ({"sha256": self.checksum} if self.checksum else {}),
                "run": _plain(self.run),
            }
            | ({"cluster": self.cluster} if self.cluster else {})
            | ({"from": self.began_from} if self.began_from else {})
            | ({"other_seeds": list(self.other_seeds)} if self.other_seeds else {})
            | ({KEY: self.history.to_dict()} if self.history != History() else {})
            | ({"signature": self.signature} if self.signature else {})
            | {
                "preset": self.preset,
                "command": self.command,
                "versions": self.versions,
                "format": FORMAT,
            }
        )

    @property
    def references(self) -> list[signing.Reference]:
        """The files, modules and folders of this machine that the config names, which need trust."""
        environment = self.environment if self.remakeable else ""
        return signing.references(
            environment,
            self.environment_options,
            (self.origin.file, self.origin.kind) if self.origin and self.origin.file else None,
            str(self.began_from["run"]) if self.began_from else None,
        )

    def signed(self) -> Config:
        """Return a copy with this user's signature of all references."""
        return dataclasses.replace(self, signature=signing.sign(self.references))

    def check_trust(self, kind: str, where: object, trusted: bool = False) -> None:
        """Raise UsageError unless the reference of this kind may be used; see `signing.check`."""
        signing.check(self.references, self.signature, where, kind, trusted)

    @property
    def lacks_signature(self) -> bool:
        """Whether resuming will need `--trust`, since no key could be made."""
        return bool(self.references) and not self.signature

    @classmethod
    def load(
        cls,
        path: Path,
        networks: dict[str, CustomNetwork] | None = None,
        algorithm: type[Algorithm] | None = None,
        trusted: bool = False,
    ) -> Config:
        """Read `config.yaml`. Raises UsageError or CheckpointError.

        Args:
            path: The file.
            networks: The custom networks of the run, by their options.
            algorithm: The class of a custom algorithm; by default the class in the file that the run was started with.
            trusted: Whether to run that file even if another user started the run.
        """
        if not path.is_file():
            raise UsageError(f"{path.parent} is no run folder: it has no {path.name}.")
        if algorithm is not None and not (isinstance(algorithm, type) and issubclass(algorithm, Algorithm)):
            raise UsageError(f"algorithm is {algorithm!r}; it must be the class of a custom algorithm.")
        if not isinstance(networks, dict | None):
            raise UsageError(f"networks is {networks!r}; they must be networks by their options' names.")
        try:
            values = read_yaml(path)
            return cls._from_values(values, networks or {}, algorithm, trusted)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, OSError, yaml.YAMLError) as error:
            raise CheckpointError(
                f"{path} cannot be read ({_shortened(repr(error))}): was it changed by hand?"
            ) from error

    @classmethod
    def _from_values(
        cls,
        values: dict[str, Any],
        networks: dict[str, CustomNetwork],
        algorithm: type[Algorithm] | None,
        trusted: bool,
    ) -> Config:
        _check(values)
        fields, environment = dict(values["algorithm"]), values["environment"]
        name, origin = fields.pop("name"), fields.pop("from", None)
        origin = Origin.from_dict(origin) if origin else None
        start = values.get("from") or {}
        if algorithm is None and origin and origin.file:  # before the file is run
            named = environment["id"] if environment["remakeable"] else ""
            listed = signing.references(named, environment["options"], (origin.file, origin.kind), start.get("run"))
            signing.check(listed, values.get("signature"), "it", "algorithm", trusted)
        kind, origin = _kind(name, origin, algorithm)
        _check_keys("algorithm.", fields, kind.options())
        run = RunOptions(**values["run"])
        if "auto" in (run.backend, run.device):  # a resumed run needs the original ones
            raise UsageError("run.backend must be torch or jax, and run.device cpu or cuda. Put in what the run used.")
        return cls(
            algorithm=kind().with_options(**_restored(fields, kind().custom_networks() | networks)),
            origin=origin,
            environment=environment["id"],
            environment_options=environment["options"],
            remakeable=environment["remakeable"],
            signature=values.get("signature"),
            checksum=user_code.checksum(environment["id"]) if environment["remakeable"] else "",  # as it is now
            cluster=values.get("cluster") or {},
            began_from=start or None,
            other_seeds=tuple(values.get("other_seeds") or ()),
            history=History.of(values),
            run=run,
            preset=values["preset"],
            command=values["command"],
            versions=values["versions"],
        )


def _kind(name: str, origin: Origin | None, custom: type[Algorithm] | None) -> tuple[type[Algorithm], Origin | None]:
    """Return the algorithm's class, and its origin, which is None for Duetto's algorithms."""
    if custom is not None:
        if custom.name() != name:
            raise UsageError(f"it is of the algorithm {name!r}, and {custom.__qualname__} is {custom.name()!r}.")
        return custom, origin or Origin.of(custom)
    if origin is not None:
        return origin.load()
    if name not in ALGORITHMS:
        raise UsageError(
            f"there is no algorithm {name!r}{_nearest(name, ALGORITHMS)}. Pass the class of a custom "
            "algorithm in Python: duetto.Run(path, algorithm=...)."
        )
    return ALGORITHMS[name], None


FORMAT = 1  # of config.yaml
_KEYS = ("algorithm", "environment", "run", "cluster", "from", "other_seeds", KEY, "signature")
_KEYS += ("preset", "command", "versions", "format")
_LONGEST_ERROR = 60  # characters of an error that another library raised
_FORM: dict[str, Any] = {
    "algorithm": dict,
    "environment": {"id": str, "options": dict, "remakeable": bool},
    "run": dict,
    "preset": str,
    "command": str,
    "versions": dict,
}
_OPTIONAL: dict[str, Any] = {"cluster": dict, "from": {"run": str}, "other_seeds": ListOf(int)}


def check_format(values: dict[str, Any]) -> None:
    """Raise UsageError if `config.yaml` has another format than this version's."""
    if (written := values.get("format", FORMAT)) != FORMAT:
        raise UsageError(f"it has format {written!r}, and this Duetto reads {FORMAT}. Install a newer Duetto.")


def _check(values: dict[str, Any]) -> None:
    """Raise UsageError if a key or a type is wrong, those of the algorithm excepted."""
    _check_keys("", values, _KEYS)
    check_format(values)
    form = _FORM | {name: part for name, part in _OPTIONAL.items() if values.get(name)}
    if fault := state_schema.problem(values, form):
        raise UsageError(f"{fault.lstrip('/ ').replace('/', '.')}. Correct it, or put back what was there.")
    _check_keys("environment.", values["environment"], ("id", "options", "remakeable", "sha256"))
    _check_keys("run.", values["run"], [entry.name for entry in dataclasses.fields(RunOptions)])
    if strange := [key for key in values["environment"]["options"] if not isinstance(key, str)]:
        raise UsageError(f"environment.options has {strange[0]!r}, which is no name of an option. Take it out.")


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
    return f" (did you mean {near[0]!r}?)" if near else f"; there are {', '.join(known)}"


def _shortened(text: str) -> str:
    """Return the start of a text: a file that cannot be read may be any file."""
    return text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]} ..."


def circumstances() -> dict[str, str]:
    """Return the versions of Python and packages, the CPU, and the commit if Duetto runs from a checkout."""
    machine = {"python": platform.python_version(), "platform": platform.platform(), "processor": processor()}
    recorded = machine | versions(RECORDED)
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return recorded
    return recorded | ({"git": commit.stdout.strip()} if commit.returncode == 0 else {})


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    return {package: installed for package in packages if (installed := _version(package))}


@cache
def _version(package: str) -> str:
    """Return the version of a package, or "" if it is not installed. Cached, since that takes 10 ms."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def networks_source(values: dict[str, Any]) -> str:
    """Return where a run's first networks come from: "scratch", or "runs/td3-Pendulum-v1-s0 (last, step 300)".

    Raises KeyError, TypeError or AttributeError if the `from` of these contents of a `config.yaml` is malformed.
    """
    if not (start := values.get("from")):
        return "scratch"
    step = [] if start.get("step") is None else [f"step {start['step']}"]
    return f"{near(Path(start['run']))} ({', '.join([str(start.get('checkpoint')), *step])})"


def command_line() -> str:
    """Return the running command, as it was typed."""
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
                    f"the run has a custom network, {value['custom']}. Pass it in Python: "
                    f"networks={{{name!r}: CustomNetwork(...)}}."
                )
            restored[name] = networks[name]
    return restored
