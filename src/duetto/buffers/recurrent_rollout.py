"""Rollouts for recurrent networks: a batch's rows are whole environments with their first hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from duetto.buffers.base import Experience
from duetto.buffers.rollout import Rollout
from duetto.buffers.storage_fields import Values, unnamed
from duetto.functional import state_schema
from duetto.functional.state_schema import ArrayOf, DictOf
from duetto.networks.sequence_input import SequenceInput

CARRY, NEXT_CARRY = "carry/", "next_carry/"  # in an experience's extras: the state before and after its steps


class RecurrentRollout(Rollout):
    """T steps of N environments; a batch has N rows of T steps, so that learning computes the hidden states again.

    It keeps only the states before the first step, and those after steps whose next observation needs a value, which
    are as they were when the steps were taken.
    """

    def __init__(self, *arguments: Any) -> None:
        """Use `buffers.build`."""
        super().__init__(*arguments)
        self._carry: Values = {}  # (N, ...), before the first step

    @override
    def add(self, experience: Experience) -> None:
        if self._filled == 0:
            for name, part in _named_like(experience.extras, CARRY).items():
                self._carry[name] = np.zeros((self._real.shape[1], *part.shape[1:]), part.dtype)
                self._carry[name][experience.env] = part
        super().add(experience)

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"carry": {name: part.copy() for name, part in self._carry.items()}}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        state_schema.check(state, {"carry": DictOf(ArrayOf(self._real.shape[1], None))}, "memory")
        super().load_state_dict(state)
        self._carry = {name: np.array(part) for name, part in state["carry"].items()}

    def _next_input(self, experience: Experience) -> Values:
        carry = {CARRY + name: part for name, part in _named_like(experience.extras, NEXT_CARRY).items()}
        return (
            super()._next_input(experience)
            | carry
            | {"action": experience.action, "reward": experience.extras["seen_reward"]}
        )

    def _end_values(self, following: Values) -> np.ndarray:
        obs = unnamed("obs", {name: part[:, None] for name, part in following.items()})
        count = len(following["reward"])
        window = SequenceInput(
            obs=obs,
            previous_action=following["action"][:, None],
            previous_reward=following["reward"][:, None],
            starts=np.zeros((count, 1), bool),
            carry=_named_like(following, CARRY),
            is_first=np.zeros(count, bool),
            query_steps=None,
        )
        return self._value(window)

    def _recomputed_values(self) -> np.ndarray:
        return np.ascontiguousarray(self._value(self._observations()).T)

    def _rows(self, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.swapaxes(array, 0, 1))

    def _observations(self) -> SequenceInput:
        arrays = self._in_rows()
        steps, num_envs = self._real.shape
        return SequenceInput(
            obs=unnamed("obs", arrays),
            previous_action=arrays["previous_action"],
            previous_reward=arrays["previous_reward"],
            starts=arrays["starts"],
            carry=self._carry,
            is_first=arrays["starts"][:, 0],
            query_steps=np.broadcast_to(np.arange(steps), (num_envs, steps)).copy(),
        )


def _named_like(values: Mapping[str, np.ndarray], prefix: str) -> Values:
    """Return the values whose names start with `prefix`, without it."""
    return {name.removeprefix(prefix): part for name, part in values.items() if name.startswith(prefix)}
