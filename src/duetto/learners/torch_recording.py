"""Work on a GPU that is recorded once and then played back, as CUDA graphs do (PyTorch).

Small networks make an update of some hundred operations that take a GPU a few microseconds each, less than it takes to
ask for them. A CUDA graph asks for all of them with one call. What it has recorded are operations and addresses, so
what goes in arrives at the same place each time, and what comes out is copied before the next time:

    pinned memory -- one copy --> where it arrives | losses, gradients, Adam, averaging, as recorded | what comes out

Nothing but tensors may differ from one time to the next: learning rates and all else that changes arrive with the
batch. Each kind of work is recorded before it is done for the first time, and what was changed meanwhile is put back.
So every update of a run is played back, the first one too, and a run that goes on makes no other ones than it would
have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from duetto.functional.trees import mapped
from duetto.learners.packing import Packing, Place, kind

TRIED = 3  # times that work is done before it is recorded, so that libraries have found their kernels and their memory

Work = Callable[[Any], Any]  # from a tree of tensors to one


class Tape(Protocol):
    """A recorder of work: `CudaTape`, or in tests a stand-in on the processor."""

    def aside(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which work that is about to be recorded is tried."""
        ...

    def record(self, work: Callable[[], Any]) -> tuple[Callable[[], Any], Any]:
        """A function that does the work again, and the work's results, which are overwritten each time."""
        ...


class CudaTape:
    """A tape of CUDA graphs."""

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """See `Tape`: on a stream of its own, as CUDA asks for."""
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            yield
        here.wait_stream(aside)

    def record(self, work: Callable[[], Any]) -> tuple[Callable[[], Any], Any]:
        """See `Tape`. Other threads may use the GPU meanwhile."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            results = work()
        return graph.replay, results


class Recorded(NamedTuple):
    """A recording of one kind of work."""

    arrivals: Arrivals
    again: Callable[[], Any]
    results: Any


class Recorder:
    """Records work of several kinds, and plays it back."""

    def __init__(self, device: torch.device, changing: Callable[[], Iterable[Tensor]], tape: Tape | None = None):
        """`changing` gives all tensors that work changes and that outlast it."""
        self._device, self._changing, self._tape = device, changing, tape or CudaTape()
        self._recorded: dict[Hashable, Recorded] = {}

    def play(self, name: Hashable, inputs: Any, work: Work, times: int = 1) -> list[Any]:
        """The results of `work` for `inputs`, a tree of arrays, done `times` times.

        Work of one name may differ only by what the shapes and types of its inputs say. It gets the same tensors each
        time, and may change them to know which time it is.
        """
        which = (name, kind(inputs))
        if which not in self._recorded:
            self._recorded[which] = self._record(inputs, work)
        own = self._recorded[which]
        own.arrivals.bring(inputs)
        given = []
        for _ in range(times):
            own.again()
            given.append(mapped(torch.clone, own.results))
        return given

    def _record(self, inputs: Any, work: Work) -> Recorded:
        arrivals = Arrivals(inputs, self._device)
        with torch.no_grad():
            before = [tensor.clone() for tensor in self._changing()]
        with self._tape.aside():
            for _ in range(TRIED):
                arrivals.bring(inputs)
                work(arrivals.tensors)
        arrivals.bring(inputs)
        recorded = Recorded(arrivals, *self._tape.record(lambda: work(arrivals.tensors)))
        with torch.no_grad():
            for tensor, value in zip(self._changing(), before, strict=True):
                tensor.copy_(value)
        return recorded


class Arrivals:
    """The place on the device where inputs arrive.

    Attributes:
        tensors: The tree of inputs, on the device.
    """

    tensors: Any

    def __init__(self, example: Any, device: torch.device) -> None:
        self._packing = Packing(example)
        pinned = device.type == "cuda"
        there = torch.empty(self._packing.size, dtype=torch.uint8, device=device)
        self._there = there
        self._buffers = [Buffer(self._packing.size, pinned) for _ in range(2)]  # one is filled while one is copied
        self.tensors = self._packing.read(lambda place: _part(there, place))

    def bring(self, inputs: Any) -> None:
        """Copy these inputs to the device, after all that was asked of it before."""
        self._buffers.reverse()
        buffer = self._buffers[0]
        buffer.wait()
        self._packing.write(inputs, buffer.array)
        buffer.send(self._there)


class Buffer:
    """Memory of the processor's that a GPU can copy from by itself, while the program goes on."""

    def __init__(self, size: int, pinned: bool) -> None:
        self._tensor = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        self._sent = torch.cuda.Event() if pinned else None
        self.array: np.ndarray = self._tensor.numpy()

    def wait(self) -> None:
        """Wait until it may be filled again."""
        if self._sent is not None:
            self._sent.synchronize()

    def send(self, there: Tensor) -> None:
        """Begin to copy it to `there`."""
        there.copy_(self._tensor, non_blocking=True)
        if self._sent is not None:
            self._sent.record()


def _part(buffer: Tensor, place: Place) -> Tensor:
    dtype = torch.from_numpy(np.empty(0, place.dtype)).dtype
    return buffer[place.begin : place.end].view(dtype).view(place.shape)
