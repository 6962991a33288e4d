"""How many threads PyTorch computes with on a CPU, where nobody said how many.

The numbers are those of one thread, so they are the same on any number of cores. More threads are used for work that
comes to the same bits with them, and only while they are faster.

Whether work comes to the same bits is no property of a processor, but of each product. A library that divides a product
by rows or columns of what comes out adds the same numbers in the same order; one that divides what is summed over does
not, and neither does one that takes another kernel for the smaller part. On an Intel Xeon (Sapphire Rapids) PyTorch's
MKL does so for the gradient of a layer with few units (300 to 1, batch 256), 64 x 64 with 2,048 rows, 128 x 1024 x 1024
and one row by 400 x 300, and not for 256 x 400 x 300; oneDNN in none of these; and PyTorch's own sums do from 32,768
numbers on. So the work itself is done with both, once for each kind of update: its gradients are thousands of numbers,
which do not agree by chance. An action is one or a few, which often do, so acting has one thread.

Which number is faster is found by trial again and again. PyTorch's threads meet at the end of every operation. Two are
1.4 times as fast as one on two idle cores; but where another program takes a core, they wait for each other so long
that one alone is three times as fast as both (AMD EPYC, Zen 5; TD3's update: 245, 175 and 45 to 55 per second). Neither
is known beforehand, and both change during a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable

from duetto.processor import cores

TRIAL = 16  # updates for each candidate; even, so that a delayed actor takes part equally
PERIOD = 1_000  # updates between two trials
SPARED = 4  # the slowest of each trial, which do not count
XLA = "NPROC"  # what says how many threads JAX computes with on a CPU
SHARE = "OMP_NUM_THREADS"  # where many processes share a machine, their number is said in it, by Ray for example


def of_jax() -> int:
    """Number of threads that JAX begins with on a CPU where nobody says it: `NPROC`'s, else one a core."""
    said = os.environ.get(XLA, "")
    return int(said) if said.isdecimal() and int(said) else cores()


def granted() -> int:
    """Number of threads that make sense here: one a core, or fewer where `OMP_NUM_THREADS` says so."""
    said = os.environ.get(SHARE, "").partition(",")[0]
    return min(cores(), int(said)) if said.isdecimal() and int(said) else cores()


class FloatingThreads:
    """A number of threads that changes: results are always one thread's, from as many threads as are fastest now.

    Work of one kind has the same operations and shapes, which decide how it is divided among threads.
    """

    def __init__(self, most: int, use: Callable[[int], None]) -> None:
        """`use` sets the number of threads from here on."""
        self._most, self._use = most, use
        self._trial = ThreadTrial(most)
        self._same: dict[Hashable, bool] = {}

    def before_update(self, kind: Hashable, outcome: Callable[[], bytes]) -> None:
        """Set the number for an update. `outcome` makes the update, returns every bit that it came to, and takes it
        back.
        """
        self._use(self._trial.threads() if self._comes_to_the_same(kind, outcome) else 1)

    def after_update(self, seconds: float) -> None:
        """Take note of how long the update took."""
        self._trial.note(seconds)

    def _comes_to_the_same(self, kind: Hashable, outcome: Callable[[], bytes]) -> bool:
        if kind not in self._same:
            self._use(1)
            alone = outcome()
            self._use(self._most)
            self._same[kind] = outcome() == alone
        return self._same[kind]


class ThreadTrial:
    """A trial of how many threads each update should use: 1 and `most` in turn, then the faster until the next trial.

    Only for code whose results do not depend on the number of threads.
    """

    def __init__(self, most: int) -> None:
        self._candidates = (1, most)
        self._seconds: tuple[list[float], list[float]] = ([], [])
        self._fastest = most
        self._count = 0

    def threads(self) -> int:
        """Number of threads for the next update."""
        turn, _ = divmod(self._count, TRIAL)
        return self._candidates[turn] if turn < len(self._candidates) else self._fastest

    def note(self, seconds: float) -> None:
        """Take note of how long that update took."""
        turn, _ = divmod(self._count, TRIAL)
        self._count += 1
        if turn < len(self._candidates):
            self._seconds[turn].append(seconds)
        if self._count == TRIAL * len(self._candidates):
            costs = [sum(sorted(times)[:-SPARED]) for times in self._seconds]
            self._fastest = self._candidates[costs.index(min(costs))]
        if self._count == PERIOD:
            self._count, self._seconds = 0, ([], [])
