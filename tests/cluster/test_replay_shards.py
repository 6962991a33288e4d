"""Runs whose replay buffer is sharded over processes of a simulated cluster: results, faults, refused options."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import simulated
from simulated import DIED, STEADY, Rates, Simulated
from small_runs import StopAt, assert_same, checkpoints, outcome, small, train
from test_cluster_runs import RECURRENT

import duetto
from duetto.cluster import config as options
from duetto.cluster.shard_server import ShardServer
from duetto.errors import UsageError
from duetto.runs.run import Run


class ShardKilling(Simulated):
    """A shard dies in a call of `method` after `after` such calls; this happens `times` times.

    `too_late`: it dies after it has handled the call.
    """

    def __init__(self, rates: Rates, method: str, after: int, times: int, too_late: bool) -> None:
        super().__init__(7, rates)
        self.method, self.after, self.times, self.too_late = method, after, times, too_late

    def _fate(self, process: Any, message: tuple[Any, ...]) -> Any:
        shard = isinstance(process.object, ShardServer)
        asked = [one.arguments[0] for one in message[0] if shard and one.method == "execute"]
        self.after -= self.method in asked
        if self.method not in asked or self.after >= 0 or self.times == 0 or not process.alive:
            return super()._fate(process, message)
        self.times -= 1
        answer = super()._fate(process, message) if self.too_late else None
        process.alive = False
        return DIED if answer is None or not answer.failure else answer


@dataclass(frozen=True)
class Simulation(simulated.Simulation):
    """A simulated cluster in which shards die in its first connection only."""

    rates: Rates = STEADY
    strike: dict[str, Any] = field(default_factory=lambda: {"method": ""})

    def connect(self, processes: int) -> Simulated:
        strike = {"after": 0, "times": 1, "too_late": False} | self.strike
        self.transports.append(
            ShardKilling(self.rates, **strike)
            if not self.transports
            else Simulated(8 + len(self.transports), self.rates)
        )
        return self.transports[-1]


ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "td3": ("Pendulum-v1", {"n_step": 3}),
    "r2d2": ("CartPole-v1", RECURRENT | {"n_step": 3, "head_hidden": (16,), "train_every": 2}),
}
RUN_OPTIONS: dict[str, Any] = {"num_envs": 4, "steps": 200, "evaluate_every": 0}


class NoticeLog:
    """A callback that collects the notices of a run."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def __call__(self, trainer: duetto.Trainer) -> None:
        self.all += [notice for notice in trainer.notices if notice not in self.all]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_run_is_unchanged_by_number_of_shards(tmp_path: Path, algorithm: str):
    environment, hyperparameters = ALGORITHMS[algorithm]
    agent = small(algorithm, **hyperparameters)
    whole = train(tmp_path, agent, environment, name="whole", cluster=Simulation(block=5), **RUN_OPTIONS)
    cluster = Simulation(block=5, replay_shards=3)
    spread = train(tmp_path, agent, environment, name="spread", cluster=cluster, callbacks=[StopAt(90)], **RUN_OPTIONS)
    assert spread.config.cluster == {"mode": "sync", "actors": 2, "block": 5}
    spread.resume(cluster=Simulation(), callbacks=[StopAt(130)])
    spread.resume(cluster=Simulation(replay_shards=1), callbacks=[StopAt(170)])
    spread.resume(cluster=Simulation(replay_shards=2))
    assert_same(whole, spread)


DEATHS = [
    ("store", 30, False),
    ("resolve", 30, True),
    ("segment", 3, True),
    ("load_segment", 1, False),
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run without faults."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "find_spec", lambda name: name)
        folder = tmp_path_factory.mktemp("undisturbed")
        return train(folder, small("td3", prioritized=True), cluster=Simulation(block=5), **RUN_OPTIONS)


@pytest.mark.parametrize(("method", "after", "too_late"), DEATHS)
def test_run_is_unchanged_by_shard_death(tmp_path: Path, undisturbed: Run, method: str, after: int, too_late: bool):
    agent = small("td3", prioritized=True)
    strike = {"method": method, "after": after, "too_late": too_late}
    struck, said = Simulation(block=5, replay_shards=2, strike=strike), NoticeLog()
    if method == "load_segment":
        run = train(tmp_path, agent, name="struck", cluster=Simulation(block=5), callbacks=[StopAt(130)], **RUN_OPTIONS)
        run.resume(cluster=struck, callbacks=[said])
    else:
        run = train(tmp_path, agent, name="struck", cluster=struck, callbacks=[said], **RUN_OPTIONS)
    assert len(struck.transports) == 2
    [notice] = [notice for notice in said.all if "replay memory" in notice]
    assert notice.startswith("Shard ")
    assert " of the replay memory (environments " in notice
    assert re.search(r"died\. The run continues from its checkpoint of step \d+\.$", notice)
    assert_same(undisturbed, run)


def test_async_run_reports_steps_lost_by_shard_death(tmp_path: Path):
    said = NoticeLog()
    strike = {"method": "store", "after": 60, "times": 1}
    cluster = Simulation(mode="async", actors=2, block=5, replay_shards=2, strike=strike)
    agent = small("td3", prioritized=True)
    run = train(tmp_path, agent, cluster=cluster, callbacks=[said], **RUN_OPTIONS)
    assert len(cluster.transports) == 2
    found = outcome(run)
    assert found["state"]["learner"]["updates"] == found["step"] - 30
    [notice] = [notice for notice in said.all if "shard" in notice.lower()]
    lost = re.search(r"The run continues from its checkpoint of step (\d+); (\d+) steps are lost\.$", notice)
    assert lost is not None
    assert 0 < int(lost[2]) <= 40 + 4  # a checkpoint is written every 40 steps
    run.resume(steps=240, cluster=Simulation(mode="async"))  # with the replay buffer in one process again
    state = checkpoints(run).load_latest().state
    assert state["learner"]["updates"] == state["trainer"]["step"] - 30


@pytest.mark.parametrize(("shards", "steps"), [(2, [30]), (0, [])])
def test_first_checkpoint_follows_random_steps_only_with_shards(tmp_path: Path, shards: int, steps: list[int]):
    """Without shards a run never returns to a checkpoint, so it keeps its interval."""
    seen: list[int] = []
    cluster = Simulation(mode="async", actors=1, block=5, replay_shards=shards)
    how = RUN_OPTIONS | {"num_envs": 1, "steps": 70, "checkpoint_every": 60}
    train(
        tmp_path,
        cluster=cluster,
        callbacks=[lambda s: seen.extend([s.checkpoints.step] if s.step == 50 else [])],
        **how,
    )
    assert [step for step in seen if step is not None] == steps


def test_unsupported_replay_shards_are_refused_before_writing(tmp_path: Path):
    with pytest.raises(UsageError, match=r"ppo learns from rollouts, .*, without replay_shards"):
        train(tmp_path, small("ppo"), cluster=Simulation(replay_shards=2))
    with pytest.raises(UsageError, match="Hindsight computes rewards of other goals with the environment"):
        train(
            tmp_path,
            small("td3", hindsight="future"),
            "goal_environment:GoalLine-v0",
            cluster=Simulation(replay_shards=2),
        )
    with pytest.raises(UsageError, match="replay_shards is -1; it must be at least 0"):
        duetto.Cluster(replay_shards=-1)
    assert list(tmp_path.iterdir()) == []
    run = train(tmp_path, small("ppo"), "CartPole-v1", steps=40, evaluate_every=0, cluster=Simulation())
    with pytest.raises(UsageError, match=r"ppo learns from rollouts, .*, without replay_shards"):
        Run(run.path).resume(steps=60, cluster=Simulation(replay_shards=2))


def test_surplus_shards_are_reported(tmp_path: Path):
    said = NoticeLog()
    cluster = Simulation(replay_shards=3)
    train(tmp_path, num_envs=2, steps=40, cluster=cluster, callbacks=[said], evaluate_every=0)
    assert sum(isinstance(process.object, ShardServer) for process in cluster.transports[0]._processes) == 2
    assert "the run uses 2 of the 3 shards. Give more --num-envs." in said.all[0]


def test_unstartable_shard_and_missing_memory_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fate = Simulated._fate
    monkeypatch.setattr(
        Simulated, "_fate", lambda self, *call: DIED if isinstance(call[0].object, ShardServer) else fate(self, *call)
    )
    with pytest.raises(UsageError, match=r"^Shard 0 of the replay memory \(environments 0 to 1\) could not be started"):
        train(tmp_path, cluster=Simulation(replay_shards=2), **RUN_OPTIONS)
    monkeypatch.undo()
    monkeypatch.setattr(options, "find_spec", lambda name: name)
    with pytest.raises(
        UsageError, match=r"replay_capacity \d+ needs .* GiB of memory, which this machine does not have"
    ):
        train(tmp_path, small(replay_capacity=10**15), cluster=Simulation(replay_shards=2), **RUN_OPTIONS)
    assert list(tmp_path.iterdir()) == []
