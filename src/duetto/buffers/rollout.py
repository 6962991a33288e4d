"""On-policy rollouts: the last steps of every environment, used for several epochs and then discarded.

    time 0 .. T-1    environment 0   s s s s E s s s |      s: a step, E: a step that ends its episode
                     environment 1   s s s s s s s s |      |: learn, discard the steps, continue

Observations keep their dtype, so images stay uint8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from typing_extensions import override

from duetto.algorithms.base import RolloutBatch, RolloutSpec, Tree
from duetto.buffers.base import CARRY, NEXT_CARRY, Experience, Memory, Sample, without_prefix
from duetto.buffers.episode_storage import Field, Values, named, unnamed
from duetto.errors import CheckpointError
from duetto.functional.pytree import tree_stack
from duetto.functional.returns import explained_variance, generalized_advantages
from duetto.networks.layers import SequenceInput

End = tuple[int, int, Values]  # time, environment, and the value function's input after the step


class Rollout(Memory):
    """T steps of N environments. Each epoch has one batch of all N·T rows.

    A vector step may lack some environments (Gymnasium's NEXT_STEP resets). Their rows are zeros with weight 0.

    Attributes:
        recompute_values: Whether to recompute all values with the current parameters once the rollout is complete. Set
            it if the steps were taken with older parameters: the values at the ends of episodes and of the rollout are
            always from current parameters, and advantages must not mix old and new values.
    """

    recompute_values: bool = False

    def __init__(
        self, spec: RolloutSpec, fields: dict[str, Field], num_envs: int, value: Callable[[Tree], np.ndarray]
    ) -> None:
        """Called by `buffers.build`. `value` maps observations to their values under the current parameters."""
        self._spec, self._value = spec, value
        self._arrays = {name: field.allocate(spec.steps, num_envs) for name, field in fields.items()}
        self._real = np.zeros((spec.steps, num_envs), bool)
        self._next: Values = {}  # inputs (N, ...) of the value function after the newest step of each environment
        self._ends: list[End] = []  # the ends of truncated episodes
        self._filled = 0
        self._diverged = False

    def __len__(self) -> int:
        return int(self._real[: self._filled].sum())

    @property
    def needs_divergence(self) -> bool:
        """Whether `note_divergence` must be called after each epoch."""
        return self._spec.target_kl > 0

    @property
    def needs_values(self) -> bool:
        """Whether each epoch's batch needs values computed with the parameters after the previous epoch."""
        return self._spec.recompute_advantages

    def add(self, experience: Experience) -> None:
        """Store a copy of one vector step."""
        time, env = self._filled, experience.env
        values = experience._asdict() | dict(named("obs", experience.obs)) | dict(experience.extras)
        for name, array in self._arrays.items():
            array[time] = 0
            array[time, env] = values[name]
        self._real[time] = False
        self._real[time, env] = True
        self._note_next(time, experience)
        self._filled += 1

    def due(self) -> Iterator[Sample]:
        """If the rollout is complete, yield one batch for each epoch, then discard the rollout.

        Batches have the log-probabilities and, by default, the values that were computed when the actions were taken.
        With `recompute_values`, values are recomputed before the first epoch; with `recompute_advantages`, values and
        advantages are recomputed before each later epoch.
        """
        if self._filled < self._spec.steps:
            return
        self._diverged = False
        batch = self._batch(self._recomputed_values() if self.recompute_values else self._arrays["value"])
        real = batch.weight > 0
        info = {"explained_variance": float(explained_variance(batch.value[real], batch.returns[real]))}
        for epoch in range(self._spec.epochs):
            if epoch and self._spec.recompute_advantages:
                batch = self._batch(self._recomputed_values())
            yield Sample(batch, age=len(self), info=info if epoch == 0 else {})
            if self._diverged:
                break
        self._filled, self._ends = 0, []

    def note_divergence(self, divergence: float) -> None:
        """Receive the mean KL divergence of the last epoch. If it exceeds the limit, skip the remaining epochs."""
        self._diverged = divergence > self._spec.target_kl

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Truncate the running episodes of all environments, or only of those that `envs` (N,) bool selects."""
        if not self._filled:
            return
        last = self._filled - 1
        done = self._arrays["terminated"][last] | self._arrays["truncated"][last]
        open_ended = self._real[last] & ~done & (True if envs is None else envs)
        for env in np.flatnonzero(open_ended).tolist():
            self._arrays["truncated"][last, env] = True
            self._ends.append((last, env, _row(self._next, env)))

    def state_dict(self) -> dict[str, Any]:
        """Return the steps of the incomplete rollout. There are none right after updates."""
        filled = self._filled
        return {
            "shape": list(self._real.shape),
            "filled": filled,
            "real": self._real[:filled].copy(),
            "arrays": {name: array[:filled].copy() for name, array in self._arrays.items()},
            "next": {name: part.copy() for name, part in self._next.items()},
            "ends": {
                "time": np.array([time for time, _, _ in self._ends], np.int64),
                "env": np.array([env for _, env, _ in self._ends], np.int64),
                "next": tree_stack([following for _, _, following in self._ends]) if self._ends else {},
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`. Raise CheckpointError if that rollout had other sizes."""
        if tuple(state["shape"]) != self._real.shape:
            raise CheckpointError(
                f"The checkpoint's rollout has {state['shape'][0]} steps of {state['shape'][1]} environments, but this "
                f"run's has {self._real.shape[0]} of {self._real.shape[1]}. Set rollout_steps and num_envs back."
            )
        filled = self._filled = state["filled"]
        self._real[:filled] = state["real"]
        for name, array in self._arrays.items():
            array[:filled] = state["arrays"][name]
        self._next = {name: np.array(part) for name, part in state["next"].items()}
        ends = state["ends"]
        rows = enumerate(zip(ends["time"].tolist(), ends["env"].tolist(), strict=True))
        self._ends = [(*at, _row({name: ends["next"][name] for name in self._next}, i)) for i, at in rows]

    def _note_next(self, time: int, experience: Experience) -> None:
        """Keep the inputs after the step, and once more for each episode that was truncated but not terminated."""
        next_input = self._next_input(experience)
        for name, part in next_input.items():
            if name not in self._next:
                self._next[name] = np.zeros((self._real.shape[1], *part.shape[1:]), part.dtype)
            self._next[name][experience.env] = part
        for row in np.flatnonzero(experience.truncated & ~experience.terminated).tolist():
            self._ends.append((time, int(experience.env[row]), _row(next_input, row)))

    # RecurrentRollout overrides the following methods.
    def _next_input(self, experience: Experience) -> Values:
        """Return the value function's inputs (K, ...) for the states after the steps."""
        return dict(named("obs", experience.next_obs))

    def _end_values(self, following: Values) -> np.ndarray:
        """Return the values (N,) of N inputs from `_next_input`, with the current parameters."""
        return self._value(unnamed("obs", following))

    def _recomputed_values(self) -> np.ndarray:
        """Return the values of all steps under the current parameters, (T, N)."""
        return self._value(self._observations()).reshape(self._real.shape)

    def _rows(self, array: np.ndarray) -> np.ndarray:
        """Reorder an array (T, N, ...) to the rows of a batch: (N·T, ...); for recurrent networks (N, T, ...)."""
        return array.reshape(-1, *array.shape[2:])

    def _observations(self) -> Any:
        """Return the observations of all steps; for recurrent networks a `SequenceInput`."""
        return unnamed("obs", self._in_rows())

    def _in_rows(self) -> Values:
        """Return all arrays, reordered by `_rows`."""
        return {name: self._rows(array) for name, array in self._arrays.items()}

    def _batch(self, value: np.ndarray) -> RolloutBatch:
        arrays = self._arrays
        advantage = generalized_advantages(
            arrays["reward"],
            value,
            self._next_values(value),
            arrays["terminated"],
            arrays["truncated"],
            self._spec.discount,
            self._spec.trace,
        )
        return RolloutBatch(
            obs=self._observations(),
            action=self._rows(arrays["action"]),
            log_prob=self._rows(arrays["log_prob"]),
            value=self._rows(value),
            advantage=self._rows(advantage.astype(np.float32)),
            returns=self._rows((advantage + value).astype(np.float32)),
            weight=self._rows(self._real.astype(np.float32)),
        )

    def _next_values(self, value: np.ndarray) -> np.ndarray:
        """Return the value of the state after each step, (T, N).

        This is the next step's value in `value`. For the ends of the rollout and of truncated episodes, this method
        computes it.
        """
        steps, num_envs = value.shape
        next_value = np.empty_like(value)
        next_value[:-1] = value[1:]
        ends = [(steps - 1, env, _row(self._next, env)) for env in range(num_envs)] + self._ends
        for start in range(0, len(ends), num_envs):  # always N rows, so that JAX compiles only once
            some = ends[start : start + num_envs]
            padded = some + some[:1] * (num_envs - len(some))
            values = self._end_values(tree_stack([inputs for _, _, inputs in padded]))
            for (time, env, _), end in zip(some, values, strict=False):
                next_value[time, env] = end
        return next_value


class RecurrentRollout(Rollout):
    """A rollout for recurrent networks: a batch has N rows of T steps.

    Updates recompute hidden states, starting from the stored states before the first step. To compute values at the
    rollout's end and at the ends of truncated episodes, the rollout also stores the hidden states there; updates do not
    recompute them.
    """

    def __init__(self, *arguments: Any) -> None:
        """Called by `buffers.build`."""
        super().__init__(*arguments)
        self._carry: Values = {}  # hidden states (N, ...) before the first step

    @override
    def add(self, experience: Experience) -> None:
        if self._filled == 0:
            for name, part in without_prefix(experience.extras, CARRY).items():
                self._carry[name] = np.zeros((self._real.shape[1], *part.shape[1:]), part.dtype)
                self._carry[name][experience.env] = part
        super().add(experience)

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"carry": {name: part.copy() for name, part in self._carry.items()}}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._carry = {name: np.array(part) for name, part in state["carry"].items()}

    def _next_input(self, experience: Experience) -> Values:
        carry = {CARRY + name: part for name, part in without_prefix(experience.extras, NEXT_CARRY).items()}
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
            carry=without_prefix(following, CARRY),
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


def _row(values: Values, row: int) -> Values:
    """Return a copy of one row. Scalars become arrays, as checkpoints store only arrays."""
    return {name: np.array(part[row]) for name, part in values.items()}
