"""A simulated cluster without processes, machines or waiting; a seed decides which faults happen.

Each call runs at once in this process, on copies of its arguments. Only the time of its answer is random, on a
simulated clock that jumps from event to event. So thousands of scenarios take a minute, and a seed repeats each.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from duetto.cluster.config import Cluster
from duetto.cluster.transport import Answer

DIED = Answer(failure="died", details="simulated")
LOST = Answer(failure="failed", details="simulated")


@dataclass(frozen=True)
class Rates:
    """The probability of each fault, per call or per started process."""

    dies_before: float = 0.01  # the process dies before it handles the call
    dies_after: float = 0.01  # it dies after handling the call, before it answers
    answer_lost: float = 0.01
    hangs: float = 0.005
    machine_dies: float = 0.005  # with all its processes
    never_runs: float = 0.3  # per started process: its machine or the object put for it is gone


STEADY = Rates(*[0.0] * len(Rates.__dataclass_fields__))


@dataclass
class _Process:
    machine: int
    object: Any  # None if it could not start
    alive: bool = True


class Simulated:
    """A simulated `Transport`.

    Attributes:
        mishaps: How often each fault happened, by its name in `Rates`.
    """

    def __init__(self, seed: int, rates: Rates | None = None, machines: int = 3) -> None:
        self._random = np.random.default_rng(seed)
        self._rates, self._machines = rates or Rates(), machines
        self._now = 0.0
        self._processes: list[_Process] = []
        self._calls: dict[int, tuple[float, Answer]] = {}  # the time and the answer of each call
        self._asked = 0
        self.mishaps: dict[str, int] = {}

    def start(self, kind: Callable[..., Any], *arguments: Any) -> _Process:
        """See Transport."""
        broken = self._happens("never_runs")
        process = _Process(int(self._random.integers(self._machines)), None if broken else kind(*_copy(arguments)))
        self._processes.append(process)
        return process

    def call(self, worker: _Process, *message: Any) -> int:
        """See Transport."""
        self._asked, number = self._asked + 1, self._asked
        self._calls[number] = (self._now + self._delay(), self._fate(worker, message))
        return number

    def _fate(self, process: _Process, message: tuple[Any, ...]) -> Answer:
        if self._happens("machine_dies"):
            for other in self._processes:
                other.alive = other.alive and other.machine != process.machine
        if not process.alive or process.object is None or self._dies(process, "dies_before"):
            return DIED
        if self._happens("hangs"):
            return Answer(failure="hangs")
        answer = Answer(_copy(process.object.do(*_copy(message))))
        if self._dies(process, "dies_after"):
            return DIED
        return LOST if self._happens("answer_lost") else answer

    def wait(self, calls: Sequence[Any], timeout: float, enough: int | None = None) -> dict[Any, Answer]:
        """See Transport."""
        limit, enough = self._now + timeout, enough or len(calls)
        times = sorted(self._calls[call][0] for call in calls if self._calls[call][1].failure != "hangs")
        until = times[enough - 1] if enough <= len(times) else limit
        self._now = max(self._now, min(until, limit))
        came = ((call, *self._calls[call]) for call in calls)
        return {call: answer for call, when, answer in came if answer.failure != "hangs" and when <= self._now}

    def put(self, value: Any) -> Any:
        """See Transport."""
        return value

    def kill(self, worker: _Process) -> None:
        """See Transport."""
        worker.alive = False

    def clock(self) -> float:
        """See Transport."""
        return self._now

    def pause(self, seconds: float) -> None:
        """See Transport."""
        self._now += seconds

    def close(self) -> None:
        """See Transport."""

    def _dies(self, process: _Process, how: str) -> bool:
        if self._happens(how):
            process.alive = False
        return not process.alive

    def _happens(self, name: str) -> bool:
        happens = self._random.random() < getattr(self._rates, name)
        if happens:
            self.mishaps[name] = self.mishaps.get(name, 0) + 1
        return happens

    def _delay(self) -> float:
        return float(self._random.exponential(0.1))


@dataclass(frozen=True)
class Simulation(Cluster):
    """A `Cluster` that connects to a simulated transport."""

    rates: Rates = Rates(dies_before=0.05, dies_after=0.05, hangs=0.01)
    transports: deque[Simulated] = field(default_factory=deque)

    def connect(self, processes: int) -> Simulated:
        self.transports.append(Simulated(7, self.rates))
        return self.transports[-1]


def _copy(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))
