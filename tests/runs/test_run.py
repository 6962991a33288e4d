"""`duetto.train` and `duetto.Run`: environments, options, resume, evaluation, and refused arguments."""

from __future__ import annotations

import re
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from fake_disk import FullOS
from line_environment import Choosing, Components, Line, Looking, Unbounded
from small_runs import StopAt, assert_same, checkpoints, notices, train

from duetto.errors import CheckpointError, DuettoError, RunInUseError, UsageError
from duetto.install_hint import install
from duetto.runs.run import Run
from duetto.storage import atomic_io
from duetto.storage.run_folder import folder_lock
from duetto.training.trainer import Trainer


def make_line(length: int = 10) -> Line:
    return Line(length)


# ---------------------------------------------------------------------------------------------------- environments
@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("Pendulum-v1", "td3-Pendulum-v1-s0"),
        (Line, "td3-Line-s0"),
        (make_line, "td3-make_line-s0"),
        (lambda: Line(), "td3-lambda-s0"),
        (partial(make_line, length=7), "td3-partial-s0"),
    ],
)
def test_environment_may_be_id_class_or_factory(tmp_path: Path, environment: Any, name: str):
    run = train(tmp_path, environment=environment, num_envs=2, steps=60)
    assert run.path == tmp_path / name
    assert len(run.evaluate(2).returns) == 2
    assert run.resume(steps=80).path == run.path
    assert checkpoints(run).load_latest().step == 80
    later = Run(run.path, environment=None if isinstance(environment, str) else environment)
    assert later.evaluate(1).lengths.tolist() == run.evaluate(1).lengths.tolist()
    assert later.resume(steps=90).config.run.steps == 90


@pytest.mark.parametrize("make", [partial(gymnasium.make, "Line-v0"), Line], ids=["registered", "class"])
def test_environment_instance_is_not_closed(tmp_path: Path, make: Any):
    environment = make()
    run = train(tmp_path, environment=environment, steps=60)
    assert len(run.evaluate(2).returns) == 2
    run.resume(steps=80)
    assert not environment.unwrapped.closed
    assert not run.config.remakeable
    assert Run(run.path, environment=make()).resume(steps=100).config.run.steps == 100


def test_vector_environment_trains_resumes_and_evaluates(tmp_path: Path):
    vector = gymnasium.vector.SyncVectorEnv([Line] * 3)
    run = train(tmp_path, environment=vector, steps=60)
    assert run.resume(steps=90).metrics()[-1]["step"] == 90
    assert len(run.evaluate(2).returns) == 2
    vector.close()


def test_environment_options_apply_to_training_and_evaluation(tmp_path: Path):
    run = train(tmp_path, environment=Line, environment_options={"length": 7}, steps=60)
    assert {row["mean_length"] for row in run.evaluations()} == {7.0}
    assert run.metrics()[-1]["train/length"] == 7.0
    assert run.evaluate(2).lengths.tolist() == [7, 7]


def test_run_requires_environment_that_it_cannot_recreate(tmp_path: Path):
    run = Run(train(tmp_path, environment=Line, steps=40).path)
    sentence = r"was trained on Line, an object .*pass it with duetto.Run\(path, environment=...\)"
    for act in (run.resume, run.evaluate, run.video):
        with pytest.raises(UsageError, match=sentence):
            act()
    assert run.agent().act(np.zeros(2)).shape == (2,)  # an agent needs no environment


# ---------------------------------------------------------------------------------------------------- refused
def fails() -> Any:
    """An environment factory that raises an error."""
    return {}["size"]


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ("CartPole-v1", r"needs .* \(Box\); CartPole-v1 has Discrete\(2\)\. Algorithms for it: bc, .* r2d2, r2d3\.$"),
        (Choosing, r"td3 needs a continuous action space \(Box\); Choosing has Discrete\(4\)\."),
        (Unbounded, r"unbounded in dimensions \[0, 1\]. Give its action_space finite"),
        (Looking, r"td3 takes vectors; Looking observes Box\(3, 8, 8\), an image. Give a custom actor_network"),
        ("Pendulun-v1", r"no environment Pendulun-v1. Did you mean Pendulum-v1"),
        ("Pendulum-v7", r"no environment Pendulum-v7. Did you mean Pendulum-v1"),
        (5, r"5 is no environment. Give an id, an environment, or a factory"),
        ("CartPole", r"no environment CartPole. Did you mean CartPole-v1"),
        (
            type("Old", (), {"step": None})(),
            r"Old is no gymnasium\.Env\. Derive its class from gymnasium\.Env; replace",
        ),
        (
            type("Old", (), {"step": None}),
            r"The factory Old returned .*Old\. Return one gymnasium\.Env\. Derive its class from",
        ),
        (fails, r"(?s)factory fails failed: KeyError: 'size'\n.*test_run\.py\", line \d+, in fails"),
    ],
)
def test_unsuitable_environments_are_refused_before_writing(tmp_path: Path, environment: Any, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        train(tmp_path / "runs", environment=environment)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("backend", "package"), [("jax", "jax"), ("jax", "optax"), ("torch", "torch")])
def test_missing_framework_is_reported_with_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, package: str
):
    for name in (f"duetto.learners.{backend}", f"duetto.networks.{backend}"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("duetto.learners.installed", lambda _: False)
    with pytest.raises(UsageError) as refusal:
        train(tmp_path, backend=backend)
    expected = f"The {backend} backend needs {package}, which is not installed. Install: {install(backend)}"
    assert str(refusal.value) == expected
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------------- resuming
@pytest.fixture
def stopped_run(tmp_path: Path) -> Run:
    return train(tmp_path, steps=100, name="made", callbacks=[StopAt(70)])


def edit(run: Run, changes: dict[str, Any]) -> Run:
    """Change keys of the run's config.yaml, for example "run.steps", and load the run again."""
    path = run.path / "config.yaml"
    values = yaml.safe_load(path.read_text("utf-8"))
    for where, value in changes.items():
        part, _, key = where.partition(".")
        values[part] = values[part] | {key: value} if key else value
    path.write_text(yaml.safe_dump(values), "utf-8")
    return Run(run.path)


def file_contents(run: Run) -> dict[str, bytes]:
    files = [path for path in run.path.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(run.path)): path.read_bytes() for path in files}


def check_resume_is_refused(run: Run, kind: type[DuettoError], sentence: str, **arguments: Any) -> None:
    before = file_contents(run)
    with pytest.raises(kind, match=sentence):
        run.resume(**arguments)
    assert file_contents(run) == before


def test_resume_with_fewer_steps_than_done_is_refused(stopped_run: Run):
    check_resume_is_refused(
        stopped_run, UsageError, "has made 70 steps already, more than 60: give more --steps", steps=60
    )
    assert stopped_run.resume().config.run.steps == 100


def test_resume_of_a_run_in_use_is_refused(stopped_run: Run):
    with folder_lock(stopped_run.path), pytest.raises(RunInUseError, match=r"is in use by process \d+ on .*kill"):
        stopped_run.resume()


def test_resume_without_checkpoint_restarts_and_keeps_old_logs(tmp_path: Path):
    run = train(tmp_path, steps=100, name="run")
    logged = [(run.path / name).read_bytes() for name in ("metrics.jsonl", "evaluations.csv")]
    shutil.rmtree(run.path / "checkpoints")
    identifier = run.config.environment
    check_resume_is_refused(edit(run, {"environment.id": "Nowhere-v0"}), UsageError, "no environment Nowhere-v0")
    said = notices(again := edit(run, {"environment.id": identifier}))
    assert [(run.path / "before" / name).read_bytes() for name in ("metrics.jsonl", "evaluations.csv")] == logged
    assert "has no checkpoint: the run starts at step 0 again" in said[0]
    assert [row["step"] for row in again.evaluations()] == [0, 60, 100]
    assert again.evaluations()[1]["mean_return"] == pytest.approx(float(logged[1].split()[2].split(b",")[1]))


def test_resume_with_changed_spaces_is_refused(tmp_path: Path):
    stopped_run = train(tmp_path, environment=Line, steps=100, callbacks=[StopAt(70)])
    run = Run(stopped_run.path, environment=lambda: Line(size=3))
    check_resume_is_refused(
        run,
        CheckpointError,
        r"Line has the observation space Box\(\(3,\), float32\); the agent was trained with Box\(\(2,\), float32\)",
    )
    run = Run(stopped_run.path, environment=Components)
    check_resume_is_refused(
        run,
        CheckpointError,
        r"Components has the observation space Dict\(inner/still.*; the agent was trained with Box",
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"algorithm.hidden": [16, 16]}, r"layers.0.weight has shape \(32, 3\); this network has \(16, 3\)"),
        ({"algorithm.hidden": [32]}, r"parameters of actor do not fit"),
        (
            {"algorithm.replay_capacity": 500},
            r"replay buffer has other sizes \(rows 120, here 500\)",
        ),
        ({"run.num_envs": 2}, r"replay buffer has other sizes \(environments 1, here 2; rows 120, here 60\)"),
        ({"algorithm.prioritized": True}, r"prioritized was false, is now true\. .*has no priorities"),
        ({"algorithm.normalize_observations": "sampled"}, r"Change normalize_observations back"),
    ],
)
def test_resume_with_changed_sizes_is_refused(stopped_run: Run, changes: dict[str, Any], sentence: str):
    check_resume_is_refused(edit(stopped_run, changes), CheckpointError, sentence, accept_changes=True)


def test_full_disk_during_checkpoint_is_reported_and_resumable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fill(trainer: Trainer) -> None:
        if trainer.step == 90:
            monkeypatch.setattr(atomic_io, "os", FullOS(room=0))

    sentence = r"checkpoint at step 120 could not .*No space left on device. Free some space or fix that, then resume"
    with pytest.raises(CheckpointError, match=sentence):
        train(tmp_path, name="full", callbacks=[fill], environment_options={})
    monkeypatch.undo()
    run = Run(tmp_path / "full")
    assert checkpoints(run).load_latest().step == 80
    assert_same(train(tmp_path, name="whole", environment_options={}), run.resume())


# ---------------------------------------------------------------------------------------------------- outputs
def test_run_repr_metrics_and_folder_contents(tmp_path: Path):
    run = train(tmp_path, steps=60)
    assert repr(run) == f"Run('{tmp_path}/td3-Pendulum-v1-s0')"
    assert [line["step"] for line in run.metrics()] == [25, 50, 60]
    assert run.evaluations()[0].keys() == {
        "step", "mean_return", "std_return", "min_return", "max_return", "mean_length", "episodes", "seconds"
    }  # fmt: skip
    assert {path.name for path in run.path.iterdir()} == {
        ".lock", "checkpoints", "config.yaml", "evaluations.csv", "metrics.jsonl", "tensorboard"
    }  # fmt: skip


def test_tensorboard_has_each_metrics_line_once(tmp_path: Path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = train(tmp_path, callbacks=[StopAt(130)]).resume()
    events = event_accumulator.EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    losses = events.Scalars("learn/critic_loss")
    lines = [line for line in run.metrics() if "learn/critic_loss" in line]
    assert [event.step for event in losses] == [line["step"] for line in lines]
    assert [event.value for event in losses] == pytest.approx([line["learn/critic_loss"] for line in lines])
    scores = events.Scalars("evaluation/mean_return")
    assert [event.step for event in scores] == [0, 60, 120, 180, 200]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"seed": -1}, "seed is -1; it must be at least 0"),
        ({"episodes": "3"}, "episodes is '3'; it must be a whole number"),
        ({"checkpoint": 2.5}, "checkpoint is 2.5; it must be last, best or a step"),
    ],
)
def test_argument_mistakes_of_evaluate_watch_video_are_refused(
    stopped_run: Run, arguments: dict[str, Any], sentence: str
):
    for call in (stopped_run.evaluate, stopped_run.watch, stopped_run.video):
        if "episodes" not in arguments or call != stopped_run.video:
            with pytest.raises(UsageError, match=re.escape(sentence)):
                call(**arguments)
