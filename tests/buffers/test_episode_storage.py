"""The episode storage against a list of all steps that were ever stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import ACTION, VECTOR, equal

from duetto.buffers import Experience, storage
from duetto.buffers.storage import EpisodeStorage
from duetto.errors import CheckpointError
from duetto.networks.spaces import Box, Dict

FLAGS = ("terminated", "truncated")


class Model:
    """All steps of some environments, and a storage of the newest ones."""

    def __init__(self, num_envs: int, rows: int, kind: str, stacked: int) -> None:
        image = Box((2 * stacked, 3, 9), "uint8", (0,), (255,))
        self.space: Any = {"vector": VECTOR, "image": image, "dict": Dict((("image", image), ("place", VECTOR)))}[kind]
        self.kind, self.stacked, self.sizes = kind, stacked if kind != "vector" else 1, (num_envs, rows)
        self.random = np.random.default_rng(0)
        self.steps: list[list[dict[str, Any]]] = [[] for _ in range(num_envs)]
        self.storage = self.new()
        self.saved: list[dict[str, np.ndarray]] = []
        self.covered = np.zeros(num_envs, np.int64)

    def new(self) -> EpisodeStorage:
        return EpisodeStorage(self.space, ACTION, *self.sizes, self.stacked)

    def observe(self, before: Any = None) -> Any:
        image = self.random.integers(0, 256, (2 * self.stacked, 3, 9)).astype(np.uint8)
        if before is not None and self.stacked > 1:
            image[:-2] = (before if self.kind == "image" else before["image"])[2:]
        place = self.random.normal(size=2).astype(np.float32)
        return {"vector": place, "image": image, "dict": {"image": image, "place": place}}[self.kind]

    def step(self, env: int, end: str, broken: bool = False) -> Experience:
        steps = self.steps[env]
        begins = not steps or broken or steps[-1]["terminated"] or steps[-1]["truncated"]
        obs = self.observe() if begins else steps[-1]["next_obs"]
        row = {"obs": obs, "action": self.random.normal(size=1).astype(np.float32)}
        row |= {"reward": np.float32(self.random.normal()), "next_obs": self.observe(obs)}
        row |= {"terminated": end == "terminated", "truncated": end == "truncated"}
        steps.append(row)
        return Experience(np.array([env]), *[stack([row[name]]) for name in Experience._fields[1:7]])

    def add(self, steps: list[Experience]) -> None:
        self.storage.add(Experience(*[join([step[i] for step in steps]) for i in range(7)]))

    def interrupt(self, envs: np.ndarray) -> None:
        self.storage.interrupt(envs)
        for env in np.flatnonzero(envs):
            if self.steps[env] and not self.steps[env][-1]["terminated"]:
                self.steps[env][-1]["truncated"] = True

    def save(self) -> None:
        if (segment := self.storage.segment(self.covered)) is not None:
            self.saved.append({name: part.copy() for name, part in segment.items()})
        self.covered = self.storage.written.copy()

    def reload(self, order: Any = None) -> None:
        """Continue in another storage, which gets the segments in some order."""
        self.save()
        state, segments = self.storage.state_dict(), list(self.saved)
        if order is not None:
            order.shuffle(segments)
        self.storage = self.new()
        self.storage.load_state_dict(state)
        for segment in segments:
            self.storage.load_segment(segment)

    def check(self) -> None:
        stored, rows = self.storage, self.sizes[1]
        assert stored.written.tolist() == [len(steps) for steps in self.steps]
        kept = [(env, n) for env, steps in enumerate(self.steps) for n in range(max(len(steps) - rows, 0), len(steps))]
        index = np.array([env * rows + n % rows for env, n in kept], np.int64)
        assert sorted(stored.find(np.arange(len(stored))).tolist()) == sorted(index.tolist())
        if not kept:
            return
        assert stored.number(index).tolist() == [n for _, n in kept]
        wanted = [self.steps[env][n] for env, n in kept]
        assert equal(stored.observation(index), stack([row["obs"] for row in wanted]))
        assert equal(stored.observation(index, 1), stack([row["next_obs"] for row in wanted]))
        for name in ("action", "reward", *FLAGS):
            assert equal(stored.columns[name][index], stack([row[name] for row in wanted]))


def stack(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: np.stack([value[name] for value in values]) for name in values[0]}
    return np.stack(values)


def join(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: np.concatenate([value[name] for value in values]) for name in values[0]}
    return np.concatenate(values)


KINDS = [("vector", 1), ("image", 1), ("image", 3), ("dict", 1), ("dict", 4)]
STEP = st.tuples(st.integers(0, 2), st.sampled_from(["", "", "", "terminated", "truncated"]), st.integers(0, 9))
OPERATIONS = st.lists(
    st.one_of(
        st.lists(STEP, min_size=1, max_size=6),
        st.lists(STEP, min_size=1, max_size=6),
        st.tuples(st.booleans(), st.booleans(), st.booleans()),
        st.sampled_from(["save", "save all", "reload"]),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=200)
@given(OPERATIONS, st.integers(1, 7), st.sampled_from(KINDS), st.booleans(), st.randoms(use_true_random=False))
def test_every_step_comes_back(operations: Any, rows: int, kind: Any, breaks: bool, order: Any):
    """Any ends, interruptions, blocks with several steps of an environment, wrap-around, checkpoints in any order."""
    model = Model(3, rows, *kind)
    for operation in operations:
        if operation == "save":
            model.save()
        elif operation == "save all":  # segments may overlap
            model.covered[:] = 0
            model.save()
        elif operation == "reload":
            model.reload(order)
        elif isinstance(operation, tuple):
            model.interrupt(np.array(operation))
        else:
            turns: list[dict[int, Any]] = []  # a vector step has one step of each environment
            for env, end, chance in operation:
                turn = next((turn for turn in turns if env not in turn), None)
                if turn is None:
                    turns.append(turn := {})
                turn[env] = model.step(env, end, breaks and chance == 0)
            for turn in turns:
                model.add(list(turn.values()))
        model.check()
    model.reload(order)
    model.check()


@pytest.mark.parametrize("stacked", [1, 3])
def test_the_frames_are_as_drawn(stacked: int):
    """In the docstring of `storage`: an episode of three steps, then another one."""
    model = Model(1, 9, "image", stacked)
    for number in range(4):
        model.add([model.step(0, "terminated" if number == 2 else "")])
    words = " ".join(map(str, model.storage._frame(np.arange(4))))
    assert storage.__doc__ is not None
    assert f"frame {words}" in [" ".join(line.split("frames")[0].split()) for line in storage.__doc__.splitlines()]


@pytest.mark.parametrize(("kind", "stacked"), KINDS)
def test_each_observation_is_stored_once(kind: str, stacked: int):
    """Episodes of ten steps: a step, a tenth of a final observation and of the frames before an episode."""
    model = Model(2, 50, kind, stacked)
    for number in range(230):
        model.add([model.step(env, "terminated" if number % 10 == 9 else "") for env in range(2)])
    model.check()
    assert model.storage._frames.tolist() == [230 + 23 * model.stacked] * 2
    segment = model.storage.segment(np.full(2, 220))
    assert segment["frame_count"].tolist() == [10 + model.stacked] * 2


def test_short_episodes_make_the_ring_of_frames_grow():
    model = Model(2, 300, "dict", 4)
    for _ in range(700):
        model.add([model.step(env, "terminated") for env in range(2)])
    model.check()
    assert 300 * 5 <= model.storage._size < 300 * 8


def test_steps_missing_in_a_checkpoint_are_an_error():
    model = Model(1, 9, "vector", 1)
    model.add([model.step(0, "")])
    model.save()
    model.add([model.step(0, "")])
    model.add([model.step(0, "")])
    again = model.new()
    again.load_state_dict(model.storage.state_dict())
    again.load_segment(model.saved[0])
    with pytest.raises(CheckpointError, match="lacks 2"):
        again.check_complete()
