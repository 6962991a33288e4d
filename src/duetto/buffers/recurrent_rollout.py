"""Rollouts for recurrent networks: a batch's rows are whole environments with their first hidden states."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from duetto.algorithms.base import Tree
from duetto.buffers.base import Experience
from duetto.buffers.rollout import End, Rollout
from duetto.buffers.storage_fields import named, unnamed
from duetto.functional import state_schema
from duetto.functional.pytree import tree_map_many
from duetto.functional.state_schema import ArrayOf, DictOf
from duetto.networks.sequence_input import SequenceInput

CARRY, NEXT_CARRY = "carry/", "next_carry/"  # in an experience's extras: the state before and after its steps


class RecurrentRollout(Rollout):
    """T steps of N environments; a batch has N rows of T steps, so that learning computes the hidden states again.

    It keeps only the states before the first step, and those after steps whose next observation needs a value.
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

    def _end_values(self, ends: list[End], anew: bool) -> np.ndarray:
        if anew:
            return self._value(self._up_to(ends))[:, 0]
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

    def _up_to(self, ends: list[End]) -> SequenceInput:
        """N rows of T + 1 steps, one for each end: its environment's steps until there, and what they led to.

        Parameters that have changed leave another carry there than the one that was kept.
        """
        whole, (steps, _) = self._observations(), self._real.shape
        envs, times = [env for _, env, _ in ends], [time for time, _, _ in ends]
        parts = {**dict(named("obs", whole.obs)), "action": whole.previous_action, "reward": whole.previous_reward}
        longer = {}
        for name, part in parts.items():
            longer[name] = np.zeros((len(ends), steps + 1, *part.shape[2:]), part.dtype)
            longer[name][:, :steps] = part[envs]
            for row, (time, _, next_input) in enumerate(ends):
                longer[name][row, time + 1] = next_input[name]
        starts = np.zeros((len(ends), steps + 1), bool)
        starts[:, :steps] = whole.starts[envs]
        starts[np.arange(len(ends)), np.add(times, 1)] = False
        return SequenceInput(
            obs=unnamed("obs", longer),
            previous_action=longer["action"],
            previous_reward=longer["reward"],
            starts=starts,
            carry={name: part[envs] for name, part in self._carry.items()},
            is_first=whole.is_first[envs],
            query_steps=np.add(times, 1)[:, None],
        )

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
