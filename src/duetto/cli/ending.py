"""Letting commands that are ended by a signal clean up after themselves."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN = 0.05  # seconds until a signal comes again that was dropped


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Have SIGTERM and SIGHUP end the block as Ctrl-C does, so that files that are not whole are removed.

    While a run is at work they do what `training.interruption` says. One that is ignored (nohup) stays ignored.

    Raises:
        KeyboardInterrupt: A signal came; also if a library in C swallowed the exception and failed, or if Python
            dropped it and went on, as it does in a `__del__`, a callback of C or of a weak reference.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    earlier = {number: signal.getsignal(number) for name in names if (number := getattr(signal, name, None))}
    changed = [n for n, handler in earlier.items() if handler in (signal.SIG_DFL, signal.default_int_handler)]
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    dropped = sys.unraisablehook

    def again(about: sys.UnraisableHookArgs) -> None:
        if came and isinstance(about.exc_value, KeyboardInterrupt):  # a moment later, or it would be dropped here, too
            threading.Timer(AGAIN, _thread.interrupt_main, came[-1:]).start()
        else:
            dropped(about)

    for number in changed:
        signal.signal(number, interrupt)
    sys.unraisablehook = again
    try:
        yield
    except Exception as error:
        if came:
            raise KeyboardInterrupt from error
        raise
    finally:
        sys.unraisablehook = dropped
        for number in changed:
            signal.signal(number, earlier[number])
