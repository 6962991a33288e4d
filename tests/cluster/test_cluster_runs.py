"""Runs on a simulated cluster: the same as those in one process, number by number, whatever dies."""

from __future__ import annotations

import os
import re
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from demonstrated import CHOICES, CUT, SEQUENCES, recorded
from line_environment import Line, Opaque
from policy_environments import Seen
from simulated import DIED, Rates, Simulated
from small_runs import CrashAt, CrashError, StopAt, assert_same, checkpoints, outcome, small, train

import duetto
from duetto.buffers import Rollout
from duetto.cluster import config as options
from duetto.errors import EnvironmentFailedError, UsageError
from duetto.install_hint import install
from duetto.runs.run import Run

STEADY = Rates(*[0.0] * len(Rates.__dataclass_fields__))
OFTEN = Rates(dies_before=0.03, dies_after=0.03, hangs=0.01)


@dataclass(frozen=True)
class Simulation(options.Cluster):
    """A cluster that is none."""

    rates: Rates = OFTEN
    seed: int = 7
    transports: deque[Simulated] = field(default_factory=deque)

    def connect(self, actors: int) -> Simulated:
        self.transports.append(Simulated(self.seed, self.rates))
        return self.transports[-1]


@pytest.fixture(autouse=True)
def with_ray(monkeypatch: pytest.MonkeyPatch):
    """Whether or not it is installed."""
    monkeypatch.setattr(options, "find_spec", lambda name: name)


RECURRENT = {"recurrent": "lstm", "recurrent_size": 8, "unroll": 6, "overlap": 3, "burn_in": 3, "batch_size": 8}


def test_the_timeout_is_the_actors_too_and_so_it_is_not_said_to_be_in_vain(tmp_path: Path):
    said: list[str] = []

    class Hears(duetto.Callback):
        def on_start(self, trainer: duetto.Trainer) -> None:
            said.extend(trainer.notices)

    cluster = Simulation(actors=2, mode="sync", rates=STEADY)
    how = {"steps": 8, "num_envs": 2, "worker_timeout": 9.0, "callbacks": [Hears()]}
    train(tmp_path, small("td3"), "Pendulum-v1", cluster=cluster, **how)
    assert any("there will be no update" in notice for notice in said)
    assert not any("worker_timeout" in notice for notice in said)


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


def test_nor_with_images_for_which_actors_have_a_framework(tmp_path: Path):
    check_sync(tmp_path, small("ppo", image_features=8), Seen, {})


def test_nor_with_jax(tmp_path: Path):
    check_sync(tmp_path, small("ddpg", hidden=(16,)), "Pendulum-v1", {"block": 5}, backend="jax")


def check_sync(tmp_path: Path, agent: Any, environment: Any, blocks: dict[str, Any], **options: Any) -> None:
    how: dict[str, Any] = {"num_envs": 4, "steps": 240, "evaluate_every": 0} | options
    cluster: dict[str, Any] = {"mode": "sync", "actors": 3} | blocks
    quiet = Simulation(rates=STEADY, **cluster)
    undisturbed = train(tmp_path, agent, environment, name="undisturbed", cluster=quiet, **how)
    assert undisturbed.config.cluster == {"mode": "sync", "actors": 3, "block": blocks.get("block", 16)}
    loud = Simulation(rates=OFTEN, **cluster)
    disturbed = train(tmp_path, agent, environment, name="disturbed", cluster=loud, **how)
    assert loud.transports[0].mishaps["dies_before"] > 0
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

    cluster = Simulation(mode="async", actors=3, block=5, rates=OFTEN)
    algorithm, how = small("td3", hindsight="future"), {"num_envs": 4, "steps": 240, "evaluate_every": 0}
    run = train(
        tmp_path, algorithm, "goal_environment:GoalLine-v0", cluster=cluster, callbacks=[Spy(), StopAt(130)], **how
    )
    run.resume(cluster=Simulation(actors=2, rates=OFTEN), callbacks=[Spy()])
    assert cluster.transports[0].mishaps["dies_before"] > 0
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
    """An update for so many steps, and so many before the first one."""
    how: dict[str, Any] = {"num_envs": 4, "steps": 240, "evaluate_every": 0} | options
    cluster = Simulation(mode="async", actors=3, **blocks)
    run = train(tmp_path, agent, environment, name="async", cluster=cluster, callbacks=[StopAt(130)], **how)
    assert run.config.cluster == {"mode": "async", "block": 5}
    run.resume(cluster=Simulation(actors=2), callbacks=[StopAt(171)])
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


@pytest.mark.parametrize(("statistics", "said"), [("rollouts", True), ("steps", False)])
def test_statistics_that_are_older_than_those_learned_with_are_said(tmp_path: Path, statistics: str, said: bool):
    notices: list[str] = []
    train(
        tmp_path,
        small("ppo", normalize_observations=True, observation_statistics=statistics),
        num_envs=4,
        steps=32,
        evaluate_every=0,
        cluster=Simulation(rates=STEADY),
        callbacks=[lambda trainer: notices.extend(trainer.notices)],
    )
    assert any("observation_statistics=steps" in notice for notice in notices) is said


def test_the_log_says_how_the_actors_do(tmp_path: Path):
    local = train(tmp_path, num_envs=4)
    spread = train(tmp_path, num_envs=4, cluster=Simulation(actors=3))
    lines = spread.metrics()
    assert all(line["time/actors"] == 3 and line["time/waiting_for_actors"] >= 0 for line in lines)
    restarts = [line["time/actor_restarts"] for line in lines]
    assert restarts == sorted(restarts)
    assert restarts[-1] > 0
    assert not any("time/actors" in line for line in local.metrics())


@pytest.mark.parametrize(("algorithm", "mode"), [("td3", "sync"), ("ppo", "sync"), ("td3", "async")])
def test_environments_that_cannot_be_saved_begin_anew_and_it_is_said(
    tmp_path: Path, algorithm: str, mode: options.Mode
):
    said: list[str] = []
    run = train(
        tmp_path,
        small(algorithm),
        Opaque,
        num_envs=4,
        steps=600,
        cluster=Simulation(rates=Rates(dies_before=0.15, hangs=0.0), actors=3, mode=mode),
        callbacks=[lambda trainer: said.extend(trainer.notices[len(said) :])],
    )
    assert any("start new episodes" in notice and notice.startswith("Actor ") for notice in said)
    assert len(checkpoints(run).steps()) > 0


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

    cluster = Simulation(rates=Rates(dies_before=0.06, hangs=0.0), actors=2, block=4)
    train(tmp_path, small("ppo"), Opaque, num_envs=4, steps=800, cluster=cluster, callbacks=[look])
    assert cut > 3


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


def test_more_actors_than_environments_is_said(tmp_path: Path):
    said: list[str] = []
    cluster = Simulation(rates=STEADY, actors=4)
    train(tmp_path, steps=40, cluster=cluster, callbacks=[lambda trainer: said.extend(trainer.notices)])
    assert said[0] == "num_envs is 1, so the run uses 1 of the 4 actors. Give more --num-envs."


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


def test_a_rollouts_values_are_all_of_one_set_of_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Those that actors had are older than those of its ends, which are computed here; and two blocks' differ."""
    compared: list[bool] = []
    batch_of = Rollout._batch

    def noted(self: Rollout, value: np.ndarray) -> Any:
        compared.append(np.array_equal(value, self._recomputed_values()))
        return batch_of(self, value)

    monkeypatch.setattr(Rollout, "_batch", noted)
    how: dict[str, Any] = {"steps": 200, "num_envs": 4, "backend": "torch", "checkpoint_every": 0, "evaluate_every": 0}
    agent = small("ppo", learning_rate=0.01)
    train(tmp_path, agent, "CartPole-v1", cluster=Simulation(rates=STEADY, actors=2, mode="sync", block=8), **how)
    assert compared == [True] * 3
    compared.clear()
    train(tmp_path, agent, "CartPole-v1", **how)
    assert compared == [False] * 3
