"""Questions of several seeds: each is answered as that seed alone would, whoever else asks, and whatever of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learning_cases import ACTION, VECTOR, build, observations, small

from duetto.algorithms import TD3
from duetto.learners.voices import Choir, Question

SEEDS = (0, 5, 9)


@pytest.fixture
def choir() -> Choir:
    choir = Choir(SEEDS)
    for seed in SEEDS:
        choir.voice("torch", small(TD3), VECTOR, ACTION, seed=seed, device="cpu", precision="float32", threads=1)
    return choir


def question(rows: int) -> Any:
    return Question("act", (observations(VECTOR, rows, np.random.default_rng(rows)), None))


def assert_alone(number: int, asked: Any, action: np.ndarray) -> None:
    alone = build("torch", small(TD3), seed=SEEDS[number])
    np.testing.assert_allclose(action, alone.act(asked.inputs[0]), rtol=1e-5)


def test_questions_of_several_shapes_at_once(choir: Choir):
    asked = {0: question(3), 1: question(4), 2: question(3)}
    answers = choir.answer(asked)
    assert answers.keys() == asked.keys()
    for number, answer in answers.items():
        assert_alone(number, asked[number], answer[0])


def test_a_question_of_one_while_nobody_sings(choir: Choir):
    assert_alone(1, question(2), choir.ask(1, question(2))[0])
