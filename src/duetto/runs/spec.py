"""`RunSpec`: everything that a new run is started from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from duetto import environments
from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.suggestions import did_you_mean
from duetto.cluster import Cluster
from duetto.environments.make_env import Environment
from duetto.errors import UsageError
from duetto.presets import Preset, beside, choose
from duetto.runs.argument_checks import check_kinds, hint
from duetto.runs.finetune import WarmStart
from duetto.runs.run_config import label_of, resolved, run_name
from duetto.storage import user_code
from duetto.storage.config import Config, RunOptions, circumstances, command_line
from duetto.storage.user_code import Origin


@dataclass(frozen=True)
class RunSpec:
    """Everything that a new run is started from.

    Attributes:
        algorithm: The algorithm with its hyper-parameters.
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
            algorithm: A name or a class, with its preset and `options` on top of it; or an object, taken as it is.
            environment: As `environment` of the spec.
            preset: Its name; None: the environment's own, or "default".
            environment_options: On top of the preset's.
            options: Fields of `RunOptions`, and hyper-parameters.
            caller: The function or file that has these arguments, for errors.
            arguments: The caller's other arguments, for errors.
            origin: The file of the algorithm; its presets are in the same folder.

        Raises:
            UsageError: An argument is unknown or does not fit.
        """
        check_kinds(preset=preset, environment_options=environment_options)
        made, name, values = _with_preset(algorithm, environment, preset, options, origin)
        given = {key: value for key, value in options.items() if key not in made.options() or made is algorithm}
        known = [option.name for option in dataclasses.fields(RunOptions)]
        if unknown := next((key for key in given if key not in known), None):
            meant = hint(unknown, made, arguments, known, is_object=made is algorithm)
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
        """The name of the run's folder, to which a number is added if it is taken."""
        return run_name(self.algorithm, self.label, self.options.seed) if self.name is None else self.name

    def with_seed(self, seed: int) -> Self:
        """Return a copy with another seed."""
        return replace(self, options=replace(self.options, seed=seed))

    def config(self) -> Config:
        """Return the run's config, with the options that "auto" stands for. Nothing is written.

        Raises:
            UsageError: The parts do not fit together.
        """
        environments.leave_if_begun_again()
        is_id, options = isinstance(self.environment, str), dict(self.environment_options)
        config = Config(
            algorithm=self.algorithm,
            environment=self.label,
            run=resolved(self.algorithm, self.environment, self.label, self.options, options),
            remakeable=is_id,
            environment_options=options,
            checksum=user_code.checksum(self.label) if is_id else "",
            preset=self.preset,
            command=command_line(),
            versions=circumstances(),
            origin=self.origin or Origin.of(type(self.algorithm)),
        ).signed()
        config.to_yaml()  # raises for options that it cannot hold
        return self.warm_start.planned(config) if self.warm_start else config


def _with_preset(
    algorithm: Algorithm | type[Algorithm] | str,
    environment: Environment,
    preset: str | None,
    options: Mapping[str, Any],
    origin: Origin | None,
) -> tuple[Algorithm, str, Preset]:
    """Make the algorithm with the preset's hyper-parameters and those in `options`; return the preset too."""
    is_class = isinstance(algorithm, type) and issubclass(algorithm, Algorithm)
    if not (isinstance(algorithm, Algorithm | str) or is_class):
        raise UsageError(
            f"algorithm is {algorithm!r}; it must be a name, such as 'td3', or an algorithm: duetto.TD3()."
        )
    if isinstance(algorithm, Algorithm):
        if preset is not None:
            raise UsageError(
                f"A preset is for an algorithm that is named: duetto.train({algorithm.name()!r}, ..., "
                f"preset={preset!r}). An object is taken as it is."
            )
        return algorithm, "default", Preset()
    if isinstance(algorithm, str):
        if algorithm not in ALGORITHMS:
            suggested = did_you_mean(algorithm.lower(), ALGORITHMS, "There are")
            raise UsageError(f"There is no algorithm {algorithm!r}.{suggested}")
        algorithm = ALGORITHMS[algorithm]
    own: dict[str, Preset] | None = None
    if algorithm not in ALGORITHMS.values():
        own = beside(Path(origin.file)) if origin and origin.file else {}
    name, values = choose(algorithm.name(), environment if isinstance(environment, str) else "", preset, own)
    mine = {option: value for option, value in options.items() if option in algorithm.options()}
    return algorithm(**values.algorithm | mine), name, values
