"""A replay memory whose environments are spread over shards: one law of drawing, one generator, one count.

    line of all      |   shard 0   | shard 1 |      shard 2      |      each as long as its items are together
    points                ^  ^         ^        ^     ^   ^             drawn here; each is resolved where it lies

With uniform draws the batches are those of one memory, bit by bit, whatever the number of shards: points are integers.
With priorities they are the same but for the rounding of sums, and with one shard bit by bit.

Feedback and new steps are sent without waiting, and their answers, which say how a shard stands, are collected before
the next points are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from duetto.algorithms.base import SequenceBatch, SequenceSpec
from duetto.errors import PartLostError
from duetto.functional import randomness
from duetto.memory import parts, replay, sequences
from duetto.memory.base import Experience, Found, Memory, Sample
from duetto.memory.fields import named
from duetto.memory.frames import Stacks
from duetto.memory.joint import JointDraws, Piece
from duetto.memory.kinds import Recipe
from duetto.memory.prioritized import checked
from duetto.memory.schedule import Schedule
from duetto.memory.shards import Elsewhere, Lost, Standing

ATTEMPTS = 3  # to make one shard again
LOADING = ("load_state_dict", "load_segment")


class Sharded(Memory):
    """See above, and `Replay` or `SequenceReplay` for what it is of."""

    def __init__(self, recipe: Recipe, num_envs: int, random: np.random.Generator, elsewhere: Elsewhere) -> None:
        """Use `memory.build`. `random` belongs to the memory."""
        self._recipe, self._num_envs, self._random = recipe, num_envs, random
        self._shards, self._kept = elsewhere
        self._shares = self._shards.shares
        self._firsts = np.array([share.start for share in self._shares])
        self.schedule: Schedule = Schedule.of(recipe.spec)
        stacked = recipe.stacked if isinstance(recipe.spec, SequenceSpec) else 1
        self._stacks = Stacks(recipe.observation, stacked) if stacked > 1 else None
        self.draws: JointDraws = JointDraws(recipe.spec, self._settle)
        self._asked: dict[int, tuple[str, tuple[Any, ...]]] = {}  # what is not answered yet
        standings = self._shards.begin(recipe)
        self._written = [standing.written for standing in standings]
        self.draws.lines = [standing.line for standing in standings]

    def __len__(self) -> int:
        """Items that can be sampled."""
        return len(self.draws)

    @property
    def needs_priorities(self) -> bool:
        """Whether `feedback` wants errors."""
        return self._recipe.spec.prioritization is not None

    @property
    def written(self) -> np.ndarray:
        """(num_envs,) int64, rows ever written per environment; a copy."""
        self._settle()
        return np.concatenate(self._written)

    @property
    def rows(self) -> int:
        """Rows that each environment's ring can hold."""
        return self._recipe.rows

    # ------------------------------------------------------------------------------------------------ filling
    def add(self, experience: Experience) -> None:
        """Store copies of the steps; a batch may be due afterwards.

        Raises:
            UsageError: see `EpisodeRings.check`, here, where environments have their numbers.
        """
        if self._stacks is not None:
            obs, next_obs = (dict(named("obs", tree)) for tree in (experience.obs, experience.next_obs))
            self._stacks.check(experience.env, obs, next_obs)
        largest = self.draws.largest
        for index, rows in self._of_each(experience.env):
            own = parts.rows_of(experience, rows)
            self._ask(index, "add", own._replace(env=own.env - self._firsts[index]), largest)
        self.schedule.advance(len(experience.env), bool((experience.terminated | experience.truncated).any()))

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Every environment, or those in `envs` (N,) bool, begins a new episode though the last one did not end."""
        largest = self.draws.largest
        for index, share in enumerate(self._shares):
            self._ask(index, "interrupt", None if envs is None else envs[share.start : share.stop], largest)

    # ------------------------------------------------------------------------------------------------ sampling
    def due(self) -> Iterator[Sample]:
        """The batches that should be learned from now; they wait for the first item."""
        while len(self) and self.schedule.take():
            yield self.sample()

    def sample(self, size: int | None = None) -> Sample:
        """A batch of `size` items, by default `batch_size`.

        Raises:
            ValueError: nothing is stored yet.
        """
        if not len(self):
            raise ValueError("The memory is empty: add steps before sampling")
        wanted = self._recipe.spec.batch_size if size is None else size
        while True:
            pieces = self.draws.pieces(wanted, self._random)
            for piece in pieces:
                self._ask(piece.shard, "resolve", piece.point)
            found = self._settle()
            if len(found) == len(pieces):
                return self._sampled(pieces, [found[piece.shard] for piece in pieces])
            if not len(self):  # a shard was lost, and nothing that could be drawn instead is left
                raise PartLostError("All that the replay memory held is lost.")

    def _sampled(self, pieces: list[Piece], found: list[Found]) -> Sample:
        rows = [piece.rows for piece in pieces]
        index = [one.index + self._firsts[piece.shard] * self.rows for piece, one in zip(pieces, found, strict=True)]
        batch = parts.scattered([one.batch for one in found], rows)
        mass, stamp = (parts.scattered([getattr(one, name) for one in found], rows) for name in ("mass", "stamp"))
        return Sample(batch._replace(weight=self.draws.weights(mass)), parts.scattered(index, rows), stamp)

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Give what was sampled new priorities; see `PrioritizedReplay.feedback` and `SequenceReplay.feedback`."""
        if not self.needs_priorities:
            return
        spec, batch = self._recipe.spec, sample.batch
        if isinstance(spec, SequenceSpec):
            assert isinstance(batch, SequenceBatch)
            error = sequences.priorities(priority, batch.mask, spec.priority_mix)
        else:
            error = checked(sample, priority)
        self._settle()
        for index, rows in self._of_each(sample.index // self.rows):
            place = sample.index[rows] - self._firsts[index] * self.rows
            self._ask(index, "prioritize", place, sample.stamp[rows], error[rows])

    # ------------------------------------------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """That of one memory with all environments."""
        self._settle()
        states: dict[int, Any] = {}
        while missing := [index for index in range(len(self._shares)) if index not in states]:
            for index in missing:
                self._ask(index, "state_dict")
            states |= self._settle()
        whole = parts.join_states([states[index] for index in range(len(self._shares))], self._shares, self.rows)
        own = {"schedule": self.schedule.state_dict(), "random": randomness.state_of(self._random)}
        if "draws" in whole:
            return whole | own | {"draws": whole["draws"] | self.draws.state_dict()}
        return whole | own | self.draws.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`; the rows follow with `load_segment`.

        Raises:
            CheckpointError: the state is that of a memory with other sizes.
        """
        spec = self._recipe.spec
        if isinstance(spec, SequenceSpec):
            sequences.check_state(state, sequences.shape(spec, self._num_envs, self.rows))
        else:
            replay.check_state(state, self._num_envs, self.rows)
        self._settle()
        for index, share in enumerate(self._shares):
            self._ask(index, "load_state_dict", parts.take_state(state, share, self.rows))
        self._settle()
        self.schedule.load_state_dict(state["schedule"])
        randomness.restore(self._random, state["random"])
        self.draws.load_state_dict(state.get("draws", state))

    def emptied(self, state: dict[str, Any]) -> dict[str, Any]:
        """See `Memory.emptied`."""
        return (sequences if isinstance(self._recipe.spec, SequenceSpec) else replay).emptied(state)

    def segment(self, since: np.ndarray) -> dict[str, np.ndarray] | None:
        """What was written after the counts `since` (num_envs,), as one memory gives it.

        Raises:
            PartLostError: a shard is gone since `state_dict` was asked, so that both are not of one moment.
        """
        self._settle()
        for index, share in enumerate(self._shares):
            self._ask(index, "segment", since[share.start : share.stop])
        segments = self._settle()
        if len(segments) < len(self._shares):
            raise PartLostError("A part of the replay memory is gone in the middle of a checkpoint, which is not made.")
        return parts.join_segments([segments[index] for index in range(len(self._shares))], self._written)

    def load_segment(self, segment: dict[str, np.ndarray]) -> None:
        """Put rows back, in any order of segments, after `load_state_dict`."""
        self._settle()
        for index, share in enumerate(self._shares):
            if (own := parts.take_segment(segment, share)) is not None:
                self._ask(index, "load_segment", own)
        self._settle()

    # ------------------------------------------------------------------------------------------------ shards
    def _of_each(self, env: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Every shard that has some of these environments (K,), with their rows."""
        shard = self._firsts.searchsorted(env, side="right") - 1
        return [(index, np.flatnonzero(shard == index)) for index in np.unique(shard).tolist()]

    def _ask(self, index: int, method: str, *arguments: Any) -> None:
        self._asked[index] = (method, arguments)
        self._shards.post(index, method, *arguments)

    def _settle(self) -> dict[int, Any]:
        """Wait for what was asked: what each shard gave. One that was lost, and is there again, gives nothing."""
        if not self._asked:
            return {}
        asked, self._asked = self._asked, {}
        replies = self._shards.wait()
        lost = {index: reply for index, reply in replies.items() if isinstance(reply, Lost)}
        replies = {index: reply for index, reply in replies.items() if index not in lost}
        for index, reply in replies.items():
            self._note(index, reply)
        for index, reply in lost.items():
            self._make_again(index, reply, *asked[index])
        return replies

    def _note(self, index: int, reply: Any) -> None:
        if isinstance(reply, Standing):
            self._written[index] = reply.written
            self.draws.note(index, reply)

    def _make_again(self, index: int, lost: Lost, method: str, arguments: tuple[Any, ...]) -> None:
        """Bring a new shard to where the newest checkpoint has it, and store what was under way."""
        if method in LOADING:  # part of a checkpoint is in the others already
            raise PartLostError(f"{lost.what} while the memory was read.")
        before = int(self._written[index].sum())
        under_way = [(method, *arguments)] if method == "add" else list[Any]()
        for _ in range(ATTEMPTS):
            if all(self._tell(index, *message) for message in chain(self._past(index), under_way)):
                break
        else:
            raise PartLostError(f"{lost.what} again and again while it was made anew.")
        missing = before - int(self._written[index].sum()) + (len(arguments[0].env) if under_way else 0)
        self._shards.notices.append(
            f"{lost.what}: another one has taken its place. Of its environments {missing:,} steps that came since the "
            "newest checkpoint are lost; the run goes on with what is left."
        )

    def _past(self, index: int) -> Iterator[tuple[Any, ...]]:
        """What has to be told a new shard. Its episodes are over: their newest steps are missing."""
        if (kept := self._kept()) is not None:
            yield "load_state_dict", parts.take_state(kept.state, self._shares[index], self.rows)
            for segment in kept.segments:
                if (own := parts.take_segment(segment, self._shares[index])) is not None:
                    yield "load_segment", own
        yield "interrupt", None, self.draws.known

    def _tell(self, index: int, method: str, *arguments: Any) -> bool:
        """Whether it came to be done."""
        self._shards.post(index, method, *arguments)
        reply = self._shards.wait()[index]
        self._note(index, reply)
        return not isinstance(reply, Lost)
