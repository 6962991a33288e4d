"""Tree functions keep the structure: order of keys, tuples, named tuples and None."""

from typing import Any, NamedTuple

import numpy as np

from duetto.functional.pytree import signature, tree_leaves, tree_map, tree_map_many


class Pair(NamedTuple):
    first: Any
    second: Any


def test_tree_map_keeps_structure():
    tree = {"b": 1, "a": (2, [3], Pair(4, {"c": None})), "none": (), "empty": {}}
    found = tree_map(str, tree)
    assert found == {"b": "1", "a": ("2", "[3]", Pair("4", {"c": None})), "none": (), "empty": {}}
    assert list(found) == ["b", "a", "none", "empty"]
    assert type(found["a"]) is tuple
    assert type(found["a"][2]) is Pair
    assert tree_leaves(tree) == [1, 2, [3], 4]


def test_tree_map_many_merges_matching_leaves():
    trees = [{"b": np.array([k]), "a": (None, Pair(np.array([[k]]), np.float32(k)))} for k in (1, 2, 3)]
    found = tree_map_many(np.stack, trees)
    assert list(found) == ["b", "a"]
    np.testing.assert_array_equal(found["b"], [[1], [2], [3]])
    none, pair = found["a"]
    assert none is None
    assert type(pair) is Pair
    np.testing.assert_array_equal(pair.first, [[[1]], [[2]], [[3]]])
    np.testing.assert_array_equal(pair.second, [1, 2, 3])
    np.testing.assert_array_equal(tree_map_many(np.concatenate, [np.array([1]), np.array([2, 3])]), [1, 2, 3])


def test_signature_depends_on_shapes_types_and_names():
    """Values do not change the signature."""
    one, rows = Pair({"where": np.zeros((5, 3))}, (None, np.float32(1))), np.zeros((6, 3))
    others = [
        one._replace(first={"where": rows}),
        one._replace(first={"where": one.first["where"].astype(np.float32)}),
        one._replace(first={"there": one.first["where"]}),
        one._replace(first=None),
        tuple(one),
    ]
    assert signature(one) == signature(Pair({"where": np.ones((5, 3))}, (None, np.float32(2))))
    assert len({signature(one), *map(signature, others)}) == 6
