"""The processes of a run on a cluster. A process that dies is replaced by another one in the same state.

A process gets its next message only after it answered the last one. Each answer contains the state of the process.

    asked            reset   block 0   block 1   block 2   block 3
    state            s0      s1        s2        s3
    it dies in 3     a new process restores s3, and then makes block 3

A *role* is a function that creates the object that a process serves: an actor or a replay shard. Only actors are
replaced. No other process has a shard's contents, so the death of a shard's process raises `ShardLostError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import cloudpickle

from duetto.cluster.transport import Answer, Call, Transport, Worker
from duetto.environments.errors import EnvironmentFault, raised, summary
from duetto.environments.exact_resume import PATIENCE
from duetto.errors import DuettoError, ShardLostError, UsageError

ATTEMPTS = 3  # failures in a row of one actor that stop the run
TO_START = 120.0  # seconds for a new process to start, and again for its first answer, since it imports packages
LOOK = 1.0  # seconds after which answers and deadlines are checked again
PAUSE = 1.0  # seconds before the next attempt to start a process
TO_CLOSE = 5.0  # seconds that environments have to close themselves
INFINITY = float("inf")


class Request(NamedTuple):
    """A call of a method of the object that a process serves."""

    method: str
    arguments: tuple[Any, ...] = ()


class Reply(NamedTuple):
    """The answer of a process to a list of requests."""

    values: list[Any] = []  # the result of each request  # noqa: RUF012 - never changed
    error: Exception | None = None
    lost: list[str] = []  # why each environment started a new episode before the requests, "" if it did not  # noqa: RUF012
    state: Any = None  # after the requests


class ActorServer:
    """The server in an actor's process: it makes the actor and calls its methods."""

    restorable: ClassVar[bool] = True  # whether a new process can take the place of a lost one
    errors: ClassVar[tuple[type[Exception], ...]] = (DuettoError, EnvironmentFault)  # sent to the trainer unchanged

    def __init__(self, role: bytes, share: range) -> None:
        """Store `role`, a pickled function that makes the served object for a share of environments."""
        self._role, self._share = role, share
        self._served: Any = None

    def do(self, requests: list[Request], state: dict[str, Any], *values: Any) -> Reply:
        """Execute the requests, each with `values` as further arguments.

        A new process first restores `state`, unless it is empty. Empty `requests` only check that the process runs.
        """
        lost: list[str] = []
        if not requests:
            return Reply()
        try:
            if self._served is None:
                self._served = self._make()
                lost = self._served.restore(state) if state else []
            found = [getattr(self._served, method)(*arguments, *values) for method, arguments in requests]
            return Reply(found, lost=lost, state=self._served.state() if self.restorable else {})
        except self.errors as error:
            return Reply(error=error)
        except (Exception, SystemExit) as error:
            return Reply(error=raised("its process", error, None))

    def _make(self) -> Any:
        try:
            return cloudpickle.loads(self._role)(self._share)
        except ImportError as error:
            raise UsageError(
                f"A process on the cluster cannot make the environment ({summary(error)}). Install on every machine "
                "what is installed here."
            ) from error


@dataclass
class Actor:
    """An actor or a shard: its current process, newest message and state."""

    index: int
    share: range  # its environments
    name: str  # in messages
    worker: Worker = None
    placed: bool = False  # whether its process runs: it has answered the empty list of requests
    new: bool = True  # whether its process has not answered a request yet
    searching: float | None = None  # time of the first failed start since the last successful one
    state: dict[str, Any] = field(default_factory=dict)  # after its last answer
    requests: list[Request] = field(default_factory=list)  # of its newest message
    values: tuple[Any, ...] = ()
    call: Call | None = None  # the call that is not answered yet
    deadline: float = INFINITY
    failures: list[Answer] = field(default_factory=list)  # failures of its processes since its last answer


class ActorPool:
    """Processes of actors or of shards. If an actor's process dies, a new process repeats its newest request.

    Attributes:
        actors: The actors or shards, in the order of their environments.
        transport: The connection to the cluster.
        notices: Sentences for the user.
        restarts: Number of processes that replaced another.
    """

    def __init__(
        self,
        transport: Transport,
        role: bytes,
        shares: Sequence[range],
        timeout: float,
        notices: list[str],
        name: str = "actor {}",
        server: type[ActorServer] = ActorServer,
        closes: bool = True,
    ) -> None:
        """Start a process for each share.

        Args:
            transport: The connection to the cluster.
            role: The pickled function that creates the object in each process; see `ActorServer`.
            shares: The environments of each process.
            timeout: Seconds without an answer after which a process is considered dead; 0: never.
            notices: A list to which the pool appends sentences for the user.
            name: A process's name in sentences; `{}` becomes its index.
            server: The class of the object in each process.
            closes: Whether closing the pool closes the transport.
        """
        self.transport: Transport = transport
        self.notices: list[str] = notices
        self._role, self._timeout, self._server, self._closes = role, timeout, server, closes
        self.actors: list[Actor] = [Actor(i, share, _name(name, i, share)) for i, share in enumerate(shares)]
        self.restarts: int = 0
        try:
            for actor in self.actors:
                self._start(actor)
        except BaseException:
            self._end()
            raise

    def another(
        self, role: bytes, shares: Sequence[range], name: str, server: type[ActorServer] = ActorServer
    ) -> ActorPool:
        """Return a pool of further processes on the same transport. Close the new pool before this one."""
        return ActorPool(self.transport, role, shares, self._timeout, self.notices, name, server, closes=False)

    def call_each(self, method: str, arguments: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of the object in every process; `arguments` has one argument for each. Return the results."""
        for actor in self.actors:
            self.post(actor.index, [Request(method, () if arguments is None else (arguments[actor.index],))])
        return [reply.values[0] for reply in self.wait(range(len(self.actors))).values()]

    def post(self, index: int, requests: list[Request], *values: Any) -> None:
        """Send requests to a process, without waiting. `values` (or references) are more arguments of each request."""
        actor = self.actors[index]
        actor.requests, actor.values = requests, values
        if actor.placed:
            self._send(actor)

    def wait(self, asked: Sequence[int], enough: int | None = None, patience: float = INFINITY) -> dict[int, Reply]:
        """Wait until all of the processes `asked`, or `enough` of them, reply; return the replies by index.

        After `patience` seconds, return the replies so far.

        Raises:
            EnvironmentFault: An actor failed three times in a row, or could not be started.
            ShardLostError: A process that cannot be replaced is lost.
            Exception: The error in a reply. Of several errors, that of the process with the lowest index.
        """
        waiting, replies = [self.actors[index] for index in asked], dict[int, Reply]()
        enough, until = enough or len(waiting), self.transport.clock() + patience
        while len(replies) < enough:
            now = self.transport.clock()
            patience = min(*(actor.deadline for actor in waiting), now + LOOK, until) - now
            calls = [actor.call for actor in waiting]
            answers = self.transport.wait(calls, max(0.0, patience), enough - len(replies))
            for actor in waiting:
                if reply := self._reply(actor, answers.get(actor.call)):
                    replies[actor.index] = reply
            waiting = [actor for actor in waiting if actor.index not in replies]
            if self.transport.clock() >= until:
                break
        for index in sorted(replies):
            if error := replies[index].error:
                raise error
        return dict(sorted(replies.items()))

    def close(self) -> None:
        """Let the environments close themselves, and end all processes."""
        try:
            there = [actor for actor in self.actors if not actor.new] if self._server.restorable else []
            if there:
                goodbye = [self.transport.call(actor.worker, [Request("close")], {}) for actor in there]
                self.transport.wait(goodbye, TO_CLOSE)
        finally:
            self._end()

    def _end(self) -> None:
        """Kill all processes that were started, and close the transport if this pool must close it."""
        for actor in self.actors:
            if actor.worker is not None:
                self.transport.kill(actor.worker)
        if self._closes:
            self.transport.close()

    # ------------------------------------------------------------------------------------------- one process
    def _start(self, actor: Actor) -> None:
        """Start the actor's process and send its first message.

        A cluster may try to start the process on a machine that is gone. This failure does not count as one of the
        ATTEMPTS.
        """
        actor.worker = self.transport.start(self._server, self._role, actor.share)
        actor.placed, actor.new = False, True
        actor.call = self.transport.call(actor.worker, [], {})
        actor.deadline = self.transport.clock() + TO_START

    def _greeted(self, actor: Actor, answer: Answer) -> None:
        if not answer.failure:
            actor.placed, actor.searching = True, None
            self._send(actor)
            return
        now = self.transport.clock()
        actor.searching = now if actor.searching is None else actor.searching
        if (searched := now - actor.searching) >= TO_START:
            raise EnvironmentFault(
                f"{actor.name} could not be started for {searched:.0f} s; the last process {answer.failure}. Check "
                "the cluster, and resume when it has free CPUs.",
                trace=answer.details,
                failed=True,
            )
        self.transport.kill(actor.worker)
        self.transport.pause(PAUSE)
        self._start(actor)

    def _send(self, actor: Actor) -> None:
        """Send the actor's newest message; to a new process, also the state to start from."""
        state = actor.state if actor.new else {}
        actor.call = self.transport.call(actor.worker, actor.requests, state, *actor.values)
        repeats = actor.new or any(request.method == "restore" for request in actor.requests)
        patience = (self._timeout or INFINITY) + (TO_START if actor.new else 0.0) + (PATIENCE if repeats else 0.0)
        actor.deadline = self.transport.clock() + patience

    def _reply(self, actor: Actor, answer: Answer | None) -> Reply | None:
        """Return the actor's reply, or None if there is none yet; if it failed, send the message again."""
        if answer is None and self.transport.clock() < actor.deadline:
            return None
        if not actor.placed:
            self._greeted(actor, answer or Answer(failure=f"did not start for {TO_START:g} s"))
            return None
        if answer is None or answer.failure:
            late = f"has not answered for {self._timeout:g} s (worker_timeout gives it more)"
            self._failed(actor, answer or Answer(failure=late))
            return None
        reply: Reply = answer.value
        if actor.failures:
            self._report(actor, reply.lost)
        if reply.error is None:
            actor.state = reply.state
        actor.new, actor.call, actor.failures = False, None, []
        return reply

    def _failed(self, actor: Actor, answer: Answer) -> None:
        actor.failures.append(answer)
        if not (actor.new or self._server.restorable):
            actor.call = None
            raise ShardLostError(f"{_capitalized(actor.name)} {answer.failure}.")
        if len(actor.failures) == ATTEMPTS:
            raise EnvironmentFault(
                f"{actor.name} {answer.failure}, for the third time in a row. Check the environment and the "
                "libraries that it uses, and the memory of its machine.",
                trace=answer.details,
                failed=True,
            )
        self.transport.kill(actor.worker)
        self.restarts += 1
        self._start(actor)

    def _report(self, actor: Actor, lost: list[str]) -> None:
        """Append a notice that another process has taken an actor's place. `lost` is from its `Reply`."""
        then = "another process has taken its place, and no number has changed."
        if any(lost):
            gone = [str(env) for env, why in zip(actor.share, lost, strict=True) if why]
            reasons = "; ".join(dict.fromkeys(filter(None, lost)))
            then = (
                f"another process has taken its place, but {len(gone)} of its environments ({', '.join(gone)}) could "
                f"not be restored and start new episodes, because {reasons}. From here on, the numbers differ from "
                "those of a run in which no process dies."
            )
        self.notices.append(f"{_capitalized(actor.name)} {actor.failures[-1].failure}: {then}")


def _name(name: str, index: int, share: range) -> str:
    environments = f"environment {share[0]}" if len(share) == 1 else f"environments {share[0]} to {share[-1]}"
    return f"{name.format(index)} ({environments})"


def _capitalized(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
