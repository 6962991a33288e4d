"""CUDA graphs: a function on a GPU that is recorded once and then replayed (PyTorch).

An update of small networks has some hundred operations that take a GPU a few microseconds each, less than launching
them takes. A CUDA graph launches all of them with one call. It records operations and addresses, so inputs are copied
to the same place each time, and results are copied before the next replay:

    pinned memory -- one copy --> inputs on the device | losses, gradients, Adam, averaging, as recorded | results

Nothing but tensors may differ between replays: learning rates and all else that changes are inputs. A function is
recorded before it is needed for the first time, and the tensors that the recording changes are restored. So every
update of a run is a replay, including the first, and a resumed run makes the same updates.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from duetto.functional.pytree import tree_map
from duetto.learners.transfer_buffer import BufferLayout, BufferSlot, signature

WARMUPS = 3  # calls before the recording, in which libraries select kernels and allocate memory

Function = Callable[[Any], Any]  # from a tree of tensors to a tree of tensors


class CudaTape:
    """Records functions as CUDA graphs; tests have a stand-in on the CPU."""

    @contextlib.contextmanager
    def warm_up(self) -> Iterator[None]:
        """Return a context for calls before the recording: on a separate stream, as CUDA requires."""
        current, own = torch.cuda.current_stream(), torch.cuda.Stream()
        own.wait_stream(current)
        with torch.cuda.stream(own):
            yield
        current.wait_stream(own)

    def record(self, function: Callable[[], Any]) -> tuple[Callable[[], Any], Any]:
        """Return a function that replays `function`, and its results, which each replay overwrites."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may use the GPU meanwhile
            results = function()
        return graph.replay, results


class RecordedGraph(NamedTuple):
    """A recorded function."""

    inputs: DeviceInputs
    replay: Callable[[], Any]
    results: Any


class GraphRecorder:
    """Records functions and replays them."""

    def __init__(self, device: torch.device, changing: Callable[[], Iterable[Tensor]], tape: CudaTape | None = None):
        """`changing` returns all tensors that the functions change and that outlast their calls."""
        self._device, self._changing, self._tape = device, changing, tape or CudaTape()
        self._graphs: dict[Hashable, RecordedGraph] = {}

    def replay(self, name: Hashable, inputs: Any, function: Function, times: int = 1) -> list[Any]:
        """Return the results of `times` calls of `function` with `inputs`, a tree of arrays.

        Functions of one name may differ only by the shapes and types of their inputs. Each call gets the same tensors,
        and may change them to count the calls.
        """
        key = (name, signature(inputs))
        if key not in self._graphs:
            self._graphs[key] = self._record(inputs, function)
        graph = self._graphs[key]
        graph.inputs.copy(inputs)
        results = []
        for _ in range(times):
            graph.replay()
            results.append(tree_map(torch.clone, graph.results))
        return results

    def _record(self, inputs: Any, function: Function) -> RecordedGraph:
        on_device = DeviceInputs(inputs, self._device)
        with torch.no_grad():
            before = [tensor.clone() for tensor in self._changing()]
        with self._tape.warm_up():
            for _ in range(WARMUPS):
                on_device.copy(inputs)
                function(on_device.tensors)
        on_device.copy(inputs)
        graph = RecordedGraph(on_device, *self._tape.record(lambda: function(on_device.tensors)))
        with torch.no_grad():
            for tensor, value in zip(self._changing(), before, strict=True):
                tensor.copy_(value)
        return graph


class DeviceInputs:
    """The memory on the device that inputs are copied to.

    Attributes:
        tensors: The tree of inputs, on the device.
    """

    tensors: Any

    def __init__(self, example: Any, device: torch.device) -> None:
        self._layout = BufferLayout(example)
        pinned = device.type == "cuda"
        memory = self._memory = torch.empty(self._layout.size, dtype=torch.uint8, device=device)
        self._buffers = [PinnedBuffer(self._layout.size, pinned) for _ in range(2)]  # one is filled, one is copied
        self.tensors = self._layout.read(lambda slot: _view(memory, slot))

    def copy(self, inputs: Any) -> None:
        """Copy these inputs to the device, after the work that it has queued."""
        self._buffers.reverse()
        buffer = self._buffers[0]
        buffer.wait()
        self._layout.write(inputs, buffer.array)
        buffer.send(self._memory)


class PinnedBuffer:
    """Host memory that a GPU copies from while the program continues."""

    def __init__(self, size: int, pinned: bool) -> None:
        self._tensor = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        self._sent = torch.cuda.Event() if pinned else None
        self.array: np.ndarray = self._tensor.numpy()

    def wait(self) -> None:
        """Wait until the buffer may be filled again."""
        if self._sent is not None:
            self._sent.synchronize()

    def send(self, memory: Tensor) -> None:
        """Start to copy the buffer to the device's memory."""
        memory.copy_(self._tensor, non_blocking=True)
        if self._sent is not None:
            self._sent.record()


def _view(memory: Tensor, slot: BufferSlot) -> Tensor:
    dtype = torch.from_numpy(np.empty(0, slot.dtype)).dtype
    return memory[slot.start : slot.end].view(dtype).view(slot.shape)
