"""`RemoteEngine`: environments on simulated actors, actor starts, and the split of environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from history_environment import HistoryEnv, start_on_actors
from simulated import STEADY, Rates, Simulated, Simulation
from small_runs import StopAt, assert_same, small, train

from duetto.cluster.remote_engine import shares
from duetto.environments.errors import EnvironmentFault

DEATHS_ONLY = Rates(dies_before=0.07, dies_after=0.07, hangs=0.0)
GAME = {"fire_reset": "lives", "episodic_life": True, "clip_rewards": True, "noop_max": 0}


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ("ALE/Breakout-v5", {"environment_options": GAME}),
        ("MiniGrid-Empty-5x5-v0", {}),
        ("Hopper-v5", {}),
    ],
)
def test_vector_env_is_unchanged_by_actor_deaths(environment: str, options: dict[str, Any], tmp_path: Path):
    """With random actions; the replay buffers are compared."""
    agent = small("td3" if environment == "Hopper-v5" else "dqn", random_steps=10**6, learning_starts=10**6)
    how: dict[str, Any] = {"num_envs": 3, "steps": 180, "evaluate_every": 0} | options
    cluster: dict[str, Any] = {"actors": 2, "block": 5}
    quiet = train(tmp_path, agent, environment, name="quiet", cluster=Simulation(rates=STEADY, **cluster), **how)
    loud = Simulation(rates=DEATHS_ONLY, **cluster)
    struck = train(tmp_path, agent, environment, name="struck", cluster=loud, callbacks=[StopAt(95)], **how)
    struck.resume(cluster=Simulation(rates=DEATHS_ONLY))
    assert sum(loud.transports[0].mishaps.get(name, 0) for name in ("dies_before", "dies_after")) > 1
    assert_same(quiet, struck)


def test_shares_split_environments_evenly_over_actors():
    assert [list(share) for share in shares(5, 3)] == [[0], [1, 2], [3, 4]]
    assert [list(share) for share in shares(2, 2)] == [[0], [1]]


NO_FAULTS = dict.fromkeys(Rates.__dataclass_fields__, 0.0)


def test_actor_starts_are_retried_until_a_time_limit():
    transport = Simulated(0, Rates(**NO_FAULTS | {"never_runs": 0.9}))
    engine, notices = start_on_actors(HistoryEnv, transport, 4, 2)
    assert transport.mishaps["never_runs"] > 6
    engine.reset(0)
    transport._rates = Rates(**NO_FAULTS | {"never_runs": 0.9, "dies_before": 0.5})
    engine.reset(1)
    assert notices
    with pytest.raises(
        EnvironmentFault, match=r"actor 0 \(environments 0 to 1\) could not be started for 12. s; the last process died"
    ):
        start_on_actors(HistoryEnv, Simulated(0, Rates(**NO_FAULTS | {"never_runs": 1.0})), 4, 2)


def test_failed_actor_start_kills_earlier_actors():
    class Full(Simulated):
        closed = False

        def start(self, *arguments: Any, **options: Any) -> Any:
            if len(self._processes) == 2:
                raise OSError("no process left")
            return super().start(*arguments, **options)

        def close(self) -> None:
            self.closed = True

    transport = Full(0)
    with pytest.raises(OSError, match="no process left"):
        start_on_actors("CartPole-v1", transport, 4, 4)
    assert transport.closed
    assert [process.alive for process in transport._processes] == [False, False]
