"""Prioritised replay: transitions with a large error come more often."""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.algorithms.base import Prioritization, Prospect, ReplaySpec
from duetto.errors import NonFiniteError
from duetto.memory.base import Experience, Sample, turns
from duetto.memory.draws import Line, ProportionalDraws
from duetto.memory.fields import Field
from duetto.memory.hindsight import Goals
from duetto.memory.judging import StepJudgements
from duetto.memory.replay import Replay


class PrioritizedReplay(Replay):
    """Proportional prioritised replay (Schaul et al., 2016, arXiv:1511.05952); `draws` has its rules.

    A priority fed back for a transition that was overwritten meanwhile is ignored. Where the `Prioritization` says how,
    new ones get theirs from what the actor gave in `extras`; see `judging`.
    """

    needs_priorities = True

    def __init__(
        self,
        spec: ReplaySpec,
        prioritization: Prioritization,
        fields: dict[str, Field],
        num_envs: int,
        rows: int,
        random: np.random.Generator,
        goals: Goals | None = None,
    ) -> None:
        """Use `memory.build`."""
        super().__init__(spec, fields, num_envs, rows, random, goals)
        self.draws: ProportionalDraws = ProportionalDraws(num_envs * rows, prioritization)
        self._initial = prioritization.initial
        self._judged = None if self._initial is None else StepJudgements(num_envs, spec.n_step)

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Give the transitions of `sample` new priorities |δ| (B,); if one comes twice, its last one stays.

        Raises:
            NonFiniteError: a priority is NaN or infinite.
            ValueError: a priority is negative, or their number is not the sample's.
        """
        self.prioritize(sample.index, sample.stamp, checked(sample, priority))

    def prioritize(self, index: np.ndarray, stamp: np.ndarray, priority: np.ndarray) -> None:
        """Give the transitions at `index` (B,) new priorities (B,), where they are still those of `stamp`."""
        current = self._rings.number(index) == stamp
        index = index[current]
        self.draws.feedback(index, priority[current])
        if self._judged is not None:
            env = index // self.rows
            self._judged.settle(env, stamp[current], self._rings.written[env])

    @property
    def line(self) -> Line:
        """The `Line` of all items."""
        return self.draws.line._replace(items=len(self))

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the transitions: the uniform memory's state, and p^α of every index."""
        judged = {} if self._judged is None else {"judged": self._judged.state_dict()}
        return super().state_dict() | self.draws.state_dict(self._every_index()) | judged

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; see `Replay.load_state_dict`."""
        super().load_state_dict(state)
        self.draws.load_state_dict(self._every_index(), state)
        if self._judged is not None:
            self._judged = StepJudgements(len(self._rings.written), self._spec.n_step)
            if state.get("judged") is not None:  # none is there of a time before this was asked for
                self._judged.load_state_dict(state["judged"])

    def _every_index(self) -> np.ndarray:
        return np.arange(len(self._rings.written) * self.rows)

    def _store(self, experience: Experience) -> np.ndarray:
        number = self.written
        index = super()._store(experience)
        self.draws.renew(index)
        if self._judged is not None:
            for turn in turns(experience):
                self._judged.note(turn.env, number[turn.env], turn.extras)
                done = turn.terminated | turn.truncated
                self._judge(*self._judged.whole(turn.env, number[turn.env], done))
                number[turn.env] += 1
        return index

    def _judge(self, env: np.ndarray, number: np.ndarray) -> None:
        """Give the steps `number` (B,) the priority that follows from what their actor knew, where it knew enough."""
        assert self._judged is not None
        assert self._initial is not None
        there = number >= self._rings.written[env] - self.rows
        env, number = env[there], number[there]
        if not len(env):
            return
        index = env * self.rows + number % self.rows
        one = self._one_step(index)
        steps = one if self._spec.n_step == 1 else self._n_steps(index)
        error = self._initial(
            self._judged.taken(env, number),
            self._prospect(index, number, steps),
            self._prospect(index, number, one) if self._spec.one_step and steps is not one else None,
        )
        known = np.isfinite(error)
        self.draws.feedback(index[known], error[known].astype(np.float64))

    def _prospect(
        self, index: np.ndarray, number: np.ndarray, window: tuple[np.ndarray, np.ndarray, np.ndarray]
    ) -> Prospect:
        """Return the outlook of windows that begin at the steps `number` (B,), stored at `index` (B,).

        `window` has their rewards, discounts and the indices of their last steps, (B,) each.
        """
        assert self._judged is not None
        reward, discount, last = window
        over = self._rings.arrays["terminated"].take(last) | self._rings.arrays["truncated"].take(last)
        behind = number + (last - index) % self.rows + 1
        return self._judged.ahead(reward, discount, index // self.rows, behind, over)

    def _draw(self, wanted: int) -> tuple[np.ndarray, np.ndarray]:
        return self.draws.draw(wanted, self._random)

    def _find(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index = self.draws.find(point)
        return index, self.draws.mass(index)


def checked(sample: Sample, priority: np.ndarray | None) -> np.ndarray:
    """Check the priorities |δ| (B,) of a sample, and return them as float64; `PrioritizedReplay.feedback` lists the
    errors.
    """
    if priority is None:
        raise ValueError("Prioritised replay needs a priority for every transition of the sample, not None")
    error = np.asarray(priority, np.float64)
    if error.shape != sample.index.shape:
        raise ValueError(f"The priorities have shape {error.shape}, the sample {sample.index.shape}")
    if not np.isfinite(error).all():
        position = int(np.argmin(np.isfinite(error)))
        raise NonFiniteError(
            f"Priority {position} of the batch is {error[position]}: the loss has diverged. "
            "Lower the learning rate, or clip the gradients."
        )
    if error.min() < 0:
        raise ValueError(f"A priority is {error.min()}; priorities are absolute errors, never negative")
    return error
