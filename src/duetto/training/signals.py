"""Signals that ask a run to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from greenlet import getcurrent

from duetto.errors import escaped
from duetto.training.notices import LOGGER

Came = dict[int, Any]  # signals, and who had them before


class _Listening(threading.local):
    """The calls under way in this thread that pass signals on, and the signals that left a run unfinished."""

    def __init__(self) -> None:
        self.calls: list[Came] = []
        self.unfinished: list[int] = []


_listening = _Listening()


@contextmanager
def passed_on() -> Iterator[Came]:
    """Raise signals that ended a run inside the block again after it, in order, with their earlier handlers.

    So Ctrl-C ends a script of many runs with the first of them, as KeyboardInterrupt, and SIGTERM its process. The
    yielded dict holds the signals that came, and their earlier handlers.
    """
    came: Came = {}
    _listening.calls.append(came)
    try:
        yield came
    except Exception as error:
        if came:  # which may end the process before anybody could say it
            LOGGER.error("%s: %s", type(error).__name__, escaped(str(error)))
        raise
    finally:
        _listening.calls.pop()
        for number, handler in came.items():
            signal.signal(number, handler)
            signal.raise_signal(number)


def noted() -> list[int]:
    """Return a new list that from now on receives each signal that leaves a run of this thread unfinished."""
    _listening.unfinished = []
    return _listening.unfinished


def say_how(came: Came, how: str) -> None:
    """Log the sentence `how`, on how to continue, if a signal came."""
    for number in list(came)[:1]:
        LOGGER.warning("Stopped by %s. %s", signal.Signals(number).name, how)


@contextmanager
def interruptible(stop: Callable[[], None], unfinished: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM call `stop` while the `with` block runs; a second one ends the process at once.

    SIGHUP does the same, unless it is ignored already (nohup); but since a terminal that closes may send it several
    times, it is ignored after the first. Outside the main thread, and in the greenlet of one seed among several,
    nothing is changed. `unfinished` says at the end of the block whether anything is left to resume.
    """
    if threading.current_thread() is not threading.main_thread() or getcurrent().parent is not None:
        yield
        return

    def on_signal(number: int, _: Any) -> None:
        stop()
        stopped_by.append(number)
        for came in _listening.calls[-1:]:
            came[number] = earlier[number]
        signal.signal(number, earlier[number] if number != hangup else signal.SIG_IGN)

    stopped_by: list[int] = []
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    earlier: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:
        earlier[hangup] = signal.getsignal(hangup)
    # None: a program that Python is embedded in has it, and could not have it back.
    earlier = {number: handler for number, handler in earlier.items() if handler is not None}
    for number in earlier:
        signal.signal(number, on_signal)
    try:
        yield
        if stopped_by and unfinished():
            _listening.unfinished += stopped_by
    finally:
        for number, handler in earlier.items():
            if signal.getsignal(number) == on_signal:
                signal.signal(number, handler)
