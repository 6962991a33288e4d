"""Signals that end a run: Ctrl-C, SIGTERM and SIGHUP."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from greenlet import getcurrent

from duetto.errors import escaped
from duetto.training.notices import LOGGER

Came = dict[int, Any]  # the received signals, in order, each with the handler that Duetto's handler replaced

_came: Came = {}


def listen() -> Came:
    """Clear the dict of received signals, and return it. Outside the main thread it stays empty."""
    _came.clear()
    return _came


@contextmanager
def passed_on() -> Iterator[Came]:
    """Yield the dict of the signals that end a run in the block, and raise these signals again after the block.

    Before that, their earlier handlers are restored. So in a script of many runs, Ctrl-C ends the current run and then
    raises KeyboardInterrupt; SIGTERM ends the current run and then the process.
    """
    came = listen() if _in_main_thread() else {}
    try:
        yield came
    except Exception as error:
        if came:  # the signal may end the process before Python prints the error
            LOGGER.error("%s: %s", type(error).__name__, escaped(str(error)))
        raise
    finally:
        for number, handler in list(came.items()):
            signal.signal(number, handler)
            signal.raise_signal(number)


def say_how(came: Came, how: str) -> None:
    """If a signal was received, log it and `how`, a sentence on how to continue."""
    for number in list(came)[:1]:
        LOGGER.warning("Stopped by %s. %s", signal.Signals(number).name, how)


@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at Ctrl-C and SIGTERM in the `with` block; a second signal ends the process at once.

    SIGHUP also calls `stop`, unless the process ignores it (nohup). A closing terminal may send SIGHUP several times,
    so later ones are ignored. Outside the main thread, and in a greenlet (one of several seeds), this changes no
    handlers.
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
    # A handler is None if a program that embeds Python has set it. It stays, because Python could not restore it.
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
