import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning_cases import PARTS, box

from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, describe_difference, from_json, to_json

BOUND = st.floats(allow_nan=False, width=32)
BOXES = st.lists(st.integers(0, 3), max_size=3).flatmap(
    lambda shape: st.builds(
        Box,
        st.just(tuple(shape)),
        st.sampled_from(["float32", "uint8"]),
        *(st.tuples(*[BOUND] * box(*shape).size) for _ in range(2)),
    )
)
LEAVES = st.one_of(
    BOXES, st.builds(Discrete, st.integers(1, 9)), st.builds(MultiDiscrete, st.tuples(st.integers(1, 9)))
)
DICTS = st.dictionaries(st.text(max_size=5), LEAVES, max_size=3).map(lambda parts: Dict(tuple(sorted(parts.items()))))


@given(st.one_of(LEAVES, DICTS))
def test_a_space_comes_back_from_a_checkpoint(space):
    assert from_json(json.loads(json.dumps(to_json(space)))) == space


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
def test_size_is_that_of_the_network_input(space, size, text):
    assert space.size == size
    assert str(space) == text


BYTES, FLOATS = "uint8", "float32"


@pytest.mark.parametrize(
    ("shape", "dtype", "seems"),
    [
        ((84, 84), BYTES, True),
        ((4, 40, 40, 3), BYTES, True),
        ((40, 40, 3), FLOATS, True),
        ((3, 40, 40), FLOATS, True),
        ((40, 40, 3), BYTES, False),  # it is one
        ((8, 8), BYTES, False),  # a board
        ((40, 40), FLOATS, False),  # a matrix
        ((20, 30, 40), FLOATS, False),
        ((100,), BYTES, False),
    ],
)
def test_what_seems_to_be_an_image(shape, dtype, seems):
    assert Box(shape, dtype, (0.0,), (255.0,)).looks_like_image == seems


def test_where_only_bounds_differ_they_are_shown():
    one, other = Box((1,), "float32", (-1.0,), (1.0,)), Box((1,), "float32", (-3.0,), (1.0,))
    words = "Box((1,), float32, from -1 to 1)", "Box((1,), float32, from -3 to 1)"
    assert describe_difference("action", one, one) is None
    assert describe_difference("action", one, other) == words
    parts = [Dict((("arm", part), ("hand", one))) for part in (one, other)]
    assert describe_difference("action", *parts) == tuple(f"Dict(arm: {word}, hand: {words[0]})" for word in words)
    assert describe_difference("action", one, Discrete(2)) == (words[0], "Discrete(2)")


def test_bounds_of_observations_make_no_difference_but_dtypes_do():
    one, other = Box((1,), "float32", (-1.0,), (1.0,)), Box((1,), "float32", (-3.0,), (1.0,))
    assert describe_difference("observation", one, other) is None
    assert describe_difference("observation", Dict((("a", one),)), Dict((("a", other),))) is None
    assert describe_difference("observation", one, Box((1,), "uint8", (0.0,), (255.0,))) == (
        "Box((1,), float32)",
        "Box((1,), uint8)",
    )
