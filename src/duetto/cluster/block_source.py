"""Experience from actors that choose actions themselves, block by block: what the modes `sync` and `async` share.

    actor      | block k ............ |  its rows, and the actor's state after it
    here       | accept: once, in its order | hand out, one vector step after another | ...

    with replay shards:
    actor      | block k ............ |  its header, and the actor's state; its rows stay there
    here       | accept ............. | hand out, one vector step after another | ...
    shard      |                        get the rows from the actor, and store each vector step when it is handed out

A checkpoint is a cut: each actor's state after its last accepted block, and the steps of accepted blocks that were not
handed out yet (only their rows are fetched). Blocks in flight are not in it, and are made again. So saving asks no
actor.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import Algorithm
from duetto.buffers import BlockGroup, BlockHeader, BlockRef, Experience, RemoteBlock
from duetto.buffers.experience import concatenated, cut, joined, rows, side_by_side
from duetto.buffers.storage_fields import named, unnamed
from duetto.cluster.actor import Block, Order, Weights
from duetto.cluster.actor_pool import INFINITY, LOST_BLOCKS, Crew, Lost
from duetto.cluster.actor_server import Request
from duetto.cluster.spread import Spread
from duetto.environments import Episode, VecEnv, obs_tree
from duetto.environments.errors import EnvironmentFault
from duetto.environments.sharding import join_saved, take_saved
from duetto.environments.vec_env import resume_seed
from duetto.errors import CheckpointError, PartLostError
from duetto.functional import state_schema
from duetto.functional.state_schema import ANY, ARRAY, INTEGER, DictOf, ListOf
from duetto.learners import Learner
from duetto.training.normalizer import Normalizer, RewardScaler

RECENT = 1000  # vector steps that lags are told of
_ROWS = ("starts", "returns", "lengths")
_COUNTS = {"accepted": ListOf(int), "steps": ListOf(int)}


class Ready(NamedTuple):
    """A vector step that can be handed out, of one actor or of several side by side."""

    experience: Experience | RemoteBlock
    episodes: list[Episode]
    broken: np.ndarray  # (N,) bool, the environments whose last episodes broke off before it
    version: int  # it was acted with
    updates: int


class Distant(VecEnv):
    """The trainer's view of environments in which actors act: the trainer never steps them."""

    source: Blocks
    steps: int
    starts: np.ndarray
    older: bool = True

    def state_dict(self) -> dict[str, Any]:
        """See VecEnv."""
        return self.source.stood()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See VecEnv."""
        form = {"num_envs": int, "seed": int, "steps": int, "environments": ANY, "obs": ANY}
        state_schema.check(state, form | dict.fromkeys(_ROWS, ARRAY), "stepper")
        if state["num_envs"] != self.num_envs:
            raise CheckpointError(
                f"{self.name}: the saved state has {state['num_envs']} environments, this run {self.num_envs}. "
                "Resume with the same number."
            )
        self._seed, self.steps = state["seed"], state["steps"]
        with self._telling():
            self.restored: np.ndarray = np.full(self.num_envs, self.source.stand(state))
            if not self.resumed_exactly:
                self._begin(self.engine.reset(resume_seed(self._seed, self.steps)))
                return
        self._obs, self._shown = obs_tree.copy(state["obs"]), obs_tree.copy(state["obs"])
        self.starts = np.array(state["starts"])
        self.begun = True


class Blocks(ABC):
    """See Source, and above.

    Attributes:
        actors, length: Their number, and vector steps of a block.
        leave: Whether blocks' rows stay where they are made, until a shard of the memory gets them.
    """

    mode: str
    actors: int
    length: int
    leave = False

    def __init__(
        self,
        crew: Crew,
        algorithm: Algorithm,
        length: int,
        stepper: Distant,
        learner: Learner,
        normalizer: Normalizer,
    ) -> None:
        self._crew, self._stepper, self._learner, self._normalizer = crew, stepper, learner, normalizer
        self.actors, self.length = len(crew.actors), length
        prior, discount = algorithm.reward_scaling(), algorithm.memory().discount
        self._rewards = None if prior is None else RewardScaler(0, discount, prior)
        self._shares = [actor.share for actor in crew.actors]
        self._begin()
        self._weights: Weights | None = None
        self._version = -1  # the newest, in this process or before
        self._reference: Any = None
        self._lags: deque[tuple[int, int]] = deque(maxlen=RECENT)
        self._idle = 0.0
        self._groups = 0  # so many there were
        self._saved: dict[str, Any] = {}  # between the two parts of loading a cut
        stepper.source, self._engine.more = self, self.numbers

    def _begin(self) -> None:
        self._behind: list[dict[str, Any] | None] = [None] * len(self._shares)  # where each stands
        self._accepted = [0] * len(self._shares)  # blocks of each
        self._ready: deque[Ready] = deque()
        self._orders: dict[int, Order] = {}  # what is in flight
        self._broken = [False] * len(self._shares)  # whether its episodes broke off before what is in flight

    @abstractmethod
    def _fill(self, step: int, total_steps: int) -> None:
        """Append at least one vector step to `_ready`."""

    def collect(self, step: int, total_steps: int) -> tuple[Experience | RemoteBlock, list[Episode]]:
        """See Source."""
        try:
            self._fill(step, total_steps)
        except EnvironmentFault as fault:
            raise fault.told(self._stepper.name, self._stepper.steps) from fault.__cause__
        ready = self._ready.popleft()
        self._lags.append((self._version - ready.version, self._learner.updates - ready.updates))
        self._stepper.steps += 1
        self._stepper.aborted = ready.broken if ready.broken.any() else None
        return ready.experience, ready.episodes

    def interrupt(self, envs: np.ndarray | None = None) -> None:  # noqa: B027 - nothing is to be done
        """See Source; the actors know."""

    # ------------------------------------------------------------------------------------------- blocks
    def _publish(self) -> None:
        """Send the actors the newest parameters and statistics as a new version."""
        parameters = self._learner.parameters()
        acting = {name: parameters[name] for name in self._learner.algorithm.acting_networks}
        self._version += 1
        rewarded = self._rewards and self._rewards.moments
        self._send(Weights(self._version, self._learner.updates, acting, self._normalizer.moments, rewarded))

    def _send(self, weights: Weights) -> None:
        self._weights, self._reference = weights, self._crew.put(weights)

    def _order(self, index: int, step: int, stride: int, total_steps: int) -> None:
        """Ask an actor for its next block, with the newest weights."""
        self._look_where()
        self._orders[index] = Order(self._accepted[index], self.length, step, stride, total_steps)
        self._ask_for_block(index)

    def _ask_for_block(self, index: int) -> None:
        self._crew.post(index, [Request("block", (self._orders[index],))], self._reference, leaves=self.leave)

    def _arrived(self, enough: int, patience: float = INFINITY) -> dict[int, Block]:
        """Wait for blocks of at least `enough` actors, or for `patience` seconds; return the accepted ones by actor."""
        blocks: dict[int, Block] = {}
        began = time.perf_counter()
        while len(blocks) < enough:
            for index, values in self._crew.wait(list(self._orders), enough - len(blocks), patience).items():
                if isinstance(values, Lost):
                    self._broken[index] = True
                    self._ask_for_block(index)
                else:
                    blocks[index] = self._accept(index, *values)
            if patience < INFINITY:
                break
        self._engine.waited += time.perf_counter() - began
        return blocks

    def _accept(self, index: int, block: Block, left: Any = None) -> Block:
        if block.number != self._accepted[index]:
            raise RuntimeError(f"block {block.number} of actor {index} came instead of {self._accepted[index]}")
        del self._orders[index]
        self._accepted[index] += 1
        self._behind[index] = block.state
        self._normalizer.learn_of(block.observed)
        if self._rewards is not None and block.rewarded is not None:
            self._rewards.learn_of(block.rewarded)
        self._idle += block.idle
        if isinstance(block.experience, BlockHeader):
            block = block._replace(experience=BlockRef(block.experience, block.counts, self._shares[index], left))
        broken, self._broken[index] = self._broken[index], False  # a later loss concerns a later block
        return block._replace(broken=broken)

    def _opened(self, blocks: dict[int, Block]) -> list[Ready]:
        """Lay accepted blocks side by side: vector steps of all of them, whose weights are as old as the oldest."""
        broken = np.zeros((self.length, self._stepper.num_envs), bool)
        for index, block in blocks.items():
            share = self._shares[index]
            broken[0, share.start : share.stop] = block.broken
        made = [blocks[index] for index in sorted(blocks)]
        episodes = [
            [episode for ended in some for episode in ended]
            for some in zip(*(block.episodes for block in made), strict=True)
        ]
        version, updates = min(block.version for block in made), min(block.updates for block in made)
        parts = zip(self._steps(made), episodes, broken, strict=True)
        return [Ready(*part, version, updates) for part in parts]

    def _steps(self, made: list[Block]) -> Sequence[Experience | RemoteBlock]:
        """The vector steps of these blocks side by side."""
        left = [block.experience for block in made if isinstance(block.experience, BlockRef)]
        if left:
            self._groups += 1
            return BlockGroup(self._groups, left).cut()
        here = [block.experience for block in made if isinstance(block.experience, Experience)]
        return _together(here, [block.counts for block in made])

    def numbers(self) -> dict[str, float]:
        """Numbers for the log: how old the weights were that actors lately acted with, and how long actors waited."""
        found: dict[str, float] = {"time/actors_waited": round(self._idle, 3)}
        for i, name in enumerate(("versions", "updates")):
            lags = [lag[i] for lag in self._lags] or [0]
            found |= {f"time/lag_{name}_{what.__name__}": what(lags) for what in (min, max)}
            found[f"time/lag_{name}_mean"] = sum(lags) / len(lags)
        return found

    @property
    def _engine(self) -> Spread:
        engine = self._stepper.engine
        assert isinstance(engine, Spread)
        return engine

    # ------------------------------------------------------------------------------------------- cuts
    def _look_where(self) -> None:
        """Ask actors without a block so far for their states."""
        while unknown := [index for index, state in enumerate(self._behind) if state is None]:
            for index, values in self._crew.ask({index: [Request("state")] for index in unknown}).items():
                self._broken[index] |= isinstance(values, Lost)
                self._behind[index] = None if isinstance(values, Lost) else values[0]

    def _parts(self, name: str) -> list[dict[str, Any]]:
        self._look_where()
        return [state[name] for state in self._behind if state is not None]

    def stood(self) -> dict[str, Any]:
        """The stepper's part of a cut, in the form that a stepper of all environments saves."""
        parts = self._parts("stepper")
        return {
            "environments": join_saved([part["environments"] for part in parts]),
            "num_envs": self._stepper.num_envs,
            "seed": parts[0]["seed"],
            "steps": self._stepper.steps,
        } | {name: concatenated([part[name] for part in parts]) for name in ("obs", *_ROWS)}

    def state_dict(self) -> dict[str, Any]:
        """The rest of a cut: what is not in `stood`.

        Raises:
            PartLostError: Rows that belong to it are gone.
        """
        parts = self._parts("collector")
        ready = self._fetched()
        rewards = {}
        if self._rewards is not None:
            sums = np.concatenate([part["rewards"]["sums"] for part in parts])
            rewards = {"sums": sums, "moments": self._rewards.state_dict()["moments"]}
        return {
            "noise": np.concatenate([part["noise"] for part in parts]),
            "random": {str(index): part["random"] for index, part in enumerate(parts)},
            "rewards": rewards,
            "recurrence": concatenated([part["recurrence"] for part in parts]),
            "blocks": {
                "version": self._version,
                "accepted": list(self._accepted),
                "steps": [part["steps"] for part in self._parts("stepper")],
                "ready": _packed(ready),
            },
        }

    def _fetched(self) -> list[Ready]:
        """Fetch the vector steps that were accepted but not handed out, with their rows."""
        found: list[Ready] = []
        group, steps = None, list[Experience]()
        for ready in self._ready:
            step = ready.experience
            if isinstance(step, RemoteBlock):
                if step.group is not group:
                    group, steps = step.group, self._here(step.group)
                step = steps[step.step]
            found.append(ready._replace(experience=step))
        return found

    def _here(self, group: BlockGroup) -> list[Experience]:
        """Fetch a group's vector steps. PartLostError if one of its blocks is gone."""
        answers = [self._crew.fetch(block.value) for block in group.blocks]
        if any(answer.failure for answer in answers):
            raise PartLostError(LOST_BLOCKS)
        return _together([answer.value for answer in answers], [block.counts for block in group.blocks])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`; the actors follow with the stepper's part."""
        own = {"noise": ARRAY, "random": DictOf(ANY), "rewards": ANY, "recurrence": ANY}
        state_schema.check(state, own | {"blocks": {"version": INTEGER, "ready": ANY} | _COUNTS}, "collector")
        self._saved, self._version = state, state["blocks"]["version"]
        if self._rewards is not None:
            self._rewards.load_state_dict(state["rewards"] and state["rewards"] | {"sums": np.zeros(0)})

    def stand(self, stepper: dict[str, Any]) -> bool:
        """Restore the actors to a cut; False if that is not possible."""
        saved, self._saved = self._saved, {}
        self._begin()
        requests = {i: [Request("restore", (self._part(i, stepper, saved),))] for i in range(len(self._shares))}
        results = self._crew.ask(requests)
        if any(isinstance(result, Lost) or not result[0] for result in results.values()):
            return False
        blocks = saved["blocks"]
        self._behind = [requests[i][0].arguments[0] for i in range(len(self._shares))]
        if self._same_actors(saved):
            self._accepted = list(blocks["accepted"])
        try:
            self._ready.extend(_unpacked(blocks["ready"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"The checkpoint's steps that were not learned from are none ({error!r}).") from error
        return True

    def _same_actors(self, saved: dict[str, Any]) -> bool:
        return len(saved["random"]) == len(saved["blocks"]["steps"]) == len(self._shares)

    def _part(self, index: int, stepper: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
        """One actor's state out of a cut; without its random numbers if the cut was made with other actors."""
        share, same = self._shares[index], self._same_actors(saved)
        mine = slice(share.start, share.stop)
        steps: list[int] = saved["blocks"]["steps"]
        rewards = saved["rewards"] and saved["rewards"] | {"sums": saved["rewards"]["sums"][mine]}
        own = {
            "environments": stepper["environments"] and take_saved(stepper["environments"], share),
            "num_envs": len(share),
            "seed": stepper["seed"] + share.start,
            "steps": steps[index] if same else max(steps),
        }
        return {
            "stepper": own | {name: rows(stepper[name], mine) for name in ("obs", *_ROWS)},
            "collector": {
                "noise": saved["noise"][mine],
                "random": saved["random"].get(str(index)) if same else None,
                "rewards": rewards,
                "recurrence": rows(saved["recurrence"], mine),
            },
        }


def _together(blocks: list[Experience], counts: list[list[int]]) -> list[Experience]:
    """The vector steps of blocks side by side."""
    return cut(side_by_side(blocks, counts), np.array(counts).sum(axis=0).tolist())


def _packed(ready: list[Ready]) -> dict[str, Any] | None:
    """The ready vector steps as part of a saved state, or None if there are none."""
    if not ready:
        return None
    steps = joined([one.experience for one in ready if isinstance(one.experience, Experience)])
    whole = steps._asdict() | {"obs": dict(named("obs", steps.obs)), "next_obs": dict(named("obs", steps.next_obs))}
    return whole | {
        "counts": [len(one.experience.env) for one in ready],
        "episodes": [[list(episode) for episode in one.episodes] for one in ready],
        "broken": np.stack([one.broken for one in ready]),
        "weights": [[one.version, one.updates] for one in ready],
    }


def _unpacked(packed: dict[str, Any] | None) -> list[Ready]:
    """Undo `_packed`."""
    if packed is None:
        return []
    whole = Experience(*(packed[name] for name in Experience._fields))
    whole = whole._replace(obs=unnamed("obs", whole.obs), next_obs=unnamed("obs", whole.next_obs))
    episodes = [[Episode(*one) for one in some] for some in packed["episodes"]]
    parts = zip(cut(whole, packed["counts"]), episodes, packed["broken"], packed["weights"], strict=True)
    return [Ready(step, some, broken, *weights) for step, some, broken, weights in parts]
