"""Requests of several seeds are answered as those of each seed alone, whatever the others request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learning_cases import ACTION, VECTOR, build, observations, small

from duetto.algorithms import TD3
from duetto.learners.multi_seed import SeedGroup, SeedRequest

SEEDS = (0, 5, 9)


@pytest.fixture
def group() -> SeedGroup:
    group = SeedGroup(SEEDS)
    for seed in SEEDS:
        group.learner("torch", small(TD3), VECTOR, ACTION, seed=seed, device="cpu", precision="float32", threads=1)
    return group


def request(rows: int) -> Any:
    return SeedRequest("act", (observations(VECTOR, rows, np.random.default_rng(rows)), None))


def assert_alone(number: int, asked: Any, action: np.ndarray) -> None:
    alone = build("torch", small(TD3), seed=SEEDS[number])
    np.testing.assert_allclose(action, alone.act(asked.inputs[0]), rtol=1e-5)


def test_requests_of_several_shapes_at_once(group: SeedGroup):
    asked = {0: request(3), 1: request(4), 2: request(3)}
    answers = group.answer(asked)
    assert answers.keys() == asked.keys()
    for number, answer in answers.items():
        assert_alone(number, asked[number], answer[0])


def test_a_request_outside_run(group: SeedGroup):
    assert_alone(1, request(2), group.request(1, request(2))[0])
