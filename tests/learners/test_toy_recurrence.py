"""SPEC's toy network h ← h/2 + x, made of a GRU: a gate of 1/2 and a tanh of numbers so small that it is straight."""

import numpy as np
import pytest
from learning_cases import build
from recurrent_cases import part

from duetto.algorithms import DQN
from duetto.networks.sequence_input import SequenceInput
from duetto.networks.spaces import Box, Discrete

SMALL = 1e-3  # the unit of h
NUMBER, CHOICE = Box((1,), "float32", (-10.0,), (10.0,)), Discrete(2)
X = np.array([1, 2, 3, 4], np.float32)


@pytest.fixture
def toy(backend):
    learner = build(backend, DQN(recurrent="gru", recurrent_size=1, hidden=(), head_hidden=()), NUMBER, CHOICE)
    parameters = learner.parameters()
    for network in parameters.values():
        for name, array in network.items():
            if ".recurrent." in name:
                array[:] = 0
            if name.endswith("weight_ih_l0"):
                array[2, 0] = 2 * SMALL  # the new value's row, the observation's column
    learner.load_parameters(parameters)
    return learner


def stretch(first: float, reset: int | None) -> SequenceInput:
    starts = np.zeros((1, 4), bool)
    if reset is not None:
        starts[0, reset] = True
    return SequenceInput(
        obs=X[None, :, None],
        previous_action=np.full((1, 4), -1),
        previous_reward=np.zeros((1, 4), np.float32),
        starts=starts,
        carry={"q/h": np.full((1, 1, 1), first * SMALL, np.float32)},
        is_first=np.zeros(1, bool),
        query_steps=np.arange(4)[None],
    )


@pytest.mark.parametrize(
    ("first", "reset", "expected"),
    [(10, None, [6, 5, 5.5, 6.75]), (0, None, [1, 2.5, 4.25, 6.125]), (10, 2, [6, 5, 3, 5.5])],
    ids=["stored state", "zero state", "reset before the third step"],
)
def test_o14(toy, first, reset, expected):
    seen = stretch(first, reset)
    carry, states = seen.carry, []
    for step in range(4):
        _, carry = toy.remember("act", part(seen, step, carry), None)
        states.append(carry["q/h"].item() / SMALL)
    assert states == pytest.approx(expected, rel=1e-4)
    _, last = toy.remember("act", seen, None)
    assert last["q/h"].item() / SMALL == pytest.approx(expected[-1], rel=1e-4)
