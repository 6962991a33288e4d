"""The processes of a run on a cluster, and the object in each. A process that dies is replaced in the same state.

A process gets its next message only after it answered the last one. With each answer comes the state of the process.

    asked            reset   block 0   block 1   block 2   block 3
    state            s0      s1        s2        s3
    it dies in 3     a new process restores s3, and then makes block 3

A role makes the object in a process: an actor or a shard. A process that holds what nobody else has (a replay shard)
is not replaced: its death is a `PartLostError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import cloudpickle

from duetto.cluster.transport import Answer, Call, Transport, Worker
from duetto.environments.errors import EnvironmentFault, raised, summary
from duetto.environments.exact_resume import PATIENCE
from duetto.errors import DuettoError, PartLostError, UsageError

ATTEMPTS = 3  # of one actor without an answer between, before the run stops
TO_START = 120.0  # seconds until a new process has found a place, and more for its first answer: packages are imported
LOOK = 1.0  # seconds between two looks at who has answered, while another one has not
PAUSE = 1.0  # seconds before a place is looked for again
TO_CLOSE = 5.0  # seconds that environments have to close themselves
INFINITY = float("inf")


class Request(NamedTuple):
    """A call of a method of the served object."""

    method: str
    arguments: tuple[Any, ...] = ()


class Reply(NamedTuple):
    """The answer to a message."""

    values: list[Any] = []  # of each request  # noqa: RUF012 - never changed
    error: Exception | None = None
    lost: list[str] = []  # why each environment started a new episode before the requests, "" if it did not  # noqa: RUF012
    state: Any = None  # after the requests


class ActorServer:
    """The server of an actor."""

    restorable: ClassVar[bool] = True  # whether a new process can take the place of a lost one
    errors: ClassVar[tuple[type[Exception], ...]] = (DuettoError, EnvironmentFault)  # sent as they are

    def __init__(self, role: bytes, share: range) -> None:
        """`role`, pickled, is a function from the share to the served object."""
        self._role, self._share = role, share
        self._served: Any = None

    def do(self, requests: list[Request], state: dict[str, Any], *values: Any) -> Reply:
        """Execute the requests; without any, the answer says that the process runs.

        A new process starts from `state`, if that is not empty.
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
    """One member of a pool, whichever process it is in."""

    index: int
    share: range  # its environments
    name: str  # in sentences
    worker: Worker = None
    placed: bool = False  # its process runs: it has answered the greeting
    new: bool = True  # its process has not answered a message
    searching: float | None = None  # since when it has found no place
    state: dict[str, Any] = field(default_factory=dict)  # after its last answer
    requests: list[Request] = field(default_factory=list)  # of its newest message
    values: tuple[Any, ...] = ()
    call: Call | None = None  # not answered yet
    deadline: float = INFINITY
    failures: list[Answer] = field(default_factory=list)  # since its last answer, each with a new process


class ActorPool:
    """Processes that are asked together; each answers even if its process dies.

    Attributes:
        actors: In the order of their environments.
        transport: To the cluster.
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
            transport: To the cluster.
            role: Pickled; see `ActorServer`.
            shares: The environments of each process.
            timeout: Seconds without an answer after which a process counts as dead; 0: never.
            notices: Sentences for the user are appended.
            name: Of a process in sentences, with its index for `{}`.
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
        """Return a pool of further processes on the same transport. Close it before this one."""
        return ActorPool(self.transport, role, shares, self._timeout, self.notices, name, server, closes=False)

    def call_each(self, method: str, arguments: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of every process, with an argument for each; return their results in order."""
        for actor in self.actors:
            self.post(actor.index, [Request(method, () if arguments is None else (arguments[actor.index],))])
        return [reply.values[0] for reply in self.wait(range(len(self.actors))).values()]

    def post(self, index: int, requests: list[Request], *values: Any) -> None:
        """Send requests without waiting. `values` (or references) are further arguments of each."""
        actor = self.actors[index]
        actor.requests, actor.values = requests, values
        if actor.placed:
            self._send(actor)

    def wait(self, asked: Sequence[int], enough: int | None = None, patience: float = INFINITY) -> dict[int, Reply]:
        """Wait for all of these processes, `enough` of them or `patience` seconds; return the replies that are there.

        Raises:
            EnvironmentFault: An actor failed three times without an answer.
            PartLostError: A process that cannot be replaced is lost.
            Exception: An error in a process, the lowest one's first.
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
        """Kill all processes that were started, and close the transport if it is this pool's."""
        for actor in self.actors:
            if actor.worker is not None:
                self.transport.kill(actor.worker)
        if self._closes:
            self.transport.close()

    # ------------------------------------------------------------------------------------------- one process
    def _start(self, actor: Actor) -> None:
        """Start the actor's process and send its first message.

        A cluster may not know yet that a machine is gone, and start processes there that never run. Such a failure
        is not the actor's, and does not count.
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
                f"{actor.name} has found no place for {searched:.0f} s; the last one {answer.failure}. Look at the "
                "cluster, and resume when it has room.",
                trace=answer.details,
                failed=True,
            )
        self.transport.kill(actor.worker)
        self.transport.pause(PAUSE)
        self._start(actor)

    def _send(self, actor: Actor) -> None:
        """Send the actor's newest message, to a new process with the state to start from."""
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
            late = f"has not answered for {self._timeout:g} s (--worker-timeout gives it more)"
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
            raise PartLostError(f"{_capitalized(actor.name)} {answer.failure}.")
        if len(actor.failures) == ATTEMPTS:
            raise EnvironmentFault(
                f"{actor.name} {answer.failure}, for the third time without an answer. Look for the cause in the "
                "environment and in what it calls, or in the memory of its machine.",
                trace=answer.details,
                failed=True,
            )
        self.transport.kill(actor.worker)
        self.restarts += 1
        self._start(actor)

    def _report(self, actor: Actor, lost: list[str]) -> None:
        """Tell the user that another process has taken an actor's place. `lost`: see `Reply`."""
        then = "another one has taken its place, and no number has changed."
        if any(lost):
            gone = [str(env) for env, why in zip(actor.share, lost, strict=True) if why]
            reasons = "; ".join(dict.fromkeys(filter(None, lost)))
            then = (
                f"another one has taken its place, but {len(gone)} of its environments ({', '.join(gone)}) could not "
                f"be restored and start new episodes, because {reasons}. From here the run is not the same, number by "
                "number, as one in which nothing dies."
            )
        self.notices.append(f"{_capitalized(actor.name)} {actor.failures[-1].failure}: {then}")


def _name(name: str, index: int, share: range) -> str:
    environments = f"environment {share[0]}" if len(share) == 1 else f"environments {share[0]} to {share[-1]}"
    return f"{name.format(index)} ({environments})"


def _capitalized(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
