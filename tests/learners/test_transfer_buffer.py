"""Arrays in one piece of memory come out as they went in, and learners in JAX learn from it as from the arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from duetto import learners
from duetto.algorithms import ALGORITHMS
from duetto.functional.pytree import tree_leaves, tree_stack
from duetto.learners.base import Update, on_host
from duetto.learners.transfer_buffer import ALIGNMENT, BufferLayout, signature
from duetto.testing import conformance


class Pair(NamedTuple):
    first: Any
    second: Any


def tree(seed: int = 0, rows: int = 5) -> Any:
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(rows, 3)).astype(np.float32)
    return Pair(
        {"where": numbers, "image": random.integers(256, size=(rows, 2, 2), dtype=np.uint8)},
        (None, random.random(rows) < 0.5, np.float32(random.normal()), np.zeros((0, 4), np.float32), np.arange(rows)),
    )


def test_what_goes_in_comes_out():
    one = tree()
    packing = BufferLayout(one)
    memory = np.zeros(packing.size, np.uint8)
    packing.write(tree(1), memory)  # of the same kind
    packing.write(one, memory)
    found = packing.read(lambda place: memory[place.start : place.end].view(place.dtype).reshape(place.shape))
    assert signature(found) == signature(one)
    for ours, theirs in zip(tree_leaves(found), tree_leaves(one), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert np.ndim(ours) == 0 or ours.size == 0 or ours.ctypes.data % 8 == memory.ctypes.data % 8


def test_every_array_begins_where_any_kernel_may_read():
    assert all(place.start % ALIGNMENT == 0 for place in tree_leaves(BufferLayout(tree())._places))


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


@pytest.mark.parametrize("name", ["td3", "dqn", "ppo", "r2d2"])
def test_jax_learns_from_one_buffer(name: str):
    """Numbers, frames, rollouts in parts, sequences."""
    with conformance._trials(ALGORITHMS[name]) as found:
        trial = found[-1] if name == "dqn" else found[0]
        own = trial.algorithm, trial.observation, trial.action
        pair: list[Any] = [learners.build("jax", *own) for _ in range(2)]
        pair[1].on_gpu = True
        conformance._compare_pair(trial, pair, ("arrays", "one buffer"))
        assert pair[1]._packings


def test_jax_learns_from_one_buffer_for_several_seeds():
    with conformance._trials(ALGORITHMS["td3"]) as (trial, *_):
        batches = trial.batches(4)
        own = trial.algorithm, trial.observation, trial.action
        pair: list[Any] = [learners.build("jax", *own, seed=(0, 1)) for _ in range(2)]
    pair[1].on_gpu = True
    random = np.random.default_rng(0)
    for some in zip(batches[::2], batches[1::2], strict=True):
        noise = tree_stack([trial.algorithm.draw(random, one) for one in some])
        rates = {name: np.full(2, 1e-3) for name in pair[0].optimizer_specs}
        update = Update(trial.algorithm.phase(1), tree_stack(some), None, noise, rates, {})
        values = [on_host(one.update_alike([update])[0].values) for one in pair]
        np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-5)
