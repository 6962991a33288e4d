"""Buffers of sequences, and environments whose observations, actions and rewards name their step.

`World.expected` is the definition of a buffer of sequences in plain lists, one step at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from memory_cases import PROPORTIONAL, VECTOR

from duetto import buffers
from duetto.algorithms import DQN
from duetto.algorithms.base import SequenceBatch, SequenceSpec
from duetto.buffers.base import concatenated
from duetto.buffers.episode_storage import named
from duetto.buffers.sequences import SequenceReplay
from duetto.functional.pytree import tree_stack
from duetto.networks.spaces import Box, Dict, Discrete, Space

ACTION = Discrete(1000)
EQUAL_PRIORITIES = replace(PROPORTIONAL, exponent=0.0)  # stratified draws: a large batch holds every sequence


def image(stacked: int) -> Box:
    return Box((stacked, 5, 5), "uint8", (0,), (255,))


def dictionary(stacked: int) -> Dict:
    return Dict((("image", image(stacked)), ("place", VECTOR)))


def spec(**changes: Any) -> SequenceSpec:
    algorithm = DQN(recurrent="gru", replay_capacity=1000, batch_size=4, burn_in=2, unroll=4, overlap=2, n_step=2)
    return replace(algorithm.with_options(discount=0.9, stored_carry=False).memory(), **changes)


def build(
    num_envs: int = 1,
    seed: int = 0,
    observation: Space = VECTOR,
    action: Space = ACTION,
    stacked: int = 1,
    **changes: Any,
) -> SequenceReplay:
    random = np.random.default_rng(seed)
    made = buffers.build(spec(**changes), observation, action, num_envs, random, stacked=stacked)
    assert isinstance(made, SequenceReplay)
    return made


def build_all(num_envs: int = 1, batch_size: int = 400, **changes: Any) -> SequenceReplay:
    """Return a buffer whose batches have all sequences, if there are at most half as many as `batch_size`."""
    return build(num_envs, batch_size=batch_size, prioritization=EQUAL_PRIORITIES, **changes)


Item = dict[str, np.ndarray]


def items(replay: SequenceReplay) -> dict[tuple[int, int], Item]:
    """Return every sequence by (environment, number of its first step), as arrays by name."""
    sample = replay.sample()
    assert 2 * len(replay) <= len(sample.index)
    fields = flat(sample.batch)
    names = zip((sample.index // replay.rows).tolist(), sample.stamp.tolist(), strict=True)
    return {name: {key: array[row] for key, array in fields.items()} for row, name in enumerate(names)}


def flat(batch: Any) -> Item:
    """Return the arrays of a batch and of its window by name; parts of an observation are obs/<key>."""
    assert isinstance(batch, SequenceBatch)
    arrays = {**batch.obs._asdict(), **{n: x for n, x in batch._asdict().items() if n != "obs" and x is not None}}
    return dict(part for name, array in arrays.items() for part in named(name, array))


def no_rows(replay: SequenceReplay) -> np.ndarray:
    return np.zeros(len(replay.written), np.int64)


@dataclass
class Episode:
    env: int
    first: int  # number of its first step
    obs: list[Any] = field(default_factory=list)
    action: list[Any] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)
    carry: list[float] = field(default_factory=list)  # 0 if a step has no hidden state
    terminated: bool = False
    done: bool = False


class World:
    """Environments that take steps independently, and all their episodes."""

    def __init__(self, num_envs: int = 1, observation: str = "vector", stacked: int = 1, discrete: bool = True) -> None:
        self.kind, self.stacked, self.discrete = observation, stacked, discrete
        self.episodes: list[list[Episode]] = [[] for _ in range(num_envs)]
        self.written = [0] * num_envs
        self.carried = False  # whether any step has a hidden state
        self._random = np.random.default_rng(0)

    @property
    def space(self) -> Space:
        return {"vector": VECTOR, "image": image(self.stacked), "dict": dictionary(self.stacked)}[self.kind]

    @property
    def action(self) -> Space:
        return Discrete(1000) if self.discrete else Box((2,), "float32", (-1.0,) * 2, (1.0,) * 2)

    def build(self, **changes: Any) -> SequenceReplay:
        stacked = self.stacked if self.kind != "vector" else 1
        return build_all(len(self.written), observation=self.space, action=self.action, stacked=stacked, **changes)

    def step(self, env: int, end: str = "", carry: bool = False) -> buffers.Experience:
        """Return the next step of an environment; an `end` is "terminated" or "truncated"."""
        if not self.episodes[env] or self.episodes[env][-1].done:
            self._begin(env)
        episode = self.episodes[env][-1]
        t = len(episode.action)
        episode.action.append(self._action(env, t))
        episode.reward.append(float(self._random.integers(-5, 6)))
        episode.carry.append(env * 1000 + len(self.episodes[env]) * 100 + t + 0.5 if carry else 0.0)
        self.carried |= carry
        episode.obs.append(self._observe(episode, t + 1))
        episode.terminated, episode.done = end == "terminated", end != ""
        self.written[env] += 1
        return buffers.Experience(
            env=np.array([env]),
            obs=_batched(episode.obs[t]),
            action=np.array([episode.action[t]]),
            reward=np.array([episode.reward[t]], np.float32),
            next_obs=_batched(episode.obs[t + 1]),
            terminated=np.array([episode.terminated]),
            truncated=np.array([end == "truncated"]),
            extras={"carry/h": np.full((1, 1, 3), episode.carry[t], np.float32)} if carry else {},
        )

    def episode(self, replay: SequenceReplay, steps: int, end: str = "terminated", env: int = 0) -> None:
        """Store an episode, or its next steps."""
        for t in range(steps):
            replay.add(self.step(env, end if t == steps - 1 else ""))

    def interrupt(self, envs: Any = None) -> None:
        for env, episodes in enumerate(self.episodes):
            if episodes and (envs is None or envs[env]):
                episodes[-1].done = True

    def _begin(self, env: int) -> None:
        episode = Episode(env, self.written[env])
        self.episodes[env].append(episode)
        episode.obs.append(self._observe(episode, 0))

    def _action(self, env: int, t: int) -> Any:
        return env * 100 + t % 100 if self.discrete else np.array([env / 10, t / 100], np.float32)

    def _observe(self, episode: Episode, t: int) -> Any:
        place = np.array([episode.env, 1000 * len(self.episodes[episode.env]) + t], np.float32)
        if self.kind == "vector":
            return place
        frame = self._random.integers(0, 256, (1, 5, 5)).astype(np.uint8)
        if t == 0:
            stack = self._random.integers(0, 256, (self.stacked, 5, 5)).astype(np.uint8)
        else:
            earlier = episode.obs[t - 1]
            stack = np.concatenate([(earlier if self.kind == "image" else earlier["image"])[1:], frame])
        return stack if self.kind == "image" else {"image": stack, "place": place}

    # ------------------------------------------------------------------------------------------------ the definition
    def expected(self, replay: SequenceReplay, options: SequenceSpec) -> dict[Any, Item]:
        """Return the expected value of `items(replay)`."""
        found = {}
        for env, episodes in enumerate(self.episodes):
            oldest = self.written[env] - replay.rows  # number of the oldest stored step
            for episode in episodes:
                for start, real in sequence_bounds(episode, options):
                    first = episode.first + start
                    if first > oldest or oldest <= 0:
                        found[env, first] = item(episode, start, real, options, self.carried, self.discrete)
        return found


def sequence_bounds(episode: Episode, options: SequenceSpec) -> list[tuple[int, int]]:
    """Return (start, real length) of the sequences of an episode, finished or not (SPEC R12)."""
    length, total = options.burn_in + options.unroll, len(episode.action)
    found = []
    for start in range(0, total, length - options.overlap):
        new = start == 0 or start + options.overlap < total
        if new and (episode.done or start + length <= total):
            found.append((start, min(length, total - start)))
    return [
        (start, real) for start, real in found if real > options.burn_in or (start == 0 and options.learn_from_start)
    ]


def item(episode: Episode, start: int, real: int, options: SequenceSpec, carry: bool, discrete: bool) -> Item:
    """Return one padded sequence by the definition (SPEC R8, R9, R11)."""
    length = options.burn_in + options.unroll
    nothing = -1 if discrete else np.zeros(2, np.float32)
    positions = [start + min(position, real) for position in range(length + 1)]
    steps = [start + min(t, real - 1) for t in range(length)]
    returns = [look_ahead(episode, start + t, start + real, options) if t < real else (0, 0, 0) for t in range(length)]
    learned = [t < real and (t >= options.burn_in or (start == 0 and options.learn_from_start)) for t in range(length)]
    made = {
        "previous_action": np.array([episode.action[p - 1] if p else nothing for p in positions]),
        "previous_reward": np.array([episode.reward[p - 1] if p else 0 for p in positions], np.float32),
        "starts": np.array([start == 0 and position == 0 for position in range(length + 1)]),
        "is_first": np.array(start == 0),
        "query_steps": np.arange(length),
        "action": np.array([episode.action[t] for t in steps]),
        "reward": np.array([value[0] for value in returns], np.float32),
        "discount": np.array([value[1] for value in returns], np.float32),
        "ahead": np.array([t + value[2] if t < real else real for t, value in enumerate(returns)]),
        "weight": np.float32(1),
        "mask": np.array(learned, np.float32),
        **dict(named("obs", tree_stack([episode.obs[p] for p in positions]))),
    }
    return made | ({"carry/h": np.full((1, 3), episode.carry[start], np.float32)} if carry else {})


def look_ahead(episode: Episode, t: int, end: int, options: SequenceSpec) -> tuple[float, float, int]:
    """Return reward, discount and n' of step t, in a sequence whose last step is end - 1."""
    total, power, count = 0.0, 1.0, 0
    while count < options.n_step and t + count < end:
        total += power * episode.reward[t + count]
        power *= options.discount
        count += 1
    ends = episode.terminated and t + count == len(episode.action)
    return total, 0.0 if ends else power, count


def same_items(found: dict[Any, Item], expected: dict[Any, Item]) -> None:
    """Assert equal names, dtypes and values; sums of rewards with the precision of float32."""
    assert found.keys() == expected.keys()
    for name, fields in expected.items():
        assert found[name].keys() == fields.keys()
        for key, value in fields.items():
            assert found[name][key].dtype == value.dtype, key
            if key in ("reward", "discount"):
                np.testing.assert_allclose(found[name][key], value, rtol=1e-6, atol=1e-5, err_msg=f"{name} {key}")
            else:
                np.testing.assert_array_equal(found[name][key], value, err_msg=f"{name} {key}")


def joined(experiences: list[buffers.Experience]) -> buffers.Experience:
    """Return several experiences as the rows of one."""
    return buffers.Experience(*(concatenated(values) for values in zip(*experiences, strict=True)))


def _batched(obs: Any) -> Any:
    return tree_stack([obs])
