"""The real thing: a Ray cluster of three nodes on this machine, of which parts are killed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from demonstrated import CHOICES, CUT, SEQUENCES, recorded
from line_environment import Line
from small_runs import assert_same, outcome, small, train
from test_sync_reference import CASES, assert_same_record, expected, recorded_run

import duetto
from duetto.errors import UsageError
from duetto.runs.run import Run

ray: Any = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc"),
    pytest.mark.filterwarnings("default"),  # Ray's own
]
STORE = 80 * 2**20


class Nodes:
    """A head and two more, each with its own processes."""

    def __init__(self, folder: str) -> None:
        from ray.cluster_utils import Cluster

        self.folder = folder
        how = {"num_cpus": 2, "object_store_memory": STORE, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=how)
        self.others = [self.cluster.add_node(num_cpus=2, object_store_memory=STORE) for _ in range(2)]
        ray.init(self.cluster.address, log_to_driver=False)

    def close(self) -> None:
        ray.shutdown()
        self.cluster.shutdown()


Checks = list[Callable[[], None]]


@pytest.fixture(scope="module")
def at_the_end() -> Iterator[Checks]:
    """Checks of what takes its time, as Ray's agents do before they end."""
    checks: Checks = []
    yield checks
    for check in checks:
        check()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    folder = tempfile.mkdtemp(prefix="duetto-ray-")
    Path(folder, "ray").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", folder)
        started = Nodes(folder)
        yield started
        started.close()
    shutil.rmtree(folder)


def processes(temporary: str | Path, title: str = "") -> list[int]:
    """Ids of processes that were started with this temporary folder, and whose command has the title."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            began = f"={temporary}".encode() in (folder / "environ").read_bytes()
            if began and title.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


class Strike:
    """A callback that does something terrible at a step, once."""

    def __init__(self, step: int, deed: Any) -> None:
        self.step, self.deed, self.said = step, deed, []

    def __call__(self, trainer: duetto.Trainer) -> None:
        if trainer.step >= self.step and self.deed:
            deed, self.deed = self.deed, None
            deed()
        self.said = list(trainer.notices)


def test_what_a_process_raised_is_said_in_a_line():
    """Ray's own text is a traceback, which starts with colours."""
    from duetto.cluster.ray import _first_line

    trace = "\x1b[36mray::ShardServer.do()\x1b[39m (pid=7)\n  File ...\nModuleNotFoundError: No module named 'own'"
    error = ray.exceptions.RayTaskError("do", trace, ModuleNotFoundError("No module named 'own'"), "ray", 7, "::1")
    for one in (error, error.as_instanceof_cause()):
        assert _first_line(one) == "ModuleNotFoundError: No module named 'own'"
    assert _first_line(ray.exceptions.RaySystemError("\x1b[31mFull.\x1b[39m")) == "System error: Full"


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_port_where_nothing_listens_is_reported_within_seconds(scheme: str, monkeypatch: pytest.MonkeyPatch):
    """Ray itself would wait for minutes, and not hear Ctrl-C."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda *_, **__: pytest.fail("Ray was asked"))
    with socket.create_server(("127.0.0.1", 0)) as listens:
        port = listens.getsockname()[1]
    with pytest.raises(UsageError, match=rf"no Ray cluster at {scheme}127.0.0.1:{port} "):
        duetto.Cluster(f"{scheme}127.0.0.1:{port}").connect(1)


DRIVER = """
import os, signal, sys
from pathlib import Path
import duetto
from small_runs import train

if __name__ == "__main__":
    def strike(trainer):
        if trainer.step >= 90:
            os.kill(os.getpid(), signal.SIGKILL)

    train(Path(sys.argv[1]), name="killed", num_envs=2, cluster=duetto.Cluster(actors=2), callbacks=[strike])
"""


def test_a_driver_that_is_killed_leaves_nobody_behind_and_goes_on_elsewhere(
    nodes: Nodes, tmp_path: Path, at_the_end: Checks
):
    """It had a cluster of its own, of which a folder with Ray's logs is all that is left."""
    temporary, before = Path(tempfile.mkdtemp(prefix="d")), shared_memory()
    (tmp_path / "driver.py").write_text(DRIVER)
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, "driver.py", str(tmp_path)], cwd=tmp_path, env=variables, check=False)
    assert done.returncode == -signal.SIGKILL
    left = shared_memory() - before
    again = Run(tmp_path / "killed").resume(cluster=duetto.Cluster(actors=2))
    assert_same(train(tmp_path, name="undisturbed", num_envs=2, cluster=duetto.Cluster(actors=2)), again)

    def nobody_is_left() -> None:
        wait_until(lambda: not processes(temporary), 90)
        assert not shared_memory() & left
        assert [path.name[:11] for path in temporary.iterdir()] == ["duetto-ray-"]
        shutil.rmtree(temporary)

    at_the_end.append(nobody_is_left)


@pytest.mark.parametrize("algorithm", ["td3", "ppo", "r2d2", "r2d3"])
def test_kill_9_of_an_actor_changes_no_number(nodes: Nodes, tmp_path: Path, algorithm: str):
    options: dict[str, Any] = {} if algorithm in ("td3", "ppo") else SEQUENCES | CHOICES
    if algorithm == "r2d3":
        options |= {"demonstrations": recorded(tmp_path / "demos"), "pretraining_updates": 3}
    environment = "Pendulum-v1" if algorithm == "td3" else "CartPole-v1"
    how: dict[str, Any] = {"algorithm": small(algorithm, **options), "environment": environment}
    how |= {"num_envs": 4, "evaluate_every": 0} | CUT  # else who is killed may be the one that evaluates
    cluster = duetto.Cluster(actors=2)
    undisturbed = train(tmp_path, name="undisturbed", cluster=cluster, **how)
    assert undisturbed.config.cluster == {"mode": "sync", "actors": 2, "block": 16}
    strike = Strike(20, lambda: os.kill(processes(nodes.folder, "ray::ActorServer")[0], signal.SIGKILL))
    struck = train(tmp_path, name="struck", cluster=cluster, callbacks=[strike], **how)
    assert_same(undisturbed, struck)
    assert struck.metrics()[-1]["time/actor_restarts"] == 1
    assert [notice for notice in strike.said if "died" in notice and "no number has changed" in notice]
    wait_until(lambda: not processes(nodes.folder, "ray::ActorServer"))


@pytest.mark.parametrize("case", CASES)
def test_a_sync_run_on_ray_equals_the_reference(nodes: Nodes, tmp_path: Path, case: str):
    """And so the simulated cluster, which is compared with the same reference."""
    assert_same_record(expected(case), recorded_run(case, tmp_path, duetto.Cluster))


def test_blocks_go_to_shards_and_outlive_the_actors_that_made_them(nodes: Nodes, tmp_path: Path):
    """An actor and then a shard are killed; the numbers are those of a memory in the process."""
    how: dict[str, Any] = {"num_envs": 4, "evaluate_every": 0}
    paced: dict[str, Any] = {"actors": 2, "mode": "sync", "block": 5}
    here = train(tmp_path, name="here", cluster=duetto.Cluster(**paced), **how)
    actor = Strike(60, lambda: os.kill(processes(nodes.folder, "ray::ActorServer")[0], signal.SIGKILL))
    shard = Strike(130, lambda: os.kill(processes(nodes.folder, "ray::ShardServer")[0], signal.SIGKILL))
    cluster = duetto.Cluster(replay_shards=2, **paced)
    handed = train(tmp_path, name="handed", cluster=cluster, callbacks=[actor, shard], **how)
    assert_same(here, handed)
    assert [said for said in shard.said if "of the replay memory" in said and "from its checkpoint of step" in said]
    wait_until(lambda: not processes(nodes.folder, "ray::ShardServer"))


def test_kill_9_of_an_actor_in_async_leaves_every_count_right(nodes: Nodes, tmp_path: Path):
    strike = Strike(90, lambda: os.kill(processes(nodes.folder, "ray::ActorServer")[0], signal.SIGKILL))
    cluster = duetto.Cluster(actors=2, mode="async", block=4)
    run = train(tmp_path, num_envs=4, cluster=cluster, callbacks=[strike], evaluate_every=0)
    found = outcome(run)
    assert found["state"]["learner"]["updates"] == found["step"] - 30
    assert run.metrics()[-1]["time/actors"] == 2


def test_one_process_has_one_cluster(nodes: Nodes, tmp_path: Path):
    with pytest.raises(UsageError, match="connected to a Ray cluster already"):
        train(tmp_path, num_envs=2, cluster=duetto.Cluster(nodes.cluster.address))
    with pytest.raises(UsageError, match="The cluster has 6 CPUs, and 7 processes take one each: actors and"):
        train(tmp_path, num_envs=9, cluster=duetto.Cluster(actors=7))
    assert list(tmp_path.iterdir()) == []


def test_who_waits_for_one_is_given_all_that_have_come(nodes: Nodes):
    """Blocks that have come together are handed out together."""
    from duetto.cluster.ray import RayTransport

    class Echo:  # in here, since processes of Ray do not find tests
        def do(self, word: str) -> str:
            return word

    transport = RayTransport(None, 2)
    workers = [transport.start(Echo) for _ in range(2)]
    calls = [transport.call(worker, word) for worker, word in zip(workers, ("one", "two"), strict=True)]
    ray.wait(calls, num_returns=2)
    found = transport.wait(calls, 20.0, 1)
    assert sorted(answer.value for answer in found.values()) == ["one", "two"]
    for worker in workers:
        transport.kill(worker)
    transport.close()


def test_a_node_that_is_gone_without_a_word_changes_no_number(nodes: Nodes, tmp_path: Path):
    def lose_a_node() -> None:
        nodes.cluster.remove_node(nodes.others.pop(), allow_graceful=False)

    strike = Strike(90, lose_a_node)
    how: dict[str, Any] = {"algorithm": small("td3", n_step=3), "environment": Line, "num_envs": 3}
    quiet = train(tmp_path, name="quiet", cluster=duetto.Cluster(actors=3, block=5), **how)
    spread = train(tmp_path, name="spread", cluster=duetto.Cluster(actors=3, block=5), callbacks=[strike], **how)
    assert_same(quiet, spread)
    assert spread.metrics()[-1]["time/actor_restarts"] >= 1


def test_the_command_says_nothing_of_ray_and_nothing_is_left(tmp_path: Path):
    temporary, before = Path(tempfile.mkdtemp(prefix="d")), shared_memory()
    options = "--hidden 16 16 --batch-size 16 --random-steps 30 --learning-starts 30 --backend torch --steps 200"
    options += " --num-envs 2 --evaluation-episodes 1 --log-every 20 --cluster --actors 2 --name whole"
    command = [sys.executable, "-c", "from duetto.tools.cli import main; main()", "train", "td3", "Pendulum-v1"]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary), "COLUMNS": "80"}
    whole = [*command, *options.split(), "--runs-dir", str(tmp_path)]
    process = subprocess.Popen(whole, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: list(tmp_path.glob("whole/metrics.jsonl")) and Run(tmp_path / "whole").metrics(), seconds=120)
    for pid in processes(temporary, "ray::ActorServer"):
        os.kill(pid, signal.SIGKILL)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert " died (its process was killed" in out + err
    assert "ray" not in (out + err).lower().replace("array", "")
    assert {line["time/actors"] for line in Run(tmp_path / "whole").metrics()} == {2}
    assert list(temporary.iterdir()) == []
    assert not processes(temporary)
    assert shared_memory() <= before
    temporary.rmdir()


def test_a_run_prints_first_how_to_continue_since_ray_ends_it_where_a_raylet_dies(tmp_path: Path, at_the_end: Checks):
    """Without a word: exit status 1, from Ray's own thread."""
    temporary = Path(tempfile.mkdtemp(prefix="d"))
    options = ["--hidden", "16", "16", "--batch-size", "16", "--backend", "torch", "--steps", "100000", "--name", "run"]
    program = "from duetto.tools.cli import main; main()"
    call = [sys.executable, "-c", program, "train", "td3", "Pendulum-v1", *options, "--runs-dir", ".", "--cluster"]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)}
    with subprocess.Popen(call, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_until((tmp_path / "run" / "metrics.jsonl").exists, 120)
            [raylet] = processes(temporary, "/raylet/raylet")
            os.kill(raylet, signal.SIGKILL)
            out, _ = process.communicate(timeout=90)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "\nIf the cluster fails and ends this process, continue with: duetto resume run\n" in out

    def nobody_is_left() -> None:
        wait_until(lambda: not processes(temporary), 90)
        shutil.rmtree(temporary)

    at_the_end.append(nobody_is_left)


def shared_memory() -> set[str]:
    """What lies there, but semaphores, which Ray does not use and other tests do."""
    return {path.name for path in Path("/dev/shm").iterdir() if not path.name.startswith("sem.")}


def wait_until(happened: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.1)
