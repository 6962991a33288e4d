"""A rank of several JAX processes that compute one program: `jax.distributed`, by gloo on processors and NCCL on GPUs.

    process    0           1              as the devices of one process in `jax_ranks`: arrays are whole wherever their
    batch      rows 0-3    rows 4-7       rows lie, so the program is that of one learner, and XLA adds up where the
    state      whole       whole          equations do

JAX counts a process's devices once, so the processes meet before anything else, once in their lives. Rank 0 keeps the
service by which they do. JAX ends all others at once, with words of its own on stderr, where rank 0 is gone; where
another is gone those that wait for what it adds fail, or wait for ever. So all are begun anew whoever dies.
"""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from duetto.errors import UsageError
from duetto.learners import jax_cache, ranks
from duetto.learners.base import Metrics, Rates
from duetto.learners.jax import JaxLearner
from duetto.learners.jax_begin import begin, has_cuda
from duetto.learners.jax_ranks import ROWS
from duetto.learners.rank import Making
from duetto.learners.ranks import CHECKED_EVERY, ApartError, Gpu, Meeting, Receipt, own_address
from duetto.learners.remote import Found

TO_PART = 0.3  # seconds


class JaxRank:
    """A rank that answers what `remote.RemoteLearner` asks.

    Attributes:
        made: Updates so far, as far as ranks count them.
        lingers: Seconds by which it outlives a run that is gone: without rank 0 the others would have a lot to say.
    """

    def __init__(self, making: Making, rank: int) -> None:
        self._making, self._rank = making, rank
        self.made: int = 0
        self.lingers: float = TO_PART if rank == 0 else 0.0
        self._learner: JaxShare
        self._port: socket.socket | None = None  # kept until there is a service at it

    def gpu(self) -> Gpu | None:
        """None: JAX does not say which one it is; Ray, or `join`, gives each rank its own."""

    def where(self, host: str) -> Receipt:
        """A receipt with this process's address for the machine `host`, and a free port there; see `remote.Found`."""
        address = own_address(host)
        self._port, shared = socket.socket(), getattr(socket, "SO_REUSEPORT", None)
        if shared is not None:
            self._port.setsockopt(socket.SOL_SOCKET, shared, 1)
        self._port.bind((address, 0))
        meeting = Meeting(*self._port.getsockname())
        if shared is None:  # on Windows: the service could not have it, too
            self._port.close()
        machine = socket.gethostname()
        try:
            lonely = socket.gethostbyname(machine).startswith("127.")
        except OSError:
            lonely = True
        return Receipt(0, value=Found(meeting, machine, lonely))

    def join(self, meeting: Meeting, number: int, together: bool) -> None:
        """Meet the others. With `together`, all share this machine's GPUs. Raises UsageError where one has none."""
        device = self._making.device
        _set(jax_enable_preemption_service=False, jax_check_proxy_envs=False)  # it would take SIGTERM
        if device == "cpu":
            _set(jax_platforms="cpu", jax_num_cpu_devices=1, jax_cpu_collectives_implementation="gloo")
        os.environ["no_grpc_proxy"] = meeting.address  # noqa: SIM112 - gRPC knows it in small letters
        address = f"{meeting.address}:{meeting.port}"
        jax.distributed.initialize(
            address,
            number,
            self._rank,
            local_device_ids=[self._rank] if device == "cuda" and together else None,
            cluster_detection_method="deactivate",
            initialization_timeout=int(ranks.TO_START),
            coordinator_bind_address=address,
        )
        if self._port is not None:
            self._port.close()
        self._learner = JaxShare(self._making, number)
        with _quiet():  # gloo says that it has met
            self._learner.meet()

    def share(self, *learned_from: Any) -> Receipt:
        """Learn from this rank's share, see `JaxShare.learn`; rank 0's receipt has the metrics."""
        metrics = self._learner.learn(*learned_from)
        self.made += 1
        checksum = self._learner.checksum() if self.made % CHECKED_EVERY == 0 else None
        return Receipt(self.made, checksum, value=metrics if self._rank == 0 else None)

    def take(self, what: str, state: Any, made: int) -> None:
        """Load parameters, or the optimisers' states, as `what` says, and go on from `made` updates."""
        getattr(self._learner, f"load_{what}")(state)
        self.made = made

    def give(self, what: str) -> Receipt:
        """A receipt with what the learner's method `what` returns."""
        return Receipt(self.made, value=getattr(self._learner, what)())

    def acting_parameters(self) -> Receipt:
        """See Learner."""
        return Receipt(self.made, value=self._learner.acting_parameters()())

    def checksum(self) -> int:
        """CRC-32 of all that learning changes."""
        return self._learner.checksum()

    def tidy(self) -> None:
        """Hand compiled programs over: nothing more will be asked."""
        jax_cache.end()


class JaxShare(JaxLearner):
    """A learner whose batches are dealt to several processes: it is given its share of each."""

    at_once = 1

    def __init__(self, making: Making, number: int) -> None:
        """Wait for the others. Raises UsageError where all processes together do not have one device each."""
        kind = "cpu" if making.device == "cpu" else "gpu"
        if kind == "cpu":
            begin(making.threads)
        found = jax.devices(kind) if kind == "cpu" or has_cuda() else []
        if len(found) != number:
            raise UsageError(
                f"{number} learners need a CUDA device each, and JAX sees {len(found)} for all. Give another number of "
                "--learners, or --device cpu."
            )
        mesh = Mesh(np.array(sorted(found, key=lambda device: device.process_index)), (ROWS,))
        self._everywhere = NamedSharding(mesh, P())
        self._dealt, self._dealt_parts = NamedSharding(mesh, P(ROWS)), NamedSharding(mesh, P(None, ROWS))
        self._dealt_noise: Any = None  # which arrays of an update's noise are shares
        super().__init__(*making)

    def meet(self) -> None:
        """Make a first sum over all processes, for which JAX prepares itself."""
        ones = self._share(np.ones(1, np.float32))
        jax.block_until_ready(jax.jit(lambda x: x.sum(), out_shardings=self._everywhere)(ones))

    def learn(self, phase: int, batch: Any, rows: np.ndarray | None, noise: Any, dealt: Any, rates: Rates) -> Metrics:
        """Make an update with this process's share of the batch, and of noise where `dealt`. Raises ApartError."""
        self._dealt_noise = dealt
        try:
            metrics = self._updated(phase, batch, rows, noise, rates)
            values, priority = jax.tree.map(np.asarray, (metrics.values, metrics.priority))
        except (RuntimeError, ValueError) as error:  # JAX raises both
            if "Gloo" in str(error) or "NCCL" in str(error):
                raise ApartError(str(error)) from error
            raise
        return Metrics(metrics.names, values, priority)

    def checksum(self) -> int:
        """CRC-32 of all that learning changes."""
        total = 0
        for array in jax.tree.leaves(self._state):
            total = zlib.crc32(np.ascontiguousarray(array).tobytes(), total)
        return total

    def compiled(self, function: Callable[..., Any], rows: int) -> Callable[..., Any]:
        """See JaxLearner; what comes out is whole in each process."""
        return jax.jit(function, donate_argnums=0, out_shardings=self._everywhere, compiler_options=self.by_rule())

    def parts(self, batch: Any, rows: Array) -> tuple[Any, Callable[[Any], Any]]:
        """See JaxLearner: the batch came in parts."""
        return batch, lambda part: part

    def _placed(self, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> tuple[Any, ...]:
        """See JaxLearner. A share of a batch in parts is one of each, whose rows are next to each other."""
        if rows is None:
            batch = jax.tree.map(self._share, batch)
        else:
            cut = jax.tree.map(lambda array: array[rows.ravel()].reshape(*rows.shape, *array.shape[1:]), batch)
            batch = jax.tree.map(lambda array: self._share(array, self._dealt_parts), cut)
        noise = jax.tree.map(lambda array, own: self._share(array) if own else array, noise, self._dealt_noise)
        return batch, rows, noise, rates

    def _share(self, array: np.ndarray, sharding: NamedSharding | None = None) -> Array:
        return jax.make_array_from_process_local_data(sharding or self._dealt, array)

    def _put(self, tree: Any) -> Any:
        """See JaxLearner: the same in each process, which JAX would compare array by array."""
        return jax.tree.map(self._whole, tree)

    def _whole(self, array: Any) -> Array:
        here = jax.device_put(array, self.device)
        return jax.make_array_from_single_device_arrays(here.shape, self._everywhere, [here])


@contextmanager
def _quiet() -> Iterator[None]:
    """Discard what this process prints inside, from whatever language."""
    kept, nowhere = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            os.dup2(nowhere, number)
        yield
    finally:
        for number, earlier in enumerate(kept, 1):
            os.dup2(earlier, number)
            os.close(earlier)
        os.close(nowhere)


def _set(**options: Any) -> None:
    """Set those of JAX's options that this version has."""
    config: Any = jax.config
    for name, value in options.items():
        with suppress(AttributeError):
            config.update(name, value)
