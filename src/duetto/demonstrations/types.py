"""A demonstration, a set of them with its metadata, and the checks that they fit each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from duetto.environments import Tree, complete_options
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space, num_columns, spell
from duetto.storage.dict_diff import dict_diff


class Demonstration(NamedTuple):
    """One episode of T >= 1 steps, in the format of a training run's `VecEnv`."""

    obs: Tree  # (T + 1, ...), the final observation last; a dict of such arrays for Dict spaces
    # (T, A) float32 in [-1, 1]; Discrete (T,) int64; MultiDiscrete (T, k) int64; from 0
    action: np.ndarray
    reward: np.ndarray  # (T,) float32, to learn from
    terminated: bool
    truncated: bool

    @property
    def length(self) -> int:
        """T, the number of steps."""
        return len(self.reward)


@dataclass(frozen=True)
class Metadata:
    """The environment, options, expert and spaces of demonstrations."""

    environment: str  # an id
    options: dict[str, Any]  # of the environment, as `environments.make` takes them
    expert: str  # who acted, for people to read
    observation_space: Space
    action_space: Space  # the bounds of a Box are the environment's own
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Demonstrations:
    """A set of demonstrations. `episodes` are read from disk when they are accessed.

    With Atari's `episodic_life`, a game has several demonstrations: their seed is the same, and `parts` counts them.
    Otherwise an episode is one demonstration, part 0.
    """

    source: str  # the folder, for messages
    metadata: Metadata
    episodes: Sequence[Demonstration]
    returns: np.ndarray  # (N,) float64, undiscounted sums of `reward`
    lengths: np.ndarray  # (N,) int64
    terminated: np.ndarray  # (N,) bool; the others were truncated
    seeds: list[int | None]  # what the environment was reset with; None: not known
    parts: list[int]
    signature: object = None  # as the folder says; see `storage.signing`

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def steps(self) -> int:
        """The number of steps of all episodes together."""
        return int(self.lengths.sum())


def check_actions(space: Space) -> None:
    """Raise UsageError for a Dict action space."""
    if isinstance(space, Dict):
        raise UsageError(
            f"The action space is {space}, and no algorithm learns from demonstrations with several actions at once."
        )


def check(episode: Demonstration, metadata: Metadata) -> None:
    """Raise UsageError if an episode does not fit the metadata's spaces, is not finite, or has no end."""
    steps = len(episode.reward)
    if steps < 1:
        raise UsageError("It has no steps. Leave empty episodes out.")
    if not (episode.terminated or episode.truncated):
        raise UsageError("It is neither terminated nor truncated. Mark an episode that was cut off as truncated.")
    _check_part("reward", episode.reward, Box((), "float32", (-np.inf,), (np.inf,)), steps)
    space, obs = metadata.observation_space, episode.obs
    expected = dict(space.parts) if isinstance(space, Dict) else {"": space}
    parts = obs if isinstance(obs, dict) else {"": obs}
    if parts.keys() != expected.keys():
        recorded, needed = (sorted(filter(None, names)) for names in (parts, expected))
        raise UsageError(f"Its observations have the parts {recorded}, the space {space} has {needed}.")
    for name, part in expected.items():
        _check_part(f"observation {name}".strip(), parts[name], part, steps + 1)
    _check_part("action", episode.action, metadata.action_space, steps, is_action=True)


def _check_part(name: str, array: np.ndarray, space: Space, rows: int, *, is_action: bool = False) -> None:
    shape, dtype = _row(space, is_action=is_action)
    if array.shape != (rows, *shape) or array.dtype != dtype:
        raise UsageError(f"Its {name} is {_shape(array)}; {space} with {rows} rows needs {dtype} {(rows, *shape)}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise UsageError(f"Its {name} is NaN or infinite. Record it anew.")
    if isinstance(space, Discrete | MultiDiscrete):
        count = np.array(space.n if isinstance(space, Discrete) else space.nvec)
        if np.any((array < 0) | (array >= count)):
            raise UsageError(f"Its {name} has choices that are not in {space}.")
    elif is_action and np.any((array < limits(space)[0]) | (array > limits(space)[1])):
        raise UsageError(f"Its {name} is outside of [-1, 1], where agents act.")


def limits(space: Space) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds (A,) of an algorithm's actions: -1 and 1 where the space has bounds, infinite elsewhere."""
    if isinstance(space, Box):
        low, high = space.bounds
        return np.where(np.isfinite(low), -1.0, -np.inf), np.where(np.isfinite(high), 1.0, np.inf)
    free = np.full(num_columns(space), np.inf)
    return -free, free


def _row(space: Space, *, is_action: bool) -> tuple[tuple[int, ...], np.dtype]:
    """Return shape and dtype of a row of observations or actions of a `VecEnv`."""
    match space:
        case Box():
            return ((space.size,), np.dtype(np.float32)) if is_action else (space.shape, np.dtype(space.dtype))
        case Discrete():
            return (), np.dtype(np.int64)
        case MultiDiscrete():
            return (len(space.nvec),), np.dtype(np.int64)
    raise UsageError(f"The space {space} has no single array.")


def _shape(array: np.ndarray) -> str:
    return f"{array.dtype} {array.shape}"


# ------------------------------------------------------------------------------------------------ the same environment
def check_fits(
    demonstrations: Demonstrations,
    observation_space: Space,
    action_space: Space,
    environment: str,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Raise UsageError if demonstrations are not of the environment in which to learn from them.

    Options that are left out count as their defaults. Bounds of actions are compared, bounds of observations are not.
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
            f"The demonstrations in {demonstrations.source} are of another environment than the one to learn in:\n"
            + "".join(differences)
            + "Record demonstrations of this environment with these options, or train in theirs."
        )


def _description(environment: str, options: Mapping[str, Any], observation: Space, action: Space) -> dict[str, str]:
    complete = json.loads(json.dumps(complete_options(environment, options)))  # as it is read from a file
    return {
        "environment": environment,
        "options": ", ".join(f"{name}={complete[name]}" for name in sorted(complete)) or "none",
        "observations": spell(observation, bounds=False),
        "actions": spell(action),
    }
