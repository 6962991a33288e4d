"""Learners in processes of the cluster, one each; see `learners.ranks`."""

from __future__ import annotations

from collections import deque

from duetto.cluster.transport import Call, Transport
from duetto.learners.rank import Rank
from duetto.learners.ranks import GoneError, Receipt


class Ranked:
    """See `learners.ranks.Machines`."""

    def __init__(self, transport: Transport, host: str, gpus: int) -> None:
        """`host` is the address that learners connect to; `gpus` is the number for each learner."""
        self._transport, self._gpus = transport, gpus
        self.host: str = host

    def start(self, rank: int, made_of: bytes) -> Called:
        """Start one more learner in a process of its own."""
        return Called(self._transport, made_of, self._gpus)


class Called:
    """See `learners.ranks.Line`. One process handles its messages in order."""

    def __init__(self, transport: Transport, made_of: bytes, gpus: int) -> None:
        self._transport, self._calls = transport, deque[Call]()
        self._worker = transport.start(Rank, gpus=gpus)
        self.send("make", made_of)

    def send(self, *message: object) -> None:
        """See Line."""
        self._calls.append(self._transport.call(self._worker, *message))

    def receive(self, timeout: float) -> Receipt:
        """See Line."""
        found = self._transport.wait(list(self._calls)[:1], timeout)
        if not found:
            raise TimeoutError
        [answer] = found.values()
        if answer.failure:
            raise GoneError(answer.failure)
        self._calls.popleft()
        return answer.value

    def close(self) -> None:
        """See Line."""
        self._transport.kill(self._worker)
