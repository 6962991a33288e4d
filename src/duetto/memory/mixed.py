"""A replay memory with demonstrations beside it, which stay as long as the run does.

    batch of 6, share 1/3      agent's  a a a a | demonstrations  d d     K = 2 of Binomial(6, 1/3)
                               agent's  a a a a a a |                     K = 0 is as likely as it is
    weights                    normalised among the agent's, and among the demonstrations
    priorities                 each back to where its item came from

With `by_priority` both are one memory of which the demonstrations are never overwritten: the share is that of their
p^α among those of all, and the weights are normalised among all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from duetto.algorithms.base import Batch, DemonstrationSpec, SequenceBatch
from duetto.errors import CheckpointError
from duetto.functional import forms, randomness
from duetto.functional.forms import ANY
from duetto.functional.trees import merged
from duetto.memory.afar import Afar
from duetto.memory.base import Experience, Memory, Sample
from duetto.memory.draws import ProportionalDraws
from duetto.memory.joint import JointDraws
from duetto.memory.prioritized import PrioritizedReplay
from duetto.memory.replay import Replay
from duetto.memory.sequences import SequenceReplay
from duetto.memory.sharded import Sharded

Kind = Replay | SequenceReplay | Sharded


class Mixed(Memory):
    """A memory whose batches hold items of the agent's own experience, then items of demonstrations.

    Drawing demonstrations does not change which of the agent's items are drawn: with a share of 0 the batches are
    those of the agent's memory alone.
    """

    def __init__(
        self,
        spec: DemonstrationSpec,
        batch_size: int,
        agent: Kind,
        experts: Kind,
        fingerprint: str,
        random: np.random.Generator,
    ) -> None:
        """Use `memory.build`. `experts` holds the demonstrations; `random` belongs to this memory."""
        self._spec, self._batch_size = spec, batch_size
        self._agent, self._experts = agent, experts
        self._fingerprint, self._random = fingerprint, random
        self._pretrained = 0

    def __len__(self) -> int:
        """Return the number of the agent's own items that can be sampled."""
        return len(self._agent)

    @property
    def needs_priorities(self) -> bool:
        """Whether `feedback` wants errors."""
        return self._agent.needs_priorities

    @property
    def written(self) -> np.ndarray:
        """(num_envs,) int64, rows of the agent's own ever written per environment."""
        return self._agent.written

    @property
    def rows(self) -> int:
        """Rows that each environment's ring can hold."""
        return self._agent.rows

    def add(self, experience: Experience) -> None:
        """Store the agent's steps."""
        self._agent.add(experience)

    def take(self, step: Experience | Afar) -> None:
        """See Memory."""
        self._agent.take(step)

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Note that every environment, or those in `envs` (N,) bool, begins an episode though its last did not end."""
        self._agent.interrupt(envs)

    # ------------------------------------------------------------------------------------------------ sampling
    @property
    def pretraining_left(self) -> int:
        """How many batches `pretraining` still has."""
        return max(self._spec.pretraining - self._pretrained, 0)

    def pretraining(self) -> Iterator[Sample]:
        """Yield the batches of demonstrations alone that come before the first step."""
        while self.pretraining_left:
            self._pretrained += 1
            yield self._sample(self._batch_size)

    def due(self) -> Iterator[Sample]:
        """Yield the batches that should be learned from now; they wait for the agent's first item."""
        while self._agent.schedule.due and len(self._agent) and self._agent.schedule.take():
            yield self.sample()

    def sample(self) -> Sample:
        """Sample a batch with a random number of demonstrations, of the share's mean."""
        return self._sample(int(self._random.binomial(self._batch_size, self._share())))

    def _share(self) -> float:
        if not self._spec.by_priority:
            return self._spec.share
        agent, experts = _priorities(self._agent).total, _priorities(self._experts).total
        return experts / (agent + experts)

    def _sample(self, experts: int) -> Sample:
        """Sample a batch of which `experts` items are demonstrations."""
        parts = []
        exponent = _priorities(self._agent).exponent if self.needs_priorities else 0.0
        for kind, size in ((self._agent, self._batch_size - experts), (self._experts, experts)):
            if size:
                sample = kind.sample(size)
                parts.append(sample._replace(batch=self._marked(sample.batch, kind, exponent)))
            elif self.needs_priorities:
                _priorities(kind).skip()  # both have the same importance exponent
        batch = _joined([sample.batch for sample in parts])
        index, stamp = (np.concatenate([getattr(sample, name) for sample in parts]) for name in ("index", "stamp"))
        return Sample(batch, index, stamp, info={"demonstrations": experts / self._batch_size})

    def _marked(self, batch: Any, kind: Kind, exponent: float) -> Batch | SequenceBatch:
        """Set `expert` in the batch, and with `by_priority` normalise its weights among both memories' items."""
        weight = batch.weight
        if self._spec.by_priority:
            least = min(_priorities(each).smallest for each in (self._agent, self._experts))
            weight = (weight * (least / _priorities(kind).smallest) ** exponent).astype(np.float32)
        return batch._replace(expert=np.full(len(weight), kind is self._experts, np.float32), weight=weight)

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Give the sampled items new priorities, each in its own memory."""
        if not self.needs_priorities:
            return
        assert priority is not None
        assert isinstance(sample.batch, Batch | SequenceBatch)
        for kind, flag in ((self._agent, 0), (self._experts, 1)):
            rows = np.flatnonzero(sample.batch.expert == flag)
            if len(rows):
                kind.feedback(_part(sample, rows), priority[rows])
        if self._spec.by_priority:  # new items of the one memory that both are
            agent = _priorities(self._agent)
            agent.largest = max(agent.largest, _priorities(self._experts).largest)

    # ------------------------------------------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Return both memories' states, without the demonstrations: those are read from their folder again."""
        return {
            "agent": self._agent.state_dict(),
            "experts": self._experts.state_dict(),
            "fingerprint": self._fingerprint,
            "pretrained": self._pretrained,
            "random": randomness.state_of(self._random),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; the agent's rows follow with `load_segment`.

        Raises:
            CheckpointError: other demonstrations than those that the run began with.
        """
        form = {"agent": ANY, "experts": ANY, "fingerprint": str, "pretrained": int, "random": ANY}
        forms.check(state, form, "memory")
        if state["fingerprint"] != self._fingerprint:
            raise CheckpointError(
                "The demonstrations are not those that the run began with: their contents have changed. Put the old "
                "ones back in their folder, or start a new run."
            )
        self._agent.load_state_dict(state["agent"])
        self._experts.load_state_dict(state["experts"])
        self._pretrained = state["pretrained"]
        randomness.restore(self._random, state["random"])

    @staticmethod
    def agents(state: dict[str, Any]) -> dict[str, Any]:
        """Return the part of a state that is the agent's own memory's."""
        return state["agent"]

    def emptied(self, state: dict[str, Any]) -> dict[str, Any]:
        """See `Memory.emptied`: the agent's part is empty. The demonstrations stay, with their priorities."""
        return state | {"agent": self._agent.emptied(state["agent"])}

    def segment(self, since: np.ndarray) -> dict[str, np.ndarray] | None:
        """Return the agent's rows written after the counts `since` (num_envs,)."""
        return self._agent.segment(since)

    def load_segment(self, segment: dict[str, np.ndarray]) -> None:
        """Put the agent's rows back."""
        self._agent.load_segment(segment)


def _priorities(kind: Kind) -> ProportionalDraws | JointDraws:
    assert isinstance(kind, PrioritizedReplay | SequenceReplay | Sharded)
    assert isinstance(kind.draws, ProportionalDraws | JointDraws)
    return kind.draws


def _joined(batches: list[Any]) -> Any:
    """Concatenate one or two batches. States that only the agent's sequences have are zeros for demonstrations."""
    if len(batches) == 1:
        return batches[0]
    if isinstance(batches[0], SequenceBatch):
        carry = batches[0].obs.carry
        zeros = {name: np.zeros((len(batches[1].weight), *part.shape[1:]), part.dtype) for name, part in carry.items()}
        batches = [batches[0], batches[1]._replace(obs=batches[1].obs._replace(carry=zeros))]
    return merged(np.concatenate, batches)


def _part(sample: Sample, rows: np.ndarray) -> Sample:
    """Select items of a sample, as far as `feedback` reads it."""
    batch = sample.batch
    if isinstance(batch, SequenceBatch):
        batch = batch._replace(mask=batch.mask[rows])
    return Sample(batch, sample.index[rows], sample.stamp[rows])
