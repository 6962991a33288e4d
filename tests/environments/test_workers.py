"""Environments in processes of their own: one that dies, hangs or raises, and that none is left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_environments import Faulty, Parent, in_worker
from gymnasium.spaces import Box

from duetto.environments import VecEnv, make
from duetto.errors import DuettoError, EnvironmentFailedError, UsageError

HERE = Path(__file__).parent


def children() -> set[str]:
    """The numbers of this process's children; those of other tests, such as a tracker's, may continue."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(listed.read_text().split()) if listed.exists() else set()


@pytest.fixture(autouse=True)
def none_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


def workers(fault: str = "", num_envs: int = 2, worker_timeout: float = 60, **options: Any) -> VecEnv:
    kwargs = {"fault": fault, "only": 1} | options
    return make(Faulty, num_envs=num_envs, vectorization="subprocess", worker_timeout=worker_timeout, kwargs=kwargs)


def failing(stepper: VecEnv, error: type[DuettoError] = EnvironmentFailedError) -> str:
    stepper.reset(0)
    stepper.step(np.zeros((stepper.num_envs, 1)))
    began = time.monotonic()
    try:
        with pytest.raises(error) as caught:
            stepper.step(np.zeros((stepper.num_envs, 1)))
    finally:
        stepper.close()
    assert time.monotonic() - began < 10
    return str(caught.value)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("os._exit", "ended with exit code 7. Look for the cause in the environment and the code that it calls"),
        ("sys.exit", "raised SystemExit: 3"),
        ("segfault", "was killed by SIGSEGV. Look for the cause in the environment"),
    ],
)
def test_one_that_dies(fault: str, said: str) -> None:
    message = failing(workers(fault))
    assert message.startswith("Faulty, environment 1, vector step 2: ")
    assert said in message.splitlines()[0]


def test_one_that_the_system_kills() -> None:
    stepper = workers()
    stepper.reset(0)
    stepper.engine.processes[0].kill()
    stepper.engine.processes[0].wait()
    with pytest.raises(EnvironmentFailedError, match=r"environment 0, vector step 1: .* killed by SIGKILL. .* memory"):
        stepper.step(np.zeros((2, 1)))
    with pytest.raises(EnvironmentFailedError, match=r"environment 0, .* killed by SIGKILL"):
        stepper.state_dict()
    stepper.close()


def test_one_that_hangs() -> None:
    message = failing(workers("hang", worker_timeout=0.5))
    said = "its process has not answered for 0.5 s. If that was not long enough, give it more time (--worker-timeout"
    assert message.startswith(f"Faulty, environment 1, vector step 2: {said}")


@pytest.mark.parametrize("fault", ["raise", "raise what cannot be sent"])
def test_one_that_raises(fault: str, capfd: pytest.CaptureFixture[str]) -> None:
    sentence, *trace = failing(workers(fault)).splitlines()
    raised = "IndexError: list index out of range" if fault == "raise" else "PickyError: first line"
    assert sentence == f"Faulty, environment 1, vector step 2: step raised {raised}. Correct the environment."
    assert "faulty_environments.py" in trace[0]
    assert not any("gymnasium" in line for line in trace)
    assert capfd.readouterr().err == ""


def test_environments_with_different_spaces_are_no_batch() -> None:
    with pytest.raises(UsageError, match=r"Various: the environments have different spaces\. Make them all alike"):
        make(Various, num_envs=2, vectorization="subprocess")


class Various(Faulty):
    """Is larger in each process."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(-1, 1, (2 + os.getpid() % 99,), np.float32)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("four values", "step gave 4 values, as in the old Gym"),
        ("observation shape", "it gave an observation of shape (3,), its space says (2,)"),
    ],
)
def test_one_that_gives_what_none_may(fault: str, said: str) -> None:
    assert said in failing(workers(fault), UsageError)


def test_one_whose_reset_fails() -> None:
    stepper = workers("raise", when=1)
    with pytest.raises(EnvironmentFailedError, match="environment 1, vector step 0: reset raised IndexError"):
        stepper.reset(0)
    stepper.close()


class OnlyInTheTrainer(Faulty):
    """Cannot be made in a worker: its port is taken, for example."""

    def __init__(self, how: str) -> None:
        super().__init__()
        if in_worker():
            os._exit(4) if how == "dies" else fail_to_listen()


def fail_to_listen() -> None:
    raise OSError("address in use")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", r"factory OnlyInTheTrainer failed .*OSError: address in use"),
        ("dies", r"environment 0, vector step 0: its process ended with exit code 4"),
    ],
)
def test_one_that_cannot_be_made_there(how: str, said: str) -> None:
    with pytest.raises(DuettoError, match=said):
        make(OnlyInTheTrainer, num_envs=2, vectorization="subprocess", kwargs={"how": how})


@pytest.mark.parametrize("lock", [multiprocessing.Lock, threading.Lock])
def test_one_that_cannot_be_sent_there(lock: Any) -> None:
    with pytest.raises(UsageError, match=r'Faulty cannot be sent to a separate process .* vectorization="sync"'):
        make(Faulty, vectorization="subprocess", kwargs={"fault": lock()})


def test_the_end_of_a_job_reaches_them_and_they_do_not_mind() -> None:
    stepper = workers()
    stepper.reset(0)
    for process in stepper.engine.processes:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(process.pid, number)
    stepper.step(np.zeros((2, 1)))
    stepper.close()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="counts files in /proc")
def test_no_file_stays_open_once_they_are_closed() -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    workers(num_envs=2).close()
    gc.disable()
    try:
        before = opened()
        for _ in range(3):
            workers(num_envs=2).close()
        failing(workers("raise"))
        assert opened() == before
    finally:
        gc.enable()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_environments_may_have_processes_of_their_own() -> None:
    stepper = make(Parent, num_envs=2, vectorization="subprocess")
    stepper.reset(0)
    stepper.step(np.zeros((2, 1)))
    children = np.asarray(stepper.obs)[:, 0].astype(int).tolist()
    assert not any(gone([child], 0) for child in children)
    began = time.monotonic()
    stepper.close()
    assert time.monotonic() - began < 10
    assert gone(children, 1)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_one_that_is_killed_is_noticed_though_its_own_process_lives() -> None:
    stepper = make(Parent, num_envs=2, vectorization="subprocess", worker_timeout=0)
    stepper.reset(0)
    child = int(np.asarray(stepper.obs)[0, 0])
    try:
        stepper.engine.processes[0].kill()
        with pytest.raises(EnvironmentFailedError, match=r"environment 0, vector step 1: .* killed by SIGKILL"):
            stepper.step(np.zeros((2, 1)))
        stepper.close()
    finally:
        os.kill(child, signal.SIGKILL)


SCRIPT = """
import numpy as np
from faulty_environments import Faulty
from duetto.environments import make
if __name__ == "__main__":
    stepper = make(Faulty, num_envs=2, vectorization="subprocess", kwargs={"fault": "hang", "only": 1})
    stepper.reset(0)
    print(*(process.pid for process in stepper.engine.processes), flush=True)
    {then}
"""


def gone(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return not alive


def script(folder: Path, then: str, text: str = SCRIPT) -> tuple[subprocess.Popen[str], list[int]]:
    path = folder / "script.py"
    path.write_text(text.replace("{then}", then))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, str(path)], text=True, env=environment, **pipes)
    assert process.stdout is not None
    return process, [int(pid) for pid in process.stdout.readline().split()]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_a_script_that_forgets_to_close_them(tmp_path: Path) -> None:
    process, pids = script(tmp_path, "")
    try:
        assert process.communicate(timeout=30) == ("", "")
        assert gone(pids, 1)
    finally:
        process.kill()


HANGS = "stepper.step(np.zeros((2, 1))); print(flush=True); stepper.step(np.zeros((2, 1)))"
SHOWS = "print(*np.asarray(stepper.obs)[:, 0].astype(int), flush=True); import time; time.sleep(60)"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(("then", "count"), [(HANGS, 2), (SHOWS, 4)], ids=["one that hangs", "their own processes"])
def test_a_trainer_that_is_killed_takes_them_along_without_a_traceback(tmp_path: Path, then: str, count: int) -> None:
    made = SCRIPT.replace("Faulty", "Parent").replace(', kwargs={"fault": "hang", "only": 1}', "")
    process, pids = script(tmp_path, then, SCRIPT if then == HANGS else made)
    assert process.stdout is not None
    pids += [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == count
    time.sleep(0.5)  # now one of them hangs
    process.kill()
    try:
        assert gone(pids, 10)
        assert "Traceback" not in process.communicate(timeout=30)[1]
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
