"""What runs in an actor's process: its share of the environments, the player if it acts itself, and its last answer."""

from __future__ import annotations

import time
import zlib
from typing import Any, Literal, NamedTuple

import cloudpickle
import numpy as np

from duetto.environments import Stepper, recipes, trees
from duetto.environments.engines import Engine, Outcome
from duetto.environments.faults import Fault, raised, summary
from duetto.errors import DuettoError, UsageError

GREETING = 0  # the number of a message that only asks whether somebody is there


class Request(NamedTuple):
    """A call of an engine's method, or a player's."""

    method: str
    arguments: tuple[Any, ...] = ()


class Reply(NamedTuple):
    """The answer to a message."""

    number: int  # the message's
    values: list[Any]  # of each request
    error: Exception | None = None  # a Fault or DuettoError: the environment's or user's doing
    checksum: int | None = None  # of what the last request of the past gave
    exact: bool = True  # False where the past did not come back: then nothing was requested
    saving: float = 0.0  # seconds that the last `save` has taken
    left: Any = None  # what stands for what was left there, once it has come


class Host:
    """The object in an actor's process: executes each numbered message once; if it comes again, repeats the answer."""

    def __init__(self, recipe: bytes, share: range, role: bytes | None = None) -> None:
        """`role`, pickled, makes it an actor that acts or evaluates: see `player.Role` and `evaluator.Judging`."""
        self._recipe, self._share, self._role = recipe, share, role
        self._stepper: Stepper | None = None
        self._player: Any = None
        self._reply: Reply | None = None
        self._saving = 0.0

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
        came_back = None
        try:
            if past is not None:
                self._make()
                try:
                    came_back = self._relive(past)
                except Exception:  # it went well the first time
                    return Reply(number, [], exact=False)
            if came_back is False:
                return Reply(number, [], exact=False)
            values = [self._do(request) for request in requests]
        except (DuettoError, Fault) as error:
            return Reply(number, [], error)
        except (Exception, SystemExit) as error:
            return Reply(number, [], raised("its actor", error, None))
        return Reply(number, values, None, came_back, saving=self._saving)

    def _relive(self, past: list[Request]) -> int | Literal[False] | None:
        """Execute the past; the checksum of its last result, or False if a saved state was not restored exactly."""
        found = None
        for request in past:
            value = self._do(request)
            if request.method in ("load", "restore") and value is False:
                return False
            found = checksum(request.method, value)
        return found

    def _make(self) -> None:
        try:
            self._stepper = recipes.make(self._recipe, num_envs=len(self._share))
            if self._role is not None:
                self._player = cloudpickle.loads(self._role).take(self._stepper, self._share)
        except ImportError as error:
            raise UsageError(
                f"An actor cannot make the environment ({summary(error)}). Install on every machine of the cluster "
                "what is installed here."
            ) from error

    def _do(self, request: Request) -> Any:
        assert self._stepper is not None
        engine = self._stepper.engine
        match request.method:
            case "describe":
                return describe(self._stepper)
            case "step":  # what came over a network is read-only, and environments may write to their actions
                return engine.step(*map(np.array, request.arguments)), pending(engine)
            case "save":
                began = time.perf_counter()
                saved = engine.save()
                self._saving = time.perf_counter() - began
                return saved
            case method:
                return getattr(self._player or engine, method)(*request.arguments)


class Description(NamedTuple):
    """What the coordinator must know of an engine."""

    name: str
    label: str
    layout: Any
    action_space: Any
    metadata: dict[str, Any]
    stacked: int


def describe(stepper: Stepper) -> Description:
    """The description of an actor's environments."""
    engine = stepper.engine
    metadata = {name: value for name, value in engine.metadata.items() if _can_travel(value)}
    return Description(stepper.name, engine.label, engine.layout, engine.single_action_space, metadata, engine.stacked)


def pending(engine: Engine) -> np.ndarray | None:
    """The environments (N,) bool that will only reset themselves at the next step; None if the engine has none."""
    return getattr(engine, "pending", None)


def checksum(method: str, value: Any) -> int | None:
    """The checksum of a step's or a reset's result; None for any other method."""
    match method:
        case "step":
            outcome: Outcome = value[0]
            rows = [part for tree in (outcome.next_obs, outcome.obs) for _, part in trees.parts(tree)]
            rows += [outcome.reward, outcome.terminated, outcome.truncated]
        case "reset":
            rows = [part for _, part in trees.parts(value)]
        case _:
            return None
    total = 0
    for row in rows:
        total = zlib.crc32(np.ascontiguousarray(row).tobytes(), total)
    return total


def _can_travel(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # whatever a user's objects raise
        return False
    return True
