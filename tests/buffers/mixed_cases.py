"""Memories with demonstrations. Every step says who it is: (environment, number), and (100 + episode, step)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import memory_cases
import numpy as np
import sequence_cases
from memory_cases import ACTION, PROPORTIONAL, VECTOR, rows
from sequence_cases import World

from duetto import buffers
from duetto.algorithms.base import DemonstrationSpec
from duetto.demonstrations import Demonstration

EXPERT = 100
LINEAR = replace(PROPORTIONAL, exponent=1.0, epsilon=1e-12, importance_exponent=0.6)


def demo(number: int, steps: int, terminated: bool = True, discrete: bool = False) -> Demonstration:
    """Observations (100 + number, t), the reward of step t is t."""
    t = np.arange(steps)
    obs = np.stack([np.full(steps + 1, EXPERT + number), np.arange(steps + 1)], axis=1).astype(np.float32)
    action = t if discrete else (t[:, None] / 1000).astype(np.float32)
    return Demonstration(obs, action, t.astype(np.float32), terminated, not terminated)


def given(demos: list[Any], seed: int = 0) -> buffers.Episodes:
    randoms = (np.random.default_rng(seed + 1), np.random.default_rng(seed + 2))
    return buffers.Episodes(demos, *randoms, [len(each.reward) for each in demos])


def mixing(**changes: Any) -> DemonstrationSpec:
    return DemonstrationSpec(**{"share": 0.25} | changes)


def steps(lengths: Any = (3, 2), num_envs: int = 1, own: int = 3, seed: int = 0, **changes: Any) -> buffers.MixedReplay:
    """Of single steps: demonstrations of these lengths, and `own` steps of the agent's in each environment."""
    mixed = {name: changes.pop(name) for name in list(changes) if name in DemonstrationSpec.__dataclass_fields__}
    spec = memory_cases.spec(demonstrations=mixing(**mixed), **changes)
    demos = [demo(number, length) for number, length in enumerate(lengths)]
    random = np.random.default_rng(seed)
    made = buffers.build(spec, VECTOR, ACTION, num_envs, random, demonstrations=given(demos, seed))
    assert isinstance(made, buffers.MixedReplay)
    for number in range(own):
        made.add(rows(np.arange(num_envs), number))
    return made


def sequences(
    lengths: Any = (3, 2), world: World | None = None, own: Any = (3, 2), carry: bool = False, **changes: Any
) -> buffers.MixedReplay:
    """Of sequences: demonstrations of these lengths, and the agent's own episodes."""
    mixed = {name: changes.pop(name) for name in list(changes) if name in DemonstrationSpec.__dataclass_fields__}
    spec = sequence_cases.spec(demonstrations=mixing(**mixed), stored_carry=carry, **changes)
    demos = given([demo(number, length, discrete=True) for number, length in enumerate(lengths)])
    world, random = world or World(), np.random.default_rng(0)
    made = buffers.build(spec, world.space, world.action, 1, random, demonstrations=demos)
    assert isinstance(made, buffers.MixedReplay)
    for length in own:
        for t in range(length):
            made.add(world.step(0, "terminated" if t == length - 1 else "", carry))
    return made


def sizes(made: buffers.MixedReplay, batches: int) -> np.ndarray:
    """How many of each batch are demonstrations."""
    return np.array([int(made.sample().batch.expert.sum()) for _ in range(batches)])


def masses(made: buffers.MixedReplay, part: str) -> np.ndarray:
    """p^α of the agent's items or of the experts', without empty places."""
    found = made.state_dict()[part]["items"]["mass"]
    return found[found > 0]


def give(made: buffers.MixedReplay, agent: Any, experts: Any) -> None:
    """Feed back these priorities, by place in the ring, until each item has had one; of sequences, for every step."""
    wanted = {(0, place) for place in range(len(agent))} | {(1, place) for place in range(len(experts))}
    while wanted:
        sample = made.sample()
        flags = sample.batch.expert.astype(int).tolist()
        names = [(flag, place) for flag, place in zip(flags, sample.index.tolist(), strict=True)]
        made.feedback(sample, np.array([(experts if flag else agent)[place] for flag, place in names], np.float64))
        wanted -= set(names)
