"""The training loop: evaluations, metrics, checkpoints, the best policy, and non-finite values."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_run import same
from line_environment import Line, Opaque
from small_runs import AtStart, CrashAt, CrashError, StopAt, assert_same, checkpoints, notices, small, train

from duetto.errors import NonFiniteError
from duetto.runs.run import Run
from duetto.training import evaluation as evaluation_module
from duetto.training.evaluation import Evaluation
from duetto.training.trainer import Trainer


def test_evaluations_metrics_and_checkpoints_follow_their_intervals(tmp_path: Path):
    run = train(tmp_path, steps=130, evaluate_every=50, checkpoint_every=60, log_every=40)
    assert [row["step"] for row in run.evaluations()] == [0, 50, 100, 130]  # the last policy is always evaluated
    assert [line["step"] for line in run.metrics()] == [40, 80, 120, 130]
    assert checkpoints(run).steps() == [120, 130]  # the newest two; the end always has one


def test_run_shorter_than_evaluate_every_evaluates_at_its_end(tmp_path: Path):
    """Also if the last vector step passes `steps`. A resume does not repeat the evaluation."""
    run = train(tmp_path, steps=45, num_envs=2, evaluate_every=1000, checkpoint_every=23)
    assert [row["step"] for row in run.evaluations()] == [0, 46]
    assert checkpoints(run).load_latest().state["evaluations"] != checkpoints(run).load(24).state["evaluations"]
    assert notices(run) == []
    assert [row["step"] for row in run.evaluations()] == [0, 46]
    assert [row["step"] for row in run.resume(steps=60).evaluations()] == [0, 46, 60]


def test_run_killed_after_last_checkpoint_has_last_evaluation(tmp_path: Path):
    options: dict[str, Any] = {"steps": 90, "evaluate_every": 60, "checkpoint_every": 30}
    with pytest.raises(CrashError):
        train(tmp_path, name="crashed", callbacks=[CrashAt(90)], **options)
    resumed = Run(tmp_path / "crashed").resume()
    assert [row["step"] for row in resumed.evaluations()] == [0, 60, 90]
    assert_same(train(tmp_path, **options), resumed)


def test_run_without_intervals_writes_only_the_last_checkpoint(tmp_path: Path):
    run = train(tmp_path, steps=60, evaluate_every=0, checkpoint_every=0)
    assert run.evaluations() == []
    assert checkpoints(run).steps() == [60]
    assert not (run.path / "checkpoints" / "best").exists()


def test_run_works_outside_the_main_thread(tmp_path: Path):
    runs: list[Run] = []
    thread = threading.Thread(target=lambda: runs.append(train(tmp_path, steps=45)))
    thread.start()
    thread.join()
    assert checkpoints(runs[0]).steps() == [40, 45]


def test_runs_are_reproducible_by_seed(tmp_path: Path):
    said: list[str] = []
    look = AtStart(lambda trainer: said.extend(trainer.notices))
    one, two, three = train(tmp_path, seed=1), train(tmp_path, seed=1, callbacks=[look]), train(tmp_path, seed=2)
    assert said == [f"{one.path} exists, so this run is in {two.path}. To continue that run: duetto resume {one.path}"]
    assert [run.path.name for run in (one, two, three)] == [
        "td3-Pendulum-v1-s1",
        "td3-Pendulum-v1-s1-2",
        "td3-Pendulum-v1-s2",
    ]
    assert_same(one, two)
    assert one.metrics()[-1]["learn/critic_loss"] != three.metrics()[-1]["learn/critic_loss"]


def replace_evaluation_returns(monkeypatch: pytest.MonkeyPatch, *returns: float) -> None:
    """Replace the mean returns of evaluations, in order."""
    left = iter(returns)

    def scored(*_: Any) -> Evaluation:
        return Evaluation(np.array([next(left)]), np.array([10]))

    monkeypatch.setattr(evaluation_module, "evaluate", scored)


def test_the_best_policy_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    replace_evaluation_returns(monkeypatch, 1.0, 4.0, 5.0, 3.0, 5.0, 2.0)
    parameters: dict[int, Any] = {}

    def remember(trainer: Trainer) -> None:
        parameters[trainer.step] = trainer.learner.parameters()

    run = train(tmp_path, steps=100, evaluate_every=20, callbacks=[remember])
    best = checkpoints(run).load_best()
    assert (best.step, best.info) == (40, {"mean_return": 5.0})  # the first of equal returns
    assert same(best.state["learner"]["parameters"], parameters[40])
    assert not same(best.state["learner"]["parameters"], parameters[100])
    assert run.agent("best").step == 40


def test_learning_rates_and_updates_are_logged(tmp_path: Path):
    algorithm = small(learning_rate_decay="linear", learning_rate_final=0.5, actor_learning_rate=0.01)
    lines = train(tmp_path, algorithm, steps=100).metrics()
    assert [line["learn/actor_learning_rate"] for line in lines] == pytest.approx([0.00875, 0.0075, 0.00625, 0.005])
    assert [line["learn/updates"] for line in lines] == [0, 20, 45, 70]


# ---------------------------------------------------------------------------------------------------- inexact resume
def test_unsaveable_environment_resumes_with_new_episodes(tmp_path: Path):
    algorithm = small(n_step=5, exploration="ou")
    options = {"environment": Opaque, "steps": 100, "checkpoint_every": 0}
    run = train(tmp_path, algorithm, callbacks=[StopAt(75)], **options)  # 5 steps into an episode of 10
    noises: list[np.ndarray] = []
    truncated: list[np.ndarray] = []

    def remember(trainer: Trainer) -> None:
        bits = np.unpackbits(trainer.memory.state_dict()["envs"]["truncated"])
        truncated.append(bits[74 : trainer.memory.written[0]])

    look = AtStart(lambda trainer: noises.append(trainer.collector.state_dict()["noise"]))
    assert notices(run, [remember, look]) == [
        "The state of Opaque could not be restored (its metadata says resets_only). The run continues with "
        "new episodes, so from here its numbers differ from those of a run that was never interrupted.",
        "Opaque starts a new episode when this run is resumed: its metadata says resets_only.",  # at a checkpoint
    ]
    assert (noises[0] == 0).all()
    # No n-step return may cross from the old episode into a new one. Steps 76-85 and 86-95 are whole episodes.
    assert np.flatnonzero(truncated[-1]).tolist() == [0, 10, 20]


# ---------------------------------------------------------------------------------------------------- non-finite values
@pytest.mark.parametrize(("bad", "named"), [("obs", "the observation is NaN"), ("reward", "the reward is NaN or inf")])
def test_non_finite_environment_is_reported_and_checkpoint_kept(tmp_path: Path, bad: str, named: str):
    with pytest.raises(NonFiniteError) as failure:
        train(tmp_path, environment=Line, name="broken", environment_options={"bad": bad, "when": 95})
    message = str(failure.value)
    assert f"Line, environment 0, vector step 95: {named}" in message
    assert "The run on Line stopped at step 94; its checkpoint of step 80 is kept" in message
    assert str(tmp_path / "broken") in message
    run = Run(tmp_path / "broken", environment=lambda: Line())
    assert checkpoints(run).load_latest().step == 80
    assert run.agent().act(np.zeros(2)).shape == (2,)


def test_nan_action_is_reported(tmp_path: Path):
    def poison(trainer: Trainer) -> None:
        if trainer.step == 95:
            parameters = trainer.learner.parameters()
            parameters["actor"]["layers.0.bias"][:] = np.nan
            trainer.learner.load_parameters(parameters)

    with pytest.raises(NonFiniteError, match=r"vector step 96: the action is NaN .*diverged.*checkpoint of step 80"):
        train(tmp_path, environment=Line, callbacks=[poison])


def test_diverged_loss_is_reported_and_never_checkpointed(tmp_path: Path, backend: str):
    algorithm = small("ddpg", critic_learning_rate=1e30, learning_starts=85, prioritized=backend == "torch")
    with pytest.raises(NonFiniteError) as failure:
        train(tmp_path, algorithm, Line, name="diverged", steps=2000, backend=backend, checkpoint_every=20)
    message = str(failure.value)
    assert "diverged" in message
    assert "The run on Line stopped at step " in message
    assert "its checkpoint of step 80 is kept" in message
    assert "learning rate" in message
    run = Run(tmp_path / "diverged", environment=Line)
    assert checkpoints(run).load_latest().step == 80
    assert np.isfinite(run.evaluate(1).mean_return)


def test_non_finite_parameters_are_never_saved(tmp_path: Path):
    def poison(trainer: Trainer) -> None:
        if trainer.step == 110:
            parameters = trainer.learner.parameters()
            parameters["target_critic"]["layers.0.weight"][0, 0, 0] = np.inf
            trainer.learner.load_parameters(parameters)
            trainer.stop()

    with pytest.raises(NonFiniteError, match=r"target_critic's layers.0.weight is not finite.*checkpoint of step 80"):
        train(tmp_path, name="poisoned", callbacks=[poison])
    assert checkpoints(Run(tmp_path / "poisoned")).steps() == [40, 80]


def test_diverged_parameters_are_not_evaluated(tmp_path: Path):
    """DQN acts by argmax, so it also acts with NaN, possibly with the best return."""
    algorithm = small("dqn", learning_rate=1e30, learning_starts=85)
    options: dict[str, Any] = {"steps": 400, "evaluate_every": 20, "log_every": 1000, "checkpoint_every": 80}
    with pytest.raises(NonFiniteError) as failure:
        train(tmp_path, algorithm, "CartPole-v1", name="diverged", **options)
    assert "learning has diverged" in str(failure.value)
    assert "its checkpoint of step 80 is kept" in str(failure.value)
    run = Run(tmp_path / "diverged")
    best = checkpoints(run).load_best()
    assert best.step <= 100
    assert all(
        np.isfinite(part).all() for each in best.state["learner"]["parameters"].values() for part in each.values()
    )
    assert max(row["step"] for row in run.evaluations()) <= 100


def test_resume_discards_best_evaluation_after_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    replace_evaluation_returns(monkeypatch, -50.0, -10.0, -85.0, -90.0, -95.0, -99.0)
    with pytest.raises(CrashError):
        train(tmp_path, name="run", callbacks=[CrashAt(70)])
    run = Run(tmp_path / "run")
    assert checkpoints(run).load_best().step == 60
    run.resume(actor_learning_rate=1e-5)
    assert [row["mean_return"] for row in run.evaluations()] == [-50, -85, -90, -95, -99]
    assert (checkpoints(run).load_best().step, checkpoints(run).load_best().info) == (0, {"mean_return": -50.0})


def test_final_metrics_line_is_removed_on_resume(tmp_path: Path):
    for end in (40, 110):
        run = train(tmp_path, name=f"short{end}", steps=end, log_every=100, schedule_steps=200)
        assert [line["step"] for line in run.metrics()] == ([40] if end == 40 else [100, 110])
        assert "learn/critic_loss" in run.metrics()[-1]
        run.resume()  # complete
        assert [line["step"] for line in run.metrics()] == ([40] if end == 40 else [100, 110])
    whole = train(tmp_path, name="whole", log_every=100, evaluate_every=0)
    stopped = train(tmp_path, log_every=100, evaluate_every=0, callbacks=[StopAt(150)])
    assert [line["step"] for line in stopped.metrics()] == [100, 150]
    assert_same(whole, stopped.resume())
