"""How losses look at a recurrent network's outputs: whatever they are made of, at the positions that are asked for."""

from types import SimpleNamespace

import numpy as np
import pytest

from duetto.functional.distributions import Categorical, Joint, SquashedGaussian
from duetto.learners.recurrent_unroll import RecurrentUnroll
from duetto.networks.sequence_input import SequenceInput

FEATURES = np.arange(24, dtype=np.float32).reshape(2, 4, 3)  # (B, S, width)
AT = np.array([[0, 2], [3, 3]])
PICKED = np.stack([FEATURES[0, [0, 2]], FEATURES[1, [3, 3]]])
HEADS = {
    "values": lambda x: x[..., 0],
    "numbers": lambda x: x,
    "a squashed Gaussian": lambda x: SquashedGaussian(x, -x),
    "choices": lambda x: Joint((Categorical(x[..., :1]), Categorical(x[..., 1:]))),
    "a choice and a value": lambda x: (Categorical(x), x[..., 1]),
}


class Recorded:
    """A network whose features are given; it notes how often it is asked for what."""

    def __init__(self, array, head):
        self.calls, self._features, self._head = [], array(FEATURES), head

    def trunk(self, window):
        self.calls.append("trunk")
        return self._features, {"h": self._features[:, -1]}

    def head(self, features, *inputs, train=False):
        self.calls.append("head")
        return self._head(features)


def window(array, at):
    reward = array(np.zeros((2, 4)))
    return SequenceInput(None, None, reward, None, {"net/h": array(np.zeros((2, 3)))}, None, at)


def integers(array, values):
    """Of the same framework."""
    like = array(np.zeros(1))
    if isinstance(like, np.ndarray):
        return values
    import jax.numpy as jnp
    import torch

    return torch.from_numpy(values) if isinstance(like, torch.Tensor) else jnp.asarray(values)


def leaves(tree):
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    return [np.asarray(tree)]


def kinds(tree):
    """The types that it is nested of."""
    return (type(tree).__name__, *map(kinds, tree)) if isinstance(tree, tuple) else ()


@pytest.mark.parametrize("name", HEADS)
def test_outputs_at_some_positions(array, name):
    head = HEADS[name]
    found = RecurrentUnroll(Recorded(array, head), "net")(window(array, integers(array, AT)))
    expected = head(PICKED)
    assert kinds(found) == kinds(expected)
    for ours, theirs in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", HEADS)
def test_while_acting_time_has_no_axis(array, name):
    net = Recorded(array, HEADS[name])
    net._features = net._features[:, :1]
    found = RecurrentUnroll(net, "net")(window(array, None))
    for ours, theirs in zip(leaves(found), leaves(HEADS[name](FEATURES[:, 0])), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_one_pass_for_all_looks_at_a_window():
    net = Recorded(np.asarray, HEADS["a squashed Gaussian"])
    unrolling = RecurrentUnroll(net, "net")
    first = window(np.asarray, AT)
    for at in (AT, 3 - AT):
        unrolling(first._replace(query_steps=at))
    assert net.calls == ["trunk", "head"]
    unrolling(window(np.asarray, AT))
    assert net.calls == ["trunk", "head"] * 2
    np.testing.assert_array_equal(unrolling.carry["net/h"], FEATURES[:, -1])


def test_members_of_an_ensemble_come_before_the_rows():
    net = Recorded(np.asarray, lambda features: np.stack([features, 2 * features]))
    found = RecurrentUnroll(net, "net", members=2)(window(np.asarray, AT))
    np.testing.assert_array_equal(found, [PICKED, 2 * PICKED])


def test_inputs_are_of_the_positions_that_are_asked_for():
    seen = []
    net = SimpleNamespace(
        trunk=lambda window: (FEATURES, {}), head=lambda x, *inputs, train: seen.append((x, *inputs)) or x[..., 0]
    )
    action = np.zeros((2, 2, 1), np.float32)
    found = RecurrentUnroll(net, "net")(window(np.asarray, AT), action)
    np.testing.assert_array_equal(seen[0][0], PICKED)
    assert seen[0][1] is action
    np.testing.assert_array_equal(found, PICKED[..., 0])
