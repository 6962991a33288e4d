import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning_cases import PARTS, box

from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, from_json, to_json

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
