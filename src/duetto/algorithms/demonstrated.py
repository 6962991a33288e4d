"""What every algorithm that learns from demonstrations has in common: where they lie, and how many of them it sees."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from duetto.algorithms.base import CountOrZero, DemonstrationSpec, Fraction, NonNegative, ReplaySpec, SequenceSpec
from duetto.algorithms.offpolicy import Replayed
from duetto.algorithms.searching import Around, Search
from duetto.errors import UsageError


@dataclass(frozen=True)
class Demonstrated(Replayed):
    """Hyper-parameters of every algorithm that learns from demonstrations."""

    demonstrations: str = ""
    """Folder of the demonstrations; `duetto demos record` makes one."""
    demonstration_share: Fraction = 0.25
    """ρ: each item of a batch is a demonstration with this probability, also far below 1 / batch_size."""
    share_by_priority: bool = False
    """Draw from demonstrations and own experience together, by priority, instead of a fixed share."""
    demonstration_priority_epsilon: NonNegative = 0.0
    """Added to every priority of a demonstration in place of priority_epsilon; 0 takes that."""
    pretraining_updates: CountOrZero = 0
    """Updates from demonstrations alone before the first step."""

    alternatives: ClassVar[dict[str, Any]] = {"replacement": None, "train_at_episode_end": None}
    tuned: ClassVar[dict[str, Search | None]] = {
        "demonstration_share": Around(4),
        **dict.fromkeys(("share_by_priority", "demonstration_priority_epsilon")),
    }

    def memory(self) -> ReplaySpec | SequenceSpec:
        """A replay memory with demonstrations beside it."""
        spec = DemonstrationSpec(
            self.demonstration_share,
            self.share_by_priority,
            self.demonstration_priority_epsilon,
            self.pretraining_updates,
        )
        return dataclasses.replace(super().memory(), demonstrations=spec)

    def demonstration_folder(self) -> str:
        """See `demonstrations`."""
        if not self.demonstrations:
            raise UsageError(
                f"{self.name()} learns from demonstrations: give --demonstrations FOLDER (duetto demos record)."
            )
        return self.demonstrations
