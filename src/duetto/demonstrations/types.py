"""Demonstrations, their metadata, and checks that they fit an environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from duetto.buffers.episode_storage import named, transition_fields
from duetto.environments import Tree, complete_options
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space, num_columns, spell
from duetto.storage.reproducibility import dict_diff


class Demonstration(NamedTuple):
    """One episode of T >= 1 steps, in the format of a training run's `VecEnv`."""

    obs: Tree  # (T + 1, ...), the final observation last; a dict of such arrays for Dict spaces
    # Box: (T, A) float32 in [-1, 1]; Discrete: (T,) int64, MultiDiscrete: (T, k) int64, both count from 0
    action: np.ndarray
    reward: np.ndarray  # (T,) float32, as training uses it: clipped or scaled by the environment's options
    terminated: bool
    truncated: bool

    @property
    def length(self) -> int:
        """The number of steps T."""
        return len(self.reward)


@dataclass(frozen=True)
class Metadata:
    """The environment, options, expert and spaces of demonstrations."""

    environment: str  # an id
    options: dict[str, Any]  # the environment's options: `kwargs` of `environments.make`
    expert: str  # a description of the expert, for people
    observation_space: Space
    action_space: Space  # with the environment's bounds, although actions are in [-1, 1]
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Demonstrations:
    """A set of N demonstrations. `episodes` are read from disk when they are accessed.

    With Atari's `episodic_life`, each life of a game is a demonstration. All lives of a game have its seed, and `parts`
    numbers them from 0. Otherwise each demonstration is a whole episode, with part 0.
    """

    source: str  # the folder, for messages
    metadata: Metadata
    episodes: Sequence[Demonstration]
    returns: np.ndarray  # (N,) float64, undiscounted sums of `reward`
    lengths: np.ndarray  # (N,) int64
    terminated: np.ndarray  # (N,) bool; where False, the episode was truncated
    seeds: list[int | None]  # of the environment's resets; None: unknown
    parts: list[int]
    signature: object = None  # of the folder, by `storage.signing`

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def steps(self) -> int:
        """The number of steps in all episodes."""
        return int(self.lengths.sum())


def check(episode: Demonstration, metadata: Metadata) -> None:
    """Raise UsageError if an episode is empty, not finite, neither terminated nor truncated, or not in the spaces."""
    steps = len(episode.reward)
    if steps < 1:
        raise UsageError("It has no steps. Leave empty episodes out.")
    if not (episode.terminated or episode.truncated):
        raise UsageError("It is neither terminated nor truncated. Mark an episode that was cut off as truncated.")
    observation, action = metadata.observation_space, metadata.action_space
    parts = named("obs", dict(observation.parts) if isinstance(observation, Dict) else observation)
    spaces: dict[str, Any] = {**dict(parts), "action": action, "reward": Box((), "float32", (-np.inf,), (np.inf,))}
    fields, arrays = transition_fields(observation, action), arrays_of(episode)
    if arrays.keys() != spaces.keys():
        raise UsageError(f"It has the arrays {sorted(arrays)}, but its spaces need {sorted(spaces)}.")
    for name, array in arrays.items():
        space, label = spaces[name], name.replace("obs", "observation", 1).replace("/", " ", 1)
        rows = steps + name.startswith("obs")
        wanted = fields[name].dtype, (rows, *fields[name].shape)
        if (array.dtype, array.shape) != wanted:
            needed = f"{space} with {rows} rows needs {wanted[0]} {wanted[1]}"
            raise UsageError(f"Its {label} is {array.dtype} {array.shape}; {needed}.")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UsageError(f"Its {label} is NaN or infinite. Record it again.")
        if isinstance(space, Discrete | MultiDiscrete):
            count = np.array(space.n if isinstance(space, Discrete) else space.nvec)
            if np.any((array < 0) | (array >= count)):
                raise UsageError(f"Its {label} has choices that are not in {space}.")
        elif name == "action" and np.any((array < limits(space)[0]) | (array > limits(space)[1])):
            raise UsageError(f"Its {label} is outside of [-1, 1], or of its space if a bound is infinite.")


def arrays_of(episode: Demonstration) -> dict[str, np.ndarray]:
    """Return an episode's arrays, with their names in buffers and files."""
    return {**dict(named("obs", episode.obs)), "action": episode.action, "reward": episode.reward}


def limits(space: Space) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper bounds (A,) of an algorithm's actions: -1 and 1, or `space`'s if one is infinite."""
    if isinstance(space, Box):
        low, high = (bound.astype(np.float32) for bound in space.bounds)  # the dtype of actions
        scaled = np.isfinite(low) & np.isfinite(high)
        return np.where(scaled, -1.0, low), np.where(scaled, 1.0, high)
    free = np.full(num_columns(space), np.inf)
    return -free, free


# ------------------------------------------------------------------------------------------------ the same environment
def check_fits(
    demonstrations: Demonstrations,
    observation_space: Space,
    action_space: Space,
    environment: str,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Raise UsageError if demonstrations are not from the training environment.

    This compares ids, options (for Atari with defaults filled in), and spaces without the bounds of observations.
    """
    about = demonstrations.metadata
    theirs = _description(about.environment, about.options, about.observation_space, about.action_space)
    ours = _description(environment, options or {}, observation_space, action_space)
    differences = [
        f"  {name}: {recorded} in the demonstrations, {needed} in training\n"
        for name, (recorded, needed) in dict_diff(theirs, ours).items()
    ]
    if differences:
        raise UsageError(
            f"The demonstrations in {demonstrations.source} are not from the training environment:\n"
            + "".join(differences)
            + "Record demonstrations in this environment with these options, or train in the recorded environment."
        )


def _description(environment: str, options: Mapping[str, Any], observation: Space, action: Space) -> dict[str, str]:
    complete = json.loads(json.dumps(complete_options(environment, options)))  # as if read from a file
    return {
        "environment": environment,
        "options": ", ".join(f"{name}={complete[name]}" for name in sorted(complete)) or "none",
        "observations": spell(observation, bounds=False),
        "actions": spell(action),
    }
