"""Plans of a new run before anything is written: its config, and its folder's name."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from duetto import buffers, environments, learners
from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.suggestions import did_you_mean
from duetto.errors import UsageError
from duetto.learners.runtime import jax_threads, torch_threads
from duetto.storage import user_code
from duetto.storage.config import Config, RunOptions, circumstances, command_line
from duetto.storage.run_folder import free_folder
from duetto.storage.user_code import Origin
from duetto.training.evaluator import check_same_spaces

LONGEST = 250  # bytes of a run's name: file systems take 255, and one that is taken gets a number behind it


def planned(
    algorithm: Algorithm,
    environment: Any,
    options: RunOptions,
    preset: str = "default",
    environment_options: dict[str, Any] | None = None,
    origin: Origin | None = None,
) -> Config:
    """The config of a new run; nothing is written.

    Raises UsageError if the parts do not fit together.
    """
    environments.leave_if_begun_again()
    label = label_of(environment)
    config = Config(
        algorithm=algorithm,
        environment=label,
        run=_resolved(algorithm, environment, label, options, environment_options or {}),
        remakeable=isinstance(environment, str),
        environment_options=environment_options or {},
        checksum=user_code.checksum(label) if isinstance(environment, str) else "",
        preset=preset,
        command=command_line(),
        versions=circumstances(),
        origin=origin or Origin.of(type(algorithm)),
    ).signed()
    config.to_yaml()  # what it cannot hold shows now
    return config


def changed(config: Config, options: Mapping[str, Any]) -> Config:
    """A copy with other values of hyper-parameters and of the run's options. UsageError if one is neither."""
    run = {field.name for field in dataclasses.fields(RunOptions)} & options.keys()
    own = config.algorithm.options()
    if unknown := next((name for name in options if name not in own and name not in run), None):
        known = [*own, *(field.name for field in dataclasses.fields(RunOptions))]
        raise UsageError(f"resume has no option {unknown!r}.{did_you_mean(unknown, known)}")
    algorithm = config.algorithm.with_options(**{name: options[name] for name in options if name in own})
    ours = dataclasses.replace(config.run, **{name: options[name] for name in run})
    elsewhere = (ours.backend, ours.device) != (config.run.backend, config.run.device)
    if elsewhere and "threads" not in options:  # those of the other framework, or of none
        ours = dataclasses.replace(ours, threads=jax_threads() if (ours.backend, ours.device) == ("jax", "cpu") else 0)
    if "auto" in (ours.backend, ours.device):
        raise UsageError("A run goes on with the backend and the device that it has: give torch or jax, cpu or cuda.")
    return dataclasses.replace(config, algorithm=algorithm, run=ours)


def _resolved(
    algorithm: Algorithm, environment: Any, label: str, options: RunOptions, kwargs: dict[str, Any]
) -> RunOptions:
    """Check everything that needs an environment, and return the options without "auto", with a number of threads."""
    given = environments.is_instance(environment)
    how: dict[str, Any] = {"num_envs": options.num_envs, "vectorization": options.vectorization} if given else {}
    probe = environments.make(environment, engine=options.engine, kwargs=kwargs, **how)
    if given:  # a vector environment has as many as it has
        options = dataclasses.replace(options, num_envs=probe.num_envs)
    try:
        _check_spaces(algorithm, probe, label)
        _check_masks(algorithm, probe, label, options.seed)
        if wrapper := environments.running_statistics(environment, probe):
            outside = wrapper in environments.vector_wrappers(environment)
            raise UsageError(own_statistics(label, wrapper, algorithm, outside))
        if options.engine == "envpool" and options.evaluate_every:
            _check_evaluations(environment, label, kwargs)
        elif given and options.evaluate_every:
            _check_copies(environment, probe)
        wanted = (options.backend, options.device, options.threads)
        compiled = options.backend == "auto" and environments.is_device(environment)
        possible: list[learners.Backend] = ["jax"] if compiled else _possible(algorithm)
        backend, device = learners.choose(probe.observation_space, *wanted, possible)
        buffers.check(algorithm.memory(), options.num_envs)
    finally:
        if not given:
            probe.close()
    options = dataclasses.replace(options, backend=backend, device=device)
    if options.threads or device != "cpu":
        return options
    threads = jax_threads() if backend == "jax" else torch_threads(probe.observation_space)
    return dataclasses.replace(options, threads=threads)


def _possible(algorithm: Algorithm) -> list[learners.Backend]:
    """The frameworks that every network of the user's own has a class for. UsageError if there is none."""
    own = algorithm.custom_networks()
    found: list[learners.Backend] = [
        backend for backend in learners.BACKENDS if all(getattr(one, backend) for one in own.values())
    ]
    if not found:
        listed = ", ".join(f"{name} for {'torch' if one.torch else 'jax'}" for name, one in own.items())
        raise UsageError(f"No framework has all of your own networks: {listed}. Give each a class for the same one.")
    return found


def _check_spaces(algorithm: Algorithm, stepper: environments.VecEnv, label: str) -> None:
    def refusal(candidate: Algorithm) -> UsageError | None:
        try:
            candidate.check_spaces(stepper.observation_space, stepper.action_space, label)
        except UsageError as error:
            return error

    if error := refusal(algorithm):
        others = [name for name, kind in ALGORITHMS.items() if not refusal(kind())]
        listed = bool(others) and algorithm.name() not in others  # else an option is what does not fit
        raise UsageError(f"{error} Algorithms for it: {', '.join(others)}." if listed else str(error)) from error


def _check_masks(algorithm: Algorithm, stepper: environments.VecEnv, label: str, seed: int) -> None:
    """Raise UsageError if masks do not fit the algorithm and the environment has them: only a reset shows that."""
    try:
        algorithm.check_masks(label)
    except UsageError:
        stepper.reset(seed)
        if stepper.masked:
            raise


def own_statistics(label: str, wrapper: str, algorithm: Algorithm, outside: bool = False) -> str:
    """The sentence on a wrapper with running statistics, and on what to use instead.

    `outside`: it is around a whole vector environment, so that evaluations would be without it.
    """
    wanted = "rewards" if "Reward" in wrapper else "observations"
    option = f"normalize_{wanted}"
    default = getattr(algorithm, option, None)
    instead = ""
    if default is not None:
        value = "True" if isinstance(default, bool) else "'collected'"
        instead = (
            f"Take it out, and give {algorithm.name()} {option}={value}, whose statistics are shared and saved. Or "
        )
    return (
        f"{label} has a {wrapper}: its running statistics are those of one environment, so evaluations, videos and "
        f"the trained agent elsewhere would have others than it learns with. {instead or 'Take it out, or '}"
        + (
            f"put a {wrapper} around each environment instead, inside the functions that make them, with fixed "
            "statistics in it, and its update_running_mean False."
            if outside
            else "set fixed statistics in it, and its update_running_mean to False."
        )
    )


def _check_evaluations(environment: Any, label: str, kwargs: dict[str, Any]) -> None:
    try:
        environments.make_eval(environment, kwargs=kwargs).close()
    except UsageError as error:
        raise UsageError(
            f"Evaluations are made in Gymnasium's environment of the same id, and for {label} that fails: {error} "
            "Or train in EnvPool's without them: --evaluate-every 0."
        ) from error


def _check_copies(environment: Any, probe: environments.VecEnv) -> None:
    """Raise UsageError if no single environment for evaluations can be made from the one that was handed over."""
    try:
        copied = environments.make_eval(environment)
        try:
            check_same_spaces(copied, probe.observation_space, probe.action_space)
        finally:
            copied.close()
    except UsageError as error:
        raise UsageError(f"{error} Or train without evaluations: evaluate_every=0.") from error


def new_folder(parent: Path, name: str) -> Path:
    """Make a new run's folder; see `free_folder`. UsageError if the name cannot be a run's."""
    check_name(name)
    return free_folder(parent, name)


def check_name(name: str) -> None:
    """Raise UsageError if a name cannot be that of a run's folder."""
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise UsageError(
            f"{name!r} cannot be a run's name: use letters, digits, '.', '-', '_' and '+', a letter or digit first."
        )
    if (size := len(os.fsencode(name))) > LONGEST:
        raise UsageError(f"{name!r} cannot be a run's name: it has {size} bytes, and {LONGEST} is the most.")


def run_name(algorithm: Algorithm, label: str, seed: int) -> str:
    """The default name of a run's folder."""
    return f"{algorithm.name()}-{slug(label)}-s{seed}"


def slug(label: str) -> str:
    """A label made fit for a folder's name."""
    return re.sub(r"[^\w.+-]+", "-", user_code.short(label)).strip("-")


def label_of(environment: Any) -> str:
    """The name of an environment: its id, with a file's absolute path, or the name of what makes it."""
    if isinstance(environment, str):
        return user_code.absolute(environment)
    spec = None if isinstance(environment, type) else getattr(environment, "spec", None)
    if spec is not None:
        return spec.id
    return getattr(environment, "__name__", None) or type(getattr(environment, "unwrapped", environment)).__name__
