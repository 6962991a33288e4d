"""Play an environment with random actions, and note all that is seen of it meanwhile."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from duetto.environments import calls
from duetto.environments.checking.drawing import Drawing, same
from duetto.environments.faults import Fault
from duetto.environments.spaces import EXACT, Layout, Leaf

CHANGES = 10  # of a number; most of them have to be lost, so that what trembles in its last digit now and then is not
ENOUGH = 10.0  # seconds of playing; a slow environment is seen for fewer steps


@dataclass
class Played:
    """The observations made while playing. Episodes are (length, terminated, truncated)."""

    steps: int = 0
    episodes: list[tuple[int, bool, bool]] = field(default_factory=list)
    fault: str = ""
    unfinite: str = ""  # what was NaN or infinite, and when
    info_keys: set[Any] = field(default_factory=set)
    masked: bool = False  # info has an action_mask
    marked: bool = False  # info has the old Gym's TimeLimit.truncated where the episode terminated
    kinds: dict[str, str] = field(default_factory=dict)  # parts of observations whose dtype is not what is learned from
    outside: dict[str, str] = field(default_factory=dict)  # parts that left the bounds of their space, and how
    rounded: dict[str, str] = field(default_factory=dict)  # parts of which float32 loses something, and what
    largest: float = 0.0  # of real numbers, their absolute value
    shared: bool = False  # an observation given earlier has changed
    pushed: bool = False  # an action that was handed in has changed
    rewards: list[float] = field(default_factory=list)
    step_seconds: float = 0.0
    reset_seconds: float = 0.0
    resets: int = 0


class Precision:
    """A test of whether a part's successive numbers are still told apart in the dtype that is learned from."""

    def __init__(self, dtype: np.dtype) -> None:
        self._dtype = dtype
        self._last: np.ndarray | None = None
        self._changed: Any = 0  # of each number, how often it was another than before
        self._merged: Any = 0  # and how often that could not be seen any more
        self.lost: str = ""  # an example, in words

    def see(self, value: np.ndarray) -> None:
        """Take the part's next numbers."""
        value = np.array(value)
        if np.can_cast(value.dtype, self._dtype, "safe"):
            return
        cast = value.astype(self._dtype)
        if not self.lost and (far := np.abs(value) > EXACT).any():
            at = np.unravel_index(int(np.argmax(far)), far.shape)
            self.lost = f"{value[at]!s} becomes {cast[at]:.0f}"
        if self._last is not None:
            changed = value != self._last
            self._changed = self._changed + changed
            self._merged = self._merged + (changed & (cast == self._last.astype(self._dtype)))
            lost = (self._changed >= CHANGES) & (2 * self._merged > self._changed)
            if not self.lost and lost.any():
                at = np.unravel_index(int(np.argmax(lost & changed)), lost.shape)
                self.lost = f"{self._last[at]!s} and {value[at]!s} both become {cast[at]:.9g}"
        self._last = value


class Player:
    """A player of one environment with random actions; `alive` is called between two calls of it."""

    def __init__(self, env: gymnasium.Env, seed: int, alive: Callable[[], None]) -> None:
        self._env, self._seed, self._alive = env, seed, alive
        self._layout = Layout(env.observation_space)
        self._draw = Drawing(env.action_space, seed)
        self._precision: dict[str, Precision] = {}
        self.seen: Played = Played()
        self._held: Any = None  # the last observation, as it was given
        self._copy: list[bytes] = []  # and what was in it

    def play(self, steps: int, enough: float = ENOUGH) -> Played:
        """Play for `steps` steps or `enough` seconds, whichever ends first, or until something is broken."""
        seen, began = self.seen, time.perf_counter()
        try:
            length, info = 0, self._reset(seed=self._seed)
            while seen.steps < steps and time.perf_counter() - began < enough and not seen.unfinite:
                terminated, truncated, info = self._step(info)
                length += 1
                if terminated or truncated:
                    seen.episodes.append((length, terminated, truncated))
                    seen.marked |= terminated and bool(info.get("TimeLimit.truncated"))
                    length, info = 0, self._reset()
        except Fault as fault:
            places = re.findall(r'File "([^"]+)", line (\d+)', fault.trace)
            where = f", {Path(places[-1][0]).name} line {places[-1][1]}" if places else ""
            seen.fault = f"{fault.what} (Random actions, after {seen.steps} steps{where}.)"
        seen.rounded = {part: one.lost for part, one in self._precision.items() if one.lost}
        return seen

    def _reset(self, **arguments: Any) -> dict[str, Any]:
        self._alive()
        before = time.perf_counter()
        obs, info = calls.reset(self._env, None, **arguments)
        self.seen.reset_seconds += time.perf_counter() - before
        self.seen.resets += 1
        self._look(obs, info)
        return info

    def _step(self, info: dict[str, Any]) -> tuple[bool, bool, dict[str, Any]]:
        self._alive()
        action, given = self._draw(info)
        before = time.perf_counter()
        obs, reward, terminated, truncated, info = calls.step(self._env, None, action)
        self.seen.step_seconds += time.perf_counter() - before
        self.seen.steps += 1
        self.seen.pushed |= not same(action, given)
        if not np.isfinite(reward):
            self.seen.unfinite = f"The reward of step {self.seen.steps} is {reward}"
        self.seen.rewards.append(float(reward))
        self._look(obs, info)
        return bool(terminated), bool(truncated), info

    def _look(self, obs: Any, info: dict[str, Any]) -> None:
        seen = self.seen
        seen.info_keys |= set(info)
        seen.masked |= "action_mask" in info
        if self._held is not None:
            seen.shared |= [np.asarray(leaf.find(self._held)).tobytes() for leaf in self._layout.leaves] != self._copy
        self._held, self._copy = obs, []
        for leaf in self._layout.leaves:
            value = leaf.read(obs, None)
            self._copy.append(value.tobytes())
            self._look_at(leaf, leaf.find(obs), value)

    def _look_at(self, leaf: Leaf, found: Any, value: np.ndarray) -> None:
        seen, space = self.seen, _part(self._env.observation_space, leaf)
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            seen.unfinite = seen.unfinite or f"The {leaf.describe()} of step {seen.steps} is NaN or infinite ({value})"
            return
        if isinstance(space, gymnasium.spaces.Box):
            if leaf.beyond(value).any():
                seen.unfinite = seen.unfinite or f"Of step {seen.steps}, {leaf.too_large(value).rstrip('.')}"
                return
            self._precision.setdefault(leaf.describe(), Precision(leaf.dtype)).see(value)
            if value.dtype != space.dtype or not isinstance(found, np.ndarray):
                given = str(value.dtype) if isinstance(found, np.ndarray) else f"a {type(found).__name__}"
                seen.kinds[leaf.describe()] = f"{given}, where its space says {space.dtype}"
            elif space.dtype not in (np.float32, np.uint8):
                seen.kinds[leaf.describe()] = str(space.dtype)
            left = (value < space.low) | (value > space.high)
            if left.any():
                at = np.unravel_index(int(np.argmax(left)), left.shape)
                how = f"{value[at]:.6g}, outside [{space.low[at]:.6g}, {space.high[at]:.6g}]"
                seen.outside.setdefault(leaf.describe(), how)
            if value.dtype != np.uint8:
                seen.largest = max(seen.largest, float(np.abs(value).max(initial=0)))


def _part(space: gymnasium.Space, leaf: Leaf) -> gymnasium.Space:
    for key in leaf.path:
        space = space[key]  # type: ignore[index]
    return space
