"""Several seeds in one process: functions that run in turn, and answers to the requests of their learners."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from learning_cases import ACTION, VECTOR, build, observations, small

from duetto.algorithms import TD3
from duetto.errors import UsageError
from duetto.learners.multi_seed import SeedGroup, SeedRequest


def answering(answer: Any) -> Any:
    """A group whose requests this function answers."""
    group: Any = SeedGroup([])
    group.answer = answer
    return group


def test_they_run_in_turn_until_all_that_are_left_have_asked():
    tape: list[str] = []

    def answer(requests: dict[int, Any]) -> dict[int, Any]:
        tape.append(f"answer {sorted(requests.items())}")
        return {number: request.upper() for number, request in requests.items()}

    def asking(number: int, words: str) -> Any:
        def ask() -> None:
            for word in words:
                tape.append(f"{number} {group.request(number, word)}")
            tape.append(f"{number} ends")

        return ask

    group = answering(answer)
    assert group.run([asking(0, "ab"), asking(1, "c")]) == [None, None]
    assert tape == [
        "answer [(0, 'a'), (1, 'c')]",
        "0 A",
        "1 C",
        "1 ends",
        "answer [(0, 'b')]",
        "0 B",
        "0 ends",
    ]


def test_some_may_be_answered_before_others():
    """The larger number waits until both want the same."""
    answered: list[dict[int, int]] = []

    def answer(requests: dict[int, int]) -> dict[int, int]:
        least = min(requests.values())
        answered.append({number: request for number, request in requests.items() if request == least})
        return answered[-1]

    group = answering(answer)
    assert group.run([lambda: group.request(0, 5), lambda: [group.request(1, n) for n in (3, 4, 5)]]) == [
        None,
        None,
    ]
    assert answered == [{1: 3}, {1: 4}, {0: 5, 1: 5}]


def test_what_one_raises_ends_that_one_alone():
    group = answering(lambda requests: requests)
    made: list[int] = []

    def fails() -> None:
        group.request(0, 0)
        raise KeyError("zero")

    def works() -> None:
        made.extend(group.request(1, n) for n in range(3))

    first, second = group.run([fails, works])
    assert isinstance(first, KeyError)
    assert second is None
    assert made == [0, 1, 2]


def test_what_the_answer_raises_is_raised_where_it_was_asked():
    def answer(requests: dict[int, Any]) -> dict[int, Any]:
        raise ValueError("no answer")

    seen: list[str] = []

    def asks(number: int) -> None:
        with pytest.raises(ValueError, match="no answer"):
            group.request(number, None)
        seen.append(f"{number} continues")

    group = answering(answer)
    group.run([lambda: asks(0), lambda: asks(1)])
    assert seen == ["0 continues", "1 continues"]


def test_who_asks_from_elsewhere_is_told_so():
    """It would wait for its own turn to end."""
    told: list[str] = []

    def asks(number: int) -> None:
        with pytest.raises(UsageError) as found:
            group.request(number, None)
        told.append(str(found.value))

    def first() -> None:
        asks(1)
        elsewhere = threading.Thread(target=asks, args=(0,), daemon=True)
        elsewhere.start()
        elsewhere.join(5)

    group = answering(lambda requests: requests)
    assert group.run([first, lambda: None]) == [None, None]
    assert [words.partition(":")[0] for words in told] == [
        "While seeds are trained side by side, the networks of each are asked in its own callbacks only"
    ] * 2


def test_ctrl_c_ends_them_in_the_middle_of_what_they_do():
    """Those that wait, too: one after the other, and none continues."""
    tape: list[str] = []

    def waits() -> None:
        try:
            group.request(0, None)
            tape.append("0 continues")
        finally:
            tape.append("0 ends")

    def works() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(500):
                time.sleep(0.01)
            tape.append("1 continues")
        finally:
            tape.append("1 ends")

    group = answering(lambda requests: requests)
    with pytest.raises(KeyboardInterrupt):
        group.run([waits, works, lambda: tape.append("2 starts")])
    assert tape == ["1 ends", "0 ends"]


# ------------------------------------------------------------------------------------------------ answers
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


def test_functions_are_called_once_for_each_kind_of_request():
    def marked(each: list[Any]) -> list[Any]:
        return [(value, len(each)) for (value,) in each]

    asked = {number: SeedRequest(marked, (value,), kind) for number, (value, kind) in enumerate(["ax", "by", "cx"])}
    assert SeedGroup(SEEDS).answer(asked) == {0: ("a", 2), 1: ("b", 1), 2: ("c", 2)}


def test_a_request_outside_run(group: SeedGroup):
    assert_alone(1, request(2), group.request(1, request(2))[0])
