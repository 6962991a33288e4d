"""See `twins`, in PyTorch. A twin's address never changes, so recorded work reads it; see `torch_recording`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from duetto.learners.twins import Twins
from duetto.networks.pictures import joined


class TorchTwins(Twins):
    """Twins on one device, in PyTorch."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def room(self) -> int | None:
        """See `Twins`: with what PyTorch has, and does not use."""
        if self._device.type != "cuda":
            return None
        idle = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        return torch.cuda.mem_get_info(self._device)[0] + idle

    def make(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """See `Twins`."""
        self.arrays: dict[str, Any] = {
            name: torch.zeros(shape, dtype=torch.uint8, device=self._device) for name, shape in shapes.items()
        }

    def bring(self, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        """See `Twins`."""
        self.arrays[name].index_copy_(0, *(torch.from_numpy(array).to(self._device) for array in (rows, values)))

    def images(self, twin: Tensor, index: Tensor) -> Tensor:
        """See `Twins`."""
        return joined(twin.index_select(0, index.flatten()).reshape(*index.shape, *twin.shape[1:]))
