"""Every family of environments on actors: what is not one row a step, and what is saved of it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from simulated import Rates, Simulated
from taped import Taped, same, spread

from duetto import environments
from duetto.cluster.crew import Crew
from duetto.cluster.host import Host, Request
from duetto.environments import recipes
from duetto.environments.faults import Fault
from duetto.environments.shares import shares, take_saved

RATES = Rates(dies_before=0.02, dies_after=0.02, hangs=0.0)
GAME = {"fire_reset": "lives", "episodic_life": True, "clip_rewards": True, "noop_max": 0}


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ("ALE/Breakout-v5", {"kwargs": GAME}),
        ("ALE/Breakout-v5", {"kwargs": GAME, "engine": "gymnasium"}),
        ("MiniGrid-Empty-5x5-v0", {}),
        ("Hopper-v5", {}),
    ],
)
def test_it_is_the_same_on_actors_that_die(environment: str, options: dict[str, Any]):
    local = environments.make(environment, num_envs=3, **options)
    transport = Simulated(5, RATES)
    engine, notices = spread(environment, transport, 3, 2, **options)
    random = np.random.default_rng(0)
    assert same(engine.reset(3), local.engine.reset(3))
    for step in range(60):
        actions = local._actions.to_environment(local.sample_actions(random))
        assert same(engine.step(actions), local.engine.step(actions)), step
    saved = engine.save()
    assert saved is not None
    assert same(saved, local.engine.save())
    moved, _ = spread(environment, Simulated(6, RATES), 3, 3, **options)
    moved.reset(0)
    assert moved.load(saved)
    actions = local._actions.to_environment(local.sample_actions(random))
    assert same(moved.step(actions), local.engine.step(actions))
    assert notices
    for each in (engine, moved, local):
        each.close()


def test_shares_are_even_and_whole():
    assert [list(share) for share in shares(5, 3)] == [[0], [1, 2], [3, 4]]
    assert [list(share) for share in shares(2, 2)] == [[0], [1]]


def test_a_checksum_of_all_environments_says_nothing_of_some():
    saved = {"0": {"told": 1}, "1": {"told": 2}, "2": {"told": 3}, "digest": "abc", "lives": np.arange(3)}
    assert same(
        take_saved(saved, range(1, 3)), {"0": {"told": 2}, "1": {"told": 3}, "digest": None, "lives": np.array([1, 2])}
    )


def test_one_environment_alone_can_begin_anew():
    engine, _ = spread(Taped, Simulated(1), 4, 3)
    local = environments.make(Taped, num_envs=4).engine
    engine.reset(0)
    local.reset(0)
    assert same(engine.reset_env(2, 77)[2], local.reset_env(2, 77)[2])
    actions = np.arange(4)
    assert same(engine.step(actions), local.step(actions))


NEVER = dict.fromkeys(Rates.__dataclass_fields__, 0.0)


def test_places_where_nobody_ever_runs_do_not_count_for_a_while():
    transport = Simulated(0, Rates(**NEVER | {"never_runs": 0.9}))
    engine, notices = spread(Taped, transport, 4, 2)
    assert transport.mishaps["never_runs"] > 6
    engine.reset(0)
    transport._rates = Rates(**NEVER | {"never_runs": 0.9, "dies_before": 0.5})
    engine.step(np.zeros(4, int))
    assert notices
    with pytest.raises(Fault, match=r"actor 0 \(environments 0 to 1\) has found no place for 12. s; the last one died"):
        spread(Taped, Simulated(0, Rates(**NEVER | {"never_runs": 1.0})), 4, 2)


class Writing(Taped):
    """Writes to the action that it is given."""

    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def step(self, action: np.ndarray) -> Any:
        action *= 2
        return super().step(action[0] > 0)


def test_an_environment_may_write_to_its_action_though_what_a_network_brings_is_read_only():
    host = Host(recipes.pack(Writing, {}), range(1))
    host.do(1, [Request("reset", (0,))], [])
    action = np.ones((1, 2), np.float32)
    action.flags.writeable = False
    assert host.do(2, [Request("step", (action,))]).error is None


def test_a_state_is_saved_now_and_then_and_no_more_is_made_again_than_since():
    transport = Simulated(0, Rates(**NEVER))
    engine, _ = spread(Taped, transport, 2, 1)
    engine.reset(0)
    crew: Crew = engine.crew
    longest = 0
    for _ in range(200):
        engine.step(np.zeros(2, int))
        longest = max(longest, len(crew.actors[0].past or []))
    assert 5 < longest < 60


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
