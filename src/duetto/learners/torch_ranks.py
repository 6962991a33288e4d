"""Several learners in PyTorch: a process each, whose gradients are averaged at one line. See `ranks`."""

from __future__ import annotations

import shutil
import socket
import tempfile
import weakref
import zlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from duetto.errors import UsageError
from duetto.functional import shares
from duetto.functional.trees import mapped
from duetto.learners import ranks
from duetto.learners.base import Metrics, Rates
from duetto.learners.dealing import deal
from duetto.learners.parameters import Parameters as Values
from duetto.learners.rank import Making
from duetto.learners.ranks import (
    CHECKED_EVERY,
    ApartError,
    Gpu,
    Machines,
    Meeting,
    Ranks,
    ThisMachine,
    beginning,
    own_address,
    packed,
)
from duetto.learners.torch import TorchLearner
from duetto.networks.torch import Custom

c10d: Any = distributed  # whose classes a type checker knows in part


class Group:
    """Ranks that add tensors up. Sums are made in one order, and are the same bits for all."""

    def __init__(self, meeting: Meeting, store: Any, rank: int, number: int, device: torch.device) -> None:
        """Meet the others. Raises ApartError."""
        self.rank: int = rank
        self.number: int = number
        try:
            store = store or _store(meeting, number)
            own = _gloo(own_address(meeting.address if meeting.port else "")) if device.type == "cpu" else _nccl()
            self._group: Any = own(store, rank, number)
        except RuntimeError as error:
            raise ApartError(str(error)) from error
        self.add(torch.zeros(1, device=device))  # so gloo has met; NCCL may look for others later

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in place. Raises ApartError."""
        try:
            self._group.allreduce([tensor]).wait()
        except RuntimeError as error:
            raise ApartError(str(error)) from error
        return tensor

    def leave(self) -> None:
        """Leave the group. Ranks that wait for this one know at once with gloo, by its sockets; with NCCL after a
        timeout.
        """
        del self._group

    def total(self, x: Tensor) -> Tensor:
        """The sum of x over all ranks, without gradient, as a new tensor."""
        return self.add(x.detach().clone())

    def every(self, x: Tensor) -> Tensor:
        """All ranks' x (...), as (N, ...)."""
        found = x.new_zeros((self.number, *x.shape))
        found[self.rank] = x
        return self.add(found)


class TorchShare(TorchLearner):
    """A learner that has a share of every batch.

    Attributes:
        made: Updates so far, as far as ranks count them.
    """

    records = False  # what learners say to each other is no part of a CUDA graph here

    def __init__(self, making: Making, rank: int) -> None:
        if making.device == "cuda" and rank < torch.cuda.device_count():
            torch.cuda.set_device(rank)
        # One thread each, where nobody asks for more: what a machine has beside them, other ranks use.
        super().__init__(*making._replace(threads=making.threads or 1))
        self.rank: int = rank
        self.made: int = 0
        self._group: Group

    def gpu(self) -> Gpu | None:
        """The GPU that it computes on; None on a CPU."""
        if self.device.type == "cpu":
            return None
        return Gpu(socket.gethostname(), str(torch.cuda.get_device_properties(self.device).uuid))

    def join(self, meeting: Meeting, number: int, store: Any = None) -> None:
        """Meet the others. `store` is the meeting's, where rank 0 keeps one."""
        self._group = Group(meeting, store, self.rank, number, self.device)

    def take(self, parameters: Values, optimizers: dict[str, Any], made: int) -> None:
        """Load parameters and optimisers, and go on from `made` updates."""
        self.load_parameters(parameters)
        self.load_optimizer_state(optimizers)
        self.made = made

    def share(self, phase: int, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> int | None:
        """Learn from this rank's share; return what `counted` does."""
        try:
            self._updated(phase, mapped(_writable, batch), rows, mapped(_writable, noise), rates)
        except Exception:
            self._group.leave()
            raise
        return self.counted()

    def counted(self) -> int | None:
        """Count an update; return a checksum where it is time to compare them, else None."""
        self.made += 1
        return self.checksum() if self.made % CHECKED_EVERY == 0 else None

    def checksum(self) -> int:
        """CRC-32 of all that learning changes."""
        total = 0
        for tensor in self._changing():
            total = zlib.crc32(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes(), total)
        return total

    @property
    def _number(self) -> int:
        """See TorchLearner."""
        return self.made

    def _step(self, batch: Any) -> Tensor:
        """See TorchLearner; what is reported is the whole batch's, each row's priority in its place."""
        with shares.dealt(self._group.number, self._group.total):
            values = super()._step(batch)
        priority = values.new_zeros(0) if self._priority is None else self._priority.float()
        all_have = self._group.every(torch.cat([values, priority.reshape(-1)]))
        if self._priority is not None:
            self._priority = all_have[:, len(values) :].reshape(-1, *priority.shape[1:])
        of_ways = {
            "mean": all_have.mean(0),
            "least": all_have.amin(0),
            "greatest": all_have.amax(0),
        }
        return torch.stack([of_ways[way][i] for i, way in enumerate(self._ways)])

    def _averaged(self, gradients: list[Tensor]) -> list[Tensor]:
        """See TorchLearner: the mean of the means is that of the whole batch."""
        flat = self._group.add(torch.cat([gradient.reshape(-1) for gradient in gradients])).div_(self._group.number)
        parts = flat.split([gradient.numel() for gradient in gradients])
        return [part.view(gradient.shape) for part, gradient in zip(parts, gradients, strict=True)]


class TorchRanks(TorchShare):
    """Rank 0, in the run's own process, which asks the others."""

    def __init__(self, making: Making, number: int, machines: Machines | None = None) -> None:
        """Start the others. Raises DuettoError where one of them cannot begin."""
        machines = machines or ThisMachine()
        _check(making.device, 1 if machines.host else number)
        super().__init__(making, 0)
        self._check_networks()
        self.ranks: int = number
        self._up_to_date = False  # whether the others have these parameters
        self._folder = tempfile.mkdtemp(prefix="duetto-learners-")
        self._leave = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._others = Ranks([packed(("torch", making, rank)) for rank in range(1, number)], machines)
        with beginning(number, self.close):
            self._others.begin(self.gpu())
            self._meet(machines.host)

    def _check_networks(self) -> None:
        for name in self.specs:
            net = self._nets[name]
            if isinstance(net, Custom) and (net.kept or net.mixing):
                what = f"keeps {net.kept[0]}, which no optimiser moves" if net.kept else f"has a {net.mixing[0]}"
                raise UsageError(
                    f"{self.algorithm.name()}'s {name}, a network of your own, {what}: statistics of the rows of a "
                    "whole batch, as of batch normalisation, of which each of several PyTorch learners has a share "
                    "only. Leave out learners (--learners), or the statistics; a constant is a buffer with "
                    "persistent=False."
                )

    def _meet(self, host: str) -> None:
        meeting, store = Meeting(str(Path(self._folder) / "met")), None
        if host:
            store = _store_here(host, self.ranks)
            meeting = Meeting(host, store.port)
        self._others.send("join", meeting, self.ranks)
        try:
            self.join(meeting, self.ranks, store)
        except ApartError as error:
            raise self._others.blame() from error
        self._others.receive(0)

    def _updated(self, phase: int, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics:
        """See TorchLearner."""
        if not self._up_to_date:
            state = {name: optimizer.state() for name, optimizer in self._optimizers.items()}
            self._others.send("take", self._copies(self._nets), state, self.made)
            self._others.receive(self.made)
            self._up_to_date = True
        own, *others = deal(batch, rows, noise, self.ranks)
        self._others.send_each([("share", phase, *share, rates) for share in others])
        try:
            metrics = super()._updated(phase, *own, rates)
        except ApartError as error:
            raise self._others.blame() from error
        self._others.receive(self.made + 1, self.counted())
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """See Learner. DuettoError where another rank has other parameters."""
        state = super().state_dict()
        if self._up_to_date:
            self._others.send("checksum")
            self._others.receive(self.made, self.checksum())
        return state

    def load_parameters(self, parameters: Values) -> None:
        """See Learner."""
        super().load_parameters(parameters)
        self._up_to_date = False

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """See Learner."""
        super().load_optimizer_state(state)
        self._up_to_date = False

    def close(self) -> None:
        """End the others, too."""
        super().close()
        self._others.close()
        self._leave()


def _writable(array: np.ndarray) -> np.ndarray:
    """The array, copied where it is read-only, as it may be from a network: PyTorch warns of it."""
    return array if array.flags.writeable else array.copy()


def _check(device: str, number: int) -> None:
    if not distributed.is_available():
        raise UsageError("This build of PyTorch has no torch.distributed, which several learners need: --learners 1.")
    if device == "cuda" and torch.cuda.device_count() < number:
        raise UsageError(
            f"{number} learners need a CUDA device each, and PyTorch sees {torch.cuda.device_count()} here. Give fewer "
            "--learners, or --device cpu."
        )


def _store(meeting: Meeting, number: int) -> Any:
    if not meeting.port:
        return c10d.FileStore(meeting.address, number)
    return c10d.TCPStore(*meeting, number, False, timedelta(seconds=ranks.TO_START), wait_for_workers=False)


def _store_here(host: str, number: int) -> Any:
    """A store that this process keeps at `host` alone. PyTorch by itself would listen at all its addresses."""
    try:
        listening = socket.create_server((host, 0))
    except OSError as error:
        raise UsageError(
            f"Learners on other machines would have to reach this process at {host}, where it cannot listen "
            f"({error.strerror}). Begin the run on another machine of the cluster, or leave out learners (--learners)."
        ) from error
    port, wait = listening.getsockname()[1], timedelta(seconds=ranks.TO_START)
    own = {"wait_for_workers": False, "master_listen_fd": listening.detach()}
    return c10d.TCPStore(host, port, number, True, wait, **own)


def _gloo(address: str) -> Callable[[Any, int, int], Any]:
    how: Any = c10d.ProcessGroupGloo._Options()
    how._devices = [c10d.ProcessGroupGloo.create_device(hostname=address)]
    how._timeout = timedelta(seconds=ranks.TIMEOUT)
    return lambda store, rank, number: c10d.ProcessGroupGloo(store, rank, number, how)


def _nccl() -> Callable[[Any, int, int], Any]:
    how: Any = c10d.ProcessGroupNCCL.Options()
    how._timeout = timedelta(seconds=ranks.TIMEOUT)
    return lambda store, rank, number: c10d.ProcessGroupNCCL(store, rank, number, how)
