"""Runs on a real Ray cluster with three nodes on this machine, with killed actors, shards, nodes and drivers."""

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
from simulated import STEADY, Simulation
from small_runs import assert_same, outcome, small, train

import duetto
from duetto.errors import UsageError
from duetto.runs.run import Run

ray: Any = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc"),
    pytest.mark.filterwarnings("default"),  # Ray itself warns
]
STORE = 80 * 2**20


class RayNodes:
    """A head node and two more nodes, each with its own processes."""

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


FinalChecks = list[Callable[[], None]]


@pytest.fixture(scope="module")
def final_checks() -> Iterator[FinalChecks]:
    """Checks that run at the end of the module, since Ray's agents take long to end."""
    checks: FinalChecks = []
    yield checks
    for check in checks:
        check()


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    folder = tempfile.mkdtemp(prefix="duetto-ray-")
    Path(folder, "ray").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", folder)
        started = RayNodes(folder)
        yield started
        started.close()
    shutil.rmtree(folder)


def processes(temporary: str | Path, title: str = "") -> list[int]:
    """Return the ids of processes started with this temporary folder and with `title` in their command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            began = f"={temporary}".encode() in (folder / "environ").read_bytes()
            if began and title.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


class FaultAt:
    """A callback that calls `deed` once, at a step."""

    def __init__(self, step: int, deed: Any) -> None:
        self.step, self.deed, self.said = step, deed, []

    def __call__(self, trainer: duetto.Trainer) -> None:
        if trainer.step >= self.step and self.deed:
            deed, self.deed = self.deed, None
            deed()
        self.said = list(trainer.notices)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_unreachable_ray_address_is_reported_without_calling_ray(scheme: str, monkeypatch: pytest.MonkeyPatch):
    """Ray itself would wait for minutes and ignore Ctrl-C."""
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


def test_killed_driver_leaves_no_processes_and_resumes_exactly(
    nodes: RayNodes, tmp_path: Path, final_checks: FinalChecks
):
    """The driver starts its own cluster; only the folder with Ray's logs may remain."""
    temporary, before = Path(tempfile.mkdtemp(prefix="d")), shared_memory()
    (tmp_path / "driver.py").write_text(DRIVER)
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, "driver.py", str(tmp_path)], cwd=tmp_path, env=variables, check=False)
    assert done.returncode == -signal.SIGKILL
    left = shared_memory() - before
    again = Run(tmp_path / "killed").resume(cluster=duetto.Cluster(actors=2))
    assert_same(train(tmp_path, name="undisturbed", num_envs=2, cluster=Simulation(actors=2, rates=STEADY)), again)

    def check_nothing_is_left() -> None:
        wait_until(lambda: not processes(temporary), 90)
        assert not shared_memory() & left
        assert [path.name[:11] for path in temporary.iterdir()] == ["duetto-ray-"]
        shutil.rmtree(temporary)

    final_checks.append(check_nothing_is_left)


@pytest.mark.parametrize("algorithm", ["td3", "ppo", "r2d3"])
def test_sync_run_is_unchanged_by_actor_kill(nodes: RayNodes, tmp_path: Path, algorithm: str):
    """The results equal those of the simulated cluster, which `tests/golden` records."""
    options: dict[str, Any] = {} if algorithm in ("td3", "ppo") else SEQUENCES | CHOICES
    if algorithm == "r2d3":
        options |= {"demonstrations": recorded(tmp_path / "demos"), "pretraining_updates": 3}
    environment = "Pendulum-v1" if algorithm == "td3" else "CartPole-v1"
    how: dict[str, Any] = {"algorithm": small(algorithm, **options), "environment": environment}
    how |= {"num_envs": 4, "evaluate_every": 0} | CUT  # otherwise the killed actor could be the one that evaluates
    undisturbed = train(tmp_path, name="undisturbed", cluster=Simulation(actors=2, rates=STEADY), **how)
    assert undisturbed.config.cluster == {"mode": "sync", "actors": 2, "block": 16}
    strike = FaultAt(20, lambda: os.kill(processes(nodes.folder, "ray::ActorServer")[0], signal.SIGKILL))
    struck = train(tmp_path, name="struck", cluster=duetto.Cluster(actors=2), callbacks=[strike], **how)
    assert_same(undisturbed, struck)
    assert struck.metrics()[-1]["time/actor_restarts"] == 1
    assert [notice for notice in strike.said if "died" in notice and "no number has changed" in notice]
    wait_until(lambda: not processes(nodes.folder, "ray::ActorServer"))


def test_sharded_run_is_unchanged_by_actor_and_shard_kills(nodes: RayNodes, tmp_path: Path):
    """An actor and then a shard are killed; the results equal those of a replay buffer in the driver."""
    how: dict[str, Any] = {"num_envs": 4, "evaluate_every": 0}
    paced: dict[str, Any] = {"actors": 2, "mode": "sync", "block": 5}
    here = train(tmp_path, name="here", cluster=Simulation(**paced, rates=STEADY), **how)
    actor = FaultAt(60, lambda: os.kill(processes(nodes.folder, "ray::ActorServer")[0], signal.SIGKILL))
    shard = FaultAt(130, lambda: os.kill(processes(nodes.folder, "ray::ShardServer")[0], signal.SIGKILL))
    cluster = duetto.Cluster(replay_shards=2, **paced)
    handed = train(tmp_path, name="handed", cluster=cluster, callbacks=[actor, shard], **how)
    assert_same(here, handed)
    assert [said for said in shard.said if "of the replay memory" in said and "from its checkpoint of step" in said]
    wait_until(lambda: not processes(nodes.folder, "ray::ShardServer"))


def test_async_run_counts_updates_correctly_after_actor_kill(nodes: RayNodes, tmp_path: Path):
    strike = FaultAt(90, lambda: os.kill(processes(nodes.folder, "ray::ActorServer")[0], signal.SIGKILL))
    cluster = duetto.Cluster(actors=2, mode="async", block=4)
    run = train(tmp_path, num_envs=4, cluster=cluster, callbacks=[strike], evaluate_every=0)
    found = outcome(run)
    assert found["state"]["learner"]["updates"] == found["step"] - 30
    assert run.metrics()[-1]["time/actors"] == 2


def test_second_cluster_and_too_many_actors_are_refused(nodes: RayNodes, tmp_path: Path):
    with pytest.raises(UsageError, match="connected to a Ray cluster already"):
        train(tmp_path, num_envs=2, cluster=duetto.Cluster(nodes.cluster.address))
    with pytest.raises(UsageError, match="The cluster has 6 CPUs, but actors and replay shards need 7, one each"):
        train(tmp_path, num_envs=9, cluster=duetto.Cluster(actors=7))
    assert list(tmp_path.iterdir()) == []


def test_sync_run_is_unchanged_by_node_loss(nodes: RayNodes, tmp_path: Path):
    def lose_a_node() -> None:
        nodes.cluster.remove_node(nodes.others.pop(), allow_graceful=False)

    strike = FaultAt(90, lose_a_node)
    how: dict[str, Any] = {"algorithm": small("td3", n_step=3), "environment": Line, "num_envs": 3}
    quiet = train(tmp_path, name="quiet", cluster=Simulation(actors=3, block=5, rates=STEADY), **how)
    spread = train(tmp_path, name="spread", cluster=duetto.Cluster(actors=3, block=5), callbacks=[strike], **how)
    assert_same(quiet, spread)
    assert spread.metrics()[-1]["time/actor_restarts"] >= 1


def test_train_command_hides_cluster_output_and_cleans_up(tmp_path: Path):
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
    assert "If the cluster fails and ends this process" in out + err
    assert " died (its process was killed" in out + err
    assert "ray" not in (out + err).lower().replace("array", "")
    assert {line["time/actors"] for line in Run(tmp_path / "whole").metrics()} == {2}
    assert list(temporary.iterdir()) == []
    assert not processes(temporary)
    assert shared_memory() <= before
    temporary.rmdir()


def shared_memory() -> set[str]:
    """Return the names in /dev/shm except semaphores, which Ray does not use and other tests do."""
    return {path.name for path in Path("/dev/shm").iterdir() if not path.name.startswith("sem.")}


def wait_until(happened: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.1)
