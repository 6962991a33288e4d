"""Check whether a seed repeats: in one environment, and in two."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable, Iterator

import gymnasium
import numpy as np

from duetto.environments import calls
from duetto.environments.checking.drawing import Drawing
from duetto.environments.checking.findings import Finding, costs, fine
from duetto.environments.spaces import Layout

STEPS, ENOUGH = 100, 5.0
_CONSEQUENCE = "a run can be neither repeated nor compared"

Trace = list[tuple[int, int, int]]  # after the reset and each step: checksums of observation, reward, and flags
PARTS = ("observation", "reward", "end of the episode")


def seeds(env: gymnasium.Env, other: gymnasium.Env, alive: Callable[[], None]) -> Iterator[Finding]:
    """Check that the same seed and the same actions give the same, and that no global generator is drawn from."""
    before = _globals()
    first = _trace(env, 7, STEPS, alive)
    drawn = _globals() != before
    repeated = _difference(first, _trace(env, 7, len(first) - 1, alive))
    elsewhere = _difference(first, _trace(other, 7, len(first) - 1, alive))
    if repeated or elsewhere:
        which = "in one environment" if repeated else "in two environments"
        yield costs(
            "seeds",
            f"reset(seed=7) and the same actions lead to something else {which}: the {repeated or elsewhere}. So "
            f"{_CONSEQUENCE}. {_cause(env, drawn)}",
        )
        return
    same_start = _trace(env, 8, 0, alive)[0][0] == first[0][0]
    more = "; another seed begins in the same state" if same_start else ""
    yield fine("seeds", f"A seed repeats, in one environment and in another{more}.")
    if drawn:
        yield costs(
            "seeds",
            "It draws from the global generators (random, np.random), which all environments of a process share: with "
            "several, a seed repeats no longer. Call super().reset(seed=seed) and draw from self.np_random.",
        )


def _cause(env: gymnasium.Env, drawn: bool) -> str:
    if drawn:
        return "It draws from the global generators random or np.random: draw from self.np_random alone."
    if getattr(env.unwrapped, "_np_random", None) is None:
        return "Its reset makes no generator: call super().reset(seed=seed), and draw from self.np_random alone."
    return (
        "Draw from self.np_random alone, set everything anew in reset, and look for what depends on time, on sets, or "
        "on threads."
    )


def _trace(env: gymnasium.Env, seed: int, steps: int, alive: Callable[[], None]) -> Trace:
    layout, draw, began = Layout(env.observation_space), Drawing(env.action_space, seed), time.perf_counter()
    obs, info = calls.reset(env, None, seed=seed)
    trace: Trace = [(_checksum(layout, obs), 0, 0)]
    while len(trace) <= steps and time.perf_counter() - began < ENOUGH:
        alive()
        obs, reward, terminated, truncated, info = calls.step(env, None, draw(info)[0])
        trace.append((_checksum(layout, obs), hash(float(reward)), 2 * bool(terminated) + bool(truncated)))
        if terminated or truncated:
            obs, info = calls.reset(env, None)
            trace.append((_checksum(layout, obs), 0, 0))
    return trace


def _difference(first: Trace, second: Trace) -> str:
    """Return the part that differs first, and where; "" where all that both have is the same."""
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        for part, a, b in zip(PARTS, one, other, strict=True):
            if a != b:
                return f"{part} differs " + (f"at step {number}" if number else "at the reset")
    return ""


def _checksum(layout: Layout, obs: object) -> int:
    total = 0
    for leaf in layout.leaves:
        total = zlib.crc32(np.ascontiguousarray(leaf.read(obs, None)).tobytes(), total)
    return total


def _globals() -> tuple[object, bytes]:
    return random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index,union-attr]
