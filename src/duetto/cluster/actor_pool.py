"""A run's actors, kept at work: one that dies is replaced by a new one in the same state.

Each message to an actor has a number, and the next one is sent only after its answer. With each block comes what
is new in the actor's state behind it: the request to restore that is its `past`, and all that a new one needs.

    asked            reset   block 0   block 1   block 2
    past             reset   restore what came with the last block
    it dies in 3     a new one does the past, and then block 3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from duetto.cluster.actor_server import GREETING, Host, Reply, Request
from duetto.cluster.transport import Answer, Call, Transport, Worker
from duetto.environments import Tree
from duetto.environments.errors import EnvironmentFault
from duetto.environments.replay import obstacles, seconds_of
from duetto.environments.sharding import continued

ATTEMPTS = 3  # of one actor without an answer between, before the run stops
TO_START = 120.0  # seconds until a new actor has found a place, and more for its first answer: packages are imported
LOOK = 1.0  # seconds between two looks at who has answered, while another one has not
PAUSE = 1.0  # seconds before a place is looked for again
TO_FETCH = 60.0  # seconds in which comes what was left somewhere
TO_CLOSE = 5.0  # seconds that environments have to close themselves
INFINITY = float("inf")
LOST_BLOCKS = "Steps that waited for the replay memory are gone with their machine."


class Lost(NamedTuple):
    """The answer of an actor whose environments could not be brought back: they began new episodes."""

    obs: Tree  # their first observations


Replies = dict[int, "list[Any] | Lost"]  # by the actors' numbers


@dataclass
class Actor:
    """An actor: one share of the environments, whichever process steps it."""

    index: int
    share: range
    called: str = ""  # where it is not one of those with the run's environments
    worker: Worker = None
    here: bool = False  # it has found a place, and greeted
    looked: list[float] = field(default_factory=list)  # when it found no place, since it had one
    new: bool = True  # has not answered anything yet, but the greeting
    restarted: bool = False  # since its last answer
    number: int = 0  # of what it was asked last
    requests: list[Request] = field(default_factory=list)
    more: tuple[Any, ...] = ()
    leaves: bool = False  # what it makes of that where it is
    message: tuple[Any, ...] = ()
    call: Call | None = None  # what is not answered yet
    deadline: float = INFINITY
    failures: list[Answer] = field(default_factory=list)  # since its last answer
    past: list[Request] | None = field(default_factory=list)  # None: nothing brings another one to where it is
    known: dict[str, Any] = field(default_factory=dict)  # its last state, of which it sends what was added
    lost: bool = False  # what it is asked now is to begin new episodes, instead of something else

    def __str__(self) -> str:
        if self.called:
            return self.called
        first, last = self.share.start, self.share.stop - 1
        return f"actor {self.index} (environment{f' {first}' if first == last else f's {first} to {last}'})"


class Crew:
    """The actors of a run: asks them, and gets an answer from each even if its process dies.

    Attributes:
        actors: In the order of their environments.
        restarts: Number of processes that replaced another.
        advice: Where to look for the cause of repeated failures, for messages.
    """

    advice = "in the environment and in what it calls, or in the memory of its machine"

    def __init__(
        self,
        transport: Transport,
        recipe: bytes,
        shares: Sequence[range],
        timeout: float,
        notices: list[str],
        role: bytes = b"",
        ends: bool = True,
    ) -> None:
        """Start the actors. `timeout`: seconds without an answer after which an actor is taken for dead; 0: never.
        `role`: see `Host`. `ends`: whether closing the crew closes the transport, too.
        """
        self._transport, self._recipe, self._timeout, self._notices = transport, recipe, timeout, notices
        self._role = role
        self._ends = ends
        self.actors: list[Actor] = [Actor(index, share) for index, share in enumerate(shares)]
        self.restarts: int = 0
        try:
            for actor in self.actors:
                self._start(actor)
        except BaseException:
            self._end()
            raise

    def ask(self, requests: dict[int, list[Request]]) -> Replies:
        """Send each of these actors its requests, and return their answers. Raises as `wait` does."""
        for index, own in requests.items():
            self.post(index, own)
        return self.wait(list(requests))

    def post(self, index: int, requests: list[Request], *more: Any, leaves: bool = False) -> None:
        """Send an actor requests, without waiting. `more` are further arguments of the last one: what was put.

        With `leaves` the block's steps stay with the actor; a reference to them comes after its values.
        """
        self.actors[index].more, self.actors[index].leaves = more, leaves
        self._ask(self.actors[index], requests)

    def put(self, value: Any) -> Any:
        """See Transport."""
        return self._transport.put(value)

    def fetch(self, left: Any) -> Answer:
        """Fetch a value that was left where it was made; the answer has a failure if it does not come."""
        return self._transport.wait([left], TO_FETCH).get(left, Answer(failure=f"did not come for {TO_FETCH:g} s"))

    def wait(self, asked: Sequence[int], enough: int | None = None, patience: float = INFINITY) -> Replies:
        """Wait for all of these actors, `enough` of them or `patience` seconds; return the answers that are there.

        Raises:
            EnvironmentFault, DuettoError: An environment's error, the lowest actor's first; or an actor failed three
                times without an answer.
        """
        waiting, replies = [self.actors[index] for index in asked], dict[int, Reply]()
        enough, until = enough or len(waiting), self._transport.clock() + patience
        while len(replies) < enough:
            now = self._transport.clock()
            patience = min(*(actor.deadline for actor in waiting), now + LOOK, until) - now
            calls = [actor.call for actor in waiting]
            answers = self._transport.wait(calls, max(0.0, patience), enough - len(replies))
            for actor in waiting:
                if reply := self._reply(actor, answers.get(actor.call)):
                    replies[actor.index] = reply
            waiting = [actor for actor in waiting if actor.index not in replies]
            if self._transport.clock() >= until:
                break
        for index in sorted(replies):
            if error := replies[index].error:
                raise self._renumbered(error, self.actors[index])
        return {index: self._result(self.actors[index], reply) for index, reply in sorted(replies.items())}

    def another(self, recipe: bytes, share: range, role: bytes) -> Crew:
        """A crew of one more actor, on the same transport, with other environments. Close it before this crew."""
        crew = Crew(self._transport, recipe, [share], self._timeout, self._notices, role, ends=False)
        crew.actors[0].called = "the actor that evaluates"
        return crew

    @property
    def notices(self) -> list[str]:
        """Sentences for the user."""
        return self._notices

    @property
    def transport(self) -> Transport:
        """The transport to the cluster."""
        return self._transport

    def close(self) -> None:
        """Let the environments close themselves, and end all processes."""
        try:
            calls = [actor.call for actor in self.actors if actor.call is not None]
            there = [actor for actor in self.actors if not actor.new]
            hangs = calls and len(self._transport.wait(calls, TO_CLOSE)) < len(calls)
            if there and not hangs:
                goodbye = [Request("close")]
                calls = [self._transport.call(actor.worker, actor.number + 1, goodbye, None) for actor in there]
                self._transport.wait(calls, TO_CLOSE)
        finally:
            self._end()

    def _end(self) -> None:
        """Kill all processes that were started, and close the transport if it is this crew's."""
        for actor in self.actors:
            if actor.worker is not None:
                self._transport.kill(actor.worker)
        if self._ends:
            self._transport.close()

    # ------------------------------------------------------------------------------------------- one actor
    def _start(self, actor: Actor) -> None:
        """Start the actor's process, and send it a greeting.

        A cluster may not know yet that a machine is gone, and start processes there that never run. Such a failure
        is not the actor's, and does not count.
        """
        actor.worker = self._process(actor)
        actor.here, actor.new = False, True
        actor.call = self._transport.call(actor.worker, GREETING, [], None)
        actor.deadline = self._transport.clock() + TO_START

    def _process(self, actor: Actor) -> Worker:
        recipe = self._transport.put(self._recipe)  # for each: what was put may be lost with the machine that it is on
        return self._transport.start(Host, recipe, actor.share, self._role)

    def _greeted(self, actor: Actor, answer: Answer) -> None:
        if not answer.failure:
            actor.here, actor.looked = True, []
            self._send(actor)
            return
        actor.looked.append(self._transport.clock())
        looked = actor.looked[-1] - actor.looked[0]
        if len(actor.looked) >= ATTEMPTS and looked >= TO_START:
            raise EnvironmentFault(
                f"{actor} has found no place for {looked:.0f} s; the last one {answer.failure}. Look at the cluster, "
                "and go on when it has room.",
                trace=answer.details,
                failed=True,
            )
        self._transport.kill(actor.worker)
        self._transport.pause(PAUSE)
        self._start(actor)

    def _ask(self, actor: Actor, requests: list[Request], lost: bool = False) -> None:
        actor.number, actor.requests, actor.lost = actor.number + 1, requests, lost
        if actor.here:
            self._send(actor)

    def _send(self, actor: Actor) -> None:
        """Send the actor's current requests; to a new process with its past, unless they begin with a reset."""
        past = None
        if actor.new:
            past = [] if actor.requests[0].method == "reset" else actor.past
        actor.message = (actor.number, actor.requests, past, *actor.more)
        self._repeat(actor)

    def _repeat(self, actor: Actor) -> None:
        actor.call = self._transport.call(actor.worker, *actor.message, leaves=actor.leaves)
        patience = self._timeout or INFINITY
        if actor.new:
            patience += TO_START
        _, requests, past, *_ = actor.message
        patience += sum(seconds_of(given) for request in [*requests, *(past or ())] for given in request.arguments)
        actor.deadline = self._transport.clock() + patience

    def _reply(self, actor: Actor, answer: Answer | None) -> Reply | None:
        """Return the actor's reply, or None if there is none yet; if it failed, ask it again."""
        if answer is None and self._transport.clock() < actor.deadline:
            return None
        if not actor.here:
            self._greeted(actor, answer or Answer(failure=f"did not start for {TO_START:g} s"))
            return None
        if answer is None or answer.failure:
            late = f"has not answered for {self._timeout:g} s (--worker-timeout gives it more)"
            self._failed(actor, answer or Answer(failure=late, gone=True))
            return None
        reply: Reply = answer.value
        if reply.number != actor.number:  # an old answer that came twice
            self._repeat(actor)
            return None
        actor.new = False
        if not reply.exact:
            self._begin_anew(actor)
            return None
        self._tell(actor)
        actor.call, actor.failures, actor.restarted = None, [], False
        return reply._replace(left=answer.left)

    def _failed(self, actor: Actor, answer: Answer) -> None:
        actor.failures.append(answer)
        if len(actor.failures) == ATTEMPTS:
            raise EnvironmentFault(
                f"{actor} {answer.failure}, for the third time without an answer. Look for the cause {self.advice}.",
                trace=answer.details,
                failed=True,
            )
        if not answer.gone and len(actor.failures) == 1:  # only the answer is lost, it seems
            self._repeat(actor)
            return
        self._transport.kill(actor.worker)
        self.restarts, actor.restarted = self.restarts + 1, True
        self._start(actor)
        if actor.past is None and actor.requests[0].method != "reset":
            self._begin_anew(actor)

    def _begin_anew(self, actor: Actor) -> None:
        """Ask the actor to begin new episodes, with a seed of its own."""
        seed = int(np.random.SeedSequence([actor.share.start, actor.number]).generate_state(1)[0] >> 1)
        actor.more, actor.leaves = (), False
        self._ask(actor, [Request("reset", (seed,))], lost=True)

    def _tell(self, actor: Actor) -> None:
        if not (actor.restarted or actor.lost):
            return
        then = "another one has taken its place, and no number has changed."
        if actor.lost:
            then = (
                "its environments could not be brought back to where they were and begin new episodes, so from here "
                "the run is not the same, number by number, as one in which nothing dies."
            )
        what = actor.failures[-1].failure
        self._notices.append(f"{str(actor)[0].upper()}{str(actor)[1:]} {what}: {then}")

    def _result(self, actor: Actor, reply: Reply) -> list[Any] | Lost:
        values = [self._noted(actor, *pair) for pair in zip(actor.requests, reply.values, strict=True)]
        if actor.lost:
            return Lost(values[0])
        return [*values, reply.left] if actor.leaves else values

    def _noted(self, actor: Actor, request: Request, value: Any) -> Any:
        """Keep the request that would bring another process into the same state; return the value, a block's whole."""
        match request.method:
            case "block":
                state = actor.known = continued(value.state, actor.known)
                environments = state["stepper"]["environments"]
                lost = environments is None or obstacles(environments)
                actor.past = None if lost else [Request("restore", (state,))]
                return value._replace(state=state)
            case "restore" | "reset":
                actor.past, actor.known = [request], request.arguments[0] if request.method == "restore" else {}
        return value

    def _renumbered(self, error: Exception, actor: Actor) -> Exception:
        if isinstance(error, EnvironmentFault) and error.env is not None:
            return EnvironmentFault(error.what, error.env + actor.share.start, error.trace, error.failed)
        return error
