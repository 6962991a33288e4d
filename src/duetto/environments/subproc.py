"""Environments that each run in a worker process; no worker outlives the trainer.

    trainer    reset, step, set_attr, save, load ...  ->  worker: a `SyncEngine` of one environment
               rows of all workers, side by side      <-          its result, or its error

A worker resets its environment in the step that ends an episode, so an end costs no second message. A worker is a new
Python process in its own process group: it does not import the script that trains, and Ctrl-C does not reach it.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

import cloudpickle
import gymnasium
import numpy as np
from typing_extensions import override

from duetto import subprocess_python
from duetto.environments import obs_tree, validation
from duetto.environments.engines import Engine, StepResult, SyncEngine
from duetto.environments.errors import EnvironmentFault, raised, summary
from duetto.environments.exact_resume import PATIENCE
from duetto.environments.obs_tree import Tree
from duetto.errors import DuettoError, UsageError
from duetto.functional.pytree import tree_map_many

TIMEOUT = 300.0  # seconds; long, because a false alarm ends a run
TO_START = 120.0  # minimum seconds for a worker's first answer, before which it imports packages
TO_CLOSE = 30.0  # seconds that environments have to close themselves
TO_GIVE_UP = 1.0  # instead of TO_CLOSE, if Ctrl-C or an error interrupted a call
ORPHANED = 3.0  # seconds that a worker waits after its trainer's end before it ends
MORE_TIME = "--worker-timeout; in config.yaml worker_timeout; 0 for no limit"

_PROGRAM = "from duetto.environments.subproc import main; main()"


class SubprocEngine(Engine):
    """Environments that are stepped at the same time, each in its own process.

    If a worker dies, raises, or does not answer within `timeout` seconds (0: no limit), the call raises an
    EnvironmentFault. After this, and after Ctrl-C, `close` ends all workers.

    Attributes:
        processes: The workers.
    """

    def __init__(
        self,
        single: Callable[[], gymnasium.Env],
        num_envs: int,
        label: str,
        timeout: float,
        output: IO[bytes] | None = None,
    ) -> None:
        """Start processes that make their environments with `single`.

        They print to the file `output`; None: to stdout and stderr of this process.

        Raises:
            UsageError: The processes cannot make the environments, the spaces differ, or this is Windows.
            EnvironmentFailedError: A process dies or hangs.
        """
        self.label: str = label
        self.num_envs: int = num_envs
        self.processes: list[subprocess.Popen[bytes]] = []
        self._lines: list[_Line] = []
        self._timeout = timeout and max(timeout, TO_START)  # for the first answer only
        self._busy = False  # in the middle of a call
        weakref.finalize(self, _kill, self.processes)
        if sys.platform == "win32":
            raise UsageError('Processes for environments need Linux or macOS. Use vectorization="sync".')
        try:
            packed = cloudpickle.dumps(single)
        except (TypeError, AttributeError, RuntimeError, pickle.PicklingError) as error:
            raise UsageError(
                f'{label} cannot be sent to a separate process ({summary(error)}). Use vectorization="sync", or a '
                "factory that makes what it needs when it is called."
            ) from error
        try:
            for env in range(num_envs):
                ours, theirs = Pipe()
                with theirs:
                    process = subprocess_python.start(_PROGRAM, theirs.fileno(), output, output)
                self.processes.append(process)
                self._lines.append(_Line(ours, process, env))
            described = self._ask("make", [packed] * num_envs)
            if any(other[:2] != described[0][:2] for other in described):
                raise UsageError(f"{label}: the environments have different spaces. Make them all alike.")
        except BaseException as error:
            self.close()
            if isinstance(error, EnvironmentFault):
                raise error.located(label, 0) from error
            raise
        self._timeout = timeout
        super().__init__(num_envs, label, *described[0])

    # ------------------------------------------------------------------------------------------- calls
    def _ask(self, method: str, *arguments: Sequence[Any] | np.ndarray, envs: Sequence[int] | None = None) -> list[Any]:
        """Call a method of every worker, or of the workers `envs`; return the method's values, one per worker.

        Each of `arguments` is a sequence with one value per worker.
        """
        lines = self._lines if envs is None else [self._lines[env] for env in envs]
        self._busy = True
        for line, *values in zip(lines, *arguments, strict=True):
            line.send((method, values))
        answers = [line.receive(self._timeout) for line in lines]
        self._busy = False
        for line, (done, value) in zip(lines, answers, strict=True):
            if not done:
                if isinstance(value, EnvironmentFault):
                    value.env = line.env  # the worker does not know its number
                raise value
        return [value for _, value in answers]

    @override
    def reset(self, seed: int) -> Tree:
        return tree_map_many(np.concatenate, self._ask("reset", range(seed, seed + self.num_envs)))

    @override
    def step(self, actions: np.ndarray) -> StepResult:
        next_obs, first, lives, numbers = zip(*self._ask("step", actions), strict=True)
        reward, terminated, truncated, success = np.concatenate(numbers, axis=1)
        ends = terminated > 0, truncated > 0
        obs = [final if new is None else new for final, new in zip(next_obs, first, strict=True)]
        final, following = (tree_map_many(np.concatenate, trees) for trees in (next_obs, obs))
        shown = None if None in lives else np.array(lives)
        return StepResult(final, reward, *ends, following, ends[0] | ends[1], lives=shown, success=success)

    @override
    def reset_env(self, env: int, seed: int) -> Tree:
        [first] = self._ask("reset", [seed], envs=[env])
        return tree_map_many(np.concatenate, [first] * self.num_envs)

    @override
    def render(self) -> np.ndarray | None:
        return self._ask("render", envs=[0])[0]

    @override
    def save(self) -> dict[str, Any] | None:
        return {str(env): one["0"] for env, one in enumerate(self._ask("save"))}

    @override
    def load(self, saved: dict[str, Any], obs: Tree, seed: int) -> tuple[Tree, list[str]]:
        each = [{"0": saved[str(env)]} for env in range(self.num_envs)]
        rows = [obs_tree.take(obs, np.array([env])) for env in range(self.num_envs)]
        timeout, self._timeout = self._timeout, self._timeout and self._timeout + PATIENCE
        try:
            loaded = self._ask("load", each, rows, range(seed, seed + self.num_envs))
        finally:
            self._timeout = timeout
        return tree_map_many(np.concatenate, [first for first, _ in loaded]), [why for _, [why] in loaded]

    @override
    def set_attr(self, name: str, value: Any) -> None:
        function = cloudpickle.dumps(lambda env: validation.set_attr(env, None, name, value))
        self._ask("call", [function] * self.num_envs)

    @override
    def call(self, function: Callable[[gymnasium.Env], Any]) -> Any:
        """Run the function in the first environment's process, and return its value."""
        return self._ask("call", [cloudpickle.dumps(function)], envs=[0])[0]

    @override
    def close(self) -> None:
        """Let every environment close itself; kill processes that take too long."""
        deadline = time.monotonic() + (TO_GIVE_UP if self._busy else TO_CLOSE)
        try:
            for line in self._lines:
                with suppress(EnvironmentFault):
                    line.send(("close", ()))
            for process in self.processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            _kill(self.processes)
            for line in self._lines:
                line.pipe.close()
            self.processes.clear()
            self._lines.clear()


class _Line:
    """The trainer's end of a worker's pipe. It raises an EnvironmentFault if the worker is dead or hangs."""

    def __init__(self, pipe: Connection, process: subprocess.Popen[bytes], env: int) -> None:
        self.env: int = env
        self.pipe: Connection = pipe
        self._process = process
        self._poll = select.poll()  # `pipe.poll` would make a selector at each call
        self._poll.register(pipe.fileno(), select.POLLIN)

    def send(self, message: Any) -> None:
        try:
            self.pipe.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
        except OSError as error:
            raise self._dead() from error

    def receive(self, timeout: float) -> Any:
        if not self._poll.poll(timeout * 1000 or None):
            raise EnvironmentFault(
                f"its process has not answered for {timeout:g} s. If that was not long enough, give it more time "
                f"({MORE_TIME}). If it hangs, correct it.",
                self.env,
                failed=True,
            )
        try:
            return pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._dead() from error

    def _dead(self) -> EnvironmentFault:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(TO_GIVE_UP)
        code, ended = self._process.returncode, "does not answer any more"
        if code is not None:
            ended = f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
        why = "Look for the cause in the environment and the code that it calls; its output is above"
        if code == -signal.SIGKILL:
            why = "If the machine ran out of memory, train with fewer environments"
        return EnvironmentFault(f"its process {ended}. {why}.", self.env, failed=True)


def _kill(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


# ------------------------------------------------------------------------------------------- in the worker
def main() -> None:
    """Answer the trainer's calls, which come on standard input, until it asks to close or is gone."""
    pipe = Connection(os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    # Signals that end a job reach all its processes. Ignore them: the trainer's last checkpoint needs this process.
    # Processes that the environment forks get the default handlers, and close their copies of the pipe.
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    os.register_at_fork(after_in_child=lambda: [*(signal.signal(n, signal.SIG_DFL) for n in numbers), pipe.close()])
    threading.Thread(target=_leave_with_the_trainer, args=(pipe,), daemon=True).start()
    worker, method = _Worker(), ""
    with closing(worker), suppress(EOFError, OSError):  # the pipe's other end is gone
        while method != "close":
            method, arguments = pickle.loads(pipe.recv_bytes())
            pipe.send_bytes(worker.answer(method, arguments))


class _Worker:
    """Answers the trainer's calls with one environment, which the call of `make` creates."""

    _engine: Any = None  # a SyncEngine

    def answer(self, method: str, arguments: Sequence[Any]) -> bytes:
        """Return a pickled tuple: True and the method's value, or False and the error that it raised."""
        try:
            value = getattr(self if hasattr(self, method) else self._engine, method)(*arguments)
            return pickle.dumps((True, value), pickle.HIGHEST_PROTOCOL)
        except (DuettoError, EnvironmentFault) as error:
            return pickle.dumps((False, error))
        except (Exception, SystemExit) as error:
            return pickle.dumps((False, raised(method if self._engine else "making it", error, None)))

    def make(self, packed: bytes) -> tuple[gymnasium.Space, gymnasium.Space, dict[str, Any]]:
        """Make the environment; return its spaces and metadata."""
        with warnings.catch_warnings():  # the trainer has made one environment before, and shown its warnings
            warnings.simplefilter("ignore")
            self._engine = SyncEngine([cloudpickle.loads(packed)()])
        [env] = self._engine.envs
        return env.observation_space, env.action_space, env.metadata

    def step(self, action: Any) -> tuple[Any, ...]:
        result = self._engine.step(np.asarray(action)[None])
        numbers = np.stack([result.reward, result.terminated, result.truncated, result.success])
        lives = None if result.lives is None else result.lives[0]
        return result.next_obs, result.obs if result.starts[0] else None, lives, numbers

    def call(self, packed: bytes) -> Any:
        return self._engine.call(cloudpickle.loads(packed))

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()


def _leave_with_the_trainer(pipe: Connection) -> None:
    """End this worker once its trainer has been gone for `ORPHANED` seconds.

    A killed trainer cannot send "close", and a worker in an endless step would not read it.
    """
    poll = select.poll()
    poll.register(pipe.fileno(), 0)  # report only that the other end was closed
    poll.poll()
    time.sleep(ORPHANED)
    os._exit(1)
