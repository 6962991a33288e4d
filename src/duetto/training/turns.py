"""Functions that run in turn, never two at once, and wait for each other where they ask something.

    f0   runs, asks |                  | runs, asks |
    f1              | runs, asks |                  | runs, ends |
    answers                      | some |                        | ...

Each has a thread of its own, because it may ask from any depth; the baton is passed on, so the order is always the same
and nothing is shared by two that run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Turns:
    """See above."""

    def __init__(self, answer: Callable[[dict[int, Any]], dict[int, Any]]) -> None:
        """`answer` gets the requests of all functions that have not ended, by number, and answers one or more of them.

        It is called in the thread of `run`. What it raises is raised where all of them asked.
        """
        self._answer = answer
        self._requests: dict[int, Any] = {}
        self._answers: dict[int, Any] = {}
        self._upcoming: deque[int] = deque()
        self._gates: list[threading.Lock] = []
        self._back = _closed()

    def run(self, functions: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        """Run them all to their ends. What each raised; one that does is no more waited for."""
        self._gates = [_closed() for _ in functions]
        self._upcoming.extend(range(len(functions)))
        raised: list[BaseException | None] = [None] * len(functions)

        def perform(number: int, function: Callable[[], None]) -> None:
            self._gates[number].acquire()
            try:
                function()
            except BaseException as error:
                raised[number] = error
            self._pass_on()

        for number, function in enumerate(functions):
            # Daemons: a second Ctrl-C ends the process at once, whoever waits.
            threading.Thread(target=perform, args=(number, function), name=f"turn {number}", daemon=True).start()
        while self._upcoming:
            self._pass_on()
            self._back.acquire()
            if self._requests:
                self._answer_some()
        return raised

    def ask(self, number: int, request: Any) -> Any:
        """The answer; for the function of that number, which waits here while others run."""
        self._requests[number] = request
        self._pass_on()
        self._gates[number].acquire()
        answer = self._answers.pop(number)
        if isinstance(answer, _Failed):
            raise answer.error
        return answer

    def _pass_on(self) -> None:
        """Let the next one run; where all have asked or ended, `run`."""
        gate = self._gates[self._upcoming.popleft()] if self._upcoming else self._back
        gate.release()

    def _answer_some(self) -> None:
        try:
            answers = self._answer(dict(self._requests))
        except Exception as error:
            answers = dict.fromkeys(self._requests, _Failed(error))
        for number in answers:
            del self._requests[number]
        self._answers |= answers
        self._upcoming.extend(sorted(answers))


class _Failed(NamedTuple):
    error: Exception


def _closed() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock
