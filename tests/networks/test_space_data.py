import json

import numpy as np
import pytest
from learning_cases import PARTS, box

from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, describe_difference, from_json, to_json


@pytest.mark.parametrize(
    "space",
    [
        Box((2, 1), "float32", (-np.inf, -1.5), (0.1, np.inf)),
        Box((0,), "uint8", (), ()),
        Discrete(3, start=-1),
        MultiDiscrete((2, 3), (1, 2), (0, -5)),
        Dict((("", Discrete(1)), ("a/é", PARTS.parts[-1][1]))),
        Dict(()),
    ],
)
def test_space_survives_json_round_trip(space):
    again = from_json(json.loads(json.dumps(to_json(space))))
    assert (again, vars(again)) == (space, vars(space))


@pytest.mark.parametrize(
    ("space", "size", "text"),
    [
        (box(2, 3), 6, "Box(2, 3)"),
        (box(), 1, "Box()"),
        (Discrete(4), 4, "Discrete(4)"),
        (MultiDiscrete((2, 3)), 5, "MultiDiscrete([2, 3])"),
        (PARTS, 12, "Dict(goal: Discrete(3), switches: MultiDiscrete([2, 3]), where: Box(2, 2))"),
    ],
)
def test_space_size_and_text(space, size, text):
    assert space.size == size
    assert str(space) == text


BYTES, FLOATS = "uint8", "float32"


@pytest.mark.parametrize(
    ("shape", "dtype", "seems"),
    [
        ((84, 84), BYTES, True),
        ((4, 40, 40, 3), BYTES, True),
        ((40, 40, 3), FLOATS, True),
        ((40, 40, 3), BYTES, False),  # is an image
        ((8, 8), BYTES, False),  # a board
        ((40, 40), FLOATS, False),  # a matrix
        ((100,), BYTES, False),
    ],
)
def test_looks_like_image(shape, dtype, seems):
    assert Box(shape, dtype, (0.0,), (255.0,)).looks_like_image == seems


def test_describe_difference_ignores_observation_bounds():
    """Action bounds and dtypes are differences; observation bounds are not."""
    one, other = Box((1,), "float32", (-1.0,), (1.0,)), Box((1,), "float32", (-3.0,), (1.0,))
    words = "Box((1,), float32, from -1 to 1)", "Box((1,), float32, from -3 to 1)"
    assert describe_difference("action", one, one) is None
    assert describe_difference("observation", Dict((("a", one),)), Dict((("a", other),))) is None
    parts = [Dict((("arm", part), ("hand", one))) for part in (one, other)]
    assert describe_difference("action", *parts) == tuple(f"Dict(arm: {word}, hand: {words[0]})" for word in words)
    assert describe_difference("action", one, Discrete(2)) == (words[0], "Discrete(2)")
    integers = Box((1,), "uint8", (0.0,), (255.0,))
    assert describe_difference("observation", one, integers) == ("Box((1,), float32)", "Box((1,), uint8)")
