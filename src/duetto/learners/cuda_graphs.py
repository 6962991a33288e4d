"""CUDA graphs: a function on a GPU that is recorded once and then replayed (PyTorch).

An update of small networks has some hundred operations. Each runs for a few microseconds, less than its launch takes. A
CUDA graph launches all of them with one call. It records operations and memory addresses, so inputs are copied to the
same place before each replay, and results are copied elsewhere before the next replay:

    pinned memory -- one copy --> inputs on the device | losses, gradients, Adam, averaging, as recorded | results

Only the values of tensors may differ between replays, so learning rates and everything else that changes are inputs. A
function is recorded before its first use; then the tensors that the recording changed are restored. So every update of
a run is a replay, including the first, and a resumed run makes the same updates.
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


class GraphRecorder:
    """Records each function as a CUDA graph at its first use, and replays it."""

    def __init__(self, device: torch.device, changing: Callable[[], Iterable[Tensor]]) -> None:
        """`changing` returns all tensors that the functions change and that live longer than a call."""
        self._device, self._changing = device, changing
        self._graphs: dict[Hashable, tuple[DeviceInputs, Callable[[], Any], Any]] = {}

    def replay(self, name: Hashable, inputs: Any, function: Function, times: int = 1) -> list[Any]:
        """Return the results of `times` calls of `function` with `inputs`, a tree of arrays.

        If a function with this name, and with inputs of these shapes and types, was recorded before, that function is
        replayed instead. All calls get the same tensors, so a function may count its calls in one of them.
        """
        key = (name, signature(inputs))
        if key not in self._graphs:
            self._graphs[key] = self._record(inputs, function)
        on_device, replay, results = self._graphs[key]
        on_device.copy(inputs)
        outputs = []
        for _ in range(times):
            replay()
            outputs.append(tree_map(torch.clone, results))
        return outputs

    def _record(self, inputs: Any, function: Function) -> tuple[DeviceInputs, Callable[[], Any], Any]:
        on_device = DeviceInputs(inputs, self._device)
        with torch.no_grad():
            before = [tensor.clone() for tensor in self._changing()]
        with self._warm_up():
            for _ in range(WARMUPS):
                on_device.copy(inputs)
                function(on_device.tensors)
        on_device.copy(inputs)
        replay, results = self._capture(lambda: function(on_device.tensors))
        with torch.no_grad():
            for tensor, value in zip(self._changing(), before, strict=True):
                tensor.copy_(value)
        return on_device, replay, results

    @contextlib.contextmanager
    def _warm_up(self) -> Iterator[None]:
        """Return a context for calls before the recording: on a separate stream, as CUDA requires."""
        current, separate = torch.cuda.current_stream(), torch.cuda.Stream()
        separate.wait_stream(current)
        with torch.cuda.stream(separate):
            yield
        current.wait_stream(separate)

    def _capture(self, function: Callable[[], Any]) -> tuple[Callable[[], Any], Any]:
        """Return a function that replays `function`, and its results, which each replay overwrites."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may use the GPU meanwhile
            results = function()
        return graph.replay, results


class DeviceInputs:
    """A buffer on the device for a function's inputs, filled by one copy. Inputs start at multiples of 64 bytes.

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
        """Copy these inputs to the device, after the work that is queued there."""
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
    """Return each array's part of a buffer, as a tensor of the array's shape and type."""
    types = [torch.from_numpy(np.empty(0, array.dtype)).dtype for _, array in slots]
    parts = [buffer[start : start + array.nbytes] for start, array in slots]
    return [part.view(kind).view(array.shape) for part, kind, (_, array) in zip(parts, types, slots, strict=True)]
