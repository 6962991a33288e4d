"""Changes of config.yaml: Duetto reports them, and requires --accept-changes if they affect results."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from line_environment import Line
from small_runs import AtStart, CrashAt, CrashError, StopAt, notices, small, train
from test_run import check_resume_is_refused, edit

import duetto
from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.errors import CheckpointError, UsageError
from duetto.learners.runtime import jax_threads
from duetto.runs.run import Run
from duetto.storage.config import Config, RunOptions
from duetto.storage.reproducibility import FREE, deciding
from duetto.training import checkpoints as checkpoints_module
from duetto.training.trainer import Trainer


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of 100 steps that was stopped at step 70."""
    return train(tmp_path_factory.mktemp("runs"), steps=100, environment_options={"g": 10.0}, callbacks=[StopAt(70)])


@pytest.fixture
def stopped_run(stopped: Run, tmp_path: Path) -> Run:
    """A copy of that run, which the test may change."""
    return Run(shutil.copytree(stopped.path, tmp_path / "made"))


# ---------------------------------------------------------------------------------------------------- deciding keys
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_hyperparameter_counts_as_affecting_results(name: str):
    config = Config(small(name), "Pendulum-v1", RunOptions())
    keys = {key.removeprefix("algorithm.") for key in deciding(config) if key.startswith("algorithm.")}
    assert keys == set(ALGORITHMS[name].options()) - {"demonstrations"}  # checked by the fingerprint of their contents


def test_every_run_option_affects_results_or_is_free():
    keys = {key.removeprefix("run.") for key in deciding(Config(small(), "Pendulum-v1", RunOptions()))}
    for field in dataclasses.fields(RunOptions):
        assert (field.name in keys) != (field.name in FREE)


# ---------------------------------------------------------------------------------------------------- refused
def test_change_affecting_results_is_refused_until_restored(stopped_run: Run):
    for key, value, old, sentence in (
        ("algorithm.discount", 0.18, 0.99, r"algorithm\.discount was 0\.99, is now 0\.18\. "),
        ("environment.options", {"g": 9.0}, {"g": 10.0}, r'options was \{"g": 10\.0\}, is now \{"g": 9\.0\}\. '),
    ):
        changed = edit(stopped_run, {key: value})
        check_resume_is_refused(changed, UsageError, sentence + ".*give --accept-changes .*restore the old")
        edit(stopped_run, {key: old})
    assert notices(stopped_run) == []


# ---------------------------------------------------------------------------------------------------- accepted
def test_accepted_change_is_reported_applied_and_kept(stopped_run: Run):
    run = edit(stopped_run, {"algorithm.actor_learning_rate": 0.5})
    [said] = notices(run, accept_changes=True)
    assert said == (
        "Changed since the checkpoint at step 70: algorithm.actor_learning_rate was 0.001, is now 0.5. The "
        "run continues "
        "with the new values."
    )
    assert run.metrics()[-1]["learn/actor_learning_rate"] == 0.5
    assert notices(Run(run.path), steps=110) == []  # the new checkpoint contains the new value
    check_resume_is_refused(edit(run, {"algorithm.actor_learning_rate": 0.001}), UsageError, "was 0.5, is now 0.001")


def test_jax_threads_are_not_kept_for_pytorch(tmp_path: Path):
    """The number of JAX's threads is not an option of PyTorch."""
    run = train(tmp_path, steps=40, evaluate_every=0, backend="jax", threads=0)
    assert run.config.run.threads == jax_threads()
    notices(run, steps=60, backend="torch")
    assert not Run(run.path).config.run.threads


def test_resume_accepts_new_option_values_in_python(stopped_run: Run):
    for wrong, sentence in (
        ({"actor_learning_rat": 0.5}, r"no option 'actor_learning_rat'. Did you mean 'actor_learning_r"),
        ({"backend": "auto"}, "backend and device cannot be auto in a resumed run"),
        ({"tau": 2.0}, r"tau is 2\.0; it must be at least 0"),
    ):
        options: Any = wrong
        with pytest.raises(UsageError, match=sentence):
            stopped_run.resume(110, **options)
    [said] = notices(stopped_run, steps=110, actor_learning_rate=0.5, log_every=5)
    assert "algorithm.actor_learning_rate was 0.001, is now 0.5. The run continues with the new values." in said
    assert [line["step"] for line in stopped_run.metrics()][-2:] == [105, 110]
    config = Run(stopped_run.path).config
    assert (config.algorithm.actor_learning_rate, config.run.log_every, config.run.steps) == (0.5, 5, 110)


def test_changed_environment_options_override_the_saved_state(stopped_run: Run):
    """The saved state of an environment contains its gravity, so new episodes start."""
    seen: list[float] = []
    run = edit(stopped_run, {"environment.options": {"g": 3.0}})
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
        (
            small("ppo"),
            {"algorithm.rollout_steps": 32},
            r"has 16 steps of 1 environments, but this run's has 32",
        ),
        (small("sac", learn_temperature=False), {"algorithm.learn_temperature": True}, "Restore the old values"),
    ],
)
def test_accepted_change_impossible_on_resume_is_explained(
    tmp_path: Path, algorithm: Algorithm, changed: dict[str, Any], sentence: str
):
    run = edit(train(tmp_path, algorithm, steps=100, callbacks=[StopAt(70)]), changed)
    sentence = rf"with these changes: algorithm\.\w+ was .*{sentence}.* from the networks of this run \(--from "
    check_resume_is_refused(run, CheckpointError, sentence, accept_changes=True)


def test_accepted_change_is_checkpointed_at_once(stopped_run: Run):
    """So after a kill, resume does not require --accept-changes again."""
    run = edit(stopped_run, {"algorithm.tau": 0.02})
    with pytest.raises(CrashError):
        run.resume(accept_changes=True, callbacks=[CrashAt(71)])
    assert notices(Run(stopped_run.path)) == []
    assert Run(stopped_run.path).config.algorithm == small(tau=0.02)


# ---------------------------------------------------------------------------------------------------- versions, agents
def test_changed_versions_and_threads_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as then:
        then.setattr(checkpoints_module, "packages", lambda _: {"numpy": "1.0", "gone": "2.0"})
        stopped_run = edit(train(tmp_path, steps=100, threads=2, callbacks=[StopAt(70)]), {"run.threads": 1})
    [said] = notices(stopped_run)
    assert said.startswith("Versions or hardware changed since the checkpoint at step 70: numpy was 1.0, is now ")
    assert "threads was 2, is now 1. From here the numbers may differ" in said
    assert said.count(" was ") == 3
    assert notices(stopped_run, steps=110) == []


def test_agent_reports_a_changed_config(stopped_run: Run):
    assert duetto.load(stopped_run.path).notices == []
    edit(stopped_run, {"algorithm.activation": "tanh"})
    [notice] = duetto.load(stopped_run.path, "best").notices
    assert notice.startswith("config.yaml or a custom file has changed since step ")
    assert " was trained: algorithm.activation was" in notice


def test_fixed_temperature_is_read_from_the_config(tmp_path: Path):
    fixed: dict[str, Any] = {"hidden": (4,), "random_steps": 0, "learning_starts": 10**6, "learn_temperature": False}
    seen: list[np.ndarray] = []

    def note(trainer: Trainer) -> None:
        seen.append(np.exp(trainer.learner.parameters()["log_alpha"]["value"]))

    run = train(tmp_path, small("sac", **fixed), Line, steps=60, callbacks=[StopAt(30)])
    run = Run(edit(run, {"algorithm.temperature": 0.25}).path, environment=Line)
    run.resume(accept_changes=True, callbacks=[AtStart(note)])
    again = small("sac", **fixed, temperature=0.125)
    train(tmp_path, again, Line, steps=10, from_run=run, callbacks=[note], name="next")
    assert seen[:2] == pytest.approx([0.25, 0.125])
