"""Every action that an environment or a user is given is contained in its action space."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_runs import small, train

from duetto.environments import ActionMap, Structure, make, structure, to_gymnasium
from duetto.errors import UsageError
from duetto.networks.spaces import from_json, to_json

INTEGERS = [np.dtype(code) for code in "bhilqBHILQ"]
FLOATS = [np.dtype(code) for code in "efd"]
SHAPES = st.sampled_from([(), (1,), (3,), (2, 2)])


def whole(dtype: np.dtype) -> st.SearchStrategy[int]:
    limits = np.iinfo(dtype)
    ends = st.sampled_from([limits.min, limits.min + 1, limits.max - 1, limits.max])
    return st.one_of(st.integers(int(limits.min), int(limits.max)), ends)


def real(dtype: np.dtype) -> st.SearchStrategy[float]:
    limits = np.finfo(dtype)
    ends = st.sampled_from([float(limits.min), float(limits.max), float(limits.smallest_subnormal), 0.0])
    return st.one_of(st.floats(width=limits.bits, allow_nan=False, allow_infinity=False), ends)


@st.composite
def boxes(draw: Any) -> spaces.Box:
    dtype, shape = draw(st.sampled_from(INTEGERS + FLOATS)), draw(SHAPES)
    count = int(np.prod(shape, dtype=int))
    one = real(dtype) if dtype.kind == "f" else whole(dtype)
    pairs = [sorted(draw(st.tuples(one, one))) for _ in range(count)]
    if dtype.kind == "f":
        pairs = [[draw(st.sampled_from([a, -np.inf])), draw(st.sampled_from([b, np.inf]))] for a, b in pairs]
    low, high = (np.array([pair[i] for pair in pairs], dtype).reshape(shape) for i in range(2))
    return spaces.Box(low, high, shape, dtype.type)


@st.composite
def discretes(draw: Any) -> spaces.Discrete:
    dtype = draw(st.sampled_from(INTEGERS))
    n, start = draw(st.integers(1, 60)), draw(whole(dtype) | st.integers(0, 5))
    return spaces.Discrete(n, start=min(start, int(np.iinfo(dtype).max) - n + 1), dtype=dtype.type)


@st.composite
def multi_discretes(draw: Any) -> spaces.MultiDiscrete:
    dtype, shape = draw(st.sampled_from(INTEGERS)), draw(st.sampled_from([(1,), (3,), (2, 2)]))
    nvec = np.array([draw(st.integers(1, 60)) for _ in range(int(np.prod(shape)))], dtype).reshape(shape)
    start = min(draw(whole(dtype) | st.integers(0, 5)), int(np.iinfo(dtype).max) - 60)
    return spaces.MultiDiscrete(nvec, dtype=dtype.type, start=np.full(shape, start, dtype))


plain = st.one_of(boxes(), discretes(), multi_discretes(), st.builds(spaces.MultiBinary, st.sampled_from([3, (2, 2)])))
nested = st.one_of(
    st.dictionaries(st.sampled_from("abc"), plain, min_size=1).map(spaces.Dict),
    st.lists(plain, min_size=1, max_size=3).map(spaces.Tuple),
)


class Strict(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        assert contained(self.action_space, action), (self.action_space, action)
        return np.zeros(1, np.float32), 0.0, False, False, {}


def contained(space: Any, action: Any) -> bool:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Casting input x to numpy array")
        return space.contains(action)


@settings(max_examples=400, deadline=None)
@given(space=st.one_of(plain, nested), seed=st.integers(0, 2**16))
def test_every_action_is_in_its_space(space: Any, seed: int) -> None:
    try:
        stepper = make(Strict(space))
    except UsageError as refusal:  # no float64 lies within its bounds, or no checkpoint holds its start
        assume("2^53" not in str(refusal))
        raise
    own = json.loads(json.dumps([to_json(stepper.action_space), structure(space)]))  # as a checkpoint holds them
    made = Structure(own[1])
    agents = ActionMap(to_gymnasium(from_json(own[0]), np.dtype(stepper.action_dtype), made.dtypes))
    stepper.reset(0)
    drawn = stepper.sample_actions(np.random.default_rng(seed))
    each = [drawn, *([-np.ones_like(drawn), np.ones_like(drawn)] if isinstance(space, spaces.Box) else ())]
    if isinstance(space, spaces.Dict | spaces.Tuple):  # its numbers at their bounds; 0 and 1 may be choices
        each += [np.where(drawn == np.floor(drawn), drawn, np.sign(drawn))]
    for action in each:
        stepper.step(action)
        assert contained(space, made.one(agents.to_environment(action)[0]))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_the_upper_bound_of_a_full_box_is_its_largest_number(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    actions = ActionMap(spaces.Box(limits.min, limits.max, (1,), dtype))
    low, high = actions.to_environment(np.array([[-1.0], [1.0]]))[:, 0].tolist()
    assert low == limits.min
    assert limits.max - 2048 < high <= limits.max


def test_an_agent_gives_choices_in_the_dtype_of_their_space(tmp_path: Path) -> None:
    space = spaces.Discrete(3, start=2, dtype=np.int32)
    run = train(tmp_path, small("dqn"), lambda: TimeLimit(Strict(space), 5), steps=30)
    assert contained(space, run.agent().act(np.zeros(1, np.float32)))
