import numpy as np
import pytest

from duetto.buffers.sampling import MinTree, SumTree

SIZES = [1, 4, 16, 17, 256, 257, 5000]  # one to four levels, with and without padding


def sum_tree(leaves):
    tree = SumTree(len(leaves))
    tree.set(np.arange(len(leaves)), np.asarray(leaves, float))
    return tree


@pytest.mark.parametrize("size", SIZES)
def test_find_equals_a_search_in_the_running_sum(size):
    """Leaves and masses are integers, so that no sum is rounded."""
    leaves = np.random.default_rng(size).integers(0, 5, size).astype(float)
    leaves[-1] = 2
    tree = sum_tree(leaves)
    mass = np.arange(leaves.sum())
    assert tree.root == leaves.sum()
    assert np.array_equal(tree.find(mass), leaves.cumsum().searchsorted(mass, side="right"))


def sparse_leaves(size):
    """Ends and gaps of zeros, and numbers of very different sizes, whose sums must be rounded."""
    random = np.random.default_rng(size)
    leaves = random.random(size) ** 8 * 10.0 ** random.integers(-12, 4, size)
    leaves[random.random(size) < 0.4] = 0.0
    leaves[: size // 3] = leaves[-size // 4 :] = 0.0
    leaves[size // 2] = 0.7
    return leaves


@pytest.mark.parametrize("size", [17, 257, 5000])
def test_the_edges_of_the_mass_never_give_an_empty_leaf(size):
    leaves = sparse_leaves(size)
    tree = sum_tree(leaves)
    running = leaves.cumsum()
    edges = np.concatenate([running, np.nextafter(running, 0), np.nextafter(running, np.inf)])
    total = np.array([tree.root, tree.root * (1 - 1e-16), np.nextafter(tree.root, np.inf), tree.root * 1.01])
    assert (leaves[tree.find(edges)] > 0).all()
    assert (leaves[tree.find(total)] > 0).all()


@pytest.mark.parametrize("size", SIZES)
def test_past_the_end_comes_the_last_leaf(size):
    leaves = np.ones(size)
    leaves[size // 2 + 1 :] = 0.0
    tree = sum_tree(leaves)
    assert tree.find(np.array([tree.root * (1 - 1e-16), tree.root, tree.root * 2])).tolist() == [size // 2] * 3


@pytest.mark.parametrize("size", SIZES)
def test_changing_some_leaves_equals_building_anew(size):
    """Bit for bit: nothing accumulates, and a resumed memory continues as if it had never stopped."""
    random = np.random.default_rng(size)
    leaves, sums, minima = np.zeros(size), SumTree(size), MinTree(size)
    for _ in range(50):
        index, value = random.integers(size, size=7), random.random(7) + 0.1
        for tree in (sums, minima):
            tree.set(index, value)
        leaves[index] = value  # the last of several
    anew = SumTree(size), MinTree(size)
    anew[0].fill(leaves)
    anew[1].fill(np.where(leaves > 0, leaves, np.inf))
    mass = random.random(100) * sums.root
    assert (sums.root, minima.root) == (anew[0].root, anew[1].root)
    assert minima.root == leaves[leaves > 0].min()
    assert sums.root == pytest.approx(leaves.sum(), rel=1e-12)
    assert np.array_equal(sums.find(mass), anew[0].find(mass))
    assert np.array_equal(sums.leaves, leaves)
