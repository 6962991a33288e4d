"""A run's replay memory as demonstrations: the whole episodes in a checkpoint's memory.

No environment is made, and no code is run that the folder names.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from duetto import memory
from duetto.algorithms.base import ReplaySpec, RolloutSpec, SequenceSpec
from duetto.demonstrations import Demonstration, Description
from duetto.errors import CheckpointError, UsageError
from duetto.functional import forms
from duetto.functional.forms import Rows
from duetto.functional.randomness import generator
from duetto.memory import LeftOut, Replay, SequenceReplay
from duetto.networks import masks, spaces
from duetto.networks.spaces import Box, Dict, Space
from duetto.runs.checkpoints import chosen
from duetto.runs.run import Run
from duetto.storage import trust
from duetto.storage.checkpoint import Loaded
from duetto.storage.segments import Segment
from duetto.training.resuming import ACTING


class Remembered(NamedTuple):
    """The episodes of a checkpoint's memory."""

    step: int
    description: Description
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
    if algorithm.observation_scaling().mode == "steps" or algorithm.reward_scaling() is not None:
        raise UsageError(f"{algorithm.name()} remembers scaled numbers, which are no demonstrations. Take --episodes.")
    trust.check(config.environment, config.environment_options, config.signature, run.path, trusted)
    loaded = chosen(run.path, checkpoint, memory=True)
    assert isinstance(loaded, Loaded)
    forms.check(loaded.state, ACTING | {"memory": dict}, "state")
    observation, action = (spaces.from_json(loaded.state["spaces"][kind]) for kind in ("observation", "action"))
    kept = masks.space(observation, action) if loaded.state["spaces"].get("action_mask") else observation
    filled, left = _filled(spec, kept, action, loaded), LeftOut()
    about = f"{algorithm.name()} in {run.path}, what it remembers at step {loaded.step}, exploration included"
    versions = {str(package): str(version) for package, version in config.versions.items()}
    description = Description(config.environment, config.environment_options, about, observation, action, versions)
    return Remembered(loaded.step, description, _demonstrations(filled, left), left, loaded.problems)


def _demonstrations(filled: Replay | SequenceReplay, left: LeftOut) -> Iterator[Demonstration]:
    for episode in filled.episodes(left):
        found = Demonstration(*episode[1:])
        yield found._replace(obs=masks.parted(found.obs)[0])  # demonstrations have no masks


def _filled(spec: ReplaySpec | SequenceSpec, observation: Space, action: Space, loaded: Loaded) -> Any:
    """Rebuild the agent's own memory from a checkpoint, without the demonstrations that it may have beside it."""
    state = loaded.state["memory"].get("agent", loaded.state["memory"])
    counts = {"written": Rows(None, (), np.int64)}
    form: dict[str, Any] = {"episodes": counts} if isinstance(spec, SequenceSpec) else counts
    forms.check(state, form, "memory")
    written = state["episodes"]["written"] if isinstance(spec, SequenceSpec) else state["written"]
    if not len(written):
        raise CheckpointError(f"{loaded.path} was changed: its memory is of no environment.")
    first = next(loaded.segments, None)
    stacked = _stacked(observation, first) if isinstance(spec, SequenceSpec) and first else 1
    random = generator(0, "memory")
    filled = memory.build(spec, observation, action, len(written), random, stacked=stacked)
    assert isinstance(filled, Replay | SequenceReplay)
    filled.load_state_dict(state)
    for segment in chain([first] if first else [], loaded.segments):
        filled.load_segment(segment)
    return filled


def _stacked(observation: Space, segment: Segment) -> int:
    """The number of frames that an observation stacks, of which a row has one; 1 if rows are whole observations."""
    parts = (
        {f"obs/{name}": part for name, part in observation.parts}
        if isinstance(observation, Dict)
        else {"obs": observation}
    )
    for name, part in parts.items():
        kept = segment.get(name)
        if isinstance(part, Box) and part.is_image and kept is not None and kept.ndim == 4 and kept.shape[1]:
            return part.shape[0] // kept.shape[1] if part.channels_first else 1
    return 1
