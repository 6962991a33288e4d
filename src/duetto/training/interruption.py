"""How a run is asked to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM call `stop` while the `with` block runs; a second one ends the process at once.

    So does SIGHUP, unless it is ignored already (nohup); but a terminal that closes may send it several times: from the
    first on it is ignored. Outside the main thread nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, _: Any) -> None:
        stop()
        signal.signal(number, earlier[number] if number != hangup else signal.SIG_IGN)

    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    earlier: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:
        earlier[hangup] = signal.getsignal(hangup)
    for number in earlier:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            if signal.getsignal(number) == on_signal:
                signal.signal(number, handler)
