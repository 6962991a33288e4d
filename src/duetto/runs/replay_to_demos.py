"""A run's replay memory as demonstrations: the whole episodes in a checkpoint's memory.

No environment is made, and no code is run that the folder names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from duetto import buffers
from duetto.algorithms.base import ReplaySpec, RolloutSpec, SequenceSpec
from duetto.buffers import LeftOut, Replay
from duetto.demonstrations import Demonstration, Metadata
from duetto.errors import CheckpointError, UsageError
from duetto.functional import state_schema
from duetto.functional.rng import generator
from duetto.functional.state_schema import ArrayOf
from duetto.networks import masks, spaces
from duetto.networks.spaces import Space
from duetto.runs.checkpoints import chosen
from duetto.runs.run import Run
from duetto.storage.checkpoint import Loaded
from duetto.training.resume_checks import ACTING


class Remembered(NamedTuple):
    """The episodes of a checkpoint's memory."""

    step: int
    metadata: Metadata
    episodes: Iterator[Demonstration]
    left: LeftOut  # counted once the episodes were read
    problems: list[str]  # a sentence for each newer checkpoint that is damaged


def remembered(run: Run, checkpoint: str | int = "last", trusted: bool = False) -> Remembered:
    """The whole episodes in the memory of the "last" checkpoint, or of the one at a step.

    Rewards, observations and actions are those that the run learns from, as `demos record` writes them. `trusted` as
    for `Run`, since what is written will be signed as the user's own choice of an environment.

    Raises:
        UsageError: The algorithm has no replay memory, or keeps scaled numbers in it.
        CheckpointError: The checkpoint is damaged, or not there.
    """
    config = run.config
    algorithm = config.algorithm
    spec = algorithm.memory()
    if isinstance(spec, RolloutSpec):
        raise UsageError(
            f"{algorithm.name()} has no replay memory: what it learned from is gone. Record fresh episodes: --episodes."
        )
    if checkpoint == "best":
        raise UsageError("The best checkpoint has networks only: take --checkpoint last, or a step.")
    if algorithm.observation_scaling().mode == "steps":
        raise UsageError(f"{algorithm.name()} remembers scaled numbers, which are no demonstrations. Take --episodes.")
    config.check_trust("environment", run.path, trusted)
    loaded = chosen(run.path, checkpoint, memory=True)
    assert isinstance(loaded, Loaded)
    state_schema.check(loaded.state, ACTING | {"memory": dict}, "state")
    observation, action = (spaces.from_json(loaded.state["spaces"][kind]) for kind in ("observation", "action"))
    kept = masks.space_with_mask(observation, action) if loaded.state["spaces"]["action_mask"] else observation
    filled, left = _filled(spec, kept, action, loaded), LeftOut()
    about = f"{algorithm.name()} in {run.path}, what it remembers at step {loaded.step}, exploration included"
    versions = {str(package): str(version) for package, version in config.versions.items()}
    metadata = Metadata(config.environment, config.environment_options, about, observation, action, versions)
    return Remembered(loaded.step, metadata, _demonstrations(filled, left), left, loaded.problems)


def _demonstrations(filled: Replay, left: LeftOut) -> Iterator[Demonstration]:
    for episode in filled.episodes(left):
        found = Demonstration(*episode[1:])
        yield found._replace(obs=masks.split_mask(found.obs)[0])  # demonstrations have no masks


def _filled(spec: ReplaySpec | SequenceSpec, observation: Space, action: Space, loaded: Loaded) -> Any:
    """Rebuild the agent's own memory from a checkpoint, without the demonstrations that it may have beside it."""
    state = loaded.state["memory"].get("agent", loaded.state["memory"])
    form = {"shape": {"frames": int}, "envs": {"written": ArrayOf(None, (), np.int64)}}
    state_schema.check(state, form, "memory")
    num_envs, stacked = len(state["envs"]["written"]), state["shape"]["frames"]
    if not num_envs:
        raise CheckpointError(f"{loaded.path} was changed: its memory is of no environment.")
    filled = buffers.build(spec, observation, action, num_envs, generator(0, "memory"), stacked=stacked)
    assert isinstance(filled, Replay)
    filled.load_state_dict(state)
    for segment in loaded.segments:
        filled.load_segment(segment)
    return filled
