"""The mode `async`: actors wait only for credit, and blocks are used in the order of arrival.

    learner   learn from A0 | from B0 .... | from A1 | from A2 | from B1    as many updates a step as ever
    actor A   A0 | A1 | A2 ........| A3 | wait for credit |                 each with the newest weights there are
    actor B   B0 ....... | B1 .......... | B2

An actor is asked for its next block if the steps that were asked for and not handed out yet, with this block, are at
most `ahead` (its credit). The learner learns from steps as soon as they are handed out, by `update_schedule`. So steps
and updates keep their ratio at every moment, the steps in flight are bounded, and nothing is dropped. The age of
weights is not bounded: a slow actor brings one block that was started long ago.

Blocks that come while there are steps to hand out are held. Then the oldest held block of each actor is handed out,
side by side, a vector step of all of them at a time: so a busy learner takes larger steps, not more of them. The run's
numbers depend on the order in which blocks come.

    handed out | vector steps of A0 and B0 ........ | of A1, B1 and C0 ....... | of A2 and B2
    held       |    B1    A1 B1   A1 B1 C0          | A2    A2 B2              |
               |                             A2     |                          |
"""

from __future__ import annotations

import time
from typing import Any

from duetto.cluster.actor_pool import INFINITY
from duetto.cluster.block_source import BlockSource

LOOK = 0.002  # seconds between two looks for new blocks, while there are steps to hand out


class AsyncSource(BlockSource):
    """Hands out the blocks of whichever actor is ready.

    Attributes:
        ahead: Steps that may be asked for and not handed out yet; by default two blocks of each actor.
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
