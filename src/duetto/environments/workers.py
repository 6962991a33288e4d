"""Environments that each run in a process of their own: watched, and none left behind."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.util
import os
import queue
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState, _async_worker

from duetto.environments import calls, successes
from duetto.environments.actions import single
from duetto.environments.allowing import KEY, MISNAMED
from duetto.environments.faults import Fault, raised
from duetto.environments.spaces import Layout
from duetto.environments.state import Saving
from duetto.errors import DuettoError

# A false alarm ends a run of days, and that a worker hangs is as well known after five minutes as after one: no step or
# reset that is meant takes as long.
TIMEOUT = 300.0
TO_START = 120.0  # seconds at least for a worker's first answer: before it, packages are imported
LOOK = 1.0  # seconds between two looks at the clock: a trainer that was stopped (Ctrl-Z) loses no more than that
TO_CLOSE = 30.0  # seconds that environments have to close themselves
TO_GIVE_UP = 1.0  # the same in the middle of a call, after Ctrl-C or an error
ORPHANED = 3.0  # seconds that a worker lives on without its trainer


class Workers(AsyncVectorEnv):
    """Subprocesses whose environments are each `Checked`.

    A worker that dies, that raises, or that does not answer within `timeout` seconds (0: that may take for ever) is a
    Fault. Afterwards, as after Ctrl-C, `close` ends all of them.
    """

    def __init__(self, makers: Sequence[Callable[[], gymnasium.Env]], timeout: float) -> None:
        self._timeout = timeout
        super().__init__(
            makers,
            context="forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn",
            worker=_Worker(dict(os.environ)),
            autoreset_mode=AutoresetMode.DISABLED,
        )

    def _check_spaces(self) -> None:
        """Check the workers' spaces: the first thing that they are asked, with more time to answer."""
        pairs = zip(self.parent_pipes, self.processes, strict=True)
        first = self._timeout and max(self._timeout, TO_START)
        self.parent_pipes: Any = [_Line(pipe, process, i, first) for i, (pipe, process) in enumerate(pairs)]
        # Before multiprocessing waits for its children at the end of this process: they mind no SIGTERM.
        multiprocessing.util.Finalize(self, _kill, args=(self.processes,), exitpriority=100)
        try:
            super()._check_spaces()
        except BaseException:
            self.close(terminate=True)
            raise
        for line in self.parent_pipes:
            line.timeout = self._timeout

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Raise the error of the environment with the lowest number, if any call failed."""
        errors: list[Any] = []
        with suppress(queue.Empty):  # one that cannot be pickled never comes
            for _ in range(list(successes).count(False)):
                errors.append(self.error_queue.get(timeout=TO_GIVE_UP))
            if not errors:
                return
        if not errors:
            raise Fault("a process failed with an error that cannot be sent; it is above.", failed=True)
        for env, _, error, trace in sorted(errors, key=lambda one: one[0]):
            if isinstance(error, Fault):
                error.env = env
            elif not isinstance(error, DuettoError):
                error = raised("its process", error, env)
                error.trace = trace.rstrip()
            raise error

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Let every environment close itself; end those processes that take too long."""
        patience = TO_CLOSE if self._state is AsyncState.DEFAULT else TO_GIVE_UP
        deadline = time.monotonic() + (0.0 if terminate else patience)
        try:
            for line in self.parent_pipes:
                with suppress(Fault):
                    line.send(("close", None))
            for process in self.processes:
                process.join(max(0.0, deadline - time.monotonic()))
        finally:
            _kill(self.processes)
            for line in self.parent_pipes:
                line.close()


class Checked(Saving):
    """A wrapper that checks what an environment gives before it is sent: nobody else sees all of it."""

    def __init__(self, env: gymnasium.Env, label: str) -> None:
        calls.check_spaces(env, label)
        super().__init__(env)
        self._layout = Layout(env.observation_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the first observation, and the part of its info that Duetto reads."""
        obs, info = calls.reset(self.env, None, seed=seed, options=options or None)  # {}: Gymnasium took its own out
        self._check(obs)
        return obs, _read(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Return what the environment gave, with only the part of its info that Duetto reads."""
        obs, reward, terminated, truncated, info = calls.step(self.env, None, single(action))
        self._check(obs)
        return obs, reward, terminated, truncated, _read(info)

    def set_inside(self, name: str, value: Any) -> Fault | None:
        """See `calls.set_attr`; its Fault is returned, for one that is raised would end this process."""
        try:
            calls.set_attr(self.env, None, name, value)
        except Fault as fault:
            return fault
        return None

    def close(self) -> None:
        """See `calls.close`."""
        calls.close(self.env)

    def _check(self, obs: Any) -> None:
        self._layout.check(obs)
        self._layout.check_kept(obs)


def _read(info: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an info that Duetto reads: the lives, the mask of allowed actions, whether the task was done,
    and True under each name that looks like a misnamed mask.
    """
    alike = dict.fromkeys((name for name in MISNAMED if name in info), True)
    return {name: info[name] for name in ("lives", KEY, *successes.KEYS) if name in info} | alike


class _Line:
    """The trainer's end of a worker's pipe, which knows when nobody will ever answer."""

    def __init__(self, pipe: Connection, process: Any, env: int, timeout: float) -> None:
        self._pipe, self._process, self._env, self.timeout = pipe, process, env, timeout
        self._answered = _poll(pipe)

    @property
    def closed(self) -> bool:
        return self._pipe.closed

    def close(self) -> None:
        self._pipe.close()

    def send(self, message: Any) -> None:
        try:
            self._pipe.send(message)
        except OSError as error:
            raise self._dead() from error

    def recv(self) -> Any:
        look = min(LOOK, self.timeout or LOOK)
        waited = 0.0
        while not self._answered(look):
            waited += look
            if self.timeout and waited >= self.timeout:
                raise Fault(
                    f"its process has not answered for {waited:g} s. If that was not long enough, give it more time "
                    "(--worker-timeout; in config.yaml worker_timeout; 0 for no limit). If it hangs, correct it.",
                    self._env,
                    failed=True,
                )
        try:
            return self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._dead() from error

    def _dead(self) -> Fault:
        self._process.join(TO_GIVE_UP)
        return Fault(f"its process {_end(self._process.exitcode)}.", self._env, failed=True)


def _poll(pipe: Connection) -> Callable[[float], Any]:
    """Return `pipe.poll`, which waits so many seconds for something to read, without making a selector each time."""
    if not hasattr(select, "poll"):  # on Windows
        return pipe.poll
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLIN)
    return lambda seconds: poll.poll(math.ceil(seconds * 1000))


def ended(code: int | None) -> str:
    """Return how a process with this exit code ended, as the rest of a sentence."""
    if code is None or code >= 0:
        return "does not answer any more" if code is None else f"ended with exit code {code}"
    known = -code in [one.value for one in signal.Signals]  # of the real-time signals, two
    return f"was killed by {signal.Signals(-code).name if known else f'signal {-code}'}"


def _end(code: int | None) -> str:
    why = "Look for the cause in the environment and in what it calls; what it printed is above"
    if code is not None and -code == signal.SIGKILL:
        why = "The system does that where memory runs out; train with fewer environments then"
    return f"{ended(code)}. {why}"


def _kill(processes: list[Any]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join()


@dataclass(frozen=True)
class _Worker:
    """A worker's task with the trainer's environment variables of now, for a fork server keeps those of its start.

    They are set as this is unpickled, before the environment's factory is, which may import what reads them.
    """

    variables: dict[str, str]

    def __call__(self, *arguments: Any) -> None:
        _work(*arguments)

    def __setstate__(self, state: dict[str, Any]) -> None:
        os.environ.clear()
        os.environ.update(state["variables"])


def _work(index: int, make: Callable[[], gymnasium.Env], pipe: Any, *rest: Any) -> None:
    """Do a worker's work as Gymnasium's does, but report an environment that cannot be made."""
    # Ctrl-C and the end of a terminal or a job reach every process of it. The trainer ends then, after a checkpoint
    # that needs this one. What the environment starts inherits the first of these, but no handler.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: None)
    threading.Thread(target=_leave_with_the_trainer, daemon=True).start()
    errors = rest[2]
    try:
        env = make()
    except Exception as error:
        errors.put((index, None, error if isinstance(error, DuettoError) else raised("making it", error, index), ""))
        pipe.send((None, False))
        return
    try:
        _async_worker(index, lambda: env, pipe, *rest)
    except OSError:  # the pipe's other end is gone
        trainer = multiprocessing.parent_process()
        assert trainer is not None
        trainer.join(ORPHANED)
        if trainer.is_alive():
            raise


def _leave_with_the_trainer() -> None:
    """End this worker once its trainer has been gone for `ORPHANED` seconds.

    A trainer that is killed asks nobody to close, and an environment that hangs would stay for ever.
    """
    trainer = multiprocessing.parent_process()
    assert trainer is not None
    trainer.join()
    time.sleep(ORPHANED)
    os._exit(1)
