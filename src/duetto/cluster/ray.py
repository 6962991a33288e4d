"""The transport on Ray. No other file imports Ray.

Ray pickles the messages between its processes, so its network must be trusted. No pickle is written to a run's folder.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray import exceptions
from typing_extensions import override

from duetto.cluster.transport import Answer, Transport
from duetto.environments.errors import summary
from duetto.errors import UsageError

TO_CONNECT = 10.0  # seconds
COLORS = re.compile(r"\x1b\[[0-9;]*m")
DIED = "died (its process was killed or ended, or its machine is gone)"


class RayTransport(Transport):
    """Calls through Ray. A cluster that is started here has no dashboard, and ends with `close`."""

    def __init__(self, address: str | None, actors: int) -> None:
        """Connect to the cluster at `address`; None: to this process's current cluster, or a new one."""
        self._folder: str | None = None
        self._ours = not ray.is_initialized()
        if address is not None and not self._ours:
            raise UsageError(
                "This process is connected to a Ray cluster already. Leave the address out to use that one."
            )
        try:
            if self._ours:
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # users decide themselves about Ray's statistics
                # Otherwise Ray prints a page to stdout when a process dies; Duetto prints a sentence.
                vars(ray._private.worker)["_worker_logs_enabled"] = False  # type: ignore[attr-defined]
                with _own_signals():
                    self._connect(address, actors)
            self._check_room(actors)
        except BaseException:
            self.close()
            raise

    def _connect(self, address: str | None, actors: int) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address is not None:
                _look_for(address)
                ray.init(address, **quiet)
                return
            self._folder = tempfile.mkdtemp(prefix="duetto-ray-")  # a short path, because it contains sockets
            own: dict[str, Any] = {"include_dashboard": False, "_temp_dir": self._folder}
            ray.init("local", num_cpus=actors, num_gpus=0, **own, **quiet)
        except (OSError, ValueError, RuntimeError, ImportError) as error:
            where = "on this machine" if address is None else f"at {address}"
            raise UsageError(f"There is no Ray cluster {where} ({_first_line(error)}).") from error

    def _check_room(self, actors: int) -> None:
        cores = int(ray.cluster_resources().get("CPU", 0))
        if actors > cores:
            raise UsageError(
                f"The cluster has {cores} CPUs, but actors and replay shards need {actors}, one each. Use "
                "fewer --actors."
            )

    @override
    def start(self, kind: Callable[..., Any], *arguments: Any) -> Any:
        options: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0}
        return ray.remote(kind).options(scheduling_strategy="SPREAD", **options).remote(*arguments)  # type: ignore[attr-defined]

    @override
    def call(self, worker: Any, *message: Any) -> Any:
        return worker.do.remote(*message)

    @override
    def wait(self, calls: Sequence[Any], timeout: float, enough: int | None = None) -> dict[Any, Answer]:
        done, waiting = ray.wait(list(calls), num_returns=enough or len(calls), timeout=timeout)
        if done and waiting:  # Ray returns at most `num_returns`, even if more are done
            done += ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]
        try:
            return dict(zip(done, map(Answer, ray.get(done)), strict=True))
        except exceptions.RayError:  # at least one has failed: get each alone
            return {call: _answer(call) for call in done}

    @override
    def put(self, value: Any) -> Any:
        return ray.put(value)

    @override
    def kill(self, worker: Any) -> None:
        with suppress(exceptions.RayError):
            ray.kill(worker)

    @override
    def clock(self) -> float:
        return time.monotonic()

    @override
    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    @override
    def close(self) -> None:
        if self._ours:
            ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _answer(call: Any) -> Answer:
    try:
        return Answer(ray.get(call))
    except exceptions.RayActorError as error:
        return Answer(failure=DIED, details=str(error))
    except exceptions.RayError as error:
        return Answer(failure=f"failed ({_first_line(error)})", details=str(error))


def _look_for(address: str) -> None:
    """Raise OSError if nothing answers at the address, because Ray would try for minutes and ignore Ctrl-C."""
    address = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), TO_CONNECT).close()


def _first_line(error: Exception) -> str:
    """Return the first line of an error or, for an error in a task, of its cause: Ray puts a traceback first."""
    if isinstance(error, exceptions.RayTaskError):
        return summary(error.cause)
    lines = COLORS.sub("", str(error)).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the SIGTERM handler that Ray replaces, and start Ray's processes with SIGHUP ignored.

    A terminal that closes sends SIGHUP to all of its processes. Ray's processes must run until the run has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]
    earlier = {number: signal.getsignal(number) for number in numbers}
    for number in numbers[1:]:
        signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
