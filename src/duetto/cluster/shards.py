"""Shards of a replay memory in processes of their own.

    coordinator   points | ......... join, weigh | learn | new priorities, store step 7 of block 3 ...... | points
    shard 0              | look up   |                   | keep them, get the block if it is new, store   |
    shard 1              | look up ..|                   | keep them, get the block if it is new, store ..|

Blocks go from the actors that made them to the shards: the coordinator only sends references (`transport.py`).

Messages to a shard are numbered, as those to an actor are: one that comes twice is executed once, and an answer that is
lost is given again. But a shard's past is not kept. One that dies takes with it what came since the newest checkpoint:
at the paces `exact` and `lockstep` the whole run goes back to that, at the pace `free` the shard alone does. The same
holds for blocks that are gone with their machine before a shard has them: at the pace `free` they alone are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cloudpickle

from duetto import memory
from duetto.cluster.crew import Actor, Crew, Lost, Replies
from duetto.cluster.host import GREETING, Reply, Request
from duetto.cluster.transport import Answer
from duetto.environments.faults import Fault
from duetto.errors import PartLostError, UsageError


class Keeper:
    """The object in a shard's process: executes numbered messages, each once."""

    def __init__(self) -> None:
        self._shard: memory.Shard | None = None
        self._reply: Reply | None = None

    def do(self, number: int, requests: list[Request], _: Any = None, *more: Any) -> Reply:
        """Execute the requests; see `Host.do`. `more` are further arguments of `hold`."""
        if number == GREETING:
            return Reply(number, [])
        if self._reply is None or number > self._reply.number:
            self._reply = None  # first: two batches may have no room
            self._reply = self._answer(number, requests, more)
        return self._reply

    def _answer(self, number: int, requests: list[Request], more: tuple[Any, ...]) -> Reply:
        try:
            return Reply(number, [self._do(request, more) for request in requests])
        except Exception as error:  # what is wrong with steps or with a checkpoint is said by the run
            return Reply(number, [], error)

    def _do(self, request: Request, more: tuple[Any, ...]) -> Any:
        method, arguments = request
        match method:
            case "begin":
                self._shard = None  # as above
                recipe, share = arguments
                self._shard = memory.Shard(cloudpickle.loads(recipe), share)
                return self._shard.standing()
            case "close":
                return None
            case "hold":
                assert self._shard is not None
                return self._shard.hold(*arguments, *more)
            case _:
                return getattr(self._shard, method)(*arguments)


class Keepers:
    """See `memory.Shards`: each shard is in a process of its own."""

    def __init__(self, crew: Crew, shares: Sequence[range], rebuilds: bool) -> None:
        """Start shards beside the actors of `crew`. `rebuilds`: one that is lost is begun again."""
        self.shares: Sequence[range] = shares
        self._crew = _Crew(crew, shares, rebuilds)
        self._posted: list[int] = []

    @property
    def notices(self) -> list[str]:
        """See Shards."""
        return self._crew.notices

    def begin(self, recipe: memory.Recipe) -> list[Any]:
        """See Shards. UsageError where there is no place for one, or it cannot be made."""
        try:
            return self._crew.begin(recipe)
        except Fault as fault:
            raise UsageError(_sentence(fault.what)) from fault

    def post(self, index: int, asked: Sequence[memory.Asked], *values: Any) -> None:
        """See Shards."""
        self._posted.append(index)
        self._crew.post(index, [Request(*one) for one in asked], *values)

    def wait(self) -> dict[int, list[Any] | memory.Lost]:
        """See Shards."""
        posted, self._posted = self._posted, []
        try:
            replies = self._crew.wait(posted)
        except Fault as fault:
            raise PartLostError(_sentence(fault.what)) from fault
        causes = self._crew.causes
        return {
            index: memory.Lost(causes[index]) if isinstance(values, Lost) else values
            for index, values in replies.items()
        }

    def close(self) -> None:
        """See Shards."""
        self._crew.close()


class _Crew(Crew):
    """The shards' processes: they have no environments, and their past is not kept."""

    advice = "in the memory of its machine"

    def __init__(self, beside: Crew, shares: Sequence[range], rebuilds: bool) -> None:
        super().__init__(beside._transport, b"", shares, beside._timeout, beside._notices)
        self._ends, self._rebuilds = False, rebuilds
        self.causes: dict[int, str] = {}  # what became of those that were lost last
        for actor in self.actors:
            actor.called = str(actor).replace("actor", "shard", 1).replace(" (", " of the replay memory (", 1)

    def begin(self, recipe: memory.Recipe) -> list[Any]:
        """Begin all shards empty; what they answer. Until they have answered, nothing is lost with one that dies."""
        self._recipe_of_shards = cloudpickle.dumps(recipe)  # here: Ray does not know of the user's own file
        for actor in self.actors:
            actor.past = []
        replies: Replies = self.ask({actor.index: [self._beginning(actor)] for actor in self.actors})
        for actor in self.actors:
            actor.past = None
        return [values[0] for _, values in sorted(replies.items())]  # type: ignore[index]

    def _beginning(self, actor: Actor) -> Request:
        return Request("begin", (self._recipe_of_shards, actor.share))

    def _process(self, actor: Actor) -> Any:
        return self._transport.start(Keeper)

    def _failed(self, actor: Actor, answer: Answer) -> None:
        if answer.missing:
            self._send_what_is_left(actor)
            return
        if actor.past is None and not self._rebuilds and (answer.gone or actor.failures):
            actor.call = None
            raise PartLostError(_sentence(f"{actor} {answer.failure}."))
        super()._failed(actor, answer)

    def _send_what_is_left(self, actor: Actor) -> None:
        """Ask a shard again, with rows of blocks instead of references to them; None for blocks that are gone.

        The number is the same: a shard that did execute the message does not do so again.
        """
        answers = [self.fetch(value) for value in actor.more]
        if not self._rebuilds and any(answer.failure for answer in answers):
            actor.call = None
            raise PartLostError("Steps that waited for the replay memory are gone with their machine.")
        actor.more = tuple(answer.value for answer in answers)
        actor.message = (*actor.message[:3], *actor.more)
        self._repeat(actor)

    def _begin_anew(self, actor: Actor) -> None:
        actor.more = ()
        self._ask(actor, [self._beginning(actor)], lost=True)

    def _tell(self, actor: Actor) -> None:
        if actor.lost:
            self.causes[actor.index] = _sentence(f"{actor} {actor.failures[-1].failure}")

    def _note(self, actor: Actor, request: Request, value: Any) -> None:
        pass


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
