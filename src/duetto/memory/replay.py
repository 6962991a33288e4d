"""Uniform replay: every stored transition is as likely as every other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from duetto.algorithms.base import Batch, OneStep, ReplaySpec, Tree
from duetto.errors import CheckpointError
from duetto.functional import forms, randomness
from duetto.functional.forms import ANY, Rows, Several
from duetto.functional.returns import n_step_return
from duetto.memory.base import Experience, Found, Memory, Sample
from duetto.memory.draws import Line, numbers
from duetto.memory.fields import Field, named
from duetto.memory.hindsight import Goals, Relabelling
from duetto.memory.rings import Rings
from duetto.memory.schedule import Schedule
from duetto.memory.whole import Episode, LeftOut, of_transitions
from duetto.networks.pictures import Table


class Replay(Memory):
    """The last transitions of every environment, and batches drawn from them uniformly (Lin, 1992).

    n-step sums are made when a batch is read, from the transitions that follow in the same environment.
    """

    def __init__(
        self,
        spec: ReplaySpec,
        fields: dict[str, Field],
        num_envs: int,
        rows: int,
        random: np.random.Generator,
        goals: Goals | None = None,
    ) -> None:
        """Use `memory.build`. `rows` is each environment's share of the capacity; `random` belongs to the memory."""
        self._spec = spec
        self._random = random
        self._rings = Rings(fields, num_envs, rows)
        self._relabelling: Relabelling | None = None
        if spec.hindsight is not None:
            assert goals is not None
            self._relabelling = Relabelling(spec.hindsight, self._rings, goals, spec.discount, spec.ignore_termination)
        self.schedule: Schedule = Schedule.of(spec)
        self._parts = tuple(name.removeprefix("obs/") for name in fields if name.startswith("obs/"))

    def __len__(self) -> int:
        return int(self._rings.stored.sum())

    @property
    def written(self) -> np.ndarray:
        """(num_envs,) int64, transitions ever written per environment; a copy."""
        return self._rings.written.copy()

    @property
    def rows(self) -> int:
        """Transitions that each environment's ring can hold: those older than `written - rows` are gone."""
        return self._rings.rows

    def add(self, experience: Experience) -> None:
        """Store copies of the transitions; a batch may be due afterwards.

        Raises:
            ValueError, TypeError: shapes, dtypes or environments other than the memory's. Then nothing is stored.
        """
        self._store(experience)
        self.schedule.advance(len(experience.env), bool((experience.terminated | experience.truncated).any()))

    def due(self) -> Iterator[Sample]:
        """Yield the batches that should be learned from now.

        Each is drawn when it is asked for, so it sees the priorities fed back for the one before. What is not asked for
        stays due.
        """
        while self.schedule.take():
            yield self.sample()

    def sample(self, size: int | None = None) -> Sample:
        """A batch of `size` transitions, by default `batch_size`; without replacement, of all where there are fewer.

        Raises:
            ValueError: nothing is stored yet.
        """
        if len(self) == 0:
            raise ValueError("The memory is empty: add a transition before sampling")
        index, weight = self._draw(self._spec.batch_size if size is None else size)
        batch = self._gather(index, weight)
        if self._relabelling is not None:
            batch = self._relabelling(batch, index, self._random)
        return Sample(batch, index, self._rings.number(index))

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Do nothing: uniform replay has no priorities."""

    # What a shard of a larger memory is asked for: see `shards`.
    @property
    def line(self) -> Line:
        """The `Line` of all items."""
        return Line(len(self), len(self), 1.0)

    def resolve(self, point: np.ndarray) -> Found:
        """Return the transitions at points (B,) of the line, without hindsight."""
        index, mass = self._find(point)
        return Found(self._gather(index, np.ones(len(index), np.float32)), index, self._rings.number(index), mass)

    def prioritize(self, index: np.ndarray, stamp: np.ndarray, priority: np.ndarray) -> None:
        """Do nothing: uniform replay has no priorities."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the transitions, which `segment` hands out."""
        return {
            "rows": self.rows,
            "written": self.written,
            "cuts": self._rings.cuts,
            "schedule": self.schedule.state_dict(),
            "random": randomness.state_of(self._random),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; the transitions follow with `load_segment`.

        Raises:
            CheckpointError: the state is that of a memory with another capacity or number of environments.
        """
        check_state(state, len(self._rings.written), self.rows)
        self._rings.restore(state["written"], state["cuts"])
        self._forget_episodes()
        self.schedule.load_state_dict(state["schedule"])
        randomness.restore(self._random, state["random"])

    def emptied(self, state: dict[str, Any]) -> dict[str, Any]:
        """See `Memory.emptied`."""
        return emptied(state)

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Note that every environment, or those in `envs` (N,) bool, begins an episode though its last did not end: no
        n-step window runs across.
        """
        self._rings.cut(envs)
        self._forget_episodes()

    def segment(self, since: np.ndarray) -> dict[str, np.ndarray] | None:
        """The transitions written after the counts `since` (num_envs,) and still stored, as flat arrays.

        None if there are none. See `Rings.segment` for the names.
        """
        return self._rings.segment(since)

    def load_segment(self, segment: dict[str, np.ndarray]) -> None:
        """Put transitions back, in any order of segments, after `load_state_dict`."""
        self._rings.load(segment)

    def episodes(self, left: LeftOut) -> Iterator[Episode]:
        """The whole episodes that are stored, each environment's in order; what is in none is counted in `left`."""

        def read(name: str, env: int, number: np.ndarray) -> Tree:
            return self._observation(name, env * self.rows + number % self.rows)

        return of_transitions(read, self.written, self.rows, left)

    def image_tables(self) -> dict[str, Table]:
        """See `Memory.image_tables`."""
        return {} if self._relabelling is not None else self._rings.image_tables()

    def _forget_episodes(self) -> None:
        """Let hindsight read from the rings again where episodes begin and end."""
        if self._relabelling is not None:
            self._relabelling.spans.stale = True

    def _store(self, experience: Experience) -> np.ndarray:
        """Write transitions to the rings, and return the indices written (K,)."""
        values = {
            **dict(named("obs", experience.obs)),
            "action": experience.action,
            "reward": experience.reward,
            **dict(named("next_obs", experience.next_obs)),
            "terminated": experience.terminated,
            "truncated": experience.truncated,
        }
        index = self._rings.write(experience.env, values)
        if self._relabelling is not None:
            self._relabelling.spans.note(index, experience.terminated | experience.truncated)
        return index

    def _draw(self, wanted: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw a batch: return its indices and importance weights (B,)."""
        item = numbers(len(self), wanted, self._random, self._spec.replacement)
        return self._rings.locate(item), np.ones(len(item), np.float32)

    def _find(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Indices and p^α (B,) of the items at points of the line."""
        return self._rings.locate(point), np.ones(len(point))

    def _gather(self, index: np.ndarray, weight: np.ndarray) -> Batch:
        reward, discount, last = self._one_step(index) if self._spec.n_step == 1 else self._n_steps(index)
        return Batch(
            obs=self._observation("obs", index),
            action=self._rings.arrays["action"].take(index, axis=0),
            reward=reward,
            discount=discount,
            next_obs=self._observation("next_obs", last),
            weight=weight,
            one_step=self._first_step(index) if self._spec.one_step and self._spec.n_step > 1 else None,
        )

    def _first_step(self, index: np.ndarray) -> OneStep:
        reward, discount, _ = self._one_step(index)
        return OneStep(reward, discount, self._observation("next_obs", index))

    def _one_step(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`_n_steps` for n = 1, where a window is its transition."""
        discount = np.full(len(index), self._spec.discount, np.float32)
        if not self._spec.ignore_termination:
            discount[self._rings.arrays["terminated"].take(index)] = 0.0
        return self._rings.arrays["reward"].take(index), discount, index

    def _n_steps(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Reward and discount (B,) of the windows that start at `index`, and the index of their last transition."""
        window, available = self._rings.ahead(index, self._spec.n_step)
        reward, terminated, truncated = (
            self._rings.arrays[name].take(window) for name in ("reward", "terminated", "truncated")
        )
        if self._spec.ignore_termination:  # then a termination cuts the window, as a truncation does, and no more
            terminated, truncated = np.zeros_like(terminated), terminated | truncated
        summed, discount, length = n_step_return(reward, terminated, truncated, available, self._spec.discount)
        last = window[np.arange(len(index)), length - 1]
        return summed.astype(np.float32), discount.astype(np.float32), last

    def _observation(self, name: str, index: np.ndarray) -> Tree:
        if self._parts and name not in self._rings.arrays:
            return {part: self._rings.read(f"{name}/{part}", index) for part in self._parts}
        return self._rings.read(name, index)


def check_state(state: dict[str, Any], num_envs: int, rows: int) -> None:
    """Raise CheckpointError unless `state` is of a memory with `num_envs` environments of `rows` transitions."""
    form = {"rows": int, "written": Rows(None, (), np.int64), "cuts": Several(Several(int))}
    forms.check(state, form | {"schedule": ANY, "random": ANY}, "memory")
    if (len(state["written"]), state["rows"]) != (num_envs, rows):
        raise CheckpointError(
            f"The checkpoint's replay memory has {len(state['written'])} environments of {state['rows']} transitions, "
            f"this run's {num_envs} of {rows}. Set replay_capacity and the number of environments back."
        )


def emptied(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state changed so that no transition was written; see `Memory.emptied`."""
    masses = {"mass": np.zeros_like(state["mass"]), "judged": None} if "mass" in state else {}
    written = np.zeros_like(state["written"])
    return state | masses | {"written": written, "cuts": [], "schedule": dict(Schedule.BEGINNING)}
