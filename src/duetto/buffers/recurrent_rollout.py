"""Rollouts for recurrent networks: a batch's rows are whole environments with their first hidden states."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from duetto.algorithms.base import Tree
from duetto.buffers.base import Experience
from duetto.buffers.rollout import End, Rollout
from duetto.buffers.storage_fields import unnamed
from duetto.functional import state_schema
from duetto.functional.pytree import tree_map_many
from duetto.functional.state_schema import ArrayOf, DictOf
from duetto.networks.sequence_input import SequenceInput

CARRY, NEXT_CARRY = "carry/", "next_carry/"  # in an experience's extras: the state before and after its steps


class RecurrentRollout(Rollout):
    """T steps of N environments; a batch has N rows of T steps, so that learning computes the hidden states again.

    It keeps only the states before the first step, and those after steps whose next observation needs a value, which
    are as they were when the steps were taken.
    """

    def __init__(self, *arguments: Any) -> None:
        """Use `memory.build`."""
        super().__init__(*arguments)
        self._carry: dict[str, np.ndarray] = {}  # (N, ...), before the first step

    @override
    def add(self, experience: Experience) -> None:
        if self._filled == 0:
            self._begin(experience)
        super().add(experience)

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"carry": {name: part.copy() for name, part in self._carry.items()}}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        state_schema.check(state, {"carry": DictOf(ArrayOf(self._real.shape[1], None))}, "memory")
        super().load_state_dict(state)
        self._carry = {name: np.array(part) for name, part in state["carry"].items()}

    def _begin(self, experience: Experience) -> None:
        for name, part in _named_like(experience, CARRY).items():
            whole = np.zeros((self._real.shape[1], *part.shape[1:]), part.dtype)
            whole[experience.env] = part
            self._carry[name] = whole

    def _next_input(self, experience: Experience) -> Tree:
        obs = experience.next_obs
        seen = {f"obs/{name}": part for name, part in obs.items()} if isinstance(obs, dict) else {"obs": obs}
        carry = {f"{CARRY}{name}": part for name, part in _named_like(experience, NEXT_CARRY).items()}
        return seen | carry | {"action": experience.action, "reward": experience.extras["seen_reward"]}

    def _end_values(self, ends: list[End]) -> np.ndarray:
        next_input = tree_map_many(np.stack, [one for _, _, one in ends])
        obs, count = unnamed("obs", next_input), len(ends)
        window = SequenceInput(
            obs={name: part[:, None] for name, part in obs.items()} if isinstance(obs, dict) else obs[:, None],
            previous_action=next_input["action"][:, None],
            previous_reward=next_input["reward"][:, None],
            starts=np.zeros((count, 1), bool),
            carry={name.removeprefix(CARRY): part for name, part in next_input.items() if name.startswith(CARRY)},
            is_first=np.zeros(count, bool),
            query_steps=None,
        )
        return self._value(window)

    def _recomputed_values(self) -> np.ndarray:
        return np.ascontiguousarray(self._value(self._observations()).T)

    def _rows(self, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.swapaxes(array, 0, 1))

    def _observations(self) -> SequenceInput:
        arrays = {name: self._rows(array) for name, array in self._arrays.items()}
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


def _named_like(experience: Experience, prefix: str) -> dict[str, np.ndarray]:
    """Return the extras whose names start with `prefix`, without it."""
    return {name.removeprefix(prefix): part for name, part in experience.extras.items() if name.startswith(prefix)}
