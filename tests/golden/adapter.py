"""All internal names of buffers, environments, runs and the cluster: after a rename, change only this file.

No commit that changes this file may change a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from shard_cases import Near
from simulated import Rates, Simulated

from duetto import buffers, environments
from duetto.cluster import config as options
from duetto.cluster.remote_engine import shares
from duetto.networks import masks
from duetto.storage.tree_codec import decode_arrays, decode_tree, encode_arrays, encode_tree

Arrays = dict[str, np.ndarray]


# ---------------------------------------------------------------------------------------------------- buffers
class Buffer:
    """The buffer of an algorithm for Gymnasium spaces; `given`: stacked, demos, goals, shards, value."""

    def __init__(self, algorithm: Any, *spaces: Any, num_envs: int = 3, seed: int = 0, **given: Any) -> None:
        value, demos, parts = (given.pop(name, None) for name in ("value", "demos", "shards"))
        random, *own = (np.random.default_rng(seed + i) for i in range(3))
        given["value"] = value and (lambda obs: value(arrays({"obs": obs})))
        given["demonstrations"] = demos and buffers.Episodes(demos, *own, [len(demo.reward) for demo in demos])
        given["shards"] = Near(shares(num_envs, parts)) if parts else None
        spaces = tuple(map(environments.from_gymnasium, spaces))
        self._memory = buffers.build(algorithm.memory(), *spaces, num_envs, random, **given)

    def __len__(self) -> int:
        return len(self._memory)

    def add(self, step: dict[str, Any]) -> None:
        self._memory.add(buffers.Experience(**step))

    def interrupt(self, envs: np.ndarray) -> None:
        self._memory.interrupt(envs)

    def draw(self) -> Arrays:
        return arrays(self._memory.sample().batch)

    def due(self, errors: Callable[[Arrays], np.ndarray] = lambda _: np.zeros(0)) -> Iterator[Arrays]:
        """Yield the batches that are due, and give them new errors."""
        for sample in chain(self._memory.pretraining(), self._memory.due()):
            yield (rows := arrays(sample.batch))
            self._memory.feedback(sample, errors(rows))

    def save(self, since: Any = None) -> tuple[Any, Any, np.ndarray]:
        """Return the state, the rows written after the counts `since`, and the counts now."""
        written = self._memory.written
        segment = self._memory.segment(np.zeros_like(written) if since is None else since)
        return encode_tree("memory", self._memory.state_dict()), segment and encode_arrays(segment), written

    def load(self, state: Any, segments: list[Any]) -> None:
        self._memory.load_state_dict(decode_tree("memory", state))
        for segment in filter(None, segments):
            self._memory.load_segment(decode_arrays(segment))


def arrays(tree: Any, prefix: str = "") -> Arrays:
    """Return copies of a tree's leaves by name; the parts of a window have no prefix."""
    found: Arrays = {}
    for name, part in (tree if isinstance(tree, Mapping) else tree._asdict()).items():
        if isinstance(part, Mapping | tuple):
            found |= arrays(part, "" if hasattr(part, "previous_action") else f"{prefix}{name}/".replace("//", "/"))
        elif part is not None and name != "query_steps":
            name = {"is_first": "fresh"}.get(name, name.replace(masks.MASK, "mask"))  # names in the traces
            found[f"{prefix}{name}".rstrip("/")] = np.array(part)
    return found


# ---------------------------------------------------------------------------------------------------- environments
def play(environment: Any, steps: int, seed: int, **how: Any) -> Iterator[tuple[Arrays, Arrays, list[Any]]]:
    """Take random allowed actions; yield transitions, what follows them, and finished episodes."""
    stepper, random, lives = environments.make(environment, **how), np.random.default_rng(seed), list[Any]()
    step = stepper.engine.step
    stepper.engine.step = lambda actions: [outcome := step(actions), lives.append(outcome.lives)][0]
    stepper.reset(seed)
    for _ in range(steps):
        transition, episodes = stepper.step(stepper.sample_actions(random))
        after = {"obs": stepper.obs, "starts": stepper.starts, "lives": np.int64(lives.pop())}
        yield arrays(transition), arrays(after), episodes
    stepper.close()


# ---------------------------------------------------------------------------------------------------- runs
def tap(trainer: Any, stored: list[Arrays], learned: list[Arrays]) -> None:
    """Append the steps stored and the batches drawn in a trainer to these lists."""
    memory = trainer.memory

    def heard(source: Any) -> Iterator[Any]:
        for sample in source:
            learned.append(arrays(sample.batch))
            yield sample

    if not hasattr(memory, "tapped"):  # the first masks replace the buffer
        memory.tapped, add, due, pretraining = True, memory.add, memory.due, memory.pretraining
        memory.add = lambda step: (stored.append(arrays(step)), add(step))
        memory.due, memory.pretraining = lambda: heard(due()), lambda: heard(pretraining())


def statistics(trainer: Any) -> Arrays:
    """Return mean, variance and count of observations and rewards."""
    rewards = getattr(trainer.collector, "rewards", None) or getattr(
        trainer.collector, "_rewards", None
    )  # on a cluster
    return arrays({"observed": trainer.normalizer.moments} | ({"rewarded": rewards.moments} if rewards else {}))


# ---------------------------------------------------------------------------------------------------- cluster
def sync_cluster(patch: Any, **how: Any) -> options.Cluster:
    """Return a simulated cluster without failures, in the mode sync."""
    rates = Rates(*[0.0] * len(Rates.__dataclass_fields__))
    patch.setattr(options, "find_spec", lambda name: name)
    patch.setattr(options.Cluster, "connect", lambda self, actors: Simulated(0, rates))
    return options.Cluster(mode="sync", **how)
