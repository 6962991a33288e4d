"""A process with a learner that has a share of every batch: one of `ranks`.

It talks to its parent alone, over its own stdin and stdout; what anything in it prints goes to stderr.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
import time
import traceback
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

import cloudpickle

from duetto import own_files
from duetto.algorithms.base import Algorithm
from duetto.errors import DuettoError
from duetto.learners.base import Precision
from duetto.learners.ranks import Receipt
from duetto.networks.spaces import Space

UNREAD = "unread"  # in place of what is asked, where that cannot be unpickled


class Making(NamedTuple):
    """The arguments of a learner with a share of every batch."""

    algorithm: Algorithm
    observation: Space
    action: Space
    seed: int
    device: str
    precision: Precision
    threads: int


class Rank:
    """A rank's process, which does what it is asked, and returns a receipt for each."""

    def __init__(self) -> None:
        self._learner: Any = None

    def do(self, what: str, *arguments: Any) -> Receipt:
        """Make a learner, or call one of its methods; what it raises is in the receipt."""
        if what == UNREAD:
            return Receipt(-1, failure=str(arguments[0]))
        try:
            if what == "make":
                self._make(*arguments)
                return Receipt(0, gpu=self._learner.gpu())
            found = getattr(self._learner, what)(*arguments)
        except DuettoError as error:
            return Receipt(-1, failure=traceback.format_exc(), told=error)
        except Exception:
            return Receipt(-1, failure=traceback.format_exc())
        return found if isinstance(found, Receipt) else Receipt(self._learner.made, found)

    def leave(self) -> None:
        """End this process, whatever it is doing: the run is gone."""
        time.sleep(getattr(self._learner, "lingers", 0.0))
        os._exit(1)

    def _make(self, made_of: bytes) -> None:
        backend, making, rank = cloudpickle.loads(made_of)
        own_files.stand_in(type(making.algorithm))  # messages name classes of its file: a named tuple of noise
        if backend == "torch":
            from duetto.learners.torch_ranks import TorchShare

            self._learner = TorchShare(making, rank)
        else:
            from duetto.learners.jax_share import JaxRank

            self._learner = JaxRank(making, rank)


def main() -> None:
    """Serve until the parent is gone."""
    # Ctrl-C and the end of a job reach every process of it. The parent ends then, after a checkpoint that needs this.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    said, asked = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    messages: queue.Queue[tuple[Any, ...]] = queue.Queue()
    rank = Rank()
    threading.Thread(target=_listen, args=(asked, messages, rank), daemon=True).start()
    while True:
        pickle.dump(rank.do(*messages.get()), said, protocol=5)
        said.flush()


def _listen(asked: BinaryIO, messages: queue.Queue[tuple[Any, ...]], rank: Rank) -> None:
    """Queue the parent's messages; end this process once the parent is gone, even while the rank waits."""
    try:
        with suppress(EOFError):
            while True:
                messages.put(pickle.load(asked))
    except Exception:  # of any kind, from the user's own classes
        messages.put((UNREAD, traceback.format_exc()))
        while asked.read(1 << 16):  # until the parent, which is told, has ended this process, or is gone
            pass
    finally:
        rank.leave()
