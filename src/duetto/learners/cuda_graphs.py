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
import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from duetto.functional.pytree import signature, tree_leaves, tree_map

ALIGNMENT = 64  # bytes, enough for all kernels
WARMUPS = 3  # calls before the recording, in which libraries select kernels and allocate memory

Function = Callable[[Any], Any]  # from a tree of tensors to a tree of tensors


class CudaTape:
    """Records functions as CUDA graphs; tests replace it on the CPU."""

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


class GraphRecorder:
    """Records functions and replays them."""

    def __init__(self, device: torch.device, changing: Callable[[], Iterable[Tensor]], tape: CudaTape | None = None):
        """`changing` returns all tensors that the functions change and that outlast their calls."""
        self._device, self._changing, self._tape = device, changing, tape or CudaTape()
        self._graphs: dict[Hashable, tuple[DeviceInputs, Callable[[], Any], Any]] = {}

    def replay(self, name: Hashable, inputs: Any, function: Function, times: int = 1) -> list[Any]:
        """Return the results of `times` calls of `function` with `inputs`, a tree of arrays.

        Functions of one name may differ only by the shapes and types of their inputs. Each call gets the same tensors,
        and may change them to count the calls.
        """
        key = (name, signature(inputs))
        if key not in self._graphs:
            self._graphs[key] = self._record(inputs, function)
        on_device, replay, results = self._graphs[key]
        on_device.copy(inputs)
        found = []
        for _ in range(times):
            replay()
            found.append(tree_map(torch.clone, results))
        return found

    def _record(self, inputs: Any, function: Function) -> tuple[DeviceInputs, Callable[[], Any], Any]:
        on_device = DeviceInputs(inputs, self._device)
        with torch.no_grad():
            before = [tensor.clone() for tensor in self._changing()]
        with self._tape.warm_up():
            for _ in range(WARMUPS):
                on_device.copy(inputs)
                function(on_device.tensors)
        on_device.copy(inputs)
        replay, results = self._tape.record(lambda: function(on_device.tensors))
        with torch.no_grad():
            for tensor, value in zip(self._changing(), before, strict=True):
                tensor.copy_(value)
        return on_device, replay, results


class DeviceInputs:
    """A buffer on the device that inputs are copied to at once, each array at a multiple of 64 bytes.

    Attributes:
        tensors: The tree of inputs, on the device.
    """

    tensors: Any

    def __init__(self, example: Any, device: torch.device) -> None:
        slots: list[tuple[int, np.ndarray]] = []
        size = 0
        for array in map(np.asarray, tree_leaves(example)):
            slots.append((size, array))
            size = math.ceil((size + array.nbytes) / ALIGNMENT) * ALIGNMENT
        pinned = device.type == "cuda"
        self._memory = torch.empty(size, dtype=torch.uint8, device=device)
        views = iter(_views(self._memory, slots))
        self.tensors = tree_map(lambda _: next(views), example)
        # One buffer is filled while the GPU still copies from the other.
        hosts = [torch.empty(size, dtype=torch.uint8, pin_memory=pinned) for _ in range(2)]
        self._buffers = [(x, _views(x, slots), torch.cuda.Event() if pinned else None) for x in hosts]

    def copy(self, inputs: Any) -> None:
        """Copy these inputs to the device, after the work that it has queued."""
        self._buffers.reverse()
        host, views, sent = self._buffers[0]
        if sent is not None:
            sent.synchronize()
        for view, leaf in zip(views, tree_leaves(inputs), strict=True):
            view.numpy()[...] = leaf
        self._memory.copy_(host, non_blocking=True)
        if sent is not None:
            sent.record()


def _views(buffer: Tensor, slots: list[tuple[int, np.ndarray]]) -> list[Tensor]:
    """Return the part of a buffer for each array, in its shape and type."""
    types = [torch.from_numpy(np.empty(0, array.dtype)).dtype for _, array in slots]
    parts = [buffer[start : start + array.nbytes] for start, array in slots]
    return [part.view(kind).view(array.shape) for part, kind, (_, array) in zip(parts, types, slots, strict=True)]
