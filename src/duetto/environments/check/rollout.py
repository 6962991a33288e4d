"""Play random actions in an environment, and record what the rules judge."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from duetto.environments import obs_tree
from duetto.environments.check.findings import Findings
from duetto.environments.vec_env import Episode, Transition, VecEnv

MAX_SECONDS = 10.0  # a slow environment plays fewer steps


@dataclass
class RolloutRecord:
    """What random actions led to."""

    seconds: float = 0.0
    rewards: list[float] = field(default_factory=list)  # of each step
    episodes: list[tuple[int, bool, bool]] = field(default_factory=list)  # length, terminated, truncated
    low: dict[str, np.ndarray] = field(default_factory=dict)  # smallest observations, by part
    high: dict[str, np.ndarray] = field(default_factory=dict)


def play(vec: VecEnv, seed: int, steps: int) -> Iterator[tuple[Transition, list[Episode]]]:
    """Yield at most `steps` steps with random, allowed actions. Raises what a run would raise."""
    random, began = np.random.default_rng(seed), time.perf_counter()
    for _ in range(steps):
        if time.perf_counter() - began > MAX_SECONDS:
            return
        yield vec.step(vec.sample_actions(random))


def record_rollout(findings: Findings, vec: VecEnv, steps: int) -> RolloutRecord:
    """Play random actions, and record what they lead to."""
    record, began = RolloutRecord(), time.perf_counter()
    findings.doing = "while random actions were played"
    vec.reset(5)
    for transition, episodes in play(vec, 5, steps):
        flags = bool(transition.terminated[0]), bool(transition.truncated[0])
        record.episodes += [(episode.length, *flags) for episode in episodes]
        record.rewards.append(float(transition.reward[0]))
        for name, value in [*obs_tree.parts(transition.next_obs), *obs_tree.parts(vec.obs)]:
            record.low[name] = np.minimum(record.low.get(name, value), value)
            record.high[name] = np.maximum(record.high.get(name, value), value)
    record.seconds = time.perf_counter() - began
    return record
