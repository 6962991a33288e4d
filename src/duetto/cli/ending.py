"""Commands that are ended from outside clean up after themselves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ending_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end what runs within as Ctrl-C does: files that are not whole are removed.

    While a run is at work they do what `training.interruption` says. One that is ignored (nohup) stays ignored.

    Raises:
        KeyboardInterrupt: One of them came, also where a library in C swallowed it and failed by that.
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

    for number in changed:
        signal.signal(number, interrupt)
    try:
        yield
    except Exception as error:
        if came:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number in changed:
            signal.signal(number, earlier[number])
