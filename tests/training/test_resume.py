"""Exact resume: a run killed with `kill -9` and resumed equals an uninterrupted run, bit for bit."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from demonstrated import CHOICES, CUT, SEQUENCES
from fake_run import flip_bit
from mortal import killed, spawn
from small_runs import (
    BRIEF,
    OPTIONS,
    SMALL,
    AtStart,
    StopAt,
    assert_same,
    checkpoints,
    small,
    train,
)

from duetto.errors import CheckpointError
from duetto.runs.run import Run
from duetto.training.trainer import Trainer

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")

EVERY = OPTIONS["checkpoint_every"]


def whole_run_and_call(
    folder: Path,
    algorithm: str = "td3",
    hyperparameters: dict | None = None,
    environment: str = "Pendulum-v1",
    **options,
) -> tuple[Run, dict[str, Any]]:
    """Train a run without interruption; return it, and the call of `mortal` that trains the same run."""
    whole = train(folder, small(algorithm, **hyperparameters or {}), environment, name="whole", **options)
    call = {"runs_dir": str(folder), "algorithm": algorithm, "hyperparameters": hyperparameters or {}}
    return whole, call | {"environment": environment, "options": options}


def resume_killed(folder: Path) -> Run:
    return Run(folder / "mortal").resume()


def check_exact_resume_after_kill(folder: Path, **run: Any) -> None:
    whole, call = whole_run_and_call(folder, **run)
    kill_at = random.randrange(whole.config.run.checkpoint_every, whole.config.run.steps)
    killed(call | {"kill_at": kill_at})
    assert checkpoints(Run(folder / "mortal")).steps()
    assert_same(whole, resume_killed(folder), f"after kill -9 at step {kill_at}")


PPO_STATEFUL_OPTIONS = {
    "normalize_observations": True,
    "normalize_rewards": True,
    "learning_rate_decay": "linear",
    "clip_range_decay": "linear",
    "learning_rate_kl": 0.01,
    "target_kl": 0.02,
    "clip_value": True,
    "entropy_coefficient": 0.01,
    "stochastic_evaluation": True,
}
NORMALIZED = {"normalize_observations": True, "normalize_rewards": True}
LSTM = SEQUENCES | {"recurrent": "lstm"}
STEPS = CHOICES | {"importance_anneal_samples": 50}
PRIORITY = STEPS | {"share_by_priority": True, "demonstration_priority_epsilon": 0.5, "pretraining_updates": 6}
GOALS = {"hindsight": "future", "prioritized": True, "normalize_observations": "sampled"}
# Checkpoints are every 40 steps, so most of them contain unfinished episodes.
PENDULUM: dict[str, Any] = {"environment": "Pendulum-v1", "num_envs": 2} | CUT
CARTPOLE: dict[str, Any] = {"environment": "CartPole-v1", "num_envs": 2} | CUT
CHEETAH: dict[str, Any] = {"environment": "HalfCheetah-v5", "environment_options": {"max_episode_steps": 27}}
LINE: dict[str, Any] = {"environment": "goal_environment:GoalLine-v0", "num_envs": 2, "evaluate_every": 0}
ROLLOUTS = CARTPOLE | {"num_envs": 8, "steps": 640}  # of 16 steps: a rollout every 128 steps
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    f"{name}-{replay}-{environment}": (name, {"prioritized": replay == "prioritized"}, {"environment": environment})
    for name, replay, environment in product(
        ["td3", "ddpg"], ["uniform", "prioritized"], ["Pendulum-v1", "HalfCheetah-v5"]
    )
} | {
    "ppo-everything": ("ppo", PPO_STATEFUL_OPTIONS, ROLLOUTS),
    "ppo-recomputed": ("ppo", {"recompute_advantages": True}, ROLLOUTS),
    "ppo-normalized": ("ppo", NORMALIZED, CHEETAH),
    "ppo-shared": ("ppo", {"shared_torso": True}, CHEETAH | {"num_envs": 3}),
    "ppo-recurrent": ("ppo", {"recurrent": "lstm", "recurrent_size": 8}, CARTPOLE),
    "td3-recurrent": ("td3", LSTM, PENDULUM),
    "ddpg-recurrent": ("ddpg", SEQUENCES | {"recurrent": "gru", "exploration": "ou"}, PENDULUM),
    "dqn-recurrent": ("dqn", LSTM | CHOICES | {"prioritized": True, "n_step": 3}, CARTPOLE),
    "r2d2": ("r2d2", LSTM | CHOICES | {"n_step": 3, "recurrent_layers": 2}, CARTPOLE),
    "dqfd": ("dqfd", STEPS | {"pretraining_updates": 6}, CARTPOLE),
    "dqfd-by-priority": ("dqfd", PRIORITY, CARTPOLE),
    "dqfd-uniform": ("dqfd", STEPS | {"prioritized": False}, CARTPOLE),
    "r2d3": ("r2d3", SEQUENCES | CHOICES | {"pretraining_updates": 6}, CARTPOLE),
    "bc": ("bc", SEQUENCES | CHOICES, CARTPOLE),
    "her": ("td3", GOALS, LINE),
}
FAST = {"jax-td3-prioritized-Pendulum-v1", "jax-ppo-normalized", "torch-ppo-everything", "torch-r2d3", "torch-her"}


@pytest.mark.parametrize(
    ("backend", "case"),
    [
        pytest.param(backend, case, marks=() if f"{backend}-{case}" in FAST else pytest.mark.slow)
        for backend, case in product(["torch", "jax"], CASES)
    ],
)
def test_resume_is_exact_after_kill_at_random_step(tmp_path: Path, demos: str, backend: str, case: str):
    algorithm, hyperparameters, options = CASES[case]
    if algorithm in ("dqfd", "r2d3", "bc"):
        hyperparameters = hyperparameters | {"demonstrations": demos}
    check_exact_resume_after_kill(
        tmp_path, algorithm=algorithm, hyperparameters=hyperparameters, backend=backend, **options
    )


@pytest.mark.parametrize(("backend", "scaling"), [("torch", "collected"), ("jax", "sampled")])
def test_resume_is_exact_with_all_stateful_options(tmp_path: Path, backend: str, scaling: str):
    hyperparameters = {
        "exploration": "ou",
        "exploration_final_scale": 0.1,
        "normalize_observations": scaling,
        "n_step": 3,
        "learning_rate_decay": "linear",
        "prioritized": True,
        "importance_anneal_samples": 300,
        "policy_delay": 3,
        "replay_capacity": 133,  # 67 rows for each environment
    }
    options = {"num_envs": 2, "steps": 480, "evaluate_every": 160, "checkpoint_every": 90, "log_every": 70}
    options["environment_options"] = {"max_episode_steps": 37}  # many episodes end
    check_exact_resume_after_kill(tmp_path, hyperparameters=hyperparameters, backend=backend, **options)


def test_jax_resumes_with_its_original_thread_count(tmp_path: Path):
    """JAX splits matrix products by the number of cores, so TD3's updates round differently with another number."""

    def started(name: str, threads: int, **call: Any) -> Run:
        """Train in a process that sees `threads` cores."""
        options = OPTIONS | {"backend": "jax", "threads": 0, "evaluate_every": 0, "checkpoint_every": 60, "steps": 160}
        parent = tmp_path / name
        call |= {"algorithm": "td3", "hyperparameters": large, "environment": "HalfCheetah-v5", "options": options}
        with spawn(call | {"runs_dir": str(parent)}, NPROC=str(threads)) as process:
            assert process.wait(timeout=100) == (-signal.SIGKILL if "kill_at" in call else 0)
        return Run(parent / "mortal")

    large = {"hidden": [400, 300], "batch_size": 256, "replay_capacity": 1000}
    whole, interrupted = started("whole", 4), started("interrupted", 4, kill_at=100)
    assert [run.config.run.threads for run in (whole, interrupted)] == [4, 4]
    with spawn({"resume": str(interrupted.path)}, NPROC="2") as process:
        assert process.wait(timeout=100) == 0
    assert_same(whole, interrupted, "resumed with two cores")


def test_resume_is_exact_after_kill_before_first_checkpoint(tmp_path: Path):
    whole, call = whole_run_and_call(tmp_path)
    killed(call | {"kill_at": EVERY - 1})
    run = Run(tmp_path / "mortal")
    assert checkpoints(run).steps() == []
    assert run.metrics()
    assert run.evaluations()
    assert_same(whole, run.resume())


def test_resume_is_exact_after_kill_during_checkpoint(tmp_path: Path):
    whole, call = whole_run_and_call(tmp_path)
    operation = random.randrange(25)  # the checkpoint of step 120 has about 30 file operations
    killed(call | {"arm_at": 3 * EVERY - 1, "operation": operation})
    run = Run(tmp_path / "mortal")
    assert checkpoints(run).load_latest().step in (2 * EVERY, 3 * EVERY)
    assert_same(whole, run.resume(), f"after kill -9 at file operation {operation}")


# ---------------------------------------------------------------------------------------------------- damage
def flip(path: Path) -> None:
    flip_bit(path, path.stat().st_size // 2)


@pytest.fixture(scope="module")
def whole_and_stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an uninterrupted run, and a run that was stopped at step 130."""
    folder = tmp_path_factory.mktemp("made")
    train(folder, name="whole")
    train(folder, name="stopped", callbacks=[StopAt(130)])
    return folder


@pytest.fixture
def interrupted(whole_and_stopped: Path, tmp_path: Path) -> tuple[Run, Run]:
    """Both runs; the test may damage the second, which is a copy."""
    return Run(whole_and_stopped / "whole"), Run(shutil.copytree(whole_and_stopped / "stopped", tmp_path / "stopped"))


@pytest.mark.parametrize(("harm", "file"), [(flip, "state.safetensors"), (Path.unlink, "segment")])
def test_a_damaged_newest_checkpoint_is_reported_and_skipped(interrupted: tuple[Run, Run], harm: Any, file: str):
    whole, run = interrupted
    assert checkpoints(run).steps() == [120, 130]
    folder = run.path / "checkpoints" / "step-000000000130"
    path = folder / file if file != "segment" else max((run.path / "checkpoints" / "memory").iterdir())
    harm(path)
    seen: list[tuple[int, list[str]]] = []
    run.resume(callbacks=[AtStart(lambda trainer: seen.append((trainer.step, trainer.notices)))])
    [(step, notices)] = seen
    assert step == 120
    assert len(notices) == 1
    assert str(path) in notices[0]
    assert_same(whole, run)


def test_resume_with_all_checkpoints_damaged_changes_no_file(interrupted: tuple[Run, Run]):
    _, run = interrupted
    for path in run.path.glob("checkpoints/step-*/state.safetensors"):
        flip(path)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* can be used(?s:.*)step-000000000120"):
        run.resume()
    after = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert {path for path in before | after if before.get(path) != after.get(path)} == set()


# ---------------------------------------------------------------------------------------------------- stopping
def test_ctrl_c_writes_a_checkpoint_and_prints_resume_command(tmp_path: Path):
    """Ctrl-C also reaches the processes of the environments, which ignore it."""
    options: dict[str, Any] = {"vectorization": "subprocess", "num_envs": 2}
    settings = SMALL | OPTIONS | options | {"steps": 100_000, "evaluate_every": 0}
    settings["environment_options"] = [f"{name}={value}" for name, value in BRIEF.items()]
    words = ["train", "td3", "Pendulum-v1", "--runs-dir", str(tmp_path), "--name", "stopped"]
    for name, value in settings.items():
        words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple | list) else [value])]
    command = [sys.executable, "-c", "from duetto.tools.cli import main; main()", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        while not list(tmp_path.glob("stopped/checkpoints/step-*")):
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    run = Run(tmp_path / "stopped")
    step = checkpoints(run).load_latest().step
    assert (process.returncode, errors) == (128 + signal.SIGINT, "")
    assert output.endswith(f"Stopped at step {step:,}. Continue with: duetto resume {run.path}\n")
    run.resume(callbacks=[StopAt(step + 60)])
    later = {"steps": 100_000, "evaluate_every": 0, "callbacks": [StopAt(step + 60)]} | options
    assert_same(train(tmp_path, run.config.algorithm, name="whole", **later), run)


class SignalReceivedError(BaseException):
    """Raised by the earlier signal handler."""


@pytest.mark.parametrize(("number", "resumes"), [(signal.SIGINT, False), (signal.SIGHUP, True)])
def test_signal_in_python_checkpoints_and_is_raised_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: signal.Signals, resumes: bool
):
    """So that a script does not continue with its next run."""

    def raise_received(*_: Any) -> None:
        raise SignalReceivedError

    def signal_at_60(trainer: Trainer) -> None:
        if trainer.step == 60:
            signal.raise_signal(number)

    def call() -> Run:
        how: dict[str, Any] = {"callbacks": [signal_at_60]}
        return Run(tmp_path / "one").resume(**how) if resumes else train(tmp_path, name="one", **how)

    if resumes:
        train(tmp_path, callbacks=[StopAt(50)], name="one")
    earlier = signal.signal(number, raise_received)
    try:
        with pytest.raises(SignalReceivedError):
            call()
        assert signal.getsignal(number) is raise_received
    finally:
        signal.signal(number, earlier)
    run = Run(tmp_path / "one")
    assert checkpoints(run).steps()[-1] == 60
    assert f"Stopped by {number.name}. Continue with: duetto.Run({str(run.path)!r}).resume()" in caplog.text


def test_second_ctrl_c_ends_the_run_at_once(tmp_path: Path):
    def send_two_signals(trainer: Trainer) -> None:
        if trainer.step == 60:
            signal.raise_signal(signal.SIGINT)  # not os.kill: in another thread, two signals can arrive as one
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, callbacks=[send_two_signals])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert checkpoints(Run(tmp_path / "td3-Pendulum-v1-s0")).steps() == [40]


def test_resume_with_more_steps_equals_longer_run(tmp_path: Path):
    whole = train(tmp_path, name="whole", steps=200)
    run = train(tmp_path, name="short", steps=120)
    run.resume(steps=200)
    assert run.config.run.steps == Run(run.path).config.run.steps == 200
    assert_same(whole, run)
