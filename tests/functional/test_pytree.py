"""Trees keep their form: names in order, plain tuples, named tuples and None."""

from typing import Any, NamedTuple

import numpy as np

from duetto.functional.pytree import signature, tree_leaves, tree_map, tree_map_many


class Pair(NamedTuple):
    first: Any
    second: Any


def test_every_leaf_is_mapped():
    tree = {"b": 1, "a": (2, [3], Pair(4, {"c": None})), "none": (), "empty": {}}
    found = tree_map(str, tree)
    assert found == {"b": "1", "a": ("2", "[3]", Pair("4", {"c": None})), "none": (), "empty": {}}
    assert list(found) == ["b", "a", "none", "empty"]
    assert type(found["a"]) is tuple
    assert type(found["a"][2]) is Pair


def test_arrays_at_the_same_place_are_merged():
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


def test_leaves_are_in_order():
    assert tree_leaves({"b": 1, "a": (2, None, Pair({"d": 3, "c": 4}, [5]))}) == [1, 2, 3, 4, [5]]
    assert tree_leaves(7) == [7]
    assert tree_leaves(None) == []


def tree(seed: int = 0, rows: int = 5) -> Any:
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(rows, 3)).astype(np.float32)
    return Pair(
        {"where": numbers, "image": random.integers(256, size=(rows, 2, 2), dtype=np.uint8)},
        (None, random.random(rows) < 0.5, np.float32(random.normal()), np.zeros((0, 4), np.float32), np.arange(rows)),
    )


def test_kinds():
    """Another shape, type or name is another kind; other values are not."""
    one = tree()
    assert signature(one) == signature(tree(1))
    others = [
        tree(rows=6),
        one._replace(first=one.first | {"where": one.first["where"].astype(np.float64)}),
        one._replace(first={"there": one.first["where"], "image": one.first["image"]}),
        one._replace(first=None),
        tuple(one),
    ]
    assert len({signature(one), *map(signature, others)}) == 6
