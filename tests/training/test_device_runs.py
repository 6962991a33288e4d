"""Runs in the compiled loop: killed and resumed bit for bit, also with other calls, and what runs promise else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mortal import killed
from small_runs import AtStart, assert_close, checkpoints, differences, small, train

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
EVERYTHING: dict[str, dict[str, Any]] = {
    "ppo": {"normalize_observations": True, "normalize_rewards": True, "learning_rate_decay": "linear"},
    "sac": {"n_step": 3, "replay_capacity": 400, "normalize_observations": "collected", "train_every": 4},
    "flashsac": {"policy_delay": 3, "train_every": 4},  # repeated noise, rewards scaled when sampled
    "td3": {"exploration": "ou", "exploration_final_scale": 0.1, "normalize_observations": "sampled", "train_every": 2},
}


def outcome(run: Run) -> dict[str, Any]:
    """All that a run leaves, but what a clock decides."""
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


@pytest.mark.parametrize("name", ["ppo", "sac", "flashsac", pytest.param("td3", marks=pytest.mark.slow)])
def test_killed_and_resumed_with_other_calls(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    whole = train(tmp_path, small(name, **EVERYTHING[name]), POINT, name="whole", **OPTIONS)
    call = {"algorithm": name, "hyperparameters": EVERYTHING[name], "environment": POINT, "options": OPTIONS}
    killed(call | {"runs_dir": str(tmp_path), "kill_at": 500})
    monkeypatch.setattr(device_loop, "MOST_TURNS", 3)
    resumed = Run(tmp_path / "mortal").resume()
    assert len(whole.evaluations()) == 3
    assert whole.config.run.steps <= whole.metrics()[-1]["step"]
    assert_same(whole, resumed)


SEEDS = (0, 3, 1)


def assert_alike(one: Run, other: Run) -> None:
    """Compare a run that was trained alone with one of the same seed that was trained with other seeds."""
    pair = outcome(one), outcome(other)
    for found, run in zip(pair, (one, other), strict=True):
        del found["state"]["versions"]["seeds side by side"]
        found["evaluations"] = run.evaluations()
    assert_close(*pair, rtol=1e-4)


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_a_seed_among_others_is_that_seed_alone(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    """After 26 epochs (PPO) or 192 updates (SAC), up to rounding: the last checkpoint, metrics and evaluations."""
    calls: list[int] = []
    original = device_loop.DeviceLoop._advance_each

    def counted(self: Any, carries: Any, *others: Any) -> Any:
        calls.append(len(carries))
        return original(self, carries, *others)

    monkeypatch.setattr(device_loop.DeviceLoop, "_advance_each", counted)
    runs: Any = train(tmp_path, small(name, **EVERYTHING[name]), POINT, seeds=SEEDS, **OPTIONS)
    assert calls == [3]  # traced once, for all seeds
    alone = train(tmp_path, small(name, **EVERYTHING[name]), POINT, name="alone", seed=3, **OPTIONS)
    assert_alike(runs[1], alone)
    assert [run.config.other_seeds for run in runs] == [(3, 1), (0, 1), (0, 3)]


def test_a_seed_that_stops_or_fails_leaves_the_others_and_is_resumed_alone(tmp_path: Path):
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
    runs[3].resume()
    for seed, run in runs.items():
        assert_alike(run, train(tmp_path, small("ppo"), POINT, seed=seed, name=f"alone-{seed}", **OPTIONS))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of DQN, whose schedules, exploration and phases depend on the step."""
    algorithm = small("dqn", target_period=50, exploration_steps=300, train_every=2)
    return train(tmp_path_factory.mktemp("runs"), algorithm, CHOICE, **OPTIONS)


def test_evaluations_are_repeated_from_the_checkpoint(run: Run):
    evaluation = run.evaluate(episodes=1)
    assert evaluation.mean_return == pytest.approx(run.evaluations()[-1]["mean_return"])
    assert [row["step"] for row in run.evaluations()] == [0, 400, 800]


def test_lines_of_metrics_are_those_of_a_host_run(run: Run):
    lines = run.metrics()
    assert [line["step"] for line in lines] == list(range(100, 801, 100))
    assert lines[-1]["learn/updates"] == (800 - 30) // 2  # one after two steps, beyond learning_starts
    assert lines[-1]["train/episodes"] >= 800 // 15 - 4
    assert {"learn/q_mean", "learn/target_mean", "learn/q_loss", "train/return"} <= lines[-1].keys()


def test_the_agent_acts_without_the_environment(run: Run):
    actions = run.agent().act_batch(np.zeros((5, 2), np.float32))
    assert actions.shape == (5,)
    assert run.agent(backend="torch").act(np.zeros(2, np.float32)) == actions[0]


def test_a_resume_to_more_steps(run: Run):
    more = Run(run.path).resume(steps=900)
    assert more.metrics()[-1]["step"] == 900


def test_a_callback_can_stop_and_evaluate_between_calls(tmp_path: Path):
    seen: list[int] = []

    def watch(trainer: Trainer) -> None:
        assert isinstance(trainer, DeviceTrainer)
        seen.append(trainer.step)
        if trainer.step >= 200:
            trainer.evaluate()
            trainer.stop()

    run = train(tmp_path, small("ppo"), POINT, callbacks=[watch], **OPTIONS | {"evaluate_every": 0})
    assert seen == [128, 256]  # a rollout has 64 steps, and a line comes every 100
    assert [row["step"] for row in run.evaluations()] == [256]


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("ppo", {"recurrent": "gru", "minibatches": 2}, "ppo with recurrent networks cannot run in the compiled loop"),
        ("ppo", {"target_kl": 0.1}, "ppo with target_kl"),
        ("sac", {"prioritized": True}, "sac with prioritized replay .* --backend torch"),
        ("r2d2", {}, "r2d2 with recurrent networks"),
    ],
)
def test_what_the_loop_cannot_do_yet_is_one_sentence(tmp_path: Path, name: str, options: dict, sentence: str):
    environment = CHOICE if name == "r2d2" else POINT
    algorithm = ALGORITHMS[name](**options)
    with pytest.raises(UsageError, match=sentence):
        train(tmp_path, algorithm, environment, **OPTIONS)
    assert not list(tmp_path.iterdir())


def test_pytorch_steps_them_from_the_host(tmp_path: Path):
    run = train(tmp_path, small("td3"), POINT, **OPTIONS | {"backend": "torch", "steps": 200, "evaluate_every": 0})
    assert run.metrics()[-1]["learn/updates"] == 170
