"""Kill parts of a Ray cluster of three nodes on this machine while runs train on it, and compare the results.

    python benchmarks/faults.py --seconds 3000 --rows results/faults.csv --output results/faults.md

Each round trains one job from start to end, while faults come at random, and compares the result with that of the same
job undisturbed: the last checkpoint with its memory, and the logs, bit for bit, except times. In the mode async, where
the order depends on timing, it compares only the numbers of steps, updates and rows. Rounds are appended to the file
--rows, so that a campaign can continue with another --seed. Installs nothing.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report import circumstances, publish, table

sys.path.append(str(Path(__file__).parent.parent / "tests" / "training"))

from small_runs import differences, outcome

from duetto.runs.run import Run
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.config import versions

METHOD = """\
Runs of a few thousand steps on a Ray cluster of three nodes on this machine. During training, faults occur at random,
{gap:g} s apart on average: kill -9 of an actor or of a replay shard; an actor that hangs for a while
(a delay); a node that disappears with all its processes; kill -9 of the run itself, which is then resumed. A fault that
sends the run back to its checkpoint (its own death; with shards, the death of a shard or a node) occurs only after the
run has made another checkpoint. At the end the run is compared with the same one undisturbed: last checkpoint, replay
buffer and logs, bit for bit; in `async`, whose order depends on timing, every count: updates, steps, rows of each
environment. Repeated, late and lost answers are tested in the simulation (`tests/cluster/test_modes.py`)."""

COMMON = (
    "--hidden 32 32 --batch-size 16 --checkpoint-every 50 --log-every 100 --evaluate-every 600 --evaluation-episodes 1"
)
SMALL = f"{COMMON} --random-steps 100 --learning-starts 100 --replay-capacity 1000 --threads 1 --device cpu"
ROLLOUTS = (
    COMMON.replace("--batch-size 16 ", "") + " --rollout-steps 16 --epochs 2 --minibatches 2 --threads 1 --device cpu"
)
ACTORS = ("actor", "still", "node", "run")
PARTS = (*ACTORS, "shard")


@dataclass(frozen=True)
class Job:
    """A run to train, and the faults that it can have."""

    name: str
    mode: str
    train: str
    cluster: str
    deeds: tuple[str, ...] = ACTORS


JOBS = [
    Job("TD3, priorities", "sync", f"td3 Pendulum-v1 --num-envs 4 --steps 2400 --prioritized {SMALL}", "--actors 3"),
    Job(
        "TD3, two shards",
        "sync",
        f"td3 Pendulum-v1 --num-envs 4 --steps 2400 {SMALL}",
        "--actors 2 --replay-shards 2",
        PARTS,
    ),
    Job("PPO", "sync", f"ppo CartPole-v1 --num-envs 4 --steps 12000 {ROLLOUTS}", "--actors 2"),
    Job(
        "R2D2",
        "sync",
        f"r2d2 CartPole-v1 --num-envs 4 --steps 2400 {SMALL} --recurrent-size 16 --burn-in 4 --unroll 4 --overlap 4",
        "--actors 2",
    ),
    Job("DQN", "async", f"dqn CartPole-v1 --num-envs 4 --steps 4000 {SMALL}", "--actors 2"),
]


@dataclass
class Round:
    """One job, trained with faults."""

    job: Job
    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    gave_up: int = 0  # how often the run stopped after three failures in a row, as documented, and was resumed
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def row(self) -> dict[str, Any]:
        kinds = {kind: self.faults[kind] for kind in DEEDS}
        own = {"job": self.job.name, "mode": self.job.mode, "seed": self.seed}
        return (
            own
            | kinds
            | {
                "gave_up": self.gave_up,
                "differences": len(self.differences),
                "first_difference": (self.differences or [""])[0][:200],
                "seconds": round(self.seconds),
            }
        )


class Nodes:
    """A Ray cluster: a head, and two nodes that may die."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="duetto-ray-")
        os.environ |= {"RAY_TMPDIR": self.folder, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
        from ray.cluster_utils import Cluster

        self._how = {"num_cpus": 8, "object_store_memory": 80 * 2**20}
        self._cluster = Cluster(initialize_head=True, head_node_args=self._how | {"include_dashboard": False})
        self._others = [self._cluster.add_node(**self._how) for _ in range(2)]
        self.address: str = self._cluster.address

    def lose_one(self, which: int) -> None:
        """Remove a node and add another. Ray's tool may fail on a busy machine, which is not the run's failure."""
        from ray.exceptions import RpcError

        with suppress(RpcError):
            self._cluster.remove_node(self._others.pop(which % len(self._others)), allow_graceful=False)
        self._others.append(self._cluster.add_node(**self._how))

    def processes(self, title: str) -> list[int]:
        """Return the cluster's processes with this title in their commands."""
        return sorted(_processes(lambda folder, command: title in command and self._has(folder)))

    def _has(self, folder: Path) -> bool:
        return f"RAY_TMPDIR={self.folder}".encode() in (folder / "environ").read_bytes()

    def close(self) -> None:
        self._cluster.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)


def _processes(wanted: Callable[[Path, str], bool]) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted(folder, (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")):
                yield int(folder.name)


class Struck:
    """Trains the run of one round, and causes faults until the run has ended."""

    def __init__(self, made: Round, nodes: Nodes, folder: Path, gap: float) -> None:
        self._round, self._nodes, self._folder, self._gap = made, nodes, folder, gap
        self._random = random.Random(f"{made.job.name} {made.seed}")
        self._process: subprocess.Popen[bytes] | None = None
        self._run = folder / "run"
        self._sent_back_at = -1

    def _newest(self) -> int:
        """Return the step of the newest checkpoint; -1 before the first checkpoint."""
        return max(CheckpointStore(self._run / "checkpoints").steps(), default=-1)

    def train(self) -> None:
        """Train from start to end; if the run dies, resume it."""
        where = ["--cluster", self._nodes.address, *self._round.job.cluster.split()]
        start = [*f"train {self._round.job.train} --mode {self._round.job.mode}".split(), *where]
        start += ["--runs-dir", str(self._folder), "--name", "run"]
        while True:
            command = ["resume", str(self._run), *where] if self._run.is_dir() else start
            with Path(self._folder, "errors").open("w+b") as said:
                how: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": said}
                self._process = subprocess.Popen([sys.executable, "-m", "duetto", *command], **how)
                self._strike(self._process)
                said.seek(0)
                errors = said.read().decode("utf-8", "replace")
            if self._process.returncode == 0:
                return
            if self._process.returncode != -signal.SIGKILL:
                self._round.gave_up += 1
                print(f"    it ended with {self._process.returncode}: {errors.strip()[-3000:]}", flush=True)
                if self._round.gave_up > 100:
                    raise SystemExit(f"{self._round.job.name} cannot continue:\n{errors}")

    def _strike(self, process: subprocess.Popen[bytes]) -> None:
        """Cause faults until the process has ended. Runs in the main thread, since Ray adds nodes only there."""
        while True:
            try:
                process.wait(self._random.expovariate(1 / self._gap))
                return
            except subprocess.TimeoutExpired:
                deeds = self._round.job.deeds
                deed, newest = self._random.choice(deeds), self._newest()
                sends_back = deed == "run" or (deeds == PARTS and deed in ("node", "shard"))
                if (not sends_back or newest > self._sent_back_at) and DEEDS[deed](self):
                    self._round.faults[deed] += 1
                    self._sent_back_at = newest if sends_back else self._sent_back_at

    def _kill_one(self, pids: list[int]) -> bool:
        if not pids:
            return False
        with suppress(ProcessLookupError):
            os.kill(self._random.choice(pids), signal.SIGKILL)
            return True
        return False

    def kill_actor(self) -> bool:
        return self._kill_one(self._nodes.processes("ray::ActorServer"))

    def kill_shard(self) -> bool:
        return self._kill_one(self._nodes.processes("ray::ShardServer"))

    def hold_actor(self) -> bool:
        pids = self._nodes.processes("ray::ActorServer")
        if not pids:
            return False
        pid = self._random.choice(pids)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self._random.expovariate(1.0))
            os.kill(pid, signal.SIGCONT)
        return True

    def lose_node(self) -> bool:
        self._nodes.lose_one(self._random.randrange(2))
        return True

    def kill_run(self) -> bool:
        assert self._process is not None
        self._process.kill()
        return True


DEEDS: dict[str, Callable[[Struck], bool]] = {
    "actor": Struck.kill_actor,
    "still": Struck.hold_actor,
    "node": Struck.lose_node,
    "shard": Struck.kill_shard,
    "run": Struck.kill_run,
}


def counts(run: Run) -> dict[str, Any]:
    """Return the counts that timing must not change in the mode async."""
    loaded = CheckpointStore(run.path / "checkpoints").load_latest()
    state = loaded.state
    return {
        "step": loaded.step,
        "updates": state["learner"]["updates"],
        "rows": int(state["memory"]["written"].sum()),
        "schedule": state["memory"]["schedule"],
        "evaluations": [row["step"] for row in run.evaluations()],
        "metrics": [line["step"] for line in run.metrics()],
    }


def undisturbed(job: Job, nodes: Nodes, folder: Path) -> Any:
    """Return the job's result without faults."""
    command = [*f"train {job.train} --mode {job.mode} {job.cluster}".split(), "--cluster", nodes.address]
    own = ["--runs-dir", str(folder), "--name", "undisturbed"]
    subprocess.run([sys.executable, "-m", "duetto", *command, *own], check=True, stdout=subprocess.DEVNULL)
    return result_of(job, folder / "undisturbed")


def result_of(job: Job, folder: Path) -> Any:
    run = Run(folder)
    return counts(run) if job.mode == "async" else outcome(run)


def campaign(seconds: float, seed: int, gap: float, rows: Path, only: list[str]) -> None:
    """Train rounds until the time is over; record each at its end."""
    until, expected = time.monotonic() + seconds, dict[str, Any]()
    jobs = [job for job in JOBS if not only or job.name in only]
    nodes = Nodes()
    try:
        with tempfile.TemporaryDirectory(prefix="duetto-faults-") as parent:
            while time.monotonic() < until:
                for job in jobs:
                    if job.name not in expected:
                        expected[job.name] = undisturbed(job, nodes, Path(parent, job.name))
                    made = Round(job, seed)
                    folder, started = Path(parent, f"{job.name} {seed}"), time.monotonic()
                    folder.mkdir()
                    Struck(made, nodes, folder, gap).train()
                    made.differences = differences(expected[job.name], result_of(job, folder / "run"))
                    made.seconds = time.monotonic() - started
                    shutil.rmtree(folder)
                    _append(rows, made.row())
                    print(made.row(), flush=True)
                seed += 1
    finally:
        nodes.close()


def _append(path: Path, row: dict[str, Any]) -> None:
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row))
        if new:
            writer.writeheader()
        writer.writerow(row)


def report(rows: Path, gap: float) -> str:
    """Return the report of all rounds so far."""
    with rows.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    body, total = [], 0
    for name, mode in dict.fromkeys((row["job"], row["mode"]) for row in found):
        own = [row for row in found if row["job"] == name]
        sums = [sum(int(row[kind]) for row in own) for kind in DEEDS]
        total += sum(sums)
        different = sum(row["differences"] != "0" for row in own)
        body.append([f"{name}, {mode}", len(own), *sums, sum(int(row["gave_up"]) for row in own), different])
    about = circumstances({"Versions": versions(("python", "duetto", "numpy", "torch", "ray"))})
    header = ["job", "runs", *DEEDS, "gave up", "runs that differ"]
    return "\n\n".join(
        [
            "# Faults",
            about,
            METHOD.format(gap=gap),
            table(header, body),
            f"{total} faults. *still*: an actor that hangs for a while. *gave up*: the run ended with an error, "
            "as it does when one actor has died three times without an answer, and was resumed. All rounds: "
            f"[{rows.name}]({rows.name}).",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--gap", type=float, default=2.0, help="seconds between two faults, in the mean")
    parser.add_argument("--jobs", nargs="*", default=[], help="only these, by name")
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.seconds:
        campaign(options.seconds, options.seed, options.gap, options.rows, options.jobs)
    publish(report(options.rows, options.gap), options.output)


if __name__ == "__main__":
    main()
