"""Encoding of nested states as JSON and safetensors, and reading of YAML."""

from contextlib import suppress
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import yaml
from fake_run import same
from hypothesis import example, given
from hypothesis.extra import numpy as hnp

from duetto.errors import CheckpointError
from duetto.storage import safe_yaml
from duetto.storage.tree_codec import decode_tree, encode_tree

DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]
KEYS = st.one_of(st.text(max_size=6), st.sampled_from(["$array", "$", "$$int", "a/b", "a%2Fb", "__metadata__", ""]))


@st.composite
def arrays(draw):
    """Draw arrays of arbitrary bits, including every NaN."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
    size = int(np.prod(shape)) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype.kind == "b":
        data = bytes(byte & 1 for byte in data)
    return np.frombuffer(data, dtype).reshape(shape)


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.integers(-(2**200), 2**200), st.floats(), st.text())
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=6)
TREES = st.dictionaries(
    KEYS,
    st.recursive(VALUES | arrays(), lambda inner: st.dictionaries(KEYS, inner, max_size=4), max_leaves=8),
    max_size=4,
)


@given(TREES)
@example({})
@example({"a": {}, "b": [], "c": {"": {}}})
@example({"a/b": np.ones(2), "a": {"b": np.zeros(2)}, "a%2Fb": np.ones(3)})
@example({"__metadata__": np.ones(1), "%5F_metadata__": np.zeros(1)})
@example({"x": {"$array": "y"}, "$float": "nan", "y": {"$int": 3}})
@example({"big": 10**4000, "negative": -(10**4000), "edge": [2**53, 2**53 + 1, -(2**53), -(2**53) - 1]})
@example({"half a pair": "\ud800", "\ud800": np.ones(2)})
def test_decoded_state_equals_encoded_one_bit_for_bit(state):
    assert same(decode_tree("t", encode_tree("t", state)), state)


@pytest.mark.parametrize(
    "leaf",
    [
        (1, 2),
        {1, 2},
        b"bytes",
        np.float64(1.0),
        np.int64(1),
        [np.ones(2)],
        [[(1,)]],
        {1: 2},
        np.array(["text"]),
        np.ones(2, ">f4"),
        np.ones(2, np.complex64),
        np.ma.masked_array([1.0], [True]),
    ],
)
def test_unsupported_leaf_is_refused_with_its_path(leaf):
    with pytest.raises(TypeError, match="outer/inner"):
        encode_tree("state", {"fine": np.ones(2), "outer": {"inner": leaf}})


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"a": {"$array": ["x"]}, "x": {"$array": "x"}}',
        b'{"a": {"$array": "x", "b": 1}}',
        b'{"x": {"$array": "x"}, "a": {"$array": "x"}}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_damaged_structure_is_a_checkpoint_error(text):
    files = encode_tree("t", {"x": np.ones(2)}) | {"t.json": text}
    with pytest.raises(CheckpointError, match=r"t\.json"):
        decode_tree("t", files)


def test_damaged_or_missing_arrays_are_a_checkpoint_error():
    files = encode_tree("t", {"x": np.ones(2)})
    with pytest.raises(CheckpointError, match="damaged"):
        decode_tree("t", files | {"t.safetensors": files["t.safetensors"][:-3]})
    del files["t.safetensors"]
    with pytest.raises(CheckpointError, match=r"t\.json is damaged: 'x'"):
        decode_tree("t", files)
    with pytest.raises(CheckpointError, match=r"other\.json is missing"):
        decode_tree("other", files)


# ------------------------------------------------------------------------------------------------ YAML
@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("b: &b {x: 1, y: 1}\ndefs: {a: &a {<<: *b, x: 2}}\nc: {<<: *a}", {"c": {"x": 2, "y": 1}}),
        ("{1: a, '1': b}", {1: "a", "1": "b"}),
        ("a: &a {x: 1}\nb: &b {y: 2}\nc:\n  <<: *a\n  <<: *b", {"c": {"x": 1, "y": 2}}),
    ],
)
def test_yaml_merge_keys_and_non_string_keys_are_read(text: str, read: dict[Any, Any]):
    assert read.items() <= safe_yaml.parse(text).items()


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3", "- {a: 1}\n- {b: 1,\n   c: 2, b: 3}"])
def test_repeated_yaml_key_is_refused(text: str):
    with pytest.raises(yaml.YAMLError, match=r"line [23] repeats the key [ab]: remove one"):
        safe_yaml.parse(text)


@pytest.mark.parametrize("text", ["", "!!map [td3]", "3"])
def test_yaml_without_mapping_is_not_a_dict(text: str):
    with suppress(yaml.YAMLError):
        assert not isinstance(safe_yaml.parse(text), dict)
