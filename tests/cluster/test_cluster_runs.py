"""Runs on a simulated cluster: results with and without faults, resume, errors."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import gymnasium
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


SYNC: dict[str, tuple[Any, dict[str, Any]]] = {
    "ppo": ("CartPole-v1", {"normalize_rewards": True, "normalize_observations": True}),
    "r2d2": ("CartPole-v1", RECURRENT | {"n_step": 3, "head_hidden": (16,), "train_every": 2}),
    "td3": ("goal_environment:GoalLine-v0", {"hindsight": "future"}),
    "r2d3": ("CartPole-v1", SEQUENCES | CHOICES | {"pretraining_updates": 6}),
    "dqfd": ("CartPole-v1", CHOICES | {"importance_anneal_samples": 50, "pretraining_updates": 6}),
    "ppo, images": (Seen, {"image_features": 8}),  # with images, actors act with the framework
    "ddpg, jax": ("Pendulum-v1", {"hidden": (16,)}),
}
ASYNC = {"td3": (1, 0), "r2d2": (2, 0), "dqfd": (4, 6)}  # steps per update, and updates before the first step


def case(name: str, folder: Path) -> tuple[Any, Any, dict[str, Any]]:
    """Return a case's algorithm, environment and options of the run."""
    environment, hyperparameters = SYNC[name]
    options: dict[str, Any] = {"num_envs": 4, "steps": 240, "evaluate_every": 0}
    if name in ("r2d3", "dqfd"):
        hyperparameters, options = {"demonstrations": recorded(folder / "demos")} | hyperparameters, options | CUT
    if name == "ddpg, jax":
        options["backend"] = "jax"
    return small(name.partition(",")[0], **hyperparameters), environment, options


@pytest.mark.parametrize("name", SYNC)
def test_sync_run_is_unchanged_by_actor_deaths_and_kills(tmp_path: Path, name: str):
    agent, environment, how = case(name, tmp_path)
    cluster: dict[str, Any] = {"mode": "sync", "actors": 3, "block": 16 if name.startswith("ppo") else 5}
    quiet = Simulation(rates=STEADY, **cluster)
    undisturbed = train(tmp_path, agent, environment, name="undisturbed", cluster=quiet, **how)
    assert undisturbed.config.cluster == cluster
    loud = Simulation(**cluster)
    disturbed = train(tmp_path, agent, environment, name="disturbed", cluster=loud, **how)
    assert {"dies_before", "dies_after"} & loud.transports[0].mishaps.keys()
    assert disturbed.metrics()[-1]["time/actor_restarts"] > 0
    assert_same(undisturbed, disturbed)
    with pytest.raises(CrashError):  # the checkpoint and the crash are both in the middle of a block
        train(tmp_path, agent, environment, name="killed", cluster=loud, callbacks=[CrashAt(130)], **how)
    killed = Run(tmp_path / "killed", environment=None if isinstance(environment, str) else environment)
    killed.resume(cluster=Simulation(), callbacks=[StopAt(171)])
    killed.resume(cluster=Simulation(rates=STEADY, actors=3, mode="sync"))
    assert_same(undisturbed, killed)


def always_minus_two() -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TransformReward(gymnasium.make("Pendulum-v1"), lambda reward: -2.0)


def test_learner_scales_sampled_rewards_by_the_actors_returns(tmp_path: Path):
    """With discount 0, returns are rewards, here -2; the scale makes the largest return 5."""
    scaled = {"normalize_rewards": True, "critic": "categorical", "value_range": (-9.0, 9.0), "discount": 0.0}
    how: dict[str, Any] = {"num_envs": 4, "steps": 120, "evaluate_every": 0}
    run = train(tmp_path, small("sac", **scaled), always_minus_two, cluster=Simulation(block=5), **how)
    assert run.metrics()[-1]["learn/target_mean"] == pytest.approx(-5.0, rel=1e-5)


@pytest.mark.parametrize("name", ASYNC)
def test_async_run_counts_updates_correctly_with_any_actors(tmp_path: Path, name: str):
    """A resume with another number of actors starts new episodes."""
    (agent, environment, how), (every, before) = case(name, tmp_path), ASYNC[name]
    cluster = Simulation(mode="async", actors=3, block=5)
    run = train(tmp_path, agent, environment, name="async", cluster=cluster, callbacks=[StopAt(130)], **how)
    assert run.config.cluster == {"mode": "async", "block": 5}
    said = notices(run, [StopAt(171)], cluster=Simulation(actors=2))
    assert any("it is of 3 actors, and there are 2 now). The run continues with new episodes" in one for one in said)
    run.resume(cluster=Simulation(actors=4))
    found = outcome(run)
    assert found["step"] >= 240
    assert found["state"]["learner"]["updates"] == before + (found["step"] - 30) // every
    written = run.metrics()[-1]
    assert written["time/actors"] == 4
    assert written["time/lag_updates_mean"] >= 0


def test_resume_requires_the_same_cluster_settings(tmp_path: Path):
    how: dict[str, Any] = {"num_envs": 4, "steps": 120, "evaluate_every": 0}
    cluster = Simulation(rates=STEADY, block=4)
    run = train(tmp_path, cluster=cluster, callbacks=[StopAt(60)], **how)
    assert run.config.cluster == {"mode": "sync", "actors": 2, "block": 4}
    with pytest.raises(UsageError, match="It can only continue on a cluster"):
        run.resume()
    with pytest.raises(UsageError, match="continues with actors 2, which affects its numbers, not 3"):
        run.resume(cluster=Simulation(actors=3))
    with pytest.raises(UsageError, match="continues with mode sync, which affects its numbers, not async"):
        run.resume(cluster=Simulation(mode="async"))
    run.resume(cluster=Simulation(rates=STEADY))
    local = train(tmp_path, name="local", callbacks=[StopAt(60)], **how)
    with pytest.raises(UsageError, match="The run started without a cluster, which would change its numbers"):
        local.resume(cluster=Simulation())


def test_surplus_actors_are_reported(tmp_path: Path):
    said: list[str] = []
    look, how = [lambda trainer: said.extend(trainer.notices)], {"steps": 40, "evaluate_every": 0}
    train(tmp_path, cluster=Simulation(actors=4, rates=STEADY), callbacks=look, **how)
    assert "num_envs is 1, so the run uses 1 of the 4 actors. Give more --num-envs." in said


def test_unsaveable_environments_restart_episodes_with_notice(tmp_path: Path):
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


def test_actors_apply_action_masks(tmp_path: Path) -> None:
    """The environment raises an error for a forbidden action."""
    agent, how = small("dqn", exploration_end=0.5), {"num_envs": 4, "steps": 160, "evaluate_every": 0}
    cluster = Simulation(actors=2, mode="async", rates=STEADY)
    run = train(tmp_path, agent, Turnstile, cluster=cluster, **how)
    assert checkpoints(run).load_latest().state["spaces"]["action_mask"] is True
    run.resume(200, cluster=cluster)
    assert checkpoints(run).steps()[-1] == 200


def test_rollout_memory_ends_episodes_lost_with_an_actor(tmp_path: Path):
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
    """Environment 2 raises in its 20th step while the variable FAILING is set."""

    def step(self, action: Any) -> Any:
        if self.life == 19 and os.environ.get("FAILING") and self.np_random_seed == 2:
            raise LookupError("nothing there")
        return super().step(action)


def test_environment_error_is_the_same_on_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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


def test_repeated_actor_failure_ends_run_and_keeps_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cluster = Simulation(rates=STEADY, actors=2, block=5)
    how: dict[str, Any] = {"num_envs": 4, "evaluate_every": 0}

    def strike(trainer: duetto.Trainer) -> None:
        if trainer.step >= 100:  # every call fails, except the check that the actor is alive
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


def test_invalid_cluster_runs_are_refused_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UsageError, match=r"ppo learns from rollouts.* Use the mode sync"):
        train(tmp_path, small("ppo"), cluster=Simulation(mode="async"))
    with pytest.raises(UsageError, match=r"mode is 'fast'; it must be one of sync, async"):
        duetto.Cluster(mode="fast")
    with pytest.raises(UsageError, match="actors is -1; it must be at least 0"):
        duetto.Cluster(actors=-1)
    with pytest.raises(UsageError, match=r"is an object of this process\. For a cluster, pass its id, or a factory"):
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
