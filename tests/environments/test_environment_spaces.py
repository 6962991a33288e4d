"""Conversion of Gymnasium spaces and observations, and the action map (SPEC C10, C11)."""

from __future__ import annotations

import json

import gymnasium.spaces as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetto.environments import ActionMap, Structure, from_gymnasium, structure, to_gymnasium
from duetto.environments.spaces import Layout
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, from_json, to_json

NESTED = gym.Dict(
    {
        "z": gym.Discrete(3, start=-1),
        "camera": gym.Dict({"left": gym.Box(0, 255, (4, 4, 3), np.uint8)}),
        "arm": gym.Tuple((gym.Box(-1, 1, (2,), np.float64), gym.MultiBinary(2))),
        "grid": gym.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [1, 1]]),
    }
)


def test_nested_spaces_are_flattened_in_sorted_order() -> None:
    space = from_gymnasium(NESTED)
    assert isinstance(space, Dict)
    assert [name for name, _ in space.parts] == ["arm/0", "arm/1", "camera/left", "grid", "z"]
    parts = dict(space.parts)
    assert parts["arm/0"] == Box((2,), "float32", (-1.0, -1.0), (1.0, 1.0))
    assert parts["arm/1"] == MultiDiscrete((2, 2))
    assert parts["grid"] == MultiDiscrete((2, 3, 4, 5))
    assert parts["z"] == Discrete(3)
    assert parts["camera/left"].is_image
    assert from_json(to_json(space)) == space


def test_nested_observations_are_flattened_like_their_space() -> None:
    obs = {
        "z": np.array([-1, 1]),
        "camera": {"left": np.full((2, 4, 4, 3), 200, np.uint8)},
        "arm": (np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0, 1], [1, 0]], np.int8)),
        "grid": np.array([[[1, 2], [3, 4]], [[2, 3], [4, 5]]]),
    }
    flat = Layout(NESTED).batch(obs, 2)
    assert isinstance(flat, dict)
    assert {name: part.dtype.name for name, part in flat.items()} == {
        "arm/0": "float32",
        "arm/1": "int64",
        "camera/left": "uint8",
        "grid": "int64",
        "z": "int64",
    }
    assert flat["z"].tolist() == [0, 2]
    assert flat["grid"].tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]
    assert flat["arm/1"].tolist() == [[0, 1], [1, 0]]
    flat["camera/left"][:] = 0
    flat["arm/0"][:] = 0
    assert obs["camera"]["left"].min() == 200
    assert obs["arm"][0].min() == 1.0


def test_shared_bounds_are_stored_once() -> None:
    frames = from_gymnasium(gym.Box(0, 255, (4, 84, 84), np.uint8))
    assert isinstance(frames, Box)
    assert (frames.low, frames.high) == ((0.0,), (255.0,))
    written_in_full = {"kind": "Box", "shape": [4, 84, 84], "dtype": "uint8", "low": [0.0] * 28224}
    assert from_json(written_in_full | {"high": [255.0] * 28224}) == frames == from_json(to_json(frames))
    assert to_gymnasium(frames) == gym.Box(0, 255, (4, 84, 84), np.uint8)
    some = Box((65,), "float32", (-1.0,) * 65, (*[1.0] * 64, 2.0))
    assert (some.low, len(some.high)) == ((-1.0,), 65)
    assert from_gymnasium(to_gymnasium(some)) == some


@pytest.mark.parametrize(
    ("shape", "first"),
    [
        ((4, 84, 84), True),
        ((16, 17, 17), True),
        ((84, 84, 4), False),
        ((7, 7, 3), False),
        ((17, 18, 18), None),
        ((4, 9, 4), None),
    ],
)
def test_image_channel_axis_is_inferred_from_the_shape(shape: tuple[int, ...], first: bool | None) -> None:
    image = Box(shape, "uint8", (0.0,), (255.0,))
    if first is None:
        with pytest.raises(UsageError, match="unexpected layout"):
            _ = image.channels_first
    else:
        assert image.channels_first is first


@given(
    low=st.floats(-100, 99, width=32),
    width=st.floats(0.015625, 100, width=32),
    action=st.lists(st.floats(-1, 1, width=32), min_size=6, max_size=6),
)
def test_action_map_stays_in_bounds_and_is_invertible(low: float, width: float, action: list[float]) -> None:
    space = gym.Box(low, low + width, (2, 3), np.float64)
    actions = ActionMap(space)
    given_action = np.array([action], np.float32)
    own = actions.to_environment(given_action)
    assert own.shape == (1, 2, 3)
    assert space.contains(own[0])
    assert np.allclose(own.reshape(1, 6), low + (np.float64(given_action) + 1) / 2 * width, atol=1e-9, rtol=1e-12)
    assert np.allclose(actions.from_environment(own), given_action, atol=1e-6)


def test_random_actions_are_uniform_in_each_dimension_c11() -> None:
    space = gym.Box(np.array([-1.0, 0.0, 10.0]), np.array([1.0, 0.1, 30.0]), dtype=np.float64)
    actions = ActionMap(space)
    sampled = actions.sample(np.random.default_rng(0), 20_000)
    assert sampled.dtype == np.float32
    own = actions.to_environment(sampled)
    width = space.high - space.low
    # Uniform on each dimension's own bounds: mean (low + high) / 2 and standard deviation width / sqrt(12).
    assert np.allclose(own.mean(axis=0), (space.low + space.high) / 2, atol=0.01 * width)
    assert np.allclose(own.std(axis=0), width / np.sqrt(12), rtol=0.02)
    assert np.abs(np.corrcoef(sampled.T) - np.eye(3)).max() < 0.03


def test_discrete_actions_are_shifted_by_start() -> None:
    actions = ActionMap(gym.Discrete(3, start=5))
    assert actions.to_environment(np.array([0, 2])).tolist() == [5, 7]
    assert actions.from_environment(np.array([5, 7])).tolist() == [0, 2]
    assert set(actions.sample(np.random.default_rng(0), 100).tolist()) == {0, 1, 2}
    several = ActionMap(gym.MultiDiscrete([2, 5]))
    assert several.sample(np.random.default_rng(0), 1000).max(axis=0).tolist() == [1, 4]
    binary = ActionMap(gym.MultiBinary(3))
    assert binary.to_environment(np.array([[0, 1, 1]])).dtype == np.int8


@pytest.mark.parametrize(
    ("space", "action", "message"),
    [
        (gym.Discrete(3), np.array([3]), "not in Discrete"),
        (gym.Discrete(3), np.array([0.5]), "not in Discrete"),
        (gym.Discrete(3), np.array([[1]]), r"shape \(1, 1\)"),
        (gym.MultiDiscrete([2, 3]), np.array([[1, 3]]), "not in MultiDiscrete"),
        (gym.Box(-1, 1, (2,)), np.zeros((1, 3)), r"need \(1, 2\)"),
    ],
)
def test_invalid_actions_are_refused(space: gym.Space, action: np.ndarray, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ActionMap(space).check(action, 1)


def test_unbounded_actions_are_not_rescaled() -> None:
    """The bounds are [2, 6], none, at least 5, and at most -3. Values beyond a bound are clipped."""
    low, high = np.array([2, -np.inf, 5, -np.inf]), np.array([6, np.inf, np.inf, -3])
    actions = ActionMap(gym.Box(low, high, dtype=np.float64))
    own = actions.to_environment(np.array([[0, 40, 5, -3], [9, -40, -9, 9], [-1, 0, 8, -6]], np.float32))
    assert own.tolist() == [[4, 40, 5, -3], [6, -40, 5, -3], [2, 0, 8, -6]]
    assert actions.from_environment(own)[2].tolist() == [-1, 0, 8, -6]
    assert actions.sample(np.random.default_rng(0), 5).shape == (5, 4)


def test_structure_rebuilds_composite_actions_from_rows() -> None:
    """An action is a row of its parts; `Structure`, also from a checkpoint, makes the action of the space."""
    space = gym.Tuple((gym.Discrete(2, start=1), gym.Dict({"x": gym.Box(-2.0, 6.0, (1,), np.float64)})))
    rows = ActionMap(space).to_environment(np.array([[0, 0.5], [1, -1]], np.float32))
    assert rows.tolist() == [[1, 4], [2, -2]]
    made = Structure(json.loads(json.dumps(structure(space))))
    assert made.nest(rows[0]) == (1, {"x": np.array([4.0])})
    assert space.contains(made.nest(rows[1]))
    first, second = made.nest(rows)
    assert (first.tolist(), second["x"].tolist()) == ([1, 2], [[4], [-2]])
    choice = Structure(structure(gym.Discrete(3)))
    assert choice.nest(2) == 2
