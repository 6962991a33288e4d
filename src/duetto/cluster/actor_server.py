"""The object in each process that a run starts on a cluster: it executes messages and answers them.

A role makes the served object: an actor or a shard. With each answer comes the state of the served object. A new
process starts from the state that the lost one answered last.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import cloudpickle

from duetto.environments.errors import EnvironmentFault, raised, summary
from duetto.errors import DuettoError, UsageError


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
