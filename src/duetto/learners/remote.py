"""A learner all of whose ranks are in processes of their own; this one computes nothing of it. See `ranks`.

The run keeps what it needs on the host: random numbers, schedules, counters. It acts with parameters that it asks
for when somebody acts, in NumPy where that can be (`acting.build`). No framework is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from duetto.algorithms.base import Tree
from duetto.errors import DuettoError, UsageError
from duetto.functional.trees import mapped
from duetto.learners import acting
from duetto.learners.base import Learner, Metrics, Rates
from duetto.learners.beside import Beside, Later
from duetto.learners.dealing import deal, has_rows
from duetto.learners.parameters import Parameters
from duetto.learners.rank import Making
from duetto.learners.ranks import TO_END, TO_START, Machines, Meeting, Ranks, beginning, packed


class Found(NamedTuple):
    """What a rank finds out about its own place."""

    meeting: Meeting  # at which others could reach it
    machine: str
    lonely: bool  # whether the machine's own name is known to nobody else


class RemoteLearner(Learner):
    """A learner that deals shares to its ranks, and reports what they computed."""

    backend: Literal["torch", "jax"] = "jax"
    remote = True

    def __init__(self, making: Making, number: int, machines: Machines) -> None:
        """Start the ranks. Raises DuettoError where one cannot begin."""
        super().__init__(making.algorithm, making.observation, making.action, making.seed, making.precision)
        self._acts_on_host = False  # see `_act`
        self.ranks: int = number
        self.threads: int = making.threads
        self._making = making
        self._actor: acting.Parted | None = None
        self._current = False  # whether that one has the parameters as they are now
        self._beside: Beside | None = None
        self._made = 0
        self._ranks = Ranks([packed((self.backend, making, rank)) for rank in range(number)], machines, first=0)
        with beginning(number, self.close):
            self._ranks.begin()
            self._meet(machines.host)

    def _meet(self, host: str) -> None:
        self._ranks.send("where", host)
        found: list[Found] = self._ranks.gather(0, TO_START)
        together = len({one.machine for one in found}) == 1
        if not together and self._making.device == "cpu":
            _check_names(found)
        self._ranks.send("join", found[0].meeting, self.ranks, together and not host)
        self._ranks.gather(0, TO_START)

    # ------------------------------------------------------------------------------------------------ learning
    def _update(self, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics:
        """See Learner."""
        self._current = False
        updated = partial(self._updated, self.algorithm.phase(self.updates), batch, rows, noise, rates)
        if self._beside is None:
            return updated()
        made: Any = Later(self._beside.begin(updated))
        return made

    def _updated(self, phase: int, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics:
        size = len(batch.weight) if rows is None else rows.shape[1]
        dealt = mapped(lambda array: has_rows(array, size), noise)
        shares = deal(batch, rows, noise, self.ranks)
        self._ranks.send_each([("share", phase, *share, dealt, rates) for share in shares])
        self._made += 1
        return self._ranks.gather(self._made)[0]

    def learn_beside(self) -> None:
        """See Learner: a thread waits for them."""
        self._beside = Beside()

    def close(self) -> None:
        """End all ranks; what they have compiled is kept."""
        if self._beside is not None:
            self._beside.close()
        with suppress(DuettoError):  # of one that is gone there is nothing to keep
            self._ranks.send("tidy")
            self._ranks.gather(self._made, TO_END)
        self._ranks.close()

    def _finish(self) -> None:
        if self._beside is not None:
            self._beside.finish()

    # ------------------------------------------------------------------------------------------------ acting
    def acting_parameters(self) -> Callable[[], Parameters]:
        """See Learner."""
        ask = partial(self._ranks.ask, 0, "acting_parameters")
        return ask if self._beside is None else self._beside.begin(ask).result

    def _act(self, method: Any, obs: Tree, *noise: np.ndarray | None) -> Any:
        """See Learner: in this process, on its processor."""
        if self._actor is None:
            making = self._making
            if making.device == "cuda":  # whose memory is the learners'
                os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
            how: Any = {"backend": self.backend, "precision": making.precision, "threads": making.threads}
            self._actor = acting.build(making.algorithm, making.observation, making.action, **how)
        if not self._current:
            self._actor.load(self.acting_parameters()())
            self._current = True
        return self._actor._acting(method, obs, *noise)

    # ------------------------------------------------------------------------------------------------ state
    def parameters(self) -> Parameters:
        """See Learner."""
        self._finish()
        return self._ranks.ask(0, "give", "parameters")

    def optimizer_state(self) -> dict[str, Any]:
        """See Learner."""
        self._finish()
        return self._ranks.ask(0, "give", "optimizer_state")

    def load_parameters(self, parameters: Parameters) -> None:
        """See Learner."""
        self._load("parameters", parameters)

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """See Learner."""
        self._load("optimizer_state", state)

    def _load(self, what: str, state: Any) -> None:
        self._finish()
        self._current = False
        self._ranks.send("take", what, state, self._made)
        self._ranks.gather(self._made)

    def state_dict(self) -> dict[str, Any]:
        """See Learner. DuettoError where ranks have different parameters."""
        state = super().state_dict()
        self._ranks.send("checksum")
        self._ranks.gather(self._made)
        return state


def _check_names(found: list[Found]) -> None:
    """Raise UsageError where a machine's own name leads to an address that only it has: there gloo listens."""
    lonely = sorted({one.machine for one in found if one.lonely})
    if lonely:
        raise UsageError(
            f"Learners on other machines would have to reach {lonely[0]}, whose own name leads to an address that only "
            "it has (127.0.0.1, for example): there JAX listens. Give its name its address of the network "
            "(/etc/hosts), or leave out learners (--learners)."
        )
