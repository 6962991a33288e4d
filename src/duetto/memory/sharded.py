"""A replay memory whose environments are spread over shards: one law of drawing, one generator, one count.

    line of all      |   shard 0   | shard 1 |      shard 2      |      each as long as its items are together
    points                ^  ^         ^        ^     ^   ^             drawn here; each is resolved where it lies

With uniform draws the batches are those of one memory, bit by bit, whatever the number of shards: points are integers.
With priorities they are the same but for the rounding of sums, and with one shard bit by bit.

New steps and feedback wait for a message that has to be sent anyway, or until they are many:

    here       | steps 0 | steps 1 | a batch is due: all that waits .... | points ... | learn, errors | steps 2 |
    a shard    |         |         | store 0, store 1, how it stands     | look up    |               |         |

Steps may lie elsewhere (`afar.py`): then a shard is told where, once for many vector steps, and when to store which.
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
from duetto.memory.afar import Afar, Parcel
from duetto.memory.base import Experience, Found, Memory, Sample, selected
from duetto.memory.joint import JointDraws, Piece
from duetto.memory.kinds import Recipe
from duetto.memory.prioritized import checked
from duetto.memory.schedule import Schedule
from duetto.memory.shards import Asked, Block, Elsewhere, Lost, Standing

ATTEMPTS = 3  # to make one shard again
LOADING = ("load_state_dict", "load_segment")
WITH_LARGEST = ("add", "take", "interrupt", "hold")  # methods whose last argument is the largest |δ| of all shards
WAITING = 32  # requests at most that wait for a message to a shard ...
WAITING_BYTES = 2**20  # ... and bytes of steps, about


class _Held:
    """A parcel's blocks that one shard holds, or soon will, and how much of them it was told to store.

    Attributes:
        told: Number of vector steps that the shard was told to store, or will be with the next message.
        missing: Indices of the blocks that are known to be lost.
    """

    def __init__(self, parcel: Parcel, share: range, begin: int) -> None:
        self.parcel, self.told, self.missing = parcel, begin, set[int]()
        self._share = share
        self.blocks = [
            block for block in parcel.blocks if block.share.start < share.stop and share.start < block.share.stop
        ]

    def asked(self, begin: int) -> Asked:
        """Return the request that has the shard hold the parcel, from the vector step `begin` on."""
        blocks = [Block(block.share, block.counts) for block in self.blocks]
        return "hold", (self.parcel.number, begin, blocks, self.parcel.extras)

    def rows(self, step: int) -> int:
        """Count the rows of a vector step that are the shard's, without those of missing blocks."""
        there = [index for index in range(len(self.blocks)) if index not in self.missing]
        return sum(len(self.envs(index, step)) - len(self.envs(index, step + 1)) for index in there)

    def envs(self, index: int, begin: int) -> np.ndarray:
        """Return the environments (K,) int64 of the shard's rows in a block, from the vector step `begin` on."""
        block = self.blocks[index]
        env = block.outline.env[sum(block.counts[:begin]) :]
        return env[(env >= self._share.start) & (env < self._share.stop)]


class Sharded(Memory):
    """See above, and `Replay` or `SequenceReplay` for what it is of."""

    def __init__(self, recipe: Recipe, num_envs: int, random: np.random.Generator, elsewhere: Elsewhere) -> None:
        """Use `memory.build`. `random` belongs to the memory."""
        self._recipe, self._num_envs, self._random = recipe, num_envs, random
        self._shards, self._kept = elsewhere
        self._shares = self._shards.shares
        self._firsts = np.array([share.start for share in self._shares])
        self.schedule: Schedule = Schedule.of(recipe.spec)
        self._stacks = recipe.stacks()
        self.draws: JointDraws = JointDraws(recipe.spec, self._settle)
        self._waiting: dict[int, list[Asked]] = {}  # what is not sent yet
        self._asked: dict[int, list[Asked]] = {}  # what is not answered yet
        self._bytes = [0] * len(self._shares)  # of what waits, about
        self._held: list[dict[int, _Held]] = [{} for _ in self._shares]  # of each shard, by the parcels' numbers
        self._newest: np.ndarray | None = None  # the index of a sample since which nothing was stored
        standings = self._shards.begin(recipe)
        self._written = [standing.written for standing in standings]
        self.draws.lines = [standing.line for standing in standings]

    def __len__(self) -> int:
        """Return the number of items that can be sampled."""
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
            self._stacks.check_steps(experience)
        self._storing()
        for index, rows in self._of_each(experience.env):
            own = selected(experience, rows)
            self._ask(index, "add", own._replace(env=own.env - self._firsts[index]))
        self._stored(experience.env, bool((experience.terminated | experience.truncated).any()))

    def take(self, step: Experience | Afar) -> None:
        """See Memory. The vector steps of a parcel come in order."""
        if isinstance(step, Experience):
            self.add(step)
            return
        self._storing()
        parcel = step.parcel
        for index, share in enumerate(self._shares):
            held = self._held[index].get(parcel.number) or _Held(parcel, share, step.step)
            if not held.blocks:
                continue
            if parcel.number not in self._held[index]:
                self._hold(index, held)
            held.told = step.step + 1
            self._ask(index, "take", parcel.number, step.step)
        self._stored(step.env, step.ended)

    def _hold(self, index: int, held: _Held) -> None:
        if any(method == "hold" for method, _ in self._waiting.get(index, ())):  # a message has one
            self._send(index)
        self._held[index][held.parcel.number] = held
        method, arguments = held.asked(held.told)
        self._ask(index, method, *arguments)

    def _storing(self) -> None:
        """Prepare for new steps: make sure that the largest |δ|, which new items get, is known."""
        self._newest = None
        if not self.draws.certain:
            self._settle()

    def _stored(self, env: np.ndarray, ended: bool) -> None:
        """Count the new steps, of environments `env`; their actors' judgements may raise the largest |δ|."""
        prioritization = self._recipe.spec.prioritization
        if prioritization is not None and prioritization.initial is not None:  # what actors knew may be the largest
            self._send_all()
            self.draws.certain = False
        self.schedule.advance(len(env), ended)

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Note that every environment, or those in `envs` (N,) bool, begins an episode though its last did not end."""
        self._storing()
        for index, share in enumerate(self._shares):
            self._ask(index, "interrupt", None if envs is None else envs[share.start : share.stop])

    # ------------------------------------------------------------------------------------------------ sampling
    def due(self) -> Iterator[Sample]:
        """Yield the batches that should be learned from now; they wait for the first item."""
        while self.schedule.due and len(self) and self.schedule.take():
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
                sample = self._sampled(pieces, [found[piece.shard] for piece in pieces])
                self._newest = sample.index
                return sample
            if not len(self):  # a shard was lost, and nothing that could be drawn instead is left
                raise PartLostError("All that the replay memory held is lost.")

    def _sampled(self, pieces: list[Piece], found: list[Found]) -> Sample:
        rows = [piece.rows for piece in pieces]
        index = [one.index + self._firsts[piece.shard] * self.rows for piece, one in zip(pieces, found, strict=True)]
        batch = parts.scattered([one.batch for one in found], rows)
        mass, stamp = (parts.scattered([getattr(one, name) for one in found], rows) for name in ("mass", "stamp"))
        return Sample(batch._replace(weight=self.draws.weights(mass)), parts.scattered(index, rows), stamp)

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Give the sampled items new priorities; see `PrioritizedReplay.feedback` and `SequenceReplay.feedback`."""
        if not self.needs_priorities:
            return
        spec, batch = self._recipe.spec, sample.batch
        if isinstance(spec, SequenceSpec):
            assert isinstance(batch, SequenceBatch)
            error = sequences.priorities(priority, batch.mask, spec.priority_mix)
        else:
            error = checked(sample, priority)
        new = sample.index is self._newest  # then all its items are still there, and their largest |δ| is known here
        if not new:
            self._settle()
        for index, rows in self._of_each(sample.index // self.rows):
            place = sample.index[rows] - self._firsts[index] * self.rows
            self._ask(index, "prioritize", place, sample.stamp[rows], error[rows])
        if new:
            self.draws.known = max(self.draws.known, float(error.max()))
        else:
            self._send_all()
            self.draws.certain = False

    # ------------------------------------------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Return the state that one memory with all environments would have."""
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
        """Restore what `state_dict` returned; the rows follow with `load_segment`.

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
        """Return the rows written after the counts `since` (num_envs,), as one memory would.

        Raises:
            PartLostError: a shard was lost meanwhile, so that state and segment would not be of one moment.
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
        """Return every shard that has some of these environments (K,), with the positions of its own."""
        shard = self._firsts.searchsorted(env, side="right") - 1
        return [(index, np.flatnonzero(shard == index)) for index in np.unique(shard).tolist()]

    def _ask(self, index: int, method: str, *arguments: Any) -> None:
        """Queue a request to a shard, and send the queue once it is long."""
        waiting = self._waiting.setdefault(index, [])
        waiting.append((method, arguments))
        if method == "add":
            self._bytes[index] += parts.size(arguments[0])
        if len(waiting) >= WAITING or self._bytes[index] > WAITING_BYTES:
            self._send(index)

    def _send(self, index: int) -> None:
        """Send a shard its queued requests now."""
        if index in self._asked:
            self._collect()
        asked, self._bytes[index] = self._waiting.pop(index), 0
        self._asked[index] = asked
        self._post(index, asked)

    def _send_all(self) -> None:
        for index in list(self._waiting):
            self._send(index)

    def _post(self, index: int, asked: list[Asked]) -> None:
        """Post requests to a shard, with the largest |δ| so far and the values that stand for rows of blocks."""
        largest = (self.draws.known,)
        whole = [(method, arguments + largest * (method in WITH_LARGEST)) for method, arguments in asked]
        holds = [self._held[index][arguments[0]] for method, arguments in asked if method == "hold"]
        self._shards.post(index, whole, *(block.value for held in holds for block in held.blocks))

    def _settle(self) -> dict[int, Any]:
        """Send all queued requests, wait, and return each shard's last answer; a shard that was made again has none."""
        found: dict[int, Any] = {}
        while self._asked or self._waiting:
            if self._asked:
                found |= self._collect()
            for index in list(self._waiting):
                found.pop(index, None)
                self._send(index)
        self.draws.certain = True
        return found

    def _collect(self) -> dict[int, Any]:
        """Wait for the answers to what was sent, make lost shards again, and return as `_settle` does."""
        asked, self._asked = self._asked, {}
        replies, found = self._shards.wait(), {}
        for index, reply in replies.items():
            if not isinstance(reply, Lost):
                self._note(index, asked[index], reply)
                found[index] = reply[-1]
        for index, reply in replies.items():
            if isinstance(reply, Lost):
                self._make_again(index, reply, asked[index])
        for index, done in asked.items():
            for method, arguments in done:
                if method == "take" and arguments[1] + 1 == self._held[index][arguments[0]].parcel.steps:
                    del self._held[index][arguments[0]]
        return found

    def _note(self, index: int, asked: list[Asked], replies: list[Any]) -> None:
        """Take over a shard's standing from its replies, and note which blocks of a parcel will never come."""
        for (_, arguments), reply in zip(asked, replies, strict=True):
            if not isinstance(reply, Standing):
                continue
            self._written[index] = reply.written
            self.draws.note(index, reply)
            for block in reply.missing:
                self._say_missing(self._held[index][arguments[0]], block, begin=arguments[1])

    def _say_missing(self, held: _Held, block: int, begin: int) -> None:
        env = held.envs(block, begin)
        if block not in held.missing and len(env):
            first, last = int(env.min()), int(env.max())
            whose = f"environment {first}" if first == last else f"environments {first} to {last}"
            self._shards.notices.append(
                f"{len(env):,} steps of {whose} are lost with the machine on which "
                "they waited for the replay memory; the run goes on without them."
            )
        held.missing.add(block)

    def _make_again(self, index: int, lost: Lost, asked: list[Asked]) -> None:
        """Bring a new shard to its state in the newest checkpoint, and repeat the stores that were under way."""
        if any(method in LOADING for method, _ in asked):  # part of a checkpoint is in the others already
            raise PartLostError(f"{lost.what} while the memory was read.")
        before = int(self._written[index].sum())
        under_way = [one for one in asked if one[0] in WITH_LARGEST]
        for _ in range(ATTEMPTS):
            if all(self._tell(index, one) for one in chain(self._past(index), self._holding(index, asked), under_way)):
                break
        else:
            raise PartLostError(f"{lost.what} again and again while it was made anew.")
        missing = before - int(self._written[index].sum()) + self._rows(index, under_way)
        self._shards.notices.append(
            f"{lost.what}: another one has taken its place. Of its environments {missing:,} steps that came since the "
            "newest checkpoint are lost; the run goes on with what is left."
        )

    def _past(self, index: int) -> Iterator[Asked]:
        """Yield requests to load the newest checkpoint and to end all episodes, whose newest steps are missing."""
        if (kept := self._kept()) is not None:
            yield "load_state_dict", (parts.take_state(kept.state, self._shares[index], self.rows),)
            for segment in kept.segments:
                if (own := parts.take_segment(segment, self._shares[index])) is not None:
                    yield "load_segment", (own,)
        yield "interrupt", (None,)

    def _holding(self, index: int, asked: list[Asked]) -> Iterator[Asked]:
        """Yield the requests for parcels that a shard held before `asked`: of each, the steps it had not stored yet."""
        coming = asked + self._waiting.get(index, [])
        for number, held in self._held[index].items():
            methods = [method for method, arguments in coming if method in ("hold", "take") and arguments[0] == number]
            if "hold" not in methods:
                yield held.asked(held.told - methods.count("take"))

    def _rows(self, index: int, asked: list[Asked]) -> int:
        """Count the rows that these requests have a shard store."""
        added = sum(len(arguments[0].env) for method, arguments in asked if method == "add")
        return added + sum(self._held[index][a[0]].rows(a[1]) for method, a in asked if method == "take")

    def _tell(self, index: int, asked: Asked) -> bool:
        """Post one request to a shard and wait; return False where the shard is lost again."""
        self._post(index, [asked])
        reply = self._shards.wait()[index]
        if isinstance(reply, Lost):
            return False
        self._note(index, [asked], reply)
        return True
