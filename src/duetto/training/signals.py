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

Came = dict[int, Any]  # signals that ended a run, in order, and their earlier handlers

_came: Came = {}


def listen() -> Came:
    """Return the dict of the signals that end a run from now on; outside the main thread none come."""
    _came.clear()
    return _came


@contextmanager
def passed_on() -> Iterator[Came]:
    """Raise signals that ended a run inside the block again after it, in order, with their earlier handlers.

    So Ctrl-C ends a script of many runs with the first of them, as KeyboardInterrupt, and SIGTERM its process. The
    yielded dict holds the signals that came.
    """
    came = listen() if _in_main_thread() else {}
    try:
        yield came
    except Exception as error:
        if came:  # which may end the process before anybody could say it
            LOGGER.error("%s: %s", type(error).__name__, escaped(str(error)))
        raise
    finally:
        for number, handler in list(came.items()):
            signal.signal(number, handler)
            signal.raise_signal(number)


def say_how(came: Came, how: str) -> None:
    """Log the sentence `how`, on how to continue, if a signal came."""
    for number in list(came)[:1]:
        LOGGER.warning("Stopped by %s. %s", signal.Signals(number).name, how)


@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM call `stop` while the `with` block runs; a second one ends the process at once.

    SIGHUP does the same, unless it is ignored already (nohup); but since a terminal that closes may send it several
    times, it is ignored after the first. Outside the main thread, and in the greenlet of one seed among several,
    nothing is changed.
    """
    if not _in_main_thread() or getcurrent().parent is not None:
        yield
        return

    def on_signal(number: int, _: Any) -> None:
        stop()
        _came[number] = earlier[number]
        signal.signal(number, earlier[number] if number != hangup else signal.SIG_IGN)

    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    numbers = [signal.SIGINT, signal.SIGTERM, *([hangup] if hangup is not None else [])]
    # None: a program that Python is embedded in has it, and could not have it back.
    earlier: dict[int, Any] = {
        number: handler
        for number in numbers
        if (handler := signal.getsignal(number)) is not None and (number, handler) != (hangup, signal.SIG_IGN)
    }
    for number in earlier:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            if signal.getsignal(number) == on_signal:
                signal.signal(number, handler)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
