"""The modes `sync` and `async`: when actors make blocks (of vector steps), and in which order the learner uses them."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from typing_extensions import override

from duetto.cluster.actor import Weights
from duetto.cluster.actor_pool import INFINITY
from duetto.cluster.block_source import BlockSource
from duetto.functional.state_schema import ANY

LOOK = 0.002  # seconds between two checks for new blocks, while steps are ready


class SyncSource(BlockSource):
    """The mode `sync`: block k always uses the same version of the weights, whichever actors are slow or die.

        learner             |           | learn from block 0      | learn from block 1      | learn from block 2 ...
        actor 0             | block 0   | block 1                 | block 2                 |
        actor 1             | block 0 . | block 1 ............... | block 2                 |
                                          ^ all wait for the slowest, and for the learner

    Actors make block k with weights that have learned from the blocks before k - 1, while the learner learns from
    block k - 1. A vector step has the steps of all actors, in the actors' order. Results depend only on the number
    of actors and the block length.
    """

    STATE: ClassVar[dict[str, Any]] = BlockSource.STATE | {"weights": ANY}

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
        """Return the state of the `BlockSource`, and the weights with which actors are making blocks."""
        return super().state_dict() | {"weights": self._weights and self._weights._asdict()}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if state["weights"] is not None:
            self._send(Weights(**state["weights"]))


class AsyncSource(BlockSource):
    """The mode `async`: actors wait only for credit, and blocks are used in the order of arrival.

        learner   learn from A0 | from B0 .... | from A1 | from A2 | from B1    the usual number of updates per step
        actor A   A0 | A1 | A2 ........| A3 | wait for credit |                 each with the newest weights
        actor B   B0 ....... | B1 .......... | B2

    *Credit* limits the pending steps: the steps requested from all actors but not yet handed out to the trainer. An
    actor is asked for its next block only if the pending steps, including this block, are at most `ahead`. The learner
    learns from steps as soon as they are handed out, by `update_schedule`. So the ratio of updates to steps is
    constant, the pending steps are bounded, and no step is dropped. The age of weights is not bounded: a slow actor may
    have started its block long ago.

    Blocks that arrive while steps are ready are held. When no step is ready, the oldest held block of each actor is
    opened: each vector step joins one step of every opened block. So a busy learner gets larger vector steps, not more
    vector steps. Results depend on the order in which blocks arrive.

        handed out | vector steps of A0 and B0 ........ | of A1, B1 and C0 ....... | of A2 and B2
        held       |    B1    A1 B1   A1 B1 C0          | A2    A2 B2              |
                   |                             A2     |                          |

    Attributes:
        ahead: Max number of pending steps, summed over all actors; by default two blocks of each actor.
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
        """Ask idle actors for blocks while there is credit, actors with the fewest blocks first."""
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
