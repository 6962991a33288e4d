"""The shapes that parameters will have are known before any is drawn: every algorithm, every kind of torso."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from duetto.algorithms import ALGORITHMS
from duetto.errors import UsageError
from duetto.networks import initializers
from duetto.networks.initializers import initial_parameters, parameter_shapes
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete

VECTOR = Box((3,), "float32", (-1.0,), (1.0,))
IMAGE = Box((1, 64, 64), "uint8", (0.0,), (255.0,))
OBSERVATIONS = [VECTOR, IMAGE, Discrete(5), MultiDiscrete((2, 3)), Dict((("image", IMAGE), ("numbers", VECTOR)))]
ACTIONS = [Box((2,), "float32", (-1.0,), (1.0,)), Discrete(4), MultiDiscrete((2, 3))]
OPTIONS: list[dict[str, Any]] = [{}, {"recurrent": "lstm"}, {"recurrent": "gru"}, {"dueling": True}, {"shared": False}]


def fitting(name: str) -> list[Any]:
    """Every spec that this algorithm has for some spaces and options."""
    found = []
    for options in OPTIONS:
        if options.keys() <= set(ALGORITHMS[name].options()):
            hidden = (8, 8) if name == "flashsac" else (8, 6)  # its blocks have one size
            algorithm = ALGORITHMS[name]().with_options(hidden=hidden, **options)
            for observation in OBSERVATIONS:
                for action in ACTIONS:
                    try:
                        algorithm.check_spaces(observation, action, "a test")
                    except UsageError:
                        continue
                    found += algorithm.networks(observation, action).values()
    return found


@pytest.mark.parametrize("name", ALGORITHMS)
def test_shapes_are_those_of_the_parameters(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        initializers, "orthogonal", lambda _, shape, gain: np.zeros(shape)
    )  # the right angles take long
    specs = fitting(name)
    assert specs
    for spec in dict.fromkeys(specs):
        drawn = initial_parameters(spec, np.random.default_rng(0))
        assert parameter_shapes(spec) == {key: value.shape for key, value in drawn.items()}, spec
