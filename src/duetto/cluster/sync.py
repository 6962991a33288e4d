"""The mode `sync`: the weights of each block are fixed, so the numbers depend on no actor's speed or death.

    learner   version 0 |           | learn from 0: version 1 | learn from 1: version 2 | learn from 2 ...
    actor 0             | block 0   | block 1, version 0      | block 2, version 1      |
    actor 1             | block 0 . | block 1, version 0 .... | block 2, version 1      |
                                      ^ all wait for the slowest, and for the learner

Version k is what was learned from blocks 0 to k - 1, and actors act in block k with version k - 1 (in block 0 with
version 0): so the actors make the next block while the learner learns from this one. A vector step is that of all
actors, in their order. The numbers are the same for a given number of actors and length of blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.cluster.actor import Weights
from duetto.cluster.block_source import Blocks
from duetto.functional import state_schema
from duetto.functional.running_stats import Moments
from duetto.functional.state_schema import ARRAY, DictOf, OptionalOf


class Sync(Blocks):
    """See above."""

    mode = "sync"

    def _fill(self, step: int, total_steps: int) -> None:
        if self._ready:
            return
        if not self._orders:  # a run's beginning, or of what goes on from a cut
            if self._weights is None:
                self._publish()
            self._ask(step, total_steps)
        blocks = self._arrived(len(self._orders))
        self._ready.extend(self._opened(blocks))
        self._publish()
        self._ask(step + sum(len(ready.experience.env) for ready in self._ready), total_steps)

    def _ask(self, step: int, total_steps: int) -> None:
        for index in range(len(self._shares)):
            self._order(index, step, self._stepper.num_envs, total_steps)

    def state_dict(self) -> dict[str, Any]:
        """See Blocks; with the weights that blocks in flight are made with."""
        return super().state_dict() | {"weights": None if self._weights is None else _packed(self._weights)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`."""
        moments = {"mean": ARRAY, "variance": ARRAY, "count": float}
        weights = {"version": int, "updates": int, "parameters": DictOf(DictOf(ARRAY)), "observed": DictOf(moments)}
        state_schema.check(state, {"weights": OptionalOf(weights | {"rewarded": OptionalOf(moments)})}, "collector")
        super().load_state_dict(state)
        if state["weights"] is not None:
            self._send(_unpacked(state["weights"]))


def _packed(weights: Weights) -> dict[str, Any]:
    """The weights as part of a saved state."""
    observed = {name: _plain(moments) for name, moments in weights.observed.items()}
    return weights._asdict() | {"observed": observed, "rewarded": weights.rewarded and _plain(weights.rewarded)}


def _unpacked(packed: dict[str, Any]) -> Weights:
    """Undo `_packed`."""
    observed = {name: Moments(**moments) for name, moments in packed["observed"].items()}
    return Weights(**packed | {"observed": observed, "rewarded": packed["rewarded"] and Moments(**packed["rewarded"])})


def _plain(moments: Moments) -> dict[str, Any]:
    return {
        "mean": np.asarray(moments.mean),
        "variance": np.asarray(moments.variance),
        "count": float(moments.count),
    }
