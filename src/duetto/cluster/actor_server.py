"""What runs in an actor's process: its share of the environments, its player or evaluator, and its last answer."""

from __future__ import annotations

from typing import Any, NamedTuple

import cloudpickle

from duetto.environments import VecEnv, pickling
from duetto.environments.errors import EnvironmentFault, raised, summary
from duetto.errors import DuettoError, UsageError

GREETING = 0  # the number of a message that only asks whether somebody is there


class Request(NamedTuple):
    """A call of a method of the actor's player or evaluator."""

    method: str
    arguments: tuple[Any, ...] = ()


class Reply(NamedTuple):
    """The answer to a message."""

    number: int  # the message's
    values: list[Any]  # of each request
    error: Exception | None = None  # an EnvironmentFault or DuettoError: the environment's or user's doing
    exact: bool = True  # False where the past did not come back: then nothing was requested
    left: Any = None  # what stands for what was left there, once it has come


class Host:
    """The object in an actor's process: executes each numbered message once; if it comes again, repeats the answer."""

    def __init__(self, recipe: bytes, share: range, role: bytes) -> None:
        """`role`, pickled, is what it does: see `player.Role` and `evaluator.Judging`."""
        self._recipe, self._share, self._role = recipe, share, role
        self._stepper: VecEnv | None = None
        self._player: Any = None
        self._reply: Reply | None = None

    def do(self, number: int, requests: list[Request], past: list[Request] | None = None, *more: Any) -> Reply:
        """Execute the requests. A new actor first executes the `past` of the one it replaces, and is then in its state.

        `more` are further arguments of the last request: what was `put`.
        """
        if number == GREETING:
            return Reply(number, [])
        if self._reply is not None and number <= self._reply.number:
            return self._reply  # that of a newer message tells whoever asks that this one is out of date
        if (past is None) != (self._stepper is not None):
            raise RuntimeError(f"message {number} is not for this actor, which answered {self._reply} last")
        if more:
            requests = [*requests[:-1], Request(requests[-1].method, (*requests[-1].arguments, *more))]
        self._reply = self._answer(number, requests, past)
        return self._reply

    def leave(self, *message: Any) -> tuple[Reply, Any]:
        """Like `do`, but a block's steps stay here: returns the reply without them, and the steps or None."""
        reply = self.do(*message)
        if not reply.values or not hasattr(reply.values[-1], "parted"):
            return reply, None
        block, steps = reply.values[-1].parted()
        return reply._replace(values=[*reply.values[:-1], block]), steps

    def _answer(self, number: int, requests: list[Request], past: list[Request] | None) -> Reply:
        try:
            if past is not None:
                self._make()
                if not self._relive(past):
                    return Reply(number, [], exact=False)
            values = [self._do(request) for request in requests]
        except (DuettoError, EnvironmentFault) as error:
            return Reply(number, [], error)
        except (Exception, SystemExit) as error:
            return Reply(number, [], raised("its actor", error, None))
        return Reply(number, values)

    def _relive(self, past: list[Request]) -> bool:
        """Execute the past; False if it failed, although it went well the first time, or was not restored exactly."""
        try:
            return not any(self._do(request) is False for request in past)
        except Exception:
            return False

    def _make(self) -> None:
        try:
            self._stepper = pickling.make(self._recipe, num_envs=len(self._share))
            self._player = cloudpickle.loads(self._role).take(self._stepper, self._share)
        except ImportError as error:
            raise UsageError(
                f"An actor cannot make the environment ({summary(error)}). Install on every machine of the cluster "
                "what is installed here."
            ) from error

    def _do(self, request: Request) -> Any:
        assert self._stepper is not None
        if request.method == "describe":
            return describe(self._stepper)
        return getattr(self._player, request.method)(*request.arguments)


class Description(NamedTuple):
    """What the coordinator must know of an engine."""

    name: str
    label: str
    layout: Any
    action_space: Any
    metadata: dict[str, Any]
    stacked: int


def describe(stepper: VecEnv) -> Description:
    """The description of an actor's environments."""
    engine = stepper.engine
    metadata = {name: value for name, value in engine.metadata.items() if _can_travel(value)}
    return Description(stepper.name, engine.label, engine.layout, engine.single_action_space, metadata, engine.stacked)


def _can_travel(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # whatever a user's objects raise
        return False
    return True
