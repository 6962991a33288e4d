"""Runs in the compiled loop: exact resume, several seeds in one program, output, callbacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mortal import killed
from small_runs import AtStart, assert_close, checkpoints, differences, small, train
from test_run import edit

from duetto.algorithms import ALGORITHMS
from duetto.errors import DuettoError, UsageError
from duetto.runs.run import Run
from duetto.storage.logs import Csv, JsonLines
from duetto.training import device_loop
from duetto.training.device_trainer import DeviceTrainer
from duetto.training.trainer import Trainer

FILE = Path(__file__).with_name("array_environments.py")
POINT, CHOICE = f"{FILE}:PointMass", f"{FILE}:DiscretePointMass"
OPTIONS: dict[str, Any] = {
    "backend": "jax",
    "num_envs": 4,
    "threads": 0,
    "steps": 800,
    "evaluate_every": 400,
    "checkpoint_every": 200,
    "log_every": 100,
    "environment_options": {"limit": 15},
}
STATEFUL_OPTIONS: dict[str, dict[str, Any]] = {
    "ppo": {"normalize_observations": True, "normalize_rewards": True, "learning_rate_decay": "linear"},
    "sac": {"n_step": 3, "replay_capacity": 400, "normalize_observations": "collected", "train_every": 4},
    # repeats its noise, and scales rewards when it samples them
    "flashsac": {"policy_delay": 3, "train_every": 4, "hidden": (16,), "critic_hidden": (16,)},
    "td3": {"exploration": "ou", "exploration_final_scale": 0.1, "normalize_observations": "sampled", "train_every": 2},
}


def outcome(run: Run) -> dict[str, Any]:
    """Return everything that a run writes, except times."""
    loaded = checkpoints(run).load_latest()
    segments = list(loaded.segments)
    names = segments[0] if segments else ()
    state = loaded.state
    del state["trainer"]["seconds"]
    lines, rows = JsonLines.read(run.path / "metrics.jsonl"), Csv.read(run.path / "evaluations.csv")
    return {
        "state": state,
        "memory": {name: np.concatenate([segment[name] for segment in segments]) for name in names},
        "metrics": [{key: line[key] for key in line if not key.startswith("time/")} for line in lines],
        "evaluations": [{key: row[key] for key in row if key != "seconds"} for row in rows],
    }


def assert_same(one: Run, other: Run) -> None:
    assert not (found := differences(outcome(one), outcome(other))), "; ".join(found[:8])


@pytest.mark.parametrize(
    "name", ["ppo", "sac", *(pytest.param(name, marks=pytest.mark.slow) for name in ("flashsac", "td3"))]
)
def test_killed_compiled_run_resumes_exactly(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    whole = train(tmp_path, small(name, **STATEFUL_OPTIONS[name]), POINT, name="whole", **OPTIONS)
    call = {"algorithm": name, "hyperparameters": STATEFUL_OPTIONS[name], "environment": POINT, "options": OPTIONS}
    killed(call | {"runs_dir": str(tmp_path), "kill_at": 500})
    monkeypatch.setattr(device_loop, "MOST_TURNS", 3)  # shorter compiled calls do not change results
    resumed = Run(tmp_path / "mortal").resume()
    assert len(whole.evaluations()) == 3
    assert whole.config.run.steps <= whole.metrics()[-1]["step"]
    assert_same(whole, resumed)


SEEDS = (0, 3, 1)


def assert_same_up_to_rounding(one: Run, other: Run) -> None:
    """Compare a single-seed run with a run of the same seed that was trained with other seeds."""
    pair = outcome(one), outcome(other)
    for found, run in zip(pair, (one, other), strict=True):
        del found["state"]["versions"]["seeds side by side"]
        found["evaluations"] = run.evaluations()
    assert_close(*pair, rtol=1e-4)


def test_compiled_parallel_seed_equals_single_seed_run(tmp_path: Path):
    """The last checkpoint, metrics and evaluations after 192 updates are equal up to rounding."""
    algorithm = small("sac", **STATEFUL_OPTIONS["sac"])
    runs: Any = train(tmp_path, algorithm, POINT, seeds=SEEDS, **OPTIONS)
    alone = train(tmp_path, algorithm, POINT, name="alone", seed=3, **OPTIONS)
    assert_same_up_to_rounding(runs[1], alone)
    assert [run.config.other_seeds for run in runs] == [(3, 1), (0, 1), (0, 3)]


def test_stopped_or_failed_seed_leaves_the_other_seeds_running(tmp_path: Path):
    def disturb(trainer: Any) -> None:
        seed = trainer.config.run.seed
        if seed == 0 and trainer.step >= 300:
            trainer.stop()
        if seed == 3 and trainer.step >= 500:
            trainer.components.collector.carry["obs"] *= np.nan

    with pytest.raises(DuettoError, match=r"1 of 3 seeds failed\.\nSeed 3: An observation or a reward is NaN"):
        train(tmp_path, small("ppo"), POINT, seeds=SEEDS, name="some", callbacks=[disturb], **OPTIONS)
    runs = {seed: Run(tmp_path / f"some-s{seed}") for seed in SEEDS}
    assert [checkpoints(run).load_latest().step for run in runs.values()] == [320, 448, 832]
    notices: list[str] = []
    runs[0].resume(callbacks=[AtStart(lambda trainer: notices.extend(trainer.notices))])
    assert any("seeds side by side was 3, is now 1" in notice for notice in notices)
    assert_same_up_to_rounding(runs[0], train(tmp_path, small("ppo"), POINT, seed=0, name="alone", **OPTIONS))


def test_compiled_run_has_metrics_evaluations_and_agent(tmp_path: Path):
    """Tested with DQN, whose schedules, exploration and target updates depend on the step."""
    algorithm = small("dqn", target_period=50, exploration_steps=300, train_every=2)
    run = train(tmp_path, algorithm, CHOICE, **OPTIONS)
    assert run.evaluate(episodes=1).mean_return == pytest.approx(run.evaluations()[-1]["mean_return"])
    assert [row["step"] for row in run.evaluations()] == [0, 400, 800]
    lines = run.metrics()
    assert [line["step"] for line in lines] == list(range(100, 801, 100))
    assert lines[-1]["learn/updates"] == (800 - 30) // 2  # one every two steps after learning_starts
    assert lines[-1]["train/episodes"] >= 800 // 15 - 4
    assert {"learn/q_mean", "learn/target_mean", "learn/q_loss", "train/return"} <= lines[-1].keys()
    actions = run.agent().act_batch(np.zeros((5, 2), np.float32))
    assert actions.shape == (5,)
    assert run.agent(backend="torch").act(np.zeros(2, np.float32)) == actions[0]
    assert run.resume(steps=900).metrics()[-1]["step"] == 900
    edited = edit(run, {"environment.options": {"limit": 20}})
    with pytest.raises(UsageError, match="cannot continue with another"):
        Run(edited.path, trust=True).resume(steps=1000, accept_changes=True)


def test_compiled_loop_scales_sampled_rewards_by_the_largest_return(tmp_path: Path):
    """With discount 0, returns are rewards, here -2; the scale makes the largest return 5 and stores rewards as is."""
    scaled = {"normalize_rewards": True, "critic": "categorical", "value_range": (-9.0, 9.0), "discount": 0.0}
    run = train(tmp_path, small("sac", **scaled), f"{FILE}:Steady", **OPTIONS)
    assert run.metrics()[-1]["learn/target_mean"] == pytest.approx(-5.0, rel=1e-5)
    assert (outcome(run)["memory"]["reward"] == -2).all()


def test_callback_can_stop_and_evaluate_in_compiled_loop(tmp_path: Path):
    seen: list[int] = []

    def watch(trainer: Trainer) -> None:
        assert isinstance(trainer, DeviceTrainer)
        seen.append(trainer.step)
        if trainer.step >= 200:
            trainer.evaluate()
            trainer.stop()

    run = train(tmp_path, small("ppo"), POINT, callbacks=[watch], **OPTIONS | {"evaluate_every": 0})
    assert seen == [128, 256]  # a rollout has 64 steps; the loop returns after the rollout that passes 100 or 200
    assert [row["step"] for row in run.evaluations()] == [256]


def test_options_unsupported_by_compiled_loop_are_refused(tmp_path: Path):
    for name, options, sentence in (
        ("ppo", {"recurrent": "gru", "minibatches": 2}, "does not support ppo with recurrent networks"),
        ("ppo", {"target_kl": 0.1}, "ppo with target_kl"),
        ("sac", {"prioritized": True}, "sac with prioritized replay .* --backend torch"),
    ):
        chosen: dict[str, Any] = options
        with pytest.raises(UsageError, match=sentence):
            train(tmp_path, ALGORITHMS[name](**chosen), POINT, **OPTIONS)
    assert not list(tmp_path.iterdir())


def test_pytorch_steps_array_environments_from_the_host(tmp_path: Path):
    run = train(tmp_path, small("td3"), POINT, **OPTIONS | {"backend": "torch", "steps": 200, "evaluate_every": 0})
    assert run.metrics()[-1]["learn/updates"] == 170
