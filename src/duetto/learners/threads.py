"""How many threads are fastest now, found by trial again and again while learning goes on.

PyTorch's threads meet at the end of every operation. Two are 1.4 times as fast as one on two idle cores; but where
another program takes a core, they wait for each other so long that one alone is three times as fast as both (AMD EPYC,
Zen 5; TD3's update: 245, 175 and 45 to 55 per second). Neither is known beforehand, and both change during a run.
"""

from __future__ import annotations

TRIAL = 16  # updates for each candidate; even, so that a delayed actor takes part equally
PERIOD = 1_000  # updates between two trials
SPARED = 4  # the slowest of each trial, which do not count


class ThreadTrial:
    """Says how many threads each update should use: 1 and `most` in turn, then the faster of them until the next trial.

    Only for code whose results do not depend on the number of threads.
    """

    def __init__(self, most: int) -> None:
        self._candidates = (1, most)
        self._seconds: tuple[list[float], list[float]] = ([], [])
        self._fastest = most
        self._count = 0

    def threads(self) -> int:
        """For the next update."""
        turn, _ = divmod(self._count, TRIAL)
        return self._candidates[turn] if turn < len(self._candidates) else self._fastest

    def note(self, seconds: float) -> None:
        """How long that update took."""
        turn, _ = divmod(self._count, TRIAL)
        self._count += 1
        if turn < len(self._candidates):
            self._seconds[turn].append(seconds)
        if self._count == TRIAL * len(self._candidates):
            costs = [sum(sorted(times)[:-SPARED]) for times in self._seconds]
            self._fastest = self._candidates[costs.index(min(costs))]
        if self._count == PERIOD:
            self._count, self._seconds = 0, ([], [])
