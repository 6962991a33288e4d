"""The two modes: in which order actors get orders, and in which their blocks are used."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from typing_extensions import override

from duetto.cluster.actor import Weights
from duetto.cluster.actor_pool import INFINITY
from duetto.cluster.block_source import BlockSource
from duetto.functional.state_schema import ARRAY, DictOf, OptionalOf
from duetto.learners.policy import PARAMETERS

LOOK = 0.002  # seconds between two looks for new blocks, while there are steps to hand out
MOMENTS: dict[str, Any] = {"mean": ARRAY, "variance": ARRAY, "count": float}
WEIGHTS: dict[str, Any] = {
    "version": int,
    "updates": int,
    "parameters": PARAMETERS,
    "observed": DictOf(MOMENTS),
    "rewarded": OptionalOf(MOMENTS),
    "largest": float,
}


class SyncSource(BlockSource):
    """The mode `sync`: the weights of each block are fixed, so the numbers depend on no actor's speed or death.

        learner   version 0 |           | learn from 0: version 1 | learn from 1: version 2 | learn from 2 ...
        actor 0             | block 0   | block 1, version 0      | block 2, version 1      |
        actor 1             | block 0 . | block 1, version 0 .... | block 2, version 1      |
                                          ^ all wait for the slowest, and for the learner

    Version k is what was learned from blocks 0 to k - 1, and actors act in block k with version k - 1 (in block 0 with
    version 0): so the actors make the next block while the learner learns from this one. A vector step is that of all
    actors, in their order. The numbers are the same for a given number of actors and length of blocks.
    """

    STATE: ClassVar[dict[str, Any]] = BlockSource.STATE | {"weights": OptionalOf(WEIGHTS)}

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

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if state["weights"] is not None:
            self._send(Weights(**{name: state["weights"][name] for name in Weights._fields}))


class AsyncSource(BlockSource):
    """The mode `async`: actors wait only for credit, and blocks are used in the order of arrival.

        learner   learn from A0 | from B0 .... | from A1 | from A2 | from B1    as many updates a step as ever
        actor A   A0 | A1 | A2 ........| A3 | wait for credit |                 each with the newest weights there are
        actor B   B0 ....... | B1 .......... | B2

    An actor is asked for its next block if all steps that were requested but not handed out, including this block, are
    at most `ahead` (the credit). The learner learns from steps as soon as they are handed out, by `update_schedule`. So
    the ratio of updates to steps is constant, the requested steps are bounded, and no step is dropped. The age of
    weights is not bounded: a slow actor may have started its block long ago.

    Blocks that arrive while there are steps to hand out are held. Then the oldest held block of each actor is handed
    out: one vector step of all these blocks at a time. So a busy learner takes larger vector steps, not more of them.
    Results depend on the order in which blocks arrive.

        handed out | vector steps of A0 and B0 ........ | of A1, B1 and C0 ....... | of A2 and B2
        held       |    B1    A1 B1   A1 B1 C0          | A2    A2 B2              |
                   |                             A2     |                          |

    Attributes:
        ahead: Most steps that may be requested but not handed out; by default two blocks of each actor.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ahead: int = 2 * self.length * self._stepper.num_envs
        self._look_at = 0.0  # when to look for new blocks again

    def _fill(self, step: int, total_steps: int) -> None:
        self._give_credit(step, total_steps)
        if self._asked and not (self._ready and time.perf_counter() < self._look_at):
            self._receive(1, 0.0 if self._rows else INFINITY)
            self._look_at = time.perf_counter() + LOOK
            self._give_credit(step, total_steps)
        if not self._ready:
            self._open()

    def _give_credit(self, step: int, total_steps: int) -> None:
        """Ask idle actors for blocks while there is credit, those with the fewest blocks first."""
        idle = [index for index in range(len(self._shares)) if index not in self._asked]
        waiting = self._rows + sum(map(self._size, self._asked))
        for index in sorted(idle, key=lambda index: self._accepted[index]):
            if waiting + self._size(index) > self.ahead:
                return
            if self._weights is None or self._weights.updates != self._learner.updates:
                self._publish()
            self._order(index, step + waiting, len(self._shares[index]), total_steps)
            waiting += self._size(index)

    def _size(self, index: int) -> int:
        return self.length * len(self._shares[index])
