"""Environments in worker processes: crashes, hangs, errors, and no leftover processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_environments import Faulty, WithChildProcess

from duetto.environments import VecEnv, make
from duetto.errors import DuettoError, EnvironmentFailedError, UsageError

HERE = Path(__file__).parent


def children() -> set[str]:
    """Return the ids of this process's children; children of other tests, such as a tracker's, may continue."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(listed.read_text().split()) if listed.exists() else set()


@pytest.fixture(autouse=True)
def no_worker_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


def make_workers(fault: str = "", num_envs: int = 2, worker_timeout: float = 60, **options: Any) -> VecEnv:
    kwargs = {"fault": fault, "only": 1} | options
    return make(Faulty, num_envs=num_envs, vectorization="subprocess", worker_timeout=worker_timeout, kwargs=kwargs)


def failure_message(stepper: VecEnv, error: type[DuettoError] = EnvironmentFailedError) -> str:
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
def test_worker_that_dies_is_reported(fault: str, said: str) -> None:
    message = failure_message(make_workers(fault))
    assert message.startswith("Faulty, environment 1, vector step 2: ")
    assert said in message.splitlines()[0]


def test_worker_killed_by_the_system_is_reported() -> None:
    stepper = make_workers()
    stepper.reset(0)
    stepper.engine.processes[0].kill()
    stepper.engine.processes[0].wait()
    with pytest.raises(EnvironmentFailedError, match=r"environment 0, vector step 1: .* killed by SIGKILL. .* memory"):
        stepper.step(np.zeros((2, 1)))
    with pytest.raises(EnvironmentFailedError, match=r"environment 0, .* killed by SIGKILL"):
        stepper.state_dict()
    stepper.close()


def test_hanging_worker_times_out() -> None:
    message = failure_message(make_workers("hang", worker_timeout=0.5))
    said = "its process has not answered for 0.5 s. If that was not long enough, give it more time (--worker-timeout"
    assert message.startswith(f"Faulty, environment 1, vector step 2: {said}")


@pytest.mark.parametrize("fault", ["raise", "raise unpicklable error"])
def test_error_raised_in_a_worker_is_reported(fault: str, capfd: pytest.CaptureFixture[str]) -> None:
    sentence, *trace = failure_message(make_workers(fault)).splitlines()
    raised = "IndexError: list index out of range" if fault == "raise" else "PickyError: first line"
    assert sentence == f"Faulty, environment 1, vector step 2: step raised {raised}. Correct the environment."
    assert "faulty_environments.py" in trace[0]
    assert not any("gymnasium" in line for line in trace)
    assert capfd.readouterr().err == ""


def test_unpicklable_result_of_a_worker_is_reported() -> None:
    with closing(make_workers()) as workers, pytest.raises(EnvironmentFailedError, match=r"call raised .*pickle"):
        workers.call(lambda _: lambda: None)


def test_unpicklable_environment_is_refused_for_subprocess() -> None:
    with pytest.raises(UsageError, match=r'Faulty cannot be sent to a separate process .* vectorization="sync"'):
        make(Faulty, vectorization="subprocess", kwargs={"fault": threading.Lock()})


def test_workers_ignore_termination_signals() -> None:
    stepper = make_workers()
    stepper.reset(0)
    for process in stepper.engine.processes:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(process.pid, number)
    stepper.step(np.zeros((2, 1)))
    stepper.close()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_child_processes_of_environments_end_with_close() -> None:
    stepper = make(WithChildProcess, num_envs=2, vectorization="subprocess")
    stepper.reset(0)
    stepper.step(np.zeros((2, 1)))
    children = np.asarray(stepper.obs)[:, 0].astype(int).tolist()
    assert not any(all_gone([child], 0) for child in children)
    stepper.close()
    assert all_gone(children, 1)


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


def all_gone(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return not alive


def start_script(folder: Path, then: str, text: str = SCRIPT) -> tuple[subprocess.Popen[str], list[int]]:
    path = folder / "script.py"
    path.write_text(text.replace("{then}", then))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, str(path)], text=True, env=environment, **pipes)
    assert process.stdout is not None
    return process, [int(pid) for pid in process.stdout.readline().split()]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_workers_end_with_a_script_that_forgets_close(tmp_path: Path) -> None:
    process, pids = start_script(tmp_path, "")
    try:
        assert process.communicate(timeout=30) == ("", "")
        assert all_gone(pids, 1)
    finally:
        process.kill()


HANG_CODE = "stepper.step(np.zeros((2, 1))); print(flush=True); stepper.step(np.zeros((2, 1)))"
CHILDREN_CODE = "print(*np.asarray(stepper.obs)[:, 0].astype(int), flush=True); import time; time.sleep(60)"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("then", "count"), [(HANG_CODE, 2), (CHILDREN_CODE, 4)], ids=["hanging worker", "child processes"]
)
def test_killed_trainer_ends_its_workers_without_a_traceback(tmp_path: Path, then: str, count: int) -> None:
    made = SCRIPT.replace("Faulty", "WithChildProcess").replace(', kwargs={"fault": "hang", "only": 1}', "")
    process, pids = start_script(tmp_path, then, SCRIPT if then == HANG_CODE else made)
    assert process.stdout is not None
    pids += [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == count
    time.sleep(0.5)  # until a worker hangs
    process.kill()
    try:
        assert all_gone(pids, 10)
        assert "Traceback" not in process.communicate(timeout=30)[1]
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
