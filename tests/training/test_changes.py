"""What was changed in config.yaml: said, and where it decides the numbers, made only if that is asked for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from line_environment import Line
from small_runs import AtStart, CrashAt, CrashError, StopAt, notices, small, train
from test_run import check_refused_unharmed, edit

import duetto
from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.errors import CheckpointError, UsageError
from duetto.learners.runtime import jax_threads
from duetto.runs.run import Run
from duetto.storage.config import Config, RunOptions
from duetto.storage.reproducibility import FREE, deciding
from duetto.training import checkpoints as checkpoints_module
from duetto.training.trainer import Trainer


@pytest.fixture
def made(tmp_path: Path) -> Run:
    return train(tmp_path, steps=100, name="made", environment_options={"g": 10.0}, callbacks=[StopAt(70)])


# ---------------------------------------------------------------------------------------------------- what decides
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_hyper_parameter_decides(name: str):
    config = Config(small(name), "Pendulum-v1", RunOptions())
    keys = {key.removeprefix("algorithm.") for key in deciding(config) if key.startswith("algorithm.")}
    assert keys == set(ALGORITHMS[name].options()) - {"demonstrations"}  # of which the contents have a fingerprint


def test_every_run_option_decides_or_is_free():
    keys = {key.removeprefix("run.") for key in deciding(Config(small(), "Pendulum-v1", RunOptions()))}
    for field in dataclasses.fields(RunOptions):
        assert (field.name in keys) != (field.name in FREE)


# ---------------------------------------------------------------------------------------------------- refused
@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("algorithm.discount", 0.18, r"algorithm\.discount was 0\.99, is now 0\.18\. "),
        ("algorithm.hidden", [32, 16], r"algorithm\.hidden was \[32, 32\], is now \[32, 16\]\. "),
        ("run.backend", "jax", r'run\.backend was "torch", is now "jax"\. '),
        ("environment.options", {"g": 9.0}, r'environment\.options was \{"g": 10\.0\}, is now \{"g": 9\.0\}\. '),
    ],
)
def test_a_change_of_what_decides_is_refused(made: Run, key: str, value: Any, sentence: str):
    check_refused_unharmed(edit(made, {key: value}), UsageError, sentence + ".*give --accept-changes .*put the old")


def test_with_the_old_value_back_it_is_the_same_run(made: Run):
    edit(made, {"algorithm.discount": 0.5})
    assert notices(edit(made, {"algorithm.discount": 0.99})) == []


# ---------------------------------------------------------------------------------------------------- accepted
def test_an_accepted_change_is_said_made_and_kept(made: Run):
    run = edit(made, {"algorithm.actor_learning_rate": 0.5})
    [said] = notices(run, accept_changes=True)
    assert said == (
        "Changed since the checkpoint at step 70: algorithm.actor_learning_rate was 0.001, is now 0.5. The "
        "run continues "
        "with the new values."
    )
    assert run.metrics()[-1]["learn/actor_learning_rate"] == 0.5
    assert notices(Run(run.path), steps=110) == []  # the new checkpoint was made with it
    check_refused_unharmed(edit(run, {"algorithm.actor_learning_rate": 0.001}), UsageError, "was 0.5, is now 0.001")


@pytest.mark.parametrize("new", ["torch", "jax"])
def test_another_framework_has_threads_of_its_own(tmp_path: Path, new: Any):
    """JAX's number went over to PyTorch, as if it had been asked for; and JAX had none written down."""
    old = "jax" if new == "torch" else "torch"
    run = train(tmp_path, steps=40, evaluate_every=0, backend=old, threads=0)
    assert run.config.run.threads == (jax_threads() if old == "jax" else 1)
    notices(run, steps=60, backend=new)
    assert bool(Run(run.path).config.run.threads) == (new == "jax")


def test_other_values_can_be_given_in_python_too(made: Run):
    with pytest.raises(UsageError, match=r"resume has no option 'actor_learning_rat'. Did you mean 'actor_learning_r"):
        made.resume(110, actor_learning_rat=0.5)
    with pytest.raises(UsageError, match="with the backend and the device that it has"):
        made.resume(110, backend="auto")
    with pytest.raises(UsageError, match=r"tau is 2\.0; it must be at least 0"):
        made.resume(110, tau=2.0)
    [said] = notices(made, steps=110, actor_learning_rate=0.5, log_every=5)
    assert "algorithm.actor_learning_rate was 0.001, is now 0.5. The run continues with the new values." in said
    assert made.metrics()[-1]["learn/actor_learning_rate"] == 0.5
    assert [line["step"] for line in made.metrics()][-2:] == [105, 110]
    config = Run(made.path).config
    assert (config.algorithm.actor_learning_rate, config.run.log_every, config.run.steps) == (0.5, 5, 110)
    assert notices(Run(made.path), steps=120) == []


def test_other_environment_options_are_not_undone_by_the_saved_state(made: Run):
    """An environment's state holds its gravity, too: the episodes start anew."""
    seen: list[float] = []
    run = edit(made, {"environment.options": {"g": 3.0}})
    said: list[str] = []

    def look(trainer: Trainer) -> None:
        seen.append(trainer.stepper.environments[0].unwrapped.g)
        assert not trainer.stepper.resumed_exactly
        said.extend(trainer.notices)

    run.resume(accept_changes=True, callbacks=[AtStart(look)])
    assert seen == [3.0]
    assert len(said) == 1
    assert said[0].endswith("The run continues with the new values, and with new episodes.")


@pytest.mark.parametrize(
    ("algorithm", "changed", "sentence"),
    [
        (small("ppo"), {"algorithm.normalize_rewards": True}, r"Put normalize_rewards back to false"),
        (small("ppo"), {"algorithm.rollout_steps": 32}, r"rollout has 16 steps of 1 environments, this run's 32"),
        (small("sac", learn_temperature=False), {"algorithm.learn_temperature": True}, "Put the old values back"),
    ],
)
def test_what_cannot_change_ends_in_a_sentence_all_the_same(
    tmp_path: Path, algorithm: Algorithm, changed: dict[str, Any], sentence: str
):
    run = edit(train(tmp_path, algorithm, steps=100, callbacks=[StopAt(70)]), changed)
    sentence = rf"with what has changed: algorithm\.\w+ was .*{sentence}.* from this one's networks.* \(--from "
    check_refused_unharmed(run, CheckpointError, sentence, accept_changes=True)


def test_what_was_accepted_is_in_a_checkpoint_before_anything_kills_the_run(made: Run):
    """A kill before the next one left a config of the new values beside a checkpoint of the old: refused."""
    run = edit(made, {"algorithm.tau": 0.02})
    with pytest.raises(CrashError):
        run.resume(accept_changes=True, callbacks=[CrashAt(71)])
    assert notices(Run(made.path)) == []
    assert Run(made.path).config.algorithm == small(tau=0.02)


# ---------------------------------------------------------------------------------------------------- versions, agents
def test_other_versions_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as then:
        then.setattr(checkpoints_module, "packages", lambda _: {"numpy": "1.0", "gone": "2.0"})
        made = train(tmp_path, steps=100, callbacks=[StopAt(70)])
    [said] = notices(made)
    assert said.startswith("Computed otherwise since the checkpoint at step 70: numpy was 1.0, is now ")
    assert said.count(" was ") == 2
    assert notices(made, steps=110) == []


def test_an_agent_says_that_it_was_trained_with_another_config(made: Run):
    assert duetto.load(made.path).notices == []
    edit(made, {"algorithm.activation": "tanh"})
    for checkpoint in ("last", "best"):
        agent = duetto.load(made.path, checkpoint)
        [notice] = agent.notices
        assert notice.startswith(
            f"config.yaml or a custom file has changed since step {agent.step} was trained: algorithm.activation was"
        )


# ---------------------------------------------------------------------------------------------------- SAC's temperature
def temperature(trainer: Trainer) -> float:
    return float(np.exp(trainer.learner.parameters()["log_alpha"]["value"]))


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_fixed_temperature_is_that_of_the_config(tmp_path: Path, backend: str):
    fixed: dict[str, Any] = {"hidden": (4,), "random_steps": 0, "learning_starts": 10**6, "learn_temperature": False}
    run = train(tmp_path, small("sac", **fixed), Line, steps=60, callbacks=[StopAt(30)], backend=backend)
    run = Run(edit(run, {"algorithm.temperature": 0.25}).path, environment=Line)
    seen: list[float] = []
    run.resume(accept_changes=True, callbacks=[AtStart(lambda trainer: seen.append(temperature(trainer)))])
    again = small("sac", **fixed, temperature=0.125)
    train(tmp_path, again, Line, steps=10, from_run=run, callbacks=[lambda s: seen.append(temperature(s))], name="next")
    assert seen[:2] == pytest.approx([0.25, 0.125])


def test_another_number_of_threads_is_said(tmp_path: Path):
    """Their last bits may be others."""
    run = edit(train(tmp_path, threads=2, steps=80), {"run.threads": 1})
    [said] = notices(run, steps=90)
    assert "threads was 2, is now 1. From here the numbers may differ" in said
