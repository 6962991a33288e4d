"""The mode `async`: actors wait for nothing but credit, and blocks are accepted in the order in which they come.

    learner   learn from A0 | from B0 .... | from A1 | from A2 | from B1    as many updates a step as ever
    actor A   A0 | A1 | A2 ........| A3 | wait for credit |                 each with the newest weights there are
    actor B   B0 ....... | B1 .......... | B2

An actor is asked for its next block if the steps that were asked for and not handed out yet, with this block, are at
most `ahead` (its credit). What is handed out is learned from at once, as `memory.Schedule` says; so steps and updates
keep their ratio at every moment, what is in flight is bounded, and nothing is dropped. The age of weights is not
bounded: a slow actor brings one block that was begun long ago. Blocks that come while there are steps to hand out are
held, and then handed out side by side, a vector step of all of them at a time: so a busy learner takes larger steps,
not more of them. Several blocks of one actor may be held, its k-th in layer k; one layer is opened at a time. The
run's numbers depend on the order in which blocks come.

    handed out | vector steps of A0 and B0 ........ | of A1, B1 and C0 ....... | of A2 and B2
    layer 0    |    B1    A1 B1   A1 B1 C0          | A2    A2 B2              |
    layer 1    |                             A2     |                          |
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from duetto.buffers import Experience, RemoteBlock
from duetto.cluster.actor import Block
from duetto.cluster.actor_pool import INFINITY
from duetto.cluster.block_source import Blocks, Ready
from duetto.environments import Episode

LOOK = 0.002  # seconds


class Async(Blocks):
    """See above.

    Attributes:
        ahead: Steps that may be asked for and not handed out yet.
    """

    mode = "async"
    ahead = 0

    def _begin(self) -> None:
        super()._begin()
        self._held: deque[dict[int, Block]] = deque()  # layers of what came, by actors
        self._waiting = 0  # steps that were asked for, and not handed out yet
        self._look_at = 0.0  # when to look for new blocks again, while there are steps to hand out
        self._least = self.length * min(map(len, self._shares))

    def stand(self, stepper: dict[str, Any]) -> bool:
        """See Blocks."""
        stands = super().stand(stepper)
        self._waiting = _rows(self._ready)
        return stands

    def collect(self, step: int, total_steps: int) -> tuple[Experience | RemoteBlock, list[Episode]]:
        """See Source."""
        experience, episodes = super().collect(step, total_steps)
        self._waiting -= len(experience.env)
        return experience, episodes

    def _fill(self, step: int, total_steps: int) -> None:
        self._give_credit(step, total_steps)
        if self._orders and not (self._ready and time.perf_counter() < self._look_at):
            for index, block in self._arrived(1, 0.0 if self._ready or self._held else INFINITY).items():
                self._hold(index, block)
            self._look_at = time.perf_counter() + LOOK
            self._give_credit(step, total_steps)
        if not self._ready:
            self._open()

    def _hold(self, index: int, block: Block) -> None:
        self._waiting += sum(block.counts) - self._size(index)
        layer = next((layer for layer in self._held if index not in layer), None)
        if layer is None:
            self._held.append(layer := {})
        layer[index] = block

    def _open(self) -> None:
        self._ready.extend(self._opened(self._held.popleft()))

    def _fetched(self) -> list[Ready]:
        """See Blocks: what is held is part of a cut, too."""
        while self._held:
            self._open()
        return super()._fetched()

    def _give_credit(self, step: int, total_steps: int) -> None:
        """Ask idle actors for blocks while there is credit, those with the fewest blocks first."""
        if self._waiting + self._least > self.ahead or len(self._orders) == len(self._shares):
            return
        idle = [index for index in range(len(self._shares)) if index not in self._orders]
        for index in sorted(idle, key=lambda index: self._accepted[index]):
            if self._waiting + self._size(index) > self.ahead:
                return
            if self._weights is None or self._weights.updates != self._learner.updates:
                self._publish()
            self._order(index, step + self._waiting, len(self._shares[index]), total_steps)
            self._waiting += self._size(index)

    def _size(self, index: int) -> int:
        return self.length * len(self._shares[index])


def _rows(steps: Iterable[Ready]) -> int:
    return sum(len(ready.experience.env) for ready in steps)
