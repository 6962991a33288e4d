"""Buffers with demonstrations. An observation names its step: (0, number), or (100 + episode, step)."""

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
    """Return an episode with observations (100 + number, t) and reward t at step t."""
    t = np.arange(steps)
    obs = np.stack([np.full(steps + 1, EXPERT + number), np.arange(steps + 1)], axis=1).astype(np.float32)
    action = t if discrete else (t[:, None] / 1000).astype(np.float32)
    return Demonstration(obs, action, t.astype(np.float32), terminated, not terminated)


def episodes_of(demos: list[Any], seed: int = 0) -> buffers.Episodes:
    randoms = (np.random.default_rng(seed + 1), np.random.default_rng(seed + 2))
    return buffers.Episodes(demos, *randoms, [len(each.reward) for each in demos])


def mixing_spec(**changes: Any) -> DemonstrationSpec:
    return DemonstrationSpec(**{"share": 0.25} | changes)


def transition_buffer(lengths: Any = (3, 2), own: int = 3, seed: int = 0, **changes: Any) -> buffers.MixedReplay:
    """Return a buffer of transitions: demonstrations of these lengths, and `own` steps of the agent."""
    demos = episodes_of([demo(number, length) for number, length in enumerate(lengths)], seed)
    spec = memory_cases.spec(**_split(changes))
    made = buffers.build(spec, VECTOR, ACTION, 1, np.random.default_rng(seed), demonstrations=demos)
    assert isinstance(made, buffers.MixedReplay)
    for number in range(own):
        made.add(rows(0, number))
    return made


def sequence_buffer(
    lengths: Any = (3, 2), own: Any = (3, 2), carry: bool = False, **changes: Any
) -> buffers.MixedReplay:
    """Return a buffer of sequences: demonstrations and the agent's episodes of these lengths."""
    spec = sequence_cases.spec(stored_carry=carry, **_split(changes))
    demos = episodes_of([demo(number, length, discrete=True) for number, length in enumerate(lengths)])
    world = World()
    made = buffers.build(spec, world.space, world.action, 1, np.random.default_rng(0), demonstrations=demos)
    assert isinstance(made, buffers.MixedReplay)
    for length in own:
        for t in range(length):
            made.add(world.step(0, "terminated" if t == length - 1 else "", carry))
    return made


def _split(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changes of a buffer's spec, with those of its demonstrations as a part of it."""
    mixed = {name: value for name, value in changes.items() if name in DemonstrationSpec.__dataclass_fields__}
    rest = {name: value for name, value in changes.items() if name not in mixed}
    return rest | {"demonstrations": mixing_spec(**mixed)}


def demonstration_counts(made: buffers.MixedReplay, batches: int) -> np.ndarray:
    """Return the number of demonstrations in each batch."""
    return np.array([int(made.sample().batch.expert.sum()) for _ in range(batches)])


def masses(made: buffers.MixedReplay, part: str) -> np.ndarray:
    """Return p^α of the items of one buffer, "agent" or "experts"."""
    found = made.state_dict()[part]["items"]["mass"]
    return found[found > 0]


def set_priorities(made: buffers.MixedReplay, agent: Any, experts: Any) -> None:
    """Feed back these priorities by index, until each item has one."""
    wanted = {(0, place) for place in range(len(agent))} | {(1, place) for place in range(len(experts))}
    while wanted:
        sample = made.sample()
        flags = sample.batch.expert.astype(int).tolist()
        names = [(flag, place) for flag, place in zip(flags, sample.index.tolist(), strict=True)]
        made.feedback(sample, np.array([(experts if flag else agent)[place] for flag, place in names], np.float64))
        wanted -= set(names)
