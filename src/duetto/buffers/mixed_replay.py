"""A replay buffer whose batches also contain demonstrations, which a second buffer stores for the whole run.

The number of demonstrations in a batch is binomial. For example, with a batch of 6 and a share of 1/3:

    a a a a d d        a: item of the agent, d: demonstration; the draw from Binomial(6, 1/3) was 2
    a a a a a a        the draw was 0

Each buffer normalizes the importance weights of its own items, and receives the new priorities of its own items.

With `by_priority`, both buffers act as a single one: the expected share of demonstrations in a batch is their share of
the sum of all p^α (p: priority), and weights are normalized over the items of both buffers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from duetto.algorithms.base import Batch, DemonstrationSpec, ReplaySpec, SequenceBatch, SequenceSpec
from duetto.buffers.base import Experience, Memory, Sample, rows, scattered
from duetto.buffers.episode_storage import Segment
from duetto.buffers.replay import Replay
from duetto.buffers.sampling import checked_priorities
from duetto.buffers.sharded_replay import ReplayFactory, ShardedReplay
from duetto.errors import CheckpointError, UsageError
from duetto.functional import rng
from duetto.functional.pytree import tree_leaves

Kind = Replay | ShardedReplay


class Episodes(NamedTuple):
    """Demonstration episodes, and the generators that draw from them."""

    episodes: Sequence[Any]  # each has obs (T + 1, ...), action, reward (T, ...), terminated and truncated (bool)
    random: np.random.Generator  # draws how many items of a batch are demonstrations
    own_random: np.random.Generator  # draws these demonstrations
    lengths: Sequence[int]  # T of each episode


class MixedReplay(Memory):
    """A buffer whose batches contain items of the agent, followed by items of demonstrations.

    With a share of 0, batches equal those of the agent's buffer.
    """

    def __init__(self, factory: ReplayFactory, agent: Kind, demonstrations: Episodes) -> None:
        """Called by `buffers.build`. `factory` also makes the buffer of the demonstrations.

        Raises:
            UsageError: `by_priority` is set without prioritized replay, or all episodes are shorter than the burn-in.
        """
        spec = factory.spec
        assert spec.demonstrations is not None
        if spec.demonstrations.by_priority and spec.prioritization is None:
            raise UsageError(
                "share_by_priority requires prioritized replay. Set prioritized, or turn share_by_priority off."
            )
        own = own_spec(spec, spec.demonstrations, sum(demonstrations.lengths))
        self._spec, self._batch_size, self._random = spec.demonstrations, spec.batch_size, demonstrations.random
        self._agent = agent
        self._experts = factory._replace(spec=own, rows=own.capacity).make(1, demonstrations.own_random)
        self._fingerprint = fill(self._experts, demonstrations.episodes)
        if not len(self._experts):
            raise UsageError("No demonstration can be learned from: all are shorter than the burn-in. Lower burn_in.")
        self._pretrained = 0
        self.rows: int = agent.rows
        self.needs_priorities: bool = agent.needs_priorities

    def __len__(self) -> int:
        """Return the number of the agent's items that can be sampled."""
        return len(self._agent)

    @property
    @override
    def written(self) -> np.ndarray:
        return self._agent.written

    @override
    def add(self, experience: Experience) -> None:
        self._agent.add(experience)

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Truncate the running episodes of all environments, or only of those that `envs` (N,) bool selects."""
        self._agent.interrupt(envs)

    # ------------------------------------------------------------------------------------------------ sampling
    @property
    def pretraining_left(self) -> int:
        """The number of batches that `pretraining` still yields."""
        return max(self._spec.pretraining - self._pretrained, 0)

    @override
    def pretraining(self) -> Iterator[Sample]:
        while self.pretraining_left:
            self._pretrained += 1
            yield self._sample(self._batch_size)

    def due(self) -> Iterator[Sample]:
        """Yield the batches that are due. None is due while the agent's buffer is empty."""
        while self._agent.take_due():
            yield self.sample()

    def sample(self) -> Sample:
        """Sample a batch with a binomial number of demonstrations."""
        return self._sample(int(self._random.binomial(self._batch_size, self._share())))

    def _share(self) -> float:
        if not self._spec.by_priority:
            return self._spec.share
        agent, experts = self._agent.line.length, self._experts.line.length
        return experts / (agent + experts)

    def _sample(self, experts: int) -> Sample:
        """Sample a batch in which `experts` items are demonstrations."""
        parts = []
        exponent = self._agent.sampler.exponent
        for kind, size in ((self._agent, self._batch_size - experts), (self._experts, experts)):
            if size:
                sample = kind.sample(size)
                parts.append(sample._replace(batch=self._marked(sample.batch, kind, exponent)))
            else:
                kind.sampler.batches += 1  # keeps both buffers' importance exponents equal
        batch = parts[0].batch
        if len(parts) > 1:  # if the agent's sequences have hidden states, those of demonstrations are zeros
            places = np.split(np.arange(self._batch_size), [self._batch_size - experts])
            batch = scattered([sample.batch for sample in parts], places)
        index, stamp = (np.concatenate([getattr(sample, name) for sample in parts]) for name in ("index", "stamp"))
        return Sample(batch, index, stamp, info={"demonstrations": experts / self._batch_size})

    def _marked(self, batch: Any, kind: Kind, exponent: float) -> Batch | SequenceBatch:
        """Return the batch with its `expert` flags; with `by_priority`, normalize its weights over both buffers."""
        weight = batch.weight
        if self._spec.by_priority:
            least = min(each.line.least for each in (self._agent, self._experts))
            weight = (weight * (least / kind.line.least) ** exponent).astype(np.float32)
        return batch._replace(expert=np.full(len(weight), kind is self._experts, np.float32), weight=weight)

    @override
    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        if not self.needs_priorities:
            return
        error = checked_priorities(self._agent.spec, sample, priority)
        assert isinstance(sample.batch, Batch | SequenceBatch)
        assert sample.batch.expert is not None
        expert = sample.batch.expert > 0
        for kind, own in ((self._agent, ~expert), (self._experts, expert)):
            kind.learn_errors(sample.index[own], sample.stamp[own], error[own])
        if self._spec.by_priority:  # new items get the largest |δ| of both buffers
            self._agent.raise_largest(self._experts.sampler.largest)

    # ------------------------------------------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Return the states of both buffers without the demonstrations, which a resumed run loads again."""
        return {
            "agent": self._agent.state_dict(),
            "experts": self._experts.sampler_state(),
            "fingerprint": self._fingerprint,
            "pretrained": self._pretrained,
            "random": rng.rng_state(self._random),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`. Afterwards, call `load_segment` for the agent's steps.

        Raises:
            CheckpointError: The demonstrations have changed since the run started.
        """
        if state["fingerprint"] != self._fingerprint:
            raise CheckpointError(
                "The contents of the demonstrations have changed since the run started. Restore the old contents, or "
                "start a new run."
            )
        self._agent.load_state_dict(state["agent"])
        self._experts.load_sampler_state(state["experts"])
        self._pretrained = state["pretrained"]
        rng.restore_rng(self._random, state["random"])

    @override
    def segment(self, since: np.ndarray) -> Segment:
        return self._agent.segment(since)

    @override
    def load_segment(self, segment: Segment) -> None:
        self._agent.load_segment(segment)


def own_spec(spec: ReplaySpec | SequenceSpec, mixing: DemonstrationSpec, steps: int) -> Any:
    """Return the spec of the demonstrations' buffer: it has room for `steps` steps and stores no hidden states."""
    priorities = spec.prioritization
    if priorities is not None and mixing.priority_epsilon > 0:
        priorities = replace(priorities, epsilon=mixing.priority_epsilon)
    spec = replace(spec, capacity=steps, demonstrations=None, prioritization=priorities)
    if isinstance(spec, ReplaySpec):
        return spec
    return replace(spec, capacity=max(steps, spec.burn_in + spec.unroll + 1), stored_carry=False)


def fill(memory: Replay, episodes: Sequence[Any]) -> str:
    """Store all episodes in `memory` as environment 0, and return the SHA-256 of their contents."""
    digest = hashlib.sha256()
    for episode in episodes:
        steps = len(episode.reward)
        last = np.arange(steps) == steps - 1
        experience = Experience(
            env=np.zeros(steps, np.int64),
            obs=rows(episode.obs, slice(0, -1)),
            action=episode.action,
            reward=episode.reward,
            next_obs=rows(episode.obs, slice(1, None)),
            terminated=last & episode.terminated,
            truncated=last & episode.truncated,
        )
        for part in (*tree_leaves(episode.obs), *experience[2:4], *experience[5:7]):
            digest.update(np.ascontiguousarray(part).tobytes())
        for row in range(steps):
            memory.add(rows(experience, slice(row, row + 1)))
    return digest.hexdigest()
