"""The Python interface: `duetto.train` and `duetto.load`."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from duetto.algorithms import Algorithm
from duetto.cluster import Cluster
from duetto.errors import UsageError
from duetto.networks.specs import CustomNetwork
from duetto.runs.agent import Agent
from duetto.runs.run import Run, start
from duetto.storage.config import RunOptions
from duetto.training.session import Callback


def train(
    algorithm: Algorithm,
    environment: Any,
    *,
    runs_dir: str | Path = "runs",
    name: str | None = None,
    callbacks: Sequence[Callback] = (),
    environment_options: dict[str, Any] | None = None,
    cluster: Cluster | None = None,
    **options: Any,
) -> Run:
    """Train an agent and return its run.

    Args:
        algorithm: `duetto.TD3(policy_delay=2)`, for example. Its fields are the hyper-parameters.
        environment: An id, a Gymnasium environment or vector environment, or a callable that makes environments.
        runs_dir: The parent of the run's folder.
        name: The folder's name; by default made of algorithm, environment and seed.
        callbacks: Called with the `Session` after every vector step; `session.stop()` ends the run early.
        environment_options: Arguments for the environment's own constructor.
        cluster: `duetto.Cluster(actors=4)`, for example: where the environments live, if not in this process.
        options: `steps`, `seed`, `backend`, `num_envs` ... : every field of `RunOptions`.

    Raises UsageError for a mistake in the call, before anything is written; DuettoError where a run fails.
    """
    known = [field.name for field in dataclasses.fields(RunOptions)]
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(known)}."
            raise UsageError(f"train has no option {option!r}. {hint}")
    return start(
        algorithm,
        environment,
        RunOptions(**options),
        runs_dir=runs_dir,
        name=name,
        environment_options=environment_options,
        callbacks=callbacks,
        cluster=cluster,
    )


def load(
    path: str | Path,
    checkpoint: str | int = "last",
    backend: str | None = None,
    networks: dict[str, CustomNetwork] | None = None,
    algorithm: type[Algorithm] | None = None,
    trust: bool = False,
) -> Agent:
    """The trained agent in a run's folder; loading runs no code that the folder brings or that a stranger's names.

    Args:
        path: The run's folder.
        checkpoint: "last", "best", or a step.
        backend: "torch" or "jax", whichever trained it; by default the one that did, if it is installed.
        networks: The run's own networks by field name (`{"actor_network": CustomNetwork(...)}`), if it has any.
        algorithm: The class, where it was handed over to `train` and is not Duetto's own.
        trust: Run the file of an algorithm that the folder names, whoever began the run.
    """
    return Agent.load(Path(path), checkpoint, backend, networks, algorithm, trust)
