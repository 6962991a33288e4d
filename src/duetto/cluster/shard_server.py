"""Shards of a replay memory in processes of their own.

    coordinator   points | ......... join, weigh | learn | new priorities, store step 7 of block 3 ...... | points
    shard 0              | look up   |                   | keep them, get the block if it is new, store   |
    shard 1              | look up ..|                   | keep them, get the block if it is new, store ..|

Blocks go from the actors that made them to the shards: the coordinator only sends references (`transport.py`).

Messages to a shard are numbered, as those to an actor are: one that comes twice is executed once, and an answer that is
lost is given again. A shard that dies, or blocks that are gone with their machine before a shard has them, send the run
back to its newest checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cloudpickle

from duetto import buffers
from duetto.cluster.actor_pool import LOST_BLOCKS, Actor, Crew, Replies
from duetto.cluster.actor_server import GREETING, Reply, Request
from duetto.cluster.transport import Answer
from duetto.environments.errors import EnvironmentFault
from duetto.errors import PartLostError, UsageError


class Keeper:
    """The object in a shard's process: executes numbered messages, each once."""

    def __init__(self) -> None:
        self._shard: buffers.Shard | None = None
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
                factory, share = arguments
                self._shard = buffers.Shard(cloudpickle.loads(factory), share)
                return self._shard.status()
            case "close":
                return None
            case _:
                assert self._shard is not None
                return self._shard.execute(method, *arguments, *(more if method == "hold" else ()))


class Keepers:
    """See `memory.Shards`: each shard is in a process of its own."""

    def __init__(self, crew: Crew, shares: Sequence[range]) -> None:
        """Start shards beside the actors of `crew`."""
        self.shares: Sequence[range] = shares
        self._crew = _Crew(crew, shares)
        self._posted: list[int] = []

    def begin(self, factory: buffers.ReplayFactory) -> list[Any]:
        """See Shards. UsageError where there is no place for one, or it cannot be made."""
        try:
            return self._crew.begin(factory)
        except EnvironmentFault as fault:
            raise UsageError(_sentence(fault.what)) from fault

    def post(self, index: int, asked: Sequence[buffers.ShardRequest], *values: Any) -> None:
        """See Shards."""
        self._posted.append(index)
        self._crew.post(index, [Request(*one) for one in asked], *values)

    def wait(self) -> dict[int, list[Any]]:
        """See Shards."""
        posted, self._posted = self._posted, []
        try:
            return self._crew.wait(posted)  # type: ignore[return-value]  # a lost one raises
        except EnvironmentFault as fault:
            raise PartLostError(_sentence(fault.what)) from fault

    def close(self) -> None:
        """See Shards."""
        self._crew.close()


class _Crew(Crew):
    """The shards' processes: they have no environments, and no other process can take the place of one that began."""

    advice = "in the memory of its machine"

    def __init__(self, beside: Crew, shares: Sequence[range]) -> None:
        super().__init__(beside._transport, b"", shares, beside._timeout, beside._notices, ends=False)
        for actor in self.actors:
            actor.called = str(actor).replace("actor", "shard", 1).replace(" (", " of the replay memory (", 1)

    def begin(self, factory: buffers.ReplayFactory) -> list[Any]:
        """Begin all shards empty; what they answer. Until they have answered, nothing is lost with one that dies."""
        packed = cloudpickle.dumps(factory)  # here: Ray does not know of the user's own file
        replies: Replies = self.ask({actor.index: [Request("begin", (packed, actor.share))] for actor in self.actors})
        for actor in self.actors:
            actor.past = None
        return [values[0] for _, values in sorted(replies.items())]  # type: ignore[index]

    def _process(self, actor: Actor) -> Any:
        return self._transport.start(Keeper)

    def _failed(self, actor: Actor, answer: Answer) -> None:
        if answer.missing:
            actor.call = None
            raise PartLostError(LOST_BLOCKS)
        if actor.past is None and (answer.gone or actor.failures):
            actor.call = None
            raise PartLostError(_sentence(f"{actor} {answer.failure}."))
        super()._failed(actor, answer)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
