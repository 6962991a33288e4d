"""Letting commands that a signal ends clean up after themselves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ending_in_order(came: list[int]) -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, so that half-written files are removed.

    During a run, `training.interruption` handles them instead. An ignored signal (nohup) stays ignored. `came` receives
    the signals that ended the block.

    Raises:
        KeyboardInterrupt: A signal came; also if a library in C turned the exception into another one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    earlier = {number: signal.getsignal(number) for name in names if (number := getattr(signal, name, None))}
    changed = [n for n, handler in earlier.items() if handler in (signal.SIG_DFL, signal.default_int_handler)]

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
