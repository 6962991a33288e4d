"""Runs on a simulated cluster: the same as those in one process, number by number, whatever dies."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from demonstrated import CHOICES, CUT, SEQUENCES, recorded
from line_environment import Line, Opaque
from masked_environments import Turnstile
from policy_environments import Seen
from simulated import DIED, STEADY, Rates, Simulated, Simulation
from small_runs import CrashAt, CrashError, StopAt, assert_same, checkpoints, notices, outcome, small, train

import duetto
from duetto.cluster import config as options
from duetto.errors import EnvironmentFailedError, UsageError
from duetto.install_hint import install
from duetto.runs.run import Run

RECURRENT = {"recurrent": "lstm", "recurrent_size": 8, "unroll": 6, "overlap": 3, "burn_in": 3, "batch_size": 8}


ACTING = [
    ("td3", "Pendulum-v1", {}, {"block": 5}),
    ("ppo", "CartPole-v1", {"normalize_rewards": True, "normalize_observations": True}, {}),
    ("r2d2", "CartPole-v1", RECURRENT | {"n_step": 3, "head_hidden": (16,), "train_every": 2}, {"block": 5}),
    ("td3", "goal_environment:GoalLine-v0", {"hindsight": "future"}, {"block": 5}),
]


DEMONSTRATED = [
    ("r2d3", SEQUENCES | CHOICES | {"pretraining_updates": 6}),
    ("dqfd", CHOICES | {"importance_anneal_samples": 50}),
]


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("demonstrations") / "cartpole")


@pytest.mark.parametrize(("algorithm", "environment", "hyperparameters", "blocks"), ACTING)
def test_in_sync_no_death_and_no_kill_changes_a_number(
    tmp_path: Path, algorithm: str, environment: str, hyperparameters: dict[str, Any], blocks: dict[str, Any]
):
    check_sync(tmp_path, small(algorithm, **hyperparameters), environment, blocks)


@pytest.mark.parametrize(("algorithm", "hyperparameters"), DEMONSTRATED)
def test_nor_does_it_with_demonstrations(tmp_path: Path, demos: str, algorithm: str, hyperparameters: dict[str, Any]):
    agent = small(algorithm, demonstrations=demos, **hyperparameters)
    check_sync(tmp_path, agent, "CartPole-v1", {"block": 5}, **CUT)


@pytest.mark.parametrize(
    ("agent", "environment", "options"),
    [
        (small("ppo", image_features=8), Seen, {}),  # for images actors have a framework
        (small("ddpg", hidden=(16,)), "Pendulum-v1", {"backend": "jax"}),
    ],
    ids=["images", "jax"],
)
def test_nor_with_a_framework_in_the_actors(tmp_path: Path, agent: Any, environment: Any, options: dict[str, Any]):
    check_sync(tmp_path, agent, environment, {"block": 5} if environment != Seen else {}, **options)


def check_sync(tmp_path: Path, agent: Any, environment: Any, blocks: dict[str, Any], **options: Any) -> None:
    how: dict[str, Any] = {"num_envs": 4, "steps": 240, "evaluate_every": 0} | options
    cluster: dict[str, Any] = {"mode": "sync", "actors": 3} | blocks
    quiet = Simulation(rates=STEADY, **cluster)
    undisturbed = train(tmp_path, agent, environment, name="undisturbed", cluster=quiet, **how)
    assert undisturbed.config.cluster == {"mode": "sync", "actors": 3, "block": blocks.get("block", 16)}
    loud = Simulation(**cluster)
    disturbed = train(tmp_path, agent, environment, name="disturbed", cluster=loud, **how)
    assert {"dies_before", "dies_after"} & loud.transports[0].mishaps.keys()
    assert_same(undisturbed, disturbed)
    with pytest.raises(CrashError):  # in the middle of a block, after a checkpoint in the middle of one
        train(tmp_path, agent, environment, name="killed", cluster=loud, callbacks=[CrashAt(130)], **how)
    killed = Run(tmp_path / "killed", environment=None if isinstance(environment, str) else environment)
    killed.resume(cluster=Simulation(), callbacks=[StopAt(171)])
    killed.resume(cluster=Simulation(rates=STEADY, actors=3, mode="sync"))
    assert_same(undisturbed, killed)


def test_in_async_hindsight_takes_goals_of_the_same_episode(tmp_path: Path):
    """Blocks come in any order, and what an actor's death breaks off is no part of the next episode."""
    seen: list[tuple[Any, Any]] = []

    class Spy(duetto.Callback):
        def on_start(self, trainer: duetto.Trainer) -> None:
            relabeling: Any = trainer.memory._relabeling
            steps, storage = relabeling._steps, relabeling._storage

            def noted(index: Any, uniform: Any) -> Any:
                chosen = steps(index, uniform)
                seen.append(tuple(storage.observation(at)["desired_goal"] for at in (index, chosen)))
                seen.append((index != chosen, None))
                return chosen

            relabeling._steps = noted

    cluster = Simulation(mode="async", actors=3, block=5)
    algorithm, how = small("td3", hindsight="future"), {"num_envs": 4, "steps": 240, "evaluate_every": 0}
    run = train(
        tmp_path, algorithm, "goal_environment:GoalLine-v0", cluster=cluster, callbacks=[Spy(), StopAt(130)], **how
    )
    run.resume(cluster=Simulation(actors=2), callbacks=[Spy()])
    assert {"dies_before", "dies_after"} & cluster.transports[0].mishaps.keys()
    assert sum(later.sum() for later, _ in seen[1::2]) > 500
    for one, other in seen[::2]:
        np.testing.assert_array_equal(one, other)  # each episode has another goal


@pytest.mark.parametrize(("algorithm", "environment", "hyperparameters", "blocks"), [*ACTING[::2], ACTING[3]])
def test_in_async_every_count_is_right_on_any_number_of_actors(
    tmp_path: Path, algorithm: str, environment: str, hyperparameters: dict[str, Any], blocks: dict[str, Any]
):
    every = 2 if algorithm == "r2d2" else 1
    check_async(tmp_path, small(algorithm, **hyperparameters), environment, blocks, every)


@pytest.mark.parametrize(("algorithm", "hyperparameters"), DEMONSTRATED)
def test_so_it_is_with_demonstrations(tmp_path: Path, demos: str, algorithm: str, hyperparameters: dict[str, Any]):
    agent = small(algorithm, demonstrations=demos, **hyperparameters | {"pretraining_updates": 6})
    check_async(tmp_path, agent, "CartPole-v1", {"block": 5}, 4, 6, **CUT)


def check_async(
    tmp_path: Path,
    agent: Any,
    environment: Any,
    blocks: dict[str, Any],
    every: int,
    before: int = 0,
    **options: Any,
) -> None:
    """An update for so many steps, and so many before the first one; other actors start new episodes."""
    how: dict[str, Any] = {"num_envs": 4, "steps": 240, "evaluate_every": 0} | options
    cluster = Simulation(mode="async", actors=3, **blocks)
    run = train(tmp_path, agent, environment, name="async", cluster=cluster, callbacks=[StopAt(130)], **how)
    assert run.config.cluster == {"mode": "async", "block": 5}
    said = notices(run, [StopAt(171)], cluster=Simulation(actors=2))
    assert any("it is of 3 actors, and there are 2 now): the run continues with new episodes" in one for one in said)
    run.resume(cluster=Simulation(actors=4))
    found = outcome(run)
    assert found["step"] >= 240
    assert found["state"]["learner"]["updates"] == before + (found["step"] - 30) // every
    written = run.metrics()[-1]
    assert written["time/actors"] == 4
    assert written["time/lag_updates_mean"] >= 0


def test_a_run_on_a_cluster_goes_on_as_it_began(tmp_path: Path):
    how: dict[str, Any] = {"num_envs": 4, "steps": 120, "evaluate_every": 0}
    cluster = Simulation(rates=STEADY, block=4)
    run = train(tmp_path, cluster=cluster, callbacks=[StopAt(60)], **how)
    assert run.config.cluster == {"mode": "sync", "actors": 2, "block": 4}
    with pytest.raises(UsageError, match="This run was trained on a cluster, which decides its numbers"):
        run.resume()
    with pytest.raises(UsageError, match="continues with actors 2, which decides its numbers, not 3"):
        run.resume(cluster=Simulation(actors=3))
    with pytest.raises(UsageError, match="continues with mode sync, which decides its numbers, not async"):
        run.resume(cluster=Simulation(mode="async"))
    run.resume(cluster=Simulation(rates=STEADY))
    local = train(tmp_path, name="local", callbacks=[StopAt(60)], **how)
    with pytest.raises(UsageError, match="The run started without a cluster, where its numbers are others"):
        local.resume(cluster=Simulation())


def test_blocks_that_nobody_could_make_are_refused(tmp_path: Path):
    with pytest.raises(
        UsageError, match=r"A block of 1000000 vector steps is larger than 8 MB\. Use a block of \d+ at"
    ):
        train(tmp_path, num_envs=4, cluster=Simulation(mode="async", block=1000000))
    assert list(tmp_path.iterdir()) == []


def test_actors_without_an_environment_are_said(tmp_path: Path):
    said: list[str] = []
    look, how = [lambda trainer: said.extend(trainer.notices)], {"steps": 40, "evaluate_every": 0}
    train(tmp_path, cluster=Simulation(actors=4, rates=STEADY), callbacks=look, **how)
    assert "num_envs is 1, so the run uses 1 of the 4 actors. Give more --num-envs." in said


def test_the_log_says_how_the_actors_do(tmp_path: Path):
    local = train(tmp_path, num_envs=4)
    spread = train(tmp_path, num_envs=4, cluster=Simulation(actors=3))
    lines = spread.metrics()
    assert all(line["time/actors"] == 3 and line["time/waiting_for_actors"] >= 0 for line in lines)
    restarts = [line["time/actor_restarts"] for line in lines]
    assert restarts == sorted(restarts)
    assert restarts[-1] > 0
    assert not any("time/actors" in line for line in local.metrics())


def test_environments_that_cannot_be_saved_begin_anew_and_it_is_said(tmp_path: Path):
    said: list[str] = []
    run = train(
        tmp_path,
        small("td3"),
        Opaque,
        num_envs=4,
        steps=600,
        cluster=Simulation(rates=Rates(dies_before=0.15, hangs=0.0), actors=3),
        callbacks=[lambda trainer: said.extend(trainer.notices[len(said) :])],
    )
    assert any("start new episodes" in notice and notice.startswith("Actor ") for notice in said)
    assert len(checkpoints(run).steps()) > 0


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_actors_take_allowed_actions(mode: Any, tmp_path: Path) -> None:
    """The environment raises at a forbidden action."""
    agent, how = small("dqn", exploration_end=0.5), {"num_envs": 4, "steps": 160, "evaluate_every": 0}
    cluster = Simulation(actors=2, mode=mode, rates=STEADY)
    run = train(tmp_path, agent, Turnstile, cluster=cluster, **how)
    assert checkpoints(run).load_latest().state["spaces"]["action_mask"] is True
    run.resume(200, cluster=cluster)
    assert checkpoints(run).steps()[-1] == 200


def test_a_broken_episode_is_cut_off_in_the_memory(tmp_path: Path):
    cut = 0

    def look(trainer: duetto.Trainer) -> None:
        nonlocal cut
        lost, kept = trainer.stepper.aborted, trainer.memory
        if lost is None or kept._filled < 2:
            return
        arrays, real = kept._arrays, kept._real
        before = kept._filled - 2
        assert (arrays["truncated"][before] | arrays["terminated"][before] | ~real[before])[lost].all()
        cut += 1

    cluster = Simulation(rates=Rates(dies_before=0.09, hangs=0.0), actors=2, block=4)
    train(tmp_path, small("ppo"), Opaque, num_envs=4, steps=800, cluster=cluster, callbacks=[look])
    assert cut > 1


class Failing(Line):
    """Its environment 2 raises in its 20th step, while it is told to."""

    def step(self, action: Any) -> Any:
        if self.life == 19 and os.environ.get("FAILING") and self.np_random_seed == 2:
            raise LookupError("nothing there")
        return super().step(action)


def test_one_that_raises_says_what_it_says_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAILING", "1")
    with pytest.raises(
        EnvironmentFailedError, match=r"^Failing, environment 2, vector step 20: step raised LookupError"
    ):
        train(tmp_path / "acting", environment=Failing, num_envs=4, cluster=Simulation(mode="async"), evaluate_every=0)
    for cluster in (None, Simulation(actors=2)):
        with pytest.raises(EnvironmentFailedError) as caught:
            train(tmp_path, environment=Failing, num_envs=4, name="failing", cluster=cluster, evaluate_every=0)
        sentence = "Failing, environment 2, vector step 20: step raised LookupError: nothing there."
        assert str(caught.value).startswith(sentence)
    monkeypatch.delenv("FAILING")
    again = Run(tmp_path / "failing-2", environment=Failing).resume(cluster=Simulation(actors=2))
    how: dict[str, Any] = {"environment": Failing, "num_envs": 4, "evaluate_every": 0}
    assert_same(train(tmp_path, name="never", cluster=Simulation(rates=STEADY), **how), again)


def test_an_actor_that_fails_again_and_again_stops_the_run_and_its_checkpoint_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cluster = Simulation(rates=STEADY, actors=2, block=5)
    how: dict[str, Any] = {"num_envs": 4, "evaluate_every": 0}

    def strike(trainer: duetto.Trainer) -> None:
        if trainer.step >= 100:  # whatever is asked of it, but whether it is there
            fate = Simulated._fate
            monkeypatch.setattr(Simulated, "_fate", lambda self, *call: DIED if call[1][0] else fate(self, *call))

    with pytest.raises(EnvironmentFailedError) as caught:
        train(tmp_path, name="dies", cluster=cluster, callbacks=[strike], **how)
    sentence, trace = str(caught.value).split("\n")
    first = (
        r"Pendulum-v1, vector step 30: actor (0 \(environments 0 to 1\)|1 \(environments 2 to 3\)) died, for the third"
    )
    assert re.match(first, sentence)
    assert "its checkpoint of step 120 is kept" in sentence
    assert trace == "simulated"
    monkeypatch.undo()
    monkeypatch.setattr(options, "find_spec", lambda name: name)
    again = Run(tmp_path / "dies").resume(cluster=Simulation(actors=2))
    assert_same(train(tmp_path, name="never", cluster=Simulation(rates=STEADY, block=5), **how), again)


def test_what_a_cluster_cannot_do_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(UsageError, match=r"ppo learns from rollouts.* Use the mode sync"):
        train(tmp_path, small("ppo"), cluster=Simulation(mode="async"))
    with pytest.raises(UsageError, match=r"mode is 'fast'; it must be one of sync, async"):
        duetto.Cluster(mode="fast")
    with pytest.raises(UsageError, match="actors is -1; it must be at least 0"):
        duetto.Cluster(actors=-1)
    with pytest.raises(UsageError, match=r"lives in this process\. For a cluster, pass its id, or a factory"):
        train(tmp_path, environment=gymnasium.make("Pendulum-v1"), cluster=Simulation())
    with (
        (tmp_path / "open").open("w") as file,
        pytest.raises(UsageError, match=r"cannot be sent to another process \(PicklingError"),
    ):
        train(tmp_path / "runs", environment=lambda: Line(len(file.name)), cluster=Simulation())
    monkeypatch.setattr(options, "find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=rf"needs Ray, which is not installed\. Install: {re.escape(install('cluster'))}"
    ):
        duetto.Cluster()
    assert not list(tmp_path.glob("*/*/config.yaml")) + list(tmp_path.glob("*/config.yaml"))
