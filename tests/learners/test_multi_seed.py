"""`SeedGroup` runs one function per seed in turn, and answers the requests of all seeds together."""

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
    """Return a group that answers requests with this function."""
    group: Any = SeedGroup([])
    group.answer = answer
    return group


def test_seeds_run_in_turn_until_all_have_requests():
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


def test_an_exception_ends_only_its_own_seed():
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


def test_requests_from_another_thread_or_seed_are_refused():
    """Such a request would wait forever for its own turn to end."""
    messages: list[str] = []

    def asks(number: int) -> None:
        with pytest.raises(UsageError) as found:
            group.request(number, None)
        messages.append(str(found.value))

    def first() -> None:
        asks(1)
        elsewhere = threading.Thread(target=asks, args=(0,), daemon=True)
        elsewhere.start()
        elsewhere.join(5)

    group = answering(lambda requests: requests)
    assert group.run([first, lambda: None]) == [None, None]
    sentence = "While seeds train side by side, use a seed's networks only in its own callbacks"
    assert [words.startswith(sentence) for words in messages] == [True, True]


def test_ctrl_c_ends_all_seeds():
    """Waiting seeds end one after the other, and none continues."""
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


def test_requests_of_different_shapes_get_single_seed_answers(group: SeedGroup):
    """A request outside of `run` gets the same answer."""
    observed = {
        number: observations(VECTOR, rows, np.random.default_rng(rows)) for number, rows in enumerate((3, 4, 3))
    }
    answers = group.answer({number: SeedRequest("act", (obs, None)) for number, obs in observed.items()})
    answers[1] = group.request(1, SeedRequest("act", (observed[1], None)))
    for number, answer in answers.items():
        alone = build("torch", small(TD3), seed=SEEDS[number])
        np.testing.assert_allclose(answer[0], alone.act(observed[number]), rtol=1e-5)
