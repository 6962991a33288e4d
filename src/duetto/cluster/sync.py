"""The mode `sync`: the weights of each block are fixed, so the numbers depend on no actor's speed or death.

    learner   version 0 |           | learn from 0: version 1 | learn from 1: version 2 | learn from 2 ...
    actor 0             | block 0   | block 1, version 0      | block 2, version 1      |
    actor 1             | block 0 . | block 1, version 0 .... | block 2, version 1      |
                                      ^ all wait for the slowest, and for the learner

Version k is what was learned from blocks 0 to k - 1, and actors act in block k with version k - 1 (in block 0 with
version 0): so the actors make the next block while the learner learns from this one. A vector step is that of all
actors, in their order. The numbers are the same for a given number of actors and length of blocks.
"""

from __future__ import annotations

from typing import Any, ClassVar

from typing_extensions import override

from duetto.cluster.actor import Weights
from duetto.cluster.block_source import BlockSource
from duetto.functional.state_schema import ARRAY, DictOf, OptionalOf
from duetto.learners.policy import PARAMETERS

MOMENTS: dict[str, Any] = {"mean": ARRAY, "variance": ARRAY, "count": float}
WEIGHTS: dict[str, Any] = {
    "version": int,
    "updates": int,
    "parameters": PARAMETERS,
    "observed": DictOf(MOMENTS),
}


class SyncSource(BlockSource):
    """Return the blocks of all actors in one order, regardless of their arrival."""

    STATE: ClassVar[dict[str, Any]] = BlockSource.STATE | {
        "weights": OptionalOf(WEIGHTS | {"rewarded": OptionalOf(MOMENTS), "largest": float})
    }

    def _fill(self, step: int, total_steps: int) -> None:
        if self._ready:
            return
        if not self._asked:  # at the start of a run or of a process that resumes it
            if self._weights is None:
                self._publish()
            self._order_all(step, total_steps)
        self._receive(len(self._asked))
        self._open()
        self._publish()
        self._order_all(step + self._rows, total_steps)

    def _order_all(self, step: int, total_steps: int) -> None:
        for index in range(len(self._shares)):
            self._order(index, step, self._stepper.num_envs, total_steps)

    @override
    def state_dict(self) -> dict[str, Any]:
        """With the weights that blocks in flight are made with."""
        return super().state_dict() | {"weights": self._weights and self._weights._asdict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`."""
        super().load_state_dict(state)
        if state["weights"] is not None:
            self._send(Weights(**{name: state["weights"][name] for name in Weights._fields}))
