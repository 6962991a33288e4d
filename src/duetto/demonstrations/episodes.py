"""A demonstration, a set of them with its description, and the checks that they fit each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from duetto.demonstrations.form import FORMAT, limits
from duetto.environments import Tree
from duetto.errors import UsageError
from duetto.functional.distributions import cuts
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space, columns


class Demonstration(NamedTuple):
    """One episode of T >= 1 steps, as a training run's `Stepper` gives and takes it."""

    obs: Tree  # (T + 1, ...), the final observation last; a dict of such arrays for Dict spaces
    # (T, A) float32 in [-1, 1]; Discrete (T,) int64; MultiDiscrete (T, k) int64; from 0. Dict: the parts side by side
    action: np.ndarray
    reward: np.ndarray  # (T,) float32, to learn from
    terminated: bool
    truncated: bool

    @property
    def length(self) -> int:
        """T, the number of steps."""
        return len(self.reward)


@dataclass(frozen=True)
class Description:
    """The environment, options, expert and spaces of demonstrations, so that nobody uses them for another one."""

    environment: str  # an id
    options: dict[str, Any]  # of the environment, as `environments.make` takes them
    expert: str  # who acted, for people to read
    observation_space: Space
    action_space: Space  # the bounds of a Box are the environment's own
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Demonstrations:
    """A set of demonstrations. `episodes` are read from disk when they are asked for.

    Where a lost life ends an episode to the learner (Atari's `episodic_life`), a game has several demonstrations: their
    seed is the same, and `parts` counts them. Elsewhere an episode is one demonstration, part 0.
    """

    source: str  # the folder, for messages
    description: Description
    episodes: Sequence[Demonstration]
    returns: np.ndarray  # (N,) float64, undiscounted sums of `reward`
    lengths: np.ndarray  # (N,) int64
    terminated: np.ndarray  # (N,) bool; the others were truncated
    seeds: list[int | None]  # what the environment was reset with; None: not known
    parts: list[int]
    signature: object = None  # as the folder says; see `storage.trust`
    format: int = FORMAT
    notices: list[str] = field(default_factory=list)  # sentences for the user

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def steps(self) -> int:
        """The number of steps of all episodes together."""
        return int(self.lengths.sum())


def check(episode: Demonstration, description: Description) -> None:
    """Raise UsageError where an episode does not fit the description's spaces, is not finite, or has no end."""
    steps = len(episode.reward)
    if steps < 1:
        raise UsageError("It has no steps. Leave empty episodes out.")
    if not (episode.terminated or episode.truncated):
        raise UsageError("It is neither terminated nor truncated. Mark an episode that was cut off as truncated.")
    if episode.reward.shape != (steps,) or episode.reward.dtype != np.float32:
        raise UsageError(f"Its rewards are {_shape(episode.reward)}. Give float32 (T,).")
    _check_obs(episode.obs, description.observation_space, steps + 1)
    _check_action(episode.action, description.action_space, steps)
    for name, part in [("reward", episode.reward), ("action", episode.action)]:
        if part.dtype.kind == "f" and not np.isfinite(part).all():
            raise UsageError(f"Its {name} is NaN or infinite. Record it anew.")


def _check_obs(obs: Tree, space: Space, rows: int) -> None:
    if not isinstance(space, Dict):
        if isinstance(obs, dict):
            raise UsageError(f"Its observations have parts {sorted(obs)}, the space {space} has none.")
        return _check_part("observation", obs, space, rows)
    wanted = [name for name, _ in space.parts]
    found = sorted(obs) if isinstance(obs, dict) else []
    if not isinstance(obs, dict) or found != sorted(wanted):
        raise UsageError(f"Its observations have the parts {found}, the space {space} has {sorted(wanted)}.")
    for name, part in space.parts:
        _check_part(f"observation {name}", obs[name], part, rows)
    return None


def _check_action(action: np.ndarray, space: Space, rows: int) -> None:
    if not isinstance(space, Dict):
        return _check_part("action", action, space, rows, is_action=True)
    wanted = (rows, columns(space))
    if action.shape != wanted or action.dtype != np.float32:
        raise UsageError(f"Its action is {_shape(action)}; {space} with {rows} rows needs float32 {wanted}.")
    if not np.isfinite(action).all():
        raise UsageError("Its action is NaN or infinite. Record it anew.")
    parts = dict(apart(action, space))
    for name, part in space.parts:
        _check_part(f"action {name}", parts[name], part, rows, is_action=True)
    if not np.array_equal(together(parts, space), action):
        raise UsageError("Its action has choices that are no whole numbers.")
    return None


def _check_part(name: str, array: np.ndarray, space: Space, rows: int, *, is_action: bool = False) -> None:
    shape, dtype = row(space, is_action=is_action)
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


def row(space: Space, *, is_action: bool) -> tuple[tuple[int, ...], np.dtype]:
    """Return shape and dtype of one row as a `Stepper` gives observations and takes actions."""
    match space:
        case Box():
            return ((space.size,), np.dtype(np.float32)) if is_action else (space.shape, np.dtype(space.dtype))
        case Discrete():
            return (), np.dtype(np.int64)
        case MultiDiscrete():
            return (len(space.nvec),), np.dtype(np.int64)
    raise UsageError(f"The space {space} has no single array.")


def apart(action: np.ndarray, space: Dict) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the parts of actions (T, A) by name, each as if it were alone: choices are whole numbers."""
    ends = cuts([columns(part) for _, part in space.parts])
    for (name, part), (low, high) in zip(space.parts, ends, strict=True):
        shape, dtype = row(part, is_action=True)
        yield name, action[:, low:high].reshape(-1, *shape).astype(dtype)


def together(parts: Mapping[str, np.ndarray], space: Dict) -> np.ndarray:
    """Join the parts that `apart` gave into actions (T, A). ValueError where a part has another dtype or shape."""
    for name, part in space.parts:
        shape, dtype = row(part, is_action=True)
        if parts[name].dtype != dtype or parts[name].shape[1:] != shape:
            raise ValueError(f"its action {name} is {_shape(parts[name])}")
    arrays = [parts[name].reshape(len(parts[name]), -1) for name, _ in space.parts]
    return np.concatenate(arrays, axis=1, dtype=np.float32)


def _shape(array: np.ndarray) -> str:
    return f"{array.dtype} {array.shape}"
