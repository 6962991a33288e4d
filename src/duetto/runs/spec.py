"""`RunSpec`: everything that defines a new run."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from duetto import buffers, environments, learners
from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.suggestions import did_you_mean
from duetto.cluster import Cluster, check_cluster
from duetto.environments.make_env import Environment
from duetto.errors import UsageError
from duetto.learners.runtime import jax_threads, start_jax, torch_threads
from duetto.presets import Preset, choose, presets_of_file
from duetto.runs.finetune import WarmStart
from duetto.storage import user_code
from duetto.storage.config import Config, RunOptions, circumstances, command_line
from duetto.storage.run_folder import free_folder
from duetto.storage.user_code import Origin

LONGEST = 250  # bytes of a run's name: file systems allow 255, and a number is appended to a name that exists


@dataclass(frozen=True)
class RunSpec:
    """Everything that defines a new run.

    Attributes:
        algorithm: The algorithm with its hyperparameters.
        environment: An id, a Gymnasium environment or vector environment, or a callable that makes environments.
        options: The run's options; `config` resolves "auto" in them.
        preset: The name of the preset that the options come from.
        environment_options: Arguments of the environment's constructor.
        origin: The file of a custom algorithm; None: the algorithm is Duetto's, or its class was passed in Python.
        warm_start: Another run whose networks this one starts with.
        cluster: Where the environments run; None: in this process.
        runs_dir: The folder in which the run's folder is made.
        name: The name of the run's folder; None: algorithm, environment and seed.
    """

    algorithm: Algorithm
    environment: Environment
    options: RunOptions = field(default_factory=RunOptions)
    preset: str = "default"
    environment_options: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    warm_start: WarmStart | None = None
    cluster: Cluster | None = None
    runs_dir: str | Path = "runs"
    name: str | None = None

    def __post_init__(self) -> None:
        check_cluster(self.cluster)

    @classmethod
    def of(
        cls,
        algorithm: Algorithm | type[Algorithm] | str,
        environment: Environment,
        preset: str | None,
        environment_options: Mapping[str, Any] | None,
        options: Mapping[str, Any],
        *,
        caller: str,
        arguments: Sequence[str],
        origin: Origin | None = None,
    ) -> Self:
        """Return the spec that the arguments of `duetto.train`, `sweep` or `tune` describe.

        Args:
            algorithm: A name or a class: the hyperparameters come from the preset, and `options` override them. Or an
                object, which is used unchanged.
            environment: As the attribute `environment` of `RunSpec`.
            preset: The preset's name; None: the preset for this environment or its family, or "default".
            environment_options: Arguments of the environment's constructor; they override the preset's.
            options: Fields of `RunOptions`, and hyperparameters.
            caller: The function or file that has these arguments, for error messages.
            arguments: Names of the caller's other arguments, for suggestions in error messages.
            origin: The file of a custom algorithm. A YAML file next to it may contain presets.

        Raises:
            UsageError: An argument is unknown or does not fit.
        """
        made, name, values = _with_preset(algorithm, environment, preset, options, origin)
        given = {key: value for key, value in options.items() if key not in made.options() or made is algorithm}
        known = [option.name for option in dataclasses.fields(RunOptions)]
        if unknown := next((key for key in given if key not in known), None):
            own, is_object = made.options(), made is algorithm
            meant = did_you_mean(unknown, [*known, *arguments, *(() if is_object else own)])
            if is_object and unknown in own:
                meant = f" It is a hyperparameter: duetto.{type(made).__name__}({unknown}=...)."
            raise UsageError(f"{caller} has no option {unknown!r}.{meant}")
        return cls(
            algorithm=made,
            environment=environment,
            options=RunOptions(**values.run | given),
            preset=name,
            environment_options=values.environment | dict(environment_options or {}),
            origin=origin,
        )

    @property
    def label(self) -> str:
        """The environment's name in `config.yaml`."""
        return label_of(self.environment)

    @property
    def folder_name(self) -> str:
        """The name of the run's folder. If that folder exists, the new folder's name also gets a number."""
        return run_name(self.algorithm, self.label, self.options.seed) if self.name is None else self.name

    def config(self) -> Config:
        """Return the run's config, with values in place of "auto". This makes no folder.

        Raises:
            UsageError: The algorithm, the environment and the options do not fit together.
        """
        is_id, options = isinstance(self.environment, str), dict(self.environment_options)
        config = Config(
            algorithm=self.algorithm,
            environment=self.label,
            run=self._resolved(),
            remakeable=is_id,
            environment_options=options,
            checksum=user_code.checksum(self.label) if is_id else "",
            preset=self.preset,
            command=command_line(),
            versions=circumstances(),
            origin=self.origin or Origin.of(type(self.algorithm)),
        ).signed()
        config.to_yaml()  # raises for options that YAML cannot hold
        return self.warm_start.planned(config) if self.warm_start else config

    def _resolved(self) -> RunOptions:
        """Check the spec on a newly made environment; return the options with "auto" replaced and `threads` set."""
        algorithm, environment, options = self.algorithm, self.environment, self.options
        given = environments.is_instance(environment)
        how: dict[str, Any] = {"num_envs": options.num_envs, "vectorization": options.vectorization} if given else {}
        if environments.is_device(environment) and learners.installed("jax"):
            start_jax(options.threads)  # else the environment starts it with a thread per core
        probe = environments.make(environment, kwargs=dict(self.environment_options), **how)
        if given:  # a vector environment has a fixed number of environments
            options = replace(options, num_envs=probe.num_envs)
        try:
            _check_spaces(algorithm, probe, self.label)
            _check_masks(algorithm, probe, self.label, options.seed)
            if wrapper := environments.running_statistics(next(iter(probe.environments), environment)):
                raise UsageError(
                    f"{self.label} has a {wrapper}. Its running statistics belong to one environment, so evaluations "
                    "and the trained agent would use other statistics. Remove it and use the algorithm's "
                    "normalize_observations or normalize_rewards, or fix its statistics with update_running_mean "
                    "False."
                )
            compiled = options.backend == "auto" and environments.is_device(environment)
            possible: list[learners.Backend] = ["jax"] if compiled else _possible(algorithm)
            wanted = (options.backend, options.device, options.threads)
            backend, device = learners.choose(probe.observation_space, *wanted, possible)
            buffers.check(algorithm.memory(), options.num_envs)
        finally:
            if not given:
                probe.close()
        options = replace(options, backend=backend, device=device)
        if options.threads or device != "cpu":
            return options
        threads = jax_threads() if backend == "jax" else torch_threads(probe.observation_space)
        return replace(options, threads=threads)


def _with_preset(
    algorithm: Algorithm | type[Algorithm] | str,
    environment: Environment,
    preset: str | None,
    options: Mapping[str, Any],
    origin: Origin | None,
) -> tuple[Algorithm, str, Preset]:
    """Return the algorithm, with hyperparameters from the preset and `options`; and the preset's name and values."""
    is_class = isinstance(algorithm, type) and issubclass(algorithm, Algorithm)
    if not (isinstance(algorithm, Algorithm | str) or is_class):
        raise UsageError(
            f"algorithm is {algorithm!r}; it must be a name, such as 'td3', or an algorithm: duetto.TD3()."
        )
    if isinstance(algorithm, Algorithm):
        if preset is not None:
            raise UsageError(
                f"An object has no preset. Pass the algorithm's name: duetto.train({algorithm.name()!r}, ..., "
                f"preset={preset!r})."
            )
        return algorithm, "default", Preset()
    if isinstance(algorithm, str):
        if algorithm not in ALGORITHMS:
            suggested = did_you_mean(algorithm.lower(), ALGORITHMS, "There are")
            raise UsageError(f"There is no algorithm {algorithm!r}.{suggested}")
        algorithm = ALGORITHMS[algorithm]
    own: dict[str, Preset] | None = None
    if algorithm not in ALGORITHMS.values():
        own = presets_of_file(Path(origin.file)) if origin and origin.file else {}
    name, values = choose(algorithm.name(), environment if isinstance(environment, str) else "", preset, own)
    mine = {option: value for option, value in options.items() if option in algorithm.options()}
    return algorithm(**values.algorithm | mine), name, values


# ---------------------------------------------------------------------------------------------------- checks
def _possible(algorithm: Algorithm) -> list[learners.Backend]:
    """Return the frameworks for which every custom network has a class. Raises UsageError if there is none."""
    own = algorithm.custom_networks()
    found: list[learners.Backend] = [
        backend for backend in learners.BACKENDS if all(getattr(one, backend) for one in own.values())
    ]
    if not found:
        listed = ", ".join(f"{name} for {'torch' if one.torch else 'jax'}" for name, one in own.items())
        raise UsageError(f"No framework has all custom networks: {listed}. Give each a class for the same framework.")
    return found


def _check_spaces(algorithm: Algorithm, stepper: environments.VecEnv, label: str) -> None:
    def refusal(candidate: Algorithm) -> UsageError | None:
        try:
            candidate.check_spaces(stepper.observation_space, stepper.action_space, label)
        except UsageError as error:
            return error

    if error := refusal(algorithm):
        others = [name for name, kind in ALGORITHMS.items() if not refusal(kind())]
        listed = bool(others) and algorithm.name() not in others  # else one of its options does not fit
        raise UsageError(f"{error} Algorithms for it: {', '.join(others)}." if listed else str(error)) from error


def _check_masks(algorithm: Algorithm, stepper: environments.VecEnv, label: str, seed: int) -> None:
    """Raise UsageError for masks that the algorithm cannot use. Only a reset shows whether there are masks."""
    try:
        algorithm.check_masks(label)
    except UsageError:
        stepper.reset(seed)
        if stepper.masked:
            raise


# ---------------------------------------------------------------------------------------------------- names
def new_folder(parent: Path, name: str) -> Path:
    """Make a new run's folder. If `name` is taken, append a number. Raises UsageError for an invalid name."""
    check_name(name)
    return free_folder(parent, name)


def check_name(name: str) -> None:
    """Raise UsageError if a run's folder cannot have this name."""
    if not re.fullmatch(r"\w[\w.+-]*", name) or len(os.fsencode(name)) > LONGEST:
        raise UsageError(
            f"{name!r} cannot be a run's name: use letters, digits, '.', '-', '_' and '+', a letter or digit first, "
            f"{LONGEST} bytes at most."
        )


def run_name(algorithm: Algorithm, label: str, seed: int) -> str:
    """Return the default name of a run's folder."""
    return f"{algorithm.name()}-{slug(label)}-s{seed}"


def slug(label: str) -> str:
    """Return a label in a form that folder names allow."""
    return re.sub(r"[^\w.+-]+", "-", user_code.short(label)).strip("-")


def label_of(environment: Any) -> str:
    """Return an environment's name: its id, in which a file's path is absolute; or the name of its class or factory."""
    label = environments.label_of(environment)
    return user_code.absolute(label) if isinstance(environment, str) else label
