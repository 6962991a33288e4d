"""Runs whose replay memory lies in processes of a simulated cluster: the same numbers, whoever dies."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import simulated
from demonstrated import CHOICES, CUT, SEQUENCES, recorded
from simulated import DIED, STEADY, Rates, Simulated
from small_runs import OPTIONS, SMALL, StopAt, assert_same, checkpoints, outcome, small, train
from test_cluster_runs import RECURRENT

import duetto
from duetto.cluster import config as options
from duetto.cluster.shard_server import ShardServer
from duetto.errors import UsageError
from duetto.runs.run import Run, start
from duetto.runs.spec import RunSpec
from duetto.storage.config import RunOptions
from duetto.storage.user_code import named


class Struck(Simulated):
    """A shard dies of what it is asked: of `method`, after so many of these, and `times` times."""

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
    """A cluster that is none, in which shards die for the first time that it is used."""

    rates: Rates = STEADY
    strike: dict[str, Any] = field(default_factory=lambda: {"method": ""})

    def connect(self, processes: int) -> Simulated:
        strike = {"after": 0, "times": 1, "too_late": False} | self.strike
        self.transports.append(
            Struck(self.rates, **strike) if not self.transports else Simulated(8 + len(self.transports), self.rates)
        )
        return self.transports[-1]


ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "td3": ("Pendulum-v1", {"n_step": 3}),
    "r2d2": ("CartPole-v1", RECURRENT | {"n_step": 3, "head_hidden": (16,), "train_every": 2}),
}
HOW: dict[str, Any] = {"num_envs": 4, "steps": 200, "evaluate_every": 0}


class Said:
    """A callback that keeps what is said."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def __call__(self, trainer: duetto.Trainer) -> None:
        self.all += [notice for notice in trainer.notices if notice not in self.all]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_number_of_shards_decides_no_number(tmp_path: Path, algorithm: str):
    environment, hyperparameters = ALGORITHMS[algorithm]
    agent = small(algorithm, **hyperparameters)
    whole = train(tmp_path, agent, environment, name="whole", cluster=Simulation(block=5), **HOW)
    cluster = Simulation(block=5, replay_shards=3)
    spread = train(tmp_path, agent, environment, name="spread", cluster=cluster, callbacks=[StopAt(90)], **HOW)
    assert spread.config.cluster == {"mode": "sync", "actors": 2, "block": 5}
    spread.resume(cluster=Simulation(), callbacks=[StopAt(130)])
    spread.resume(cluster=Simulation(replay_shards=1), callbacks=[StopAt(170)])
    spread.resume(cluster=Simulation(replay_shards=2))
    assert_same(whole, spread)


def test_so_it_is_with_demonstrations(tmp_path: Path):
    demos = recorded(tmp_path / "demos")
    agent = small("r2d3", demonstrations=demos, pretraining_updates=4, **SEQUENCES | CHOICES)
    how = HOW | CUT
    whole = train(tmp_path, agent, "CartPole-v1", name="whole", cluster=Simulation(), **how)
    spread = train(tmp_path, agent, "CartPole-v1", name="spread", cluster=Simulation(replay_shards=2), **how)
    assert_same(whole, spread)


OWN = """
from dataclasses import dataclass
from duetto import DQN

@dataclass(frozen=True)
class Mine(DQN):
    \"\"\"Mine.\"\"\"

    n_step: int = 2
"""


class Strangers(Simulated):
    """Shards whose processes cannot import what lies in a file of the user's."""

    def _fate(self, process: Any, message: tuple[Any, ...]) -> Any:
        own = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("_duetto_")}
        try:
            return super()._fate(process, message)
        finally:
            sys.modules.update(own)


def test_shards_do_not_import_the_file_of_an_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own.py").write_text(OWN)
    kind, origin = named(f"{tmp_path / 'own.py'}:Mine")
    agent = kind(**SMALL | {"prioritized": True})
    options = RunOptions(**OPTIONS | HOW | {"steps": 60})
    spec = RunSpec(agent, "CartPole-v1", options, origin=origin, runs_dir=tmp_path)
    monkeypatch.setattr(Simulation, "connect", lambda self, actors: Strangers(1, STEADY))
    whole = start(replace(spec, name="whole", cluster=Simulation()))
    spread = start(replace(spec, name="spread", cluster=Simulation(replay_shards=1)))
    assert_same(whole, spread)


DEATHS = [
    ("add", 30, False),
    ("resolve", 30, True),
    ("prioritize", 20, False),
    ("state_dict", 3, False),
    ("segment", 3, True),
    ("load_segment", 1, False),
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which nothing dies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "find_spec", lambda name: name)
        folder = tmp_path_factory.mktemp("undisturbed")
        return train(folder, small("td3", prioritized=True), cluster=Simulation(block=5), **HOW)


@pytest.mark.parametrize(("method", "after", "too_late"), DEATHS)
def test_a_shards_death_sends_the_run_back_and_changes_no_number(
    tmp_path: Path, undisturbed: Run, method: str, after: int, too_late: bool
):
    agent = small("td3", prioritized=True)
    strike = {"method": method, "after": after, "too_late": too_late}
    struck, said = Simulation(block=5, replay_shards=2, strike=strike), Said()
    if method == "load_segment":
        run = train(tmp_path, agent, name="struck", cluster=Simulation(block=5), callbacks=[StopAt(130)], **HOW)
        run.resume(cluster=struck, callbacks=[said])
    else:
        run = train(tmp_path, agent, name="struck", cluster=struck, callbacks=[said], **HOW)
    assert len(struck.transports) == 2
    [notice] = [notice for notice in said.all if "replay memory" in notice]
    assert notice.startswith("Shard ")
    assert " of the replay memory (environments " in notice
    assert re.search(r"died\. The run continues from its checkpoint of step \d+\.$", notice)
    assert_same(undisturbed, run)


def test_in_async_a_shards_death_sends_the_run_back_and_the_lost_steps_are_counted(tmp_path: Path):
    said = Said()
    strike = {"method": "add", "after": 60, "times": 1}
    cluster = Simulation(mode="async", actors=2, block=5, replay_shards=2, strike=strike)
    agent = small("td3", prioritized=True)
    run = train(tmp_path, agent, cluster=cluster, callbacks=[said], **HOW)
    assert len(cluster.transports) == 2
    found = outcome(run)
    assert found["state"]["learner"]["updates"] == found["step"] - 30
    [notice] = [notice for notice in said.all if "shard" in notice.lower()]
    lost = re.search(r"The run continues from its checkpoint of step (\d+); (\d+) steps are lost\.$", notice)
    assert lost is not None
    assert 0 < int(lost[2]) <= 40 + 4  # a checkpoint comes every 40 steps
    run.resume(steps=240, cluster=Simulation(mode="async"))  # with the memory in one process again
    state = checkpoints(run).load_latest().state
    assert state["learner"]["updates"] == state["trainer"]["step"] - 30


@pytest.mark.parametrize("rates", range(3))
def test_in_async_a_run_survives_whatever_happens(tmp_path: Path, rates: int):
    often = [{"dies_before": 0.004}, {"dies_after": 0.002, "answer_lost": 0.002}, {"machine_dies": 0.005}][rates]
    cluster = Simulation(mode="async", actors=2, block=5, replay_shards=3, rates=replace(STEADY, **often))
    found = outcome(train(tmp_path, small("td3", prioritized=True), cluster=cluster, **HOW))
    assert found["state"]["learner"]["updates"] == found["step"] - 30
    assert len(cluster.transports) > 1


def test_what_shards_cannot_do_is_refused_before_anything_is_written(tmp_path: Path):
    with pytest.raises(UsageError, match=r"ppo learns from rollouts; .*, without replay_shards"):
        train(tmp_path, small("ppo"), cluster=Simulation(replay_shards=2))
    with pytest.raises(UsageError, match="Hindsight asks the environment what other goals would have brought"):
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
    with pytest.raises(UsageError, match=r"ppo learns from rollouts; .*, without replay_shards"):
        Run(run.path).resume(steps=60, cluster=Simulation(replay_shards=2))


def test_more_shards_than_environments_is_said(tmp_path: Path):
    said = Said()
    cluster = Simulation(replay_shards=3)
    train(tmp_path, num_envs=2, steps=40, cluster=cluster, callbacks=[said], evaluate_every=0)
    assert sum(isinstance(process.object, ShardServer) for process in cluster.transports[0]._processes) == 2
    assert "the run uses 2 of the 3 shards. Give more --num-envs." in said.all[0]


def test_a_shard_that_finds_no_place_or_no_room_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fate = Simulated._fate
    monkeypatch.setattr(
        Simulated, "_fate", lambda self, *call: DIED if isinstance(call[0].object, ShardServer) else fate(self, *call)
    )
    with pytest.raises(UsageError, match=r"^Shard 0 of the replay memory \(environments 0 to 1\) has found no place"):
        train(tmp_path, cluster=Simulation(replay_shards=2), **HOW)
    monkeypatch.undo()
    monkeypatch.setattr(options, "find_spec", lambda name: name)
    with pytest.raises(
        UsageError, match=r"replay_capacity \d+ needs .* GiB of memory, which this machine does not have"
    ):
        train(tmp_path, small(replay_capacity=10**15), cluster=Simulation(replay_shards=2), **HOW)
    assert list(tmp_path.iterdir()) == []
