"""Replay of transitions: contents, n-step returns, storage of frames, checkpoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import ACTION, PROPORTIONAL, VECTOR, build, equal, fill, names, rows, spec

from duetto import buffers
from duetto.errors import CheckpointError, UsageError
from duetto.functional.pytree import tree_leaves, tree_stack
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete
from duetto.storage.tree_codec import decode_arrays, decode_tree, encode_arrays, encode_tree

ENVS, DISCOUNT = 3, 0.9
Step = dict[str, Any]


class Model:
    """A replay buffer, and all steps of its environments in plain lists."""

    def __init__(self, rows: int, kind: str = "vector", stacked: int = 1, n_step: int = 1) -> None:
        image = Box((2 * stacked, 3, 9), "uint8", (0,), (255,))
        self.space: Any = {"vector": VECTOR, "image": image, "dict": Dict((("image", image), ("place", VECTOR)))}[kind]
        self.kind, self.stacked, self.rows, self.n_step = kind, stacked if kind != "vector" else 1, rows, n_step
        self.random = np.random.default_rng(0)
        self.steps: list[list[Step]] = [[] for _ in range(ENVS)]
        self.saved: list[dict[str, np.ndarray]] = []
        self.covered = np.zeros(ENVS, np.int64)
        self.replay = self.new()

    def new(self) -> Any:
        described = spec(capacity=ENVS * self.rows, n_step=self.n_step, one_step=True, discount=DISCOUNT)
        return buffers.build(described, self.space, ACTION, ENVS, np.random.default_rng(0), stacked=self.stacked)

    def observe(self, before: Any = None) -> Any:
        """Return a random observation. A stack has the newer frames of the one before."""
        image = self.random.integers(0, 256, (2 * self.stacked, 3, 9)).astype(np.uint8)
        if before is not None and self.stacked > 1:
            image[:-2] = (before if self.kind == "image" else before["image"])[2:]
        place = self.random.normal(size=2).astype(np.float32)
        return {"vector": place, "image": image, "dict": {"image": image, "place": place}}[self.kind]

    def step(self, ends: dict[int, str], broken: bool = False) -> None:
        """Take a step in some environments; `ends` says how it ends: "", "terminated" or "truncated".

        A broken step starts at another observation than the previous step led to.
        """
        new = []
        for env, end in ends.items():
            steps = self.steps[env]
            starts = not steps or broken or steps[-1]["terminated"] or steps[-1]["truncated"]
            obs = self.observe() if starts else steps[-1]["next_obs"]
            action, reward = self.random.normal(size=1).astype(np.float32), np.float32(self.random.normal())
            flags = {"terminated": end == "terminated", "truncated": end == "truncated"}
            new.append({"obs": obs, "action": action, "reward": reward, "next_obs": self.observe(obs), **flags})
            steps.append(new[-1])
        experience = buffers.Experience(np.array([*ends]), **tree_stack(new))
        self.replay.add(experience)
        for array in tree_leaves(experience):  # the buffer stores copies
            array[...] = 1

    def interrupt(self, envs: np.ndarray) -> None:
        self.replay.interrupt(envs)
        for env in np.flatnonzero(envs):
            if self.steps[env] and not self.steps[env][-1]["terminated"]:
                self.steps[env][-1]["truncated"] = True

    def save(self) -> None:
        self.saved.append(decode_arrays(encode_arrays(self.replay.segment(self.covered))))
        self.covered = self.replay.written

    def reload(self, order: Any = None) -> None:
        """Continue in another buffer, which loads the segments in any order."""
        self.save()
        state, segments = decode_tree("state", encode_tree("state", self.replay.state_dict())), list(self.saved)
        if order is not None:
            order.shuffle(segments)
        self.replay = self.new()
        self.replay.load_state_dict(state)
        for segment in segments:
            self.replay.load_segment(segment)

    def window(self, env: int, number: int, n: int) -> tuple[float, float, Any]:
        """Return reward, discount and next observation of an n-step return, one step at a time."""
        total, power = 0.0, 1.0
        for step in self.steps[env][number : number + n]:
            total += power * float(step["reward"])
            power *= DISCOUNT
            if step["terminated"] or step["truncated"]:
                break
        return total, 0.0 if step["terminated"] else power, step["next_obs"]

    def check(self) -> None:
        """The buffer has the newest steps of every environment, and no others."""
        assert self.replay.written.tolist() == [len(steps) for steps in self.steps]
        kept = [(env, n) for env, steps in enumerate(self.steps) for n in range(len(steps))[-self.rows :]]
        if not kept:
            assert len(self.replay) == 0
            return
        batch, index, stamp, _ = self.replay.resolve(np.arange(len(self.replay)))
        found = list(zip((index // self.rows).tolist(), stamp.tolist(), strict=True))
        assert sorted(found) == kept
        wanted = [self.steps[env][number] for env, number in found]
        assert equal(batch.obs, tree_stack([step["obs"] for step in wanted]))
        assert equal(batch.action, np.stack([step["action"] for step in wanted]))
        self.check_returns(found, self.n_step, batch.reward, batch.discount, batch.next_obs)
        assert (batch.one_step is None) == (self.n_step == 1)
        if batch.one_step is not None:
            self.check_returns(found, 1, *batch.one_step)

    def check_returns(self, found: Any, n: int, reward: np.ndarray, discount: np.ndarray, next_obs: Any) -> None:
        rewards, discounts, following = zip(*(self.window(*name, n) for name in found), strict=True)
        np.testing.assert_allclose(reward, rewards, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(discount, discounts, rtol=1e-6)
        assert equal(next_obs, tree_stack(list(following)))


KINDS = [("vector", 1), ("image", 1), ("image", 3), ("dict", 1), ("dict", 4)]
END = st.sampled_from(["", "", "", "terminated", "truncated"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.dictionaries(st.integers(0, 2), END, min_size=1), st.integers(0, 9)),
        st.tuples(st.dictionaries(st.integers(0, 2), END, min_size=1), st.integers(0, 9)),
        st.tuples(st.booleans(), st.booleans(), st.booleans()),
        st.sampled_from(["save", "save all", "reload"]),
    ),
    max_size=50,
)


@settings(max_examples=200)
@given(
    operations=OPERATIONS,
    rows=st.integers(1, 7),
    n_step=st.integers(1, 4),
    kind=st.sampled_from(KINDS),
    order=st.randoms(use_true_random=False),
)
def test_batches_equal_the_definition_in_plain_lists(operations: Any, rows: int, n_step: int, kind: Any, order: Any):
    """Random ends and interruptions, vector steps without some environments, wrap-around, checkpoints."""
    model = Model(rows, *kind, n_step)
    for operation in operations:
        if operation == "save":
            model.save()
        elif operation == "save all":  # segments may overlap
            model.covered[:] = 0
            model.save()
        elif operation == "reload":
            model.reload(order)
        elif len(operation) == 3:
            model.interrupt(np.array(operation))
        else:
            ends, chance = operation
            model.step(ends, broken=chance == 0)
        model.check()
    model.reload(order)
    model.check()


def test_each_observation_is_stored_once():
    """A step of a ten-step episode adds one frame; the episode adds its first stack of four frames."""
    model = Model(50, "dict", 4)
    for number in range(230):
        model.step(dict.fromkeys(range(ENVS), "terminated" if number % 10 == 9 else ""))
    model.check()
    segment = model.replay.segment(np.full(ENVS, 210))
    assert segment["frame_count"].tolist() == [2 * (10 + 4)] * ENVS


def test_each_stored_transition_is_equally_likely():
    """Rings of 4; 6, 1, 0 and 3 written, so 4 + 1 + 0 + 3 = 8 stored. 80,000 draws: sd of a count is 94."""
    replay = build(4, capacity=14, batch_size=8000)
    fill(replay, [6, 1, 0, 3])
    drawn = [name for _ in range(10) for name in names(replay.sample().batch)]
    counts = {name: drawn.count(name) for name in set(drawn)}
    assert counts.keys() == {(0, 2), (0, 3), (0, 4), (0, 5), (1, 0), (3, 0), (3, 1), (3, 2)}
    assert all(abs(count - 10_000) < 4.5 * 94 for count in counts.values())


@pytest.mark.parametrize("prioritization", [None, PROPORTIONAL])
def test_vector_step_may_have_no_transitions(prioritization: Any):
    """All environments may reset in the same vector step."""
    replay = build(2, prioritization=prioritization)
    replay.add(rows(np.zeros(0, np.int64), np.zeros(0)))
    assert len(replay) == 0
    assert list(replay.due()) == []


def test_dict_observations_keep_their_parts_and_dtypes():
    image = Box((2, 3, 3), "uint8", (0,) * 18, (255,) * 18)
    parts = (("image", image), ("joints/left", Box((2,), "float64", (-1, -1), (1, 1))), ("mission", Discrete(9)))
    replay = build(observation=Dict(parts), action=MultiDiscrete((3, 4)), batch_size=1, n_step=2)
    pixels = np.arange(18, dtype=np.uint8).reshape(1, 2, 3, 3) + 230
    obs = {"image": pixels, "joints/left": np.array([[0.1, 0.2]]), "mission": np.array([4])}
    after = {"image": pixels + 1, "joints/left": np.array([[0.3, 0.4]]), "mission": np.array([5])}
    replay.add(rows(0, 0)._replace(obs=obs, next_obs=after, action=np.array([[2, 3]])))
    batch = replay.sample().batch
    dtypes = {"image": np.uint8, "joints/left": np.float32, "mission": np.int64}
    for put, sampled in ((obs, batch.obs), (after, batch.next_obs)):
        assert equal(sampled, {name: put[name].astype(dtype) for name, dtype in dtypes.items()})
    assert (batch.action.dtype, batch.action.tolist()) == (np.dtype(np.int64), [[2, 3]])


def test_capacity_larger_than_memory_is_refused():
    """10^13 transitions of 2 + 1 + 1 floats and 2 flags, 18 bytes."""
    with pytest.raises(UsageError, match=r"needs 167638\.1 GiB.*Lower replay_capacity"):
        build(capacity=10**13)


def test_replay_state_dict_is_a_copy():
    replay = build(2, capacity=2)
    fill(replay, [1, 1])
    state, since = replay.state_dict(), replay.written
    replay.add(rows([0, 1], 1))
    assert (state["envs"]["written"].tolist(), since.tolist()) == ([1, 1], [1, 1])


def test_missing_replay_segment_is_refused():
    model = Model(9)
    model.step({0: ""})
    model.save()
    model.step({0: ""})
    model.step({1: ""})
    again = model.new()
    again.load_state_dict(model.replay.state_dict())
    again.load_segment(model.saved[0])
    with pytest.raises(CheckpointError, match="lacks 2"):
        again.sample()


def test_segment_of_another_buffer_is_refused():
    replay = build()
    fill(replay, [2])
    segment = replay.segment(np.zeros(1, np.int64))
    with pytest.raises(CheckpointError, match="another number of steps than it says"):
        replay.load_segment(segment | {"count": segment["count"] + 10**12})
