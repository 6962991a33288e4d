"""Functions that run in turn, never two at once; each passes its turn on when it asks something.

    f0   runs, asks |                  | runs, asks |
    f1              | runs, asks |                  | runs, ends |
    answers                      | some |                        | ...

Each has a thread of its own, because it may ask from any depth of calls. The turn is passed on in a fixed order, so no
two functions touch shared data at once.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from duetto.errors import UsageError

LOOK = 0.2  # seconds: a signal that comes just before a thread begins to wait does not end its waiting


class Turns:
    """See above."""

    def __init__(self, answer: Callable[[dict[int, Any]], dict[int, Any]]) -> None:
        """`answer` gets the requests of all functions that have not ended, by number, and answers one or more of them.

        It is called in the thread of `run`. What it raises is raised in all functions that asked.
        """
        self._answer = answer
        self._requests: dict[int, Any] = {}
        self._answers: dict[int, Any] = {}
        self._upcoming: deque[int] = deque()
        self._gates: list[threading.Lock] = []
        self._threads: list[threading.Thread] = []
        self._turn = 0  # whose it is
        self._interrupted = False
        self._back = _closed()

    def run(self, functions: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        """Run all functions to their ends; return what each raised, or None. One that raises is no longer waited for.

        An exception in this thread itself, such as KeyboardInterrupt, first ends all functions.
        """
        self._gates = [_closed() for _ in functions]
        self._upcoming.extend(range(len(functions)))
        raised: list[BaseException | None] = [None] * len(functions)

        def perform(number: int, function: Callable[[], None]) -> None:
            try:
                self._wait(number)
                function()
            except BaseException as error:
                raised[number] = error
            self._pass_on()

        # Daemons: a third Ctrl-C ends the process at once, whoever waits.
        self._threads = [
            threading.Thread(target=perform, args=(number, function), name=f"turn {number}", daemon=True)
            for number, function in enumerate(functions)
        ]
        for thread in self._threads:
            thread.start()
        try:
            while self._upcoming:
                self._pass_on()
                while not self._back.acquire(timeout=LOOK):
                    pass
                if self._requests:
                    self._answer_some()
        except BaseException:
            self._interrupt()
            raise
        return raised

    def ask(self, number: int, request: Any) -> Any:
        """Ask for the function of that number, which waits here for the answer while others run.

        Raises:
            UsageError: It is called in another thread, which would wait for a turn that it does not have.
        """
        if threading.current_thread() is not self._threads[number]:
            raise UsageError(
                "While seeds are trained side by side, the networks of each are asked in its own callbacks only: not "
                "in another thread, and not in another seed's callback. Do it there, or when training is over."
            )
        self._requests[number] = request
        self._pass_on()
        self._wait(number)
        answer = self._answers.pop(number)
        if isinstance(answer, _Failed):
            raise answer.error
        return answer

    def _pass_on(self) -> None:
        """Give the turn to the next function; to `run` if all have asked or ended."""
        if self._interrupted:
            return
        gate = self._back
        if self._upcoming:
            self._turn = self._upcoming.popleft()
            gate = self._gates[self._turn]
        gate.release()

    def _wait(self, number: int) -> None:
        self._gates[number].acquire()
        if self._interrupted:
            raise KeyboardInterrupt

    def _interrupt(self) -> None:
        """End all functions, the running one first: KeyboardInterrupt in the middle of its work, as by Ctrl-C."""
        self._interrupted = True
        threads = self._threads
        # What Python itself does in the main thread; for others only its C interface can.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(threads[self._turn].ident or 0), ctypes.py_object(KeyboardInterrupt)
        )
        for number in sorted(range(len(threads)), key=lambda number: number != self._turn):
            with suppress(RuntimeError):  # it does not wait
                self._gates[number].release()
            threads[number].join()

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
