"""Steps and environments whose observations carry their own key, and tables of the resulting rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from store import Rule, exact

Arrays = dict[str, np.ndarray]

FRAMES = 3
KEY = Box(-np.inf, np.inf, (2,), np.float32)  # (environment, index of its step)
IMAGE = Box(0, 255, (FRAMES, 5, 5), np.uint8)
NUMBERS, CHOICE = Box(-1.0, 1.0, (1,), np.float32), Discrete(1000)
SPACES: dict[str, Any] = {
    "key": KEY,
    "image": Dict({"image": IMAGE, "key": KEY}),
    "goal": Dict({"observation": KEY, "achieved_goal": KEY, "desired_goal": KEY}),
}


def stream(
    lengths: list[list[int]], steps: int, kind: str = "key", gaps: bool = False, discrete: bool = False, **extras: Any
) -> list[dict[str, Any]]:
    """Return vector steps of environments that play episodes of `lengths[env]` steps in turn.

    The n-th step of environment e goes from (e, n) to (e, n + 1), or to (e, n + 1/2) where its episode ends. With
    `gaps` an environment misses the vector step after an end, as in autoreset mode NEXT_STEP. Episodes are terminated,
    truncated, or both. `extras` are functions of the vector step.
    """
    envs = [iter(_steps(env, own, kind, discrete)) for env, own in enumerate(lengths)]
    waits, found = [False] * len(envs), []
    for _ in range(steps):
        rows = [(env, next(source)) for env, source in enumerate(envs) if not waits[env]]
        if rows:
            found.append(_stacked([{"env": np.int64(env)} | row for env, row in rows]) | {"extras": {}})
            found[-1]["extras"] = {name: make(found[-1]) for name, make in extras.items()}
        ended = {env for env, row in rows if gaps and (row["terminated"] or row["truncated"])}
        waits = [env in ended for env in range(len(envs))]
    return found


def _steps(env: int, lengths: list[int], kind: str, discrete: bool) -> Iterable[dict[str, Any]]:
    number, episode = 0, 0
    while True:
        length = lengths[episode % len(lengths)]
        for time in range(length):
            last = time == length - 1
            after = _observation(kind, env, episode, number, time + 1, 0.5 if last else 1.0)
            yield {
                "obs": _observation(kind, env, episode, number, time, 0.0),
                "action": np.int64(number % 1000) if discrete else np.array([number / 1000], np.float32),
                "reward": np.float32(_reward(after) if kind == "goal" else number),
                "next_obs": after,
                "terminated": np.bool_(last and episode % 2 == 0),
                "truncated": np.bool_(last and (episode % 2 == 1 or episode % 5 == 4)),
            }
            number += 1
        episode += 1


def _observation(kind: str, env: int, episode: int, number: int, time: int, ahead: float) -> Any:
    key = np.array([env, number + ahead], np.float32)
    if kind == "goal":
        return {"observation": key, "achieved_goal": key, "desired_goal": np.array([env, -episode], np.float32)}
    if kind == "image":  # so do the frames from before an episode
        times = np.arange(time + 1 - FRAMES, time + 1)
        image = np.full(IMAGE.shape, env, np.uint8)
        image[:, 0, 0], image[:, 0, 1], image[:, 0, 2] = episode, times % 256, (times == time) * (ahead == 0.5)
        return {"image": image, "key": key}
    return key


def goal_reward(achieved: Any, desired: Any, info: Any = None) -> Any:
    """Return a different number for each pair of goals."""
    return (achieved[..., -1] - 8 * desired[..., -1]).astype(np.float32)


def goal_reached(achieved: Any, desired: Any, info: Any = None) -> Any:
    """Return whether a goal was reached."""
    return (achieved == desired).all(axis=-1)


def _reward(goals: dict[str, np.ndarray]) -> Any:
    return goal_reward(goals["achieved_goal"], goals["desired_goal"])


def _stacked(rows: list[Any]) -> Any:
    if isinstance(rows[0], dict):
        return {name: _stacked([row[name] for row in rows]) for name in rows[0]}
    return np.stack(rows)


# ---------------------------------------------------------------------------------------------------- tables
def table(batches: list[Arrays], without: tuple[str, ...] = ("weight",)) -> Arrays:
    """Return the distinct rows of all batches, sorted by their observations."""
    names = sorted(batches[0].keys() - set(without), key=lambda name: (not name.startswith("obs"), name))
    whole = {name: np.concatenate([batch[name] for batch in batches]) for name in names}
    rows = np.concatenate([array.reshape(len(array), -1).astype(np.float64) for array in whole.values()], axis=1)
    _, first = np.unique(rows, axis=0, return_index=True)
    return {name: array[first] for name, array in whole.items()}


def series(rows: list[Arrays]) -> Arrays:
    """Concatenate the rows of successive steps; `at` is the step of each row."""
    names = rows[0].keys()
    step = np.concatenate([np.full(len(next(iter(row.values()))), at) for at, row in enumerate(rows)])
    return {"at": step.astype(np.int16)} | {name: np.concatenate([row[name] for row in rows]) for name in names}


def near(relative: float, absolute: float = 0.0) -> Rule:
    """Return a rule that compares floats to a tolerance and all else exactly."""

    def rule(name: str, recorded: np.ndarray, now: np.ndarray) -> None:
        if recorded.dtype.kind != "f":
            return exact(name, recorded, now)
        assert recorded.shape == now.shape, f"{name}: shape {now.shape}, recorded {recorded.shape}"
        return np.testing.assert_allclose(now, recorded, relative, absolute, err_msg=name)

    return rule


# ---------------------------------------------------------------------------------------------------- environments
class Script(gymnasium.Env):
    """Episodes of 1, 2, 7 and 30 steps in turn; the seed selects the first. With `echo`, actions change the rewards.

    An observation is (seed, episode, time). Each info has the lives left, the last one the success.
    """

    LENGTHS = (1, 2, 7, 30)
    seeds: list[int] = []  # noqa: RUF012 (of all resets in this process, in order)

    def __init__(
        self, masked: bool = True, lengths: tuple[int, ...] = LENGTHS, numbers: bool = False, echo: bool = False
    ) -> None:
        self.observation_space = Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = Box(-2.0, 6.0, (2,), np.float32) if numbers else Discrete(5)
        self.masked, self.lengths, self.echo = masked, lengths, echo
        self.number, self.episode, self.time = 0, -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            Script.seeds.append(seed)
            self.number, self.episode = seed % 1000, seed % len(self.lengths) - 1
        self.episode, self.time = self.episode + 1, 0
        return self._see(), self._info()

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.time += 1
        over = self.time == self.lengths[self.episode % len(self.lengths)]
        cut = (self.episode // len(self.lengths)) % 2 == 1
        info = self._info() | ({"is_success": self.episode % 3 == 0} if over else {})
        reward = 0.25 * self.time + self.episode - self.number + self.echo * float(np.sum(action))
        return self._see(), reward, over and not cut, over and cut, info

    def _see(self) -> np.ndarray:
        return np.array([self.number, self.episode, self.time], np.float32)

    def _info(self) -> dict[str, Any]:
        mask = {"action_mask": np.arange(5) % 5 != (self.time + self.episode) % 5} if self.masked else {}
        return mask | {"lives": 3 - self.time % 3}


class Choices(Script):
    """The same without action masks."""

    def __init__(self) -> None:
        super().__init__(masked=False)


class Reach(Script):
    """The same with goals, which are keys too."""

    def __init__(self) -> None:
        super().__init__(masked=False, numbers=True)
        self.observation_space = Dict(
            dict.fromkeys(("observation", "achieved_goal", "desired_goal"), self.observation_space)
        )

    def _see(self) -> Any:
        key = super()._see()
        return {"observation": key, "achieved_goal": key, "desired_goal": key * np.float32([1, 1, 0])}

    def step(self, action: Any) -> Any:
        seen, _, *rest = super().step(action)
        return seen, float(_reward(seen)), *rest

    compute_reward, compute_terminated = staticmethod(goal_reward), staticmethod(goal_reached)
