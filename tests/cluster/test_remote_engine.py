"""Every family of environments on actors: what is not one row a step, and what is saved of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulated import STEADY, Rates, Simulated, Simulation
from small_runs import StopAt, assert_same, small, train
from taped import Taped, spread

from duetto.cluster.remote_engine import shares
from duetto.environments.errors import EnvironmentFault

RATES = Rates(dies_before=0.07, dies_after=0.07, hangs=0.0)
GAME = {"fire_reset": "lives", "episodic_life": True, "clip_rewards": True, "noop_max": 0}


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ("ALE/Breakout-v5", {"environment_options": GAME}),
        ("MiniGrid-Empty-5x5-v0", {}),
        ("Hopper-v5", {}),
    ],
)
def test_it_is_the_same_on_actors_that_die(environment: str, options: dict[str, Any], tmp_path: Path):
    """Random actions, of which the replay buffer shows the outcome."""
    agent = small("td3" if environment == "Hopper-v5" else "dqn", random_steps=10**6, learning_starts=10**6)
    how: dict[str, Any] = {"num_envs": 3, "steps": 180, "evaluate_every": 0} | options
    cluster: dict[str, Any] = {"actors": 2, "block": 5}
    quiet = train(tmp_path, agent, environment, name="quiet", cluster=Simulation(rates=STEADY, **cluster), **how)
    loud = Simulation(rates=RATES, **cluster)
    struck = train(tmp_path, agent, environment, name="struck", cluster=loud, callbacks=[StopAt(95)], **how)
    struck.resume(cluster=Simulation(rates=RATES))
    assert sum(loud.transports[0].mishaps.get(name, 0) for name in ("dies_before", "dies_after")) > 1
    assert_same(quiet, struck)


def test_shares_are_even_and_whole():
    assert [list(share) for share in shares(5, 3)] == [[0], [1, 2], [3, 4]]
    assert [list(share) for share in shares(2, 2)] == [[0], [1]]


NEVER = dict.fromkeys(Rates.__dataclass_fields__, 0.0)


def test_places_where_nobody_ever_runs_do_not_count_for_a_while():
    transport = Simulated(0, Rates(**NEVER | {"never_runs": 0.9}))
    engine, notices = spread(Taped, transport, 4, 2)
    assert transport.mishaps["never_runs"] > 6
    engine.reset(0)
    transport._rates = Rates(**NEVER | {"never_runs": 0.9, "dies_before": 0.5})
    engine.reset(1)
    assert notices
    with pytest.raises(
        EnvironmentFault, match=r"actor 0 \(environments 0 to 1\) has found no place for 12. s; the last one died"
    ):
        spread(Taped, Simulated(0, Rates(**NEVER | {"never_runs": 1.0})), 4, 2)


def test_where_an_actor_cannot_be_started_those_before_it_end():
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
        spread("CartPole-v1", transport, 4, 4)
    assert transport.closed
    assert [process.alive for process in transport._processes] == [False, False]
