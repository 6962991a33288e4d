"""Runs whose steps go from actors to shards: the numbers of a memory in the process, which sees none of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated import Left, Rates, Simulated
from small_runs import StopAt, assert_same, outcome, small, train
from test_modes import STEADY

from duetto import buffers
from duetto.buffers import Experience
from duetto.cluster import config as options
from duetto.cluster.shard_server import ShardServer


@pytest.fixture(autouse=True)
def with_ray(monkeypatch: pytest.MonkeyPatch):
    """Whether or not it is installed."""
    monkeypatch.setattr(options, "find_spec", lambda name: name)


class Watched(Simulated):
    """Knows whether steps have come to the process of the run, and what went to shards."""

    steps, sent, asked, wanted = 0, 0, list[list[str]](), 0

    def wait(self, calls: Any, timeout: float, enough: int | None = None) -> dict[Any, Any]:
        answers = super().wait(calls, timeout, enough)
        self.steps += sum(has_steps(answer.value) for call, answer in answers.items() if not isinstance(call, Left))
        self.wanted += sum(isinstance(call, Left) for call in calls)
        return answers

    def call(self, worker: Any, *message: Any, leaves: bool = False) -> int:
        self.sent += has_steps(message)
        if isinstance(worker.object, ShardServer):
            self.asked = [*self.asked, [request.method for request in message[1]]]
        return super().call(worker, *message, leaves=leaves)


def has_steps(value: Any) -> bool:
    if isinstance(value, Experience):
        return True
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return any(map(has_steps, parts))


@dataclass(frozen=True)
class Simulation(options.Cluster):
    """A cluster that is none."""

    kind: type[Simulated] = Watched
    rates: Rates = STEADY
    transports: list[Any] = field(default_factory=list)

    def connect(self, actors: int) -> Simulated:
        self.transports.append(self.kind(7 + len(self.transports), self.rates))
        return self.transports[-1]


HOW: dict[str, Any] = {"num_envs": 4, "steps": 120, "evaluate_every": 0}
SEQUENCES = {"recurrent": "lstm", "recurrent_size": 8, "unroll": 6, "overlap": 3, "burn_in": 3, "batch_size": 8}
RUNS: list[tuple[str, str, dict[str, Any]]] = [
    ("td3", "Pendulum-v1", {"n_step": 3, "train_every": 8}),
    ("dqn", "CartPole-v1", {"prioritized": True, "train_every": 8}),
    ("r2d2", "CartPole-v1", SEQUENCES | {"head_hidden": (16,), "train_every": 8}),
]


@pytest.mark.parametrize(("algorithm", "environment", "hyperparameters"), RUNS)
def test_the_numbers_are_those_of_a_memory_in_the_process(
    tmp_path: Path, algorithm: str, environment: str, hyperparameters: dict[str, Any]
):
    """Also where it is resumed in the middle of blocks, without shards and with others; and no step came through it."""
    agent = small(algorithm, **hyperparameters)
    paced: dict[str, Any] = {"actors": 3, "mode": "sync", "block": 5}
    here = train(tmp_path, agent, environment, name="here", cluster=Simulation(**paced), **HOW)
    handing = Simulation(replay_shards=2, **paced)
    whole = train(tmp_path, agent, environment, name="whole", cluster=handing, **HOW | {"checkpoint_every": 0})
    [transport] = handing.transports
    assert (transport.steps, transport.sent, transport.wanted) == (0, 0, 0)
    assert sum("take" in asked for asked in transport.asked) < 1.3 * 2 * (120 // 8)  # with the points of a batch
    assert outcome(whole)["state"]["learner"]["updates"] == outcome(here)["state"]["learner"]["updates"]
    cut = train(
        tmp_path,
        agent,
        environment,
        name="cut",
        cluster=Simulation(replay_shards=2, **paced),
        callbacks=[StopAt(54)],
        **HOW,
    )
    cut.resume(cluster=Simulation(replay_shards=3), callbacks=[StopAt(74)])
    cut.resume(cluster=Simulation(), callbacks=[StopAt(94)])
    cut.resume(cluster=Simulation(replay_shards=1))
    assert_same(here, cut)


def test_in_async_no_step_comes_through_the_process_either(tmp_path: Path):
    agent, cluster = small("td3", prioritized=True), Simulation(mode="async", actors=2, block=5, replay_shards=2)
    found = outcome(train(tmp_path, agent, cluster=cluster, **HOW | {"checkpoint_every": 0}))
    assert found["state"]["learner"]["updates"] == found["step"] - 30
    assert [transport.steps for transport in cluster.transports] == [0]


@pytest.mark.parametrize("actors", [2, 6])
def test_blocks_that_are_gone_send_a_sync_run_back(tmp_path: Path, actors: int):
    """When a shard asks for them; and no number changes. With more actors than environments it could not go back."""

    class Robbed(Watched):
        left = 40

        def _fate(self, process: Any, message: tuple[Any, ...]) -> Any:
            if any(isinstance(part, Left) for part in message):
                type(self).left -= 1
                if type(self).left == 30:
                    self._lose(list(self._lies))
            return super()._fate(process, message)

    agent = small("td3", prioritized=True)
    paced: dict[str, Any] = {"actors": actors, "mode": "sync", "block": 5}
    here = train(tmp_path, agent, name="here", cluster=Simulation(**paced), **HOW)
    said: list[str] = []
    robbed = Simulation(kind=Robbed, replay_shards=2, **paced)
    run = train(tmp_path, agent, name="robbed", cluster=robbed, callbacks=[lambda s: said.extend(s.notices)], **HOW)
    assert len(robbed.transports) == 2
    assert any(
        one.startswith("Steps that waited for the replay memory are gone with their machine. The run") for one in said
    )
    assert_same(here, run)


def test_what_only_some_actors_gave_with_their_actions_no_shard_keeps():
    def left(env: int, names: tuple[str, ...]) -> buffers.BlockRef:
        return buffers.BlockRef(
            buffers.BlockHeader(np.array([env]), np.zeros(1, bool), names), [1], range(env, env + 1), None
        )

    assert buffers.BlockGroup(1, [left(0, ("q", "best")), left(1, ("best",))]).extras == ["best"]
