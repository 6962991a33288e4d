"""The configuration of a run, and `config.yaml`, from which the run can be repeated."""

from __future__ import annotations

import dataclasses
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.options import Bounds, Count, CountOrZero, NonNegative, check_fields
from duetto.algorithms.suggestions import did_you_mean
from duetto.cpu import processor
from duetto.errors import CheckpointError, UsageError, near
from duetto.functional import state_schema
from duetto.functional.state_schema import ListOf, OptionalOf
from duetto.networks.specs import CustomNetwork
from duetto.storage import signing, user_code
from duetto.storage.safe_yaml import read_yaml, to_yaml, write_yaml
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
)


@dataclass(frozen=True)
class RunOptions:
    """The options of a run that do not depend on its algorithm. Steps are actions, summed over all environments."""

    steps: Count = 1_000_000
    """Total number of steps of all environments."""
    seed: Annotated[int, Bounds(0, 10**15)] = 0
    """Seed of all random numbers. Environment i gets seed + i."""
    backend: Literal["auto", "torch", "jax"] = "auto"
    """Framework. auto: the faster installed framework for the environment; with a GPU, among those that detect it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of networks and updates."""
    precision: Literal["float32", "bf16"] = "float32"
    """bf16 computes networks in bfloat16 from float32 parameters: faster on some machines, less exact."""
    threads: CountOrZero = 0
    """CPU threads. 0: in JAX one per core; in PyTorch one, or for image observations one per core (at most 4)."""
    num_envs: Count = 1
    """Number of environments."""
    vectorization: Literal["sync", "subprocess"] = "sync"
    """sync: all environments in one process; subprocess: each in its own."""
    worker_timeout: NonNegative = 300.0
    """Seconds without an answer after which an environment's process counts as dead; 0 waits forever."""
    evaluate_every: CountOrZero = 5_000
    """Steps between evaluations; 0 turns them off."""
    evaluation_episodes: Count = 10
    """Episodes of each evaluation."""
    checkpoint_every: CountOrZero = 10_000
    """Steps between checkpoints; 0 writes one at the end only."""
    keep: Count = 2
    """Number of newest checkpoints to keep. They share one copy of the replay buffer."""
    log_every: Count = 1_000
    """Steps between two lines of `metrics.jsonl`."""
    schedule_steps: CountOrZero = 0
    """Steps after which schedules, such as learning rate decay, reach their end; 0: the length of the run."""

    @property
    def horizon(self) -> int:
        """Number of steps after which schedules reach their end."""
        return self.schedule_steps or self.steps

    def __post_init__(self) -> None:
        check_fields(self)


class Event(NamedTuple):
    """A change of a run, or an inexact resume, at a step (see `History`)."""

    step: int
    what: str

    def __str__(self) -> str:
        return f"step {self.step:,}: {self.what}"


class History(NamedTuple):
    """Events during a run that its options do not record. With such events, the options alone do not repeat the run.

    Attributes:
        changed: Options, files or schedules that changed at a step.
        inexact: Steps at which the run was not resumed exactly, and why.
    """

    changed: tuple[Event, ...] = ()
    inexact: tuple[Event, ...] = ()

    def after_resume(self, step: int, changed: Iterable[str], inexact: Iterable[str]) -> History:
        """Return the history after a resume at `step`: without events after `step`, and with the given new events."""
        kept = ([event for event in events if event.step <= step] for events in self)
        new = ([Event(step, what) for what in sentences] for sentences in (changed, inexact))
        return History(*(tuple(dict.fromkeys(old + events)) for old, events in zip(kept, new, strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """Return the history as YAML values, without empty lists."""
        return {name: [event._asdict() for event in events] for name, events in self._asdict().items() if events}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> History:
        """Read the history from the contents of a `config.yaml`. Raises UsageError if it is malformed."""
        content = values.get("history") or {}
        lists = {"changed": [], "inexact": []} | content if isinstance(content, dict) else content
        if fault := state_schema.problem(lists, dict.fromkeys(cls._fields, ListOf({"step": int, "what": str}))):
            raise UsageError(f"history{fault}; it must be events (step and what) of a run. Remove it.")
        return cls(*(tuple(Event(event["step"], event["what"]) for event in lists[name]) for name in cls._fields))


@dataclass(frozen=True)
class Config:
    """The configuration of a run: algorithm, environment, options, and the versions of packages."""

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
    cluster: dict[str, Any] = field(default_factory=dict)  # options that affect results; see `cluster.config`
    began_from: dict[str, Any] | None = None  # the run whose networks this run started with; see `runs.finetune`
    other_seeds: tuple[int, ...] = ()  # further seeds that were trained in the same program
    history: History = field(default_factory=History)

    def save(self, path: Path) -> None:
        """Write `config.yaml` completely or not at all. Raises DuettoError if writing fails."""
        write_yaml(path, self.to_yaml())

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
        origin = {"from": self.origin.to_dict()} if self.origin else {}
        environment = {"id": self.environment, "options": self.environment_options, "remakeable": self.remakeable}
        optional = {
            "cluster": self.cluster,
            "from": self.began_from,
            "other_seeds": list(self.other_seeds),
            "history": self.history.to_dict(),
            "signature": self.signature,
        }
        return {
            "algorithm": {"name": self.algorithm.name()} | origin | _plain(self.algorithm),
            "environment": environment | ({"sha256": self.checksum} if self.checksum else {}),
            "run": _plain(self.run),
            **{name: value for name, value in optional.items() if value},
            "preset": self.preset,
            "command": self.command,
            "versions": self.versions,
            "format": FORMAT,
        }

    @property
    def references(self) -> list[signing.Reference]:
        """The files, modules and folders that the config names; they are used only if trusted."""
        return _references(self.to_dict(), self.origin)

    def signed(self) -> Config:
        """Return a copy with this user's signature of all code and folders that the config names (`signing`)."""
        return dataclasses.replace(self, signature=signing.sign(self.references))

    def check_trust(self, kind: str, where: object, trusted: bool = False) -> None:
        """Raise UsageError unless the config's reference of this kind may be used; see `signing.check`."""
        signing.check(self.references, self.signature, where, kind, trusted)

    @property
    def lacks_signature(self) -> bool:
        """Whether the config has references but no signature, such as when no signing key can be created or read.

        Resuming the run then needs `--trust`.
        """
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
            networks: The custom networks of the run, by option name.
            algorithm: The class of a custom algorithm; by default the class in the file that the run was started with.
            trusted: Whether to run the algorithm's file even if another user started the run.
        """
        if not path.is_file():
            raise UsageError(f"{path.parent} is no run folder: it has no {path.name}.")
        try:
            values = _checked(read_yaml(path))
            fields, environment = dict(values["algorithm"]), values["environment"]
            name, origin = fields.pop("name"), fields.pop("from", None)
            origin = Origin.from_dict(origin) if origin else None
            file = environment["id"] if environment["remakeable"] else ""
            if algorithm is None and origin:  # before `_kind` runs the file
                signing.check(_references(values, origin), values["signature"], "it", "algorithm", trusted)
            kind, origin = _kind(name, origin, algorithm)
            _check_keys("algorithm.", fields, kind.options())
            run = RunOptions(**values["run"])
            if "auto" in (run.backend, run.device):  # a resumed run needs the original ones
                raise UsageError(
                    "run.backend must be torch or jax, and run.device cpu or cuda. Restore the run's values."
                )
            return cls(
                algorithm=kind().with_options(**_restored(fields, kind().custom_networks() | (networks or {}))),
                origin=origin,
                environment=environment["id"],
                environment_options=environment["options"],
                remakeable=environment["remakeable"],
                checksum=user_code.checksum(file),  # as it is now
                began_from=values["from"],
                other_seeds=tuple(values["other_seeds"]),
                history=History.of(values),
                run=run,
                **{name: values[name] for name in ("signature", "cluster", "preset", "command", "versions")},
            )
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, OSError, yaml.YAMLError) as error:
            raise CheckpointError(f"{path} cannot be read ({repr(error)[:60]}): was it changed by hand?") from error


def _references(values: dict[str, Any], origin: Origin | None) -> list[signing.Reference]:
    """Return the files, modules and folders that the contents of a `config.yaml` name (see `signing`)."""
    environment, start = values["environment"], values.get("from")
    algorithm = (origin.file, origin.kind) if origin and origin.file else None
    name = environment["id"] if environment["remakeable"] else ""
    return signing.references(name, environment["options"], algorithm, str(start["run"]) if start else None)


def _kind(name: str, origin: Origin | None, custom: type[Algorithm] | None) -> tuple[type[Algorithm], Origin | None]:
    """Return the algorithm's class, and its origin, which is None for Duetto's algorithms."""
    if custom is not None:
        if custom.name() != name:
            raise UsageError(f"its algorithm is {name!r}, but {custom.__qualname__} is {custom.name()!r}.")
        return custom, origin or Origin.of(custom)
    if origin is not None:
        if not origin.file:
            raise UsageError(
                f"its algorithm is {origin.kind}, a class that was passed in Python. Pass it again: "
                f"duetto.Run(path, algorithm={origin.kind.rpartition('.')[2]})."
            )
        return user_code.named(f"{origin.file}:{origin.kind}")
    if name not in ALGORITHMS:
        raise UsageError(
            f"there is no algorithm {name!r}.{did_you_mean(name, ALGORITHMS, 'Duetto has')} Pass the class of a custom "
            "algorithm in Python: duetto.Run(path, algorithm=...)."
        )
    return ALGORITHMS[name], None


FORMAT = 1  # of config.yaml
_FORM: dict[str, Any] = {
    "algorithm": dict,
    "environment": {"id": str, "options": dict, "remakeable": bool},
    "run": dict,
    "cluster": dict,
    "from": OptionalOf({"run": str}),
    "other_seeds": ListOf(int),
    "preset": str,
    "command": str,
    "versions": dict,
}
_DEFAULTS: dict[str, Any] = {
    "cluster": {},
    "from": None,
    "other_seeds": [],
    "history": {},
    "signature": None,
    "format": FORMAT,
}


def check_format(values: dict[str, Any]) -> None:
    """Raise UsageError if `config.yaml` has a format that this version of Duetto cannot read."""
    if (written := values.get("format", FORMAT)) != FORMAT:
        raise UsageError(f"it has format {written!r}, and this Duetto reads {FORMAT}. Install a newer Duetto.")


def _checked(values: Any) -> dict[str, Any]:
    """Return the values with defaults. Raises UsageError for a wrong key or type, except in `algorithm`."""
    _check_keys("", values, _FORM | _DEFAULTS)
    check_format(values)
    values = _DEFAULTS | values
    if fault := state_schema.problem(values, _FORM):
        raise UsageError(f"{fault.lstrip('/ ').replace('/', '.')}. Correct it, or restore the original value.")
    _check_keys("environment.", values["environment"], ("id", "options", "remakeable", "sha256"))
    _check_keys("run.", values["run"], [entry.name for entry in dataclasses.fields(RunOptions)])
    if strange := [key for key in values["environment"]["options"] if not isinstance(key, str)]:
        raise UsageError(f"environment.options has {strange[0]!r}, which cannot be the name of an option. Remove it.")
    return values


def _check_keys(where: str, values: Any, known: Iterable[str]) -> None:
    """Raise UsageError for an unknown key, such as a misspelled one, which would have no effect."""
    if not isinstance(values, dict):
        raise TypeError(f"{values!r} instead of a mapping")
    for key in values:
        if key not in known:
            raise UsageError(
                f"the key {where}{key} is unknown.{did_you_mean(key, known)} Correct it, or remove it. "
                "If another version of Duetto wrote the file, use the command that the file contains."
            )


def circumstances() -> dict[str, str]:
    """Return the versions of Python and packages, the CPU, and the commit if Duetto runs from a checkout."""
    machine = {"python": platform.python_version(), "platform": platform.platform(), "processor": processor()}
    recorded = machine | versions(RECORDED)
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    with suppress(OSError, subprocess.SubprocessError):
        recorded["git"] = subprocess.run(git, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    return recorded


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    return {package: installed for package in packages if (installed := _version(package))}


@cache
def _version(package: str) -> str:
    """Return the version of a package, or "" if it is not installed. Cached, because a look-up takes 10 ms."""
    with suppress(PackageNotFoundError):
        return version(package)
    return ""


def note_inexact(path: Path, step: int, what: str) -> None:
    """Record in `config.yaml`, if it exists, that the run cannot be repeated exactly from `step` on.

    `what` says why. Raises DuettoError if writing fails.
    """
    if path.is_file():
        values = read_yaml(path)
        history = History.of(values).after_resume(step, (), (what,))
        write_yaml(path, to_yaml(values | {"history": history.to_dict()}))


def networks_source(values: dict[str, Any]) -> str:
    """Return the source of a run's initial networks: "scratch", or a run and its checkpoint.

    An example is "runs/td3-Pendulum-v1-s0 (last, step 300)". `values` is the content of a `config.yaml`. Raises
    KeyError, TypeError or AttributeError if its `from` is malformed.
    """
    start = values.get("from")
    return f"{near(Path(start['run']))} ({start['checkpoint']}, step {start['step']})" if start else "scratch"


def command_line() -> str:
    """Return the running command, as it was typed."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv else ""


def _plain(options: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as YAML values."""
    values = {entry.name: getattr(options, entry.name) for entry in dataclasses.fields(options)}
    for name, value in values.items():
        if isinstance(value, CustomNetwork):
            pair = {"torch": value.torch, "jax": value.jax}
            classes = {name: kind and kind.__qualname__ for name, kind in pair.items()}  # a module's name may change
            values[name] = {"custom": classes | {"arguments": value.arguments}}
        elif isinstance(value, tuple):
            values[name] = list(value)
    return values


def _restored(fields: dict[str, Any], networks: dict[str, CustomNetwork]) -> dict[str, Any]:
    """Return an algorithm's options, with each custom network replaced by the one that was passed in Python."""
    restored = dict(fields)
    for name, value in fields.items():
        if isinstance(value, dict) and "custom" in value:
            if name not in networks:  # importing the class by its recorded name would run code that a stranger chose
                raise UsageError(
                    f"the run has a custom network, {value['custom']}. Pass it in Python: "
                    f"networks={{{name!r}: CustomNetwork(...)}}."
                )
            restored[name] = networks[name]
    return restored
