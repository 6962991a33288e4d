"""The promise: N + M steps in one go, and N steps, `kill -9`, `resume`, M steps, end in the same bits."""

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
from demonstrated import CHOICES, CUT, SEQUENCES, recorded
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


def twice(
    folder: Path,
    algorithm: str = "td3",
    hyperparameters: dict | None = None,
    environment: str = "Pendulum-v1",
    **options,
) -> tuple[Run, dict[str, Any]]:
    """A run that nothing interrupts, and the call of `mortal` that makes the same one."""
    whole = train(folder, small(algorithm, **hyperparameters or {}), environment, name="whole", **options)
    call = {"runs_dir": str(folder), "algorithm": algorithm, "hyperparameters": hyperparameters or {}}
    return whole, call | {"environment": environment, "options": options}


def resumed(folder: Path) -> Run:
    return Run(folder / "mortal").resume()


def check_killed_anywhere(folder: Path, **run: Any) -> None:
    whole, call = twice(folder, **run)
    kill_at = random.randrange(whole.config.run.checkpoint_every, whole.config.run.steps)
    killed(call | {"kill_at": kill_at})
    assert checkpoints(Run(folder / "mortal")).steps()
    assert_same(whole, resumed(folder), f"after kill -9 at step {kill_at}")


EVERYTHING_OF_PPO = {
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
# Checkpoints fall every 40 steps, so most of them hold states in mid-episode.
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
    "ppo-everything": ("ppo", EVERYTHING_OF_PPO, ROLLOUTS),
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
FAST = {
    *("torch-td3-uniform-HalfCheetah-v5", "torch-ddpg-prioritized-Pendulum-v1", "jax-td3-prioritized-Pendulum-v1"),
    *("jax-ddpg-uniform-HalfCheetah-v5", "torch-ppo-everything", "jax-ppo-normalized", "jax-ppo-recurrent"),
    *("torch-td3-recurrent", "jax-r2d2", "torch-dqfd-by-priority", "torch-r2d3", "jax-dqfd", "torch-her"),
}


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("demonstrations") / "cartpole")


@pytest.mark.parametrize(
    ("backend", "case"),
    [
        pytest.param(backend, case, marks=() if f"{backend}-{case}" in FAST else pytest.mark.slow)
        for backend, case in product(["torch", "jax"], CASES)
    ],
)
def test_killed_at_a_random_step(tmp_path: Path, demos: str, backend: str, case: str):
    algorithm, hyperparameters, options = CASES[case]
    if algorithm in ("dqfd", "r2d3", "bc"):
        hyperparameters = hyperparameters | {"demonstrations": demos}
    check_killed_anywhere(tmp_path, algorithm=algorithm, hyperparameters=hyperparameters, backend=backend, **options)


@pytest.mark.parametrize(("backend", "scaling"), [("torch", "collected"), ("jax", "sampled")])
def test_with_everything_that_has_a_state(tmp_path: Path, backend: str, scaling: str):
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
    options["environment_options"] = {"max_episode_steps": 37}  # so that many end
    check_killed_anywhere(tmp_path, hyperparameters=hyperparameters, backend=backend, **options)


def test_jax_goes_on_with_the_threads_that_it_began_with(tmp_path: Path):
    """Started as on a machine with four cores. It divides products by them: TD3's updates have other "
    "last bits on two."""

    def begun(name: str, threads: int, **call: Any) -> Run:
        """A run of a process of its own, on so many cores as it seems."""
        options = OPTIONS | {"backend": "jax", "threads": 0, "evaluate_every": 0, "checkpoint_every": 60, "steps": 160}
        parent = tmp_path / name
        call |= {"algorithm": "td3", "hyperparameters": large, "environment": "HalfCheetah-v5", "options": options}
        with spawn(call | {"runs_dir": str(parent)}, NPROC=str(threads)) as process:
            assert process.wait(timeout=100) == (-signal.SIGKILL if "kill_at" in call else 0)
        return Run(parent / "mortal")

    large = {"hidden": [400, 300], "batch_size": 256, "replay_capacity": 1000}
    whole, fewer, interrupted = begun("whole", 4), begun("fewer", 2), begun("interrupted", 4, kill_at=100)
    assert [run.config.run.threads for run in (whole, fewer, interrupted)] == [4, 2, 4]
    with spawn({"resume": str(interrupted.path)}, NPROC="2") as process:
        assert process.wait(timeout=100) == 0
    assert_same(whole, interrupted, "resumed where there are two cores")
    with pytest.raises(AssertionError):
        assert_same(whole, fewer, "of two cores")


def test_killed_before_the_first_checkpoint(tmp_path: Path):
    whole, call = twice(tmp_path)
    killed(call | {"kill_at": EVERY - 1})
    run = Run(tmp_path / "mortal")
    assert checkpoints(run).steps() == []
    assert run.metrics()
    assert run.evaluations()
    assert_same(whole, run.resume())


def test_killed_while_a_checkpoint_is_written(tmp_path: Path):
    whole, call = twice(tmp_path)
    operation = random.randrange(25)  # there are some 30 in the checkpoint of step 120
    killed(call | {"arm_at": 3 * EVERY - 1, "operation": operation})
    run = Run(tmp_path / "mortal")
    assert checkpoints(run).load_latest().step in (2 * EVERY, 3 * EVERY)
    assert_same(whole, run.resume(), f"after kill -9 at file operation {operation}")


# ---------------------------------------------------------------------------------------------------- damage
def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    flip_bit(path, path.stat().st_size // 2)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run, and one that was stopped at step 130."""
    folder = tmp_path_factory.mktemp("made")
    train(folder, name="whole")
    train(folder, name="stopped", callbacks=[StopAt(130)])
    return folder


@pytest.fixture
def interrupted(made: Path, tmp_path: Path) -> tuple[Run, Run]:
    """Those two; the second may be harmed."""
    return Run(made / "whole"), Run(shutil.copytree(made / "stopped", tmp_path / "stopped"))


@pytest.mark.parametrize("harm", [truncate, flip, Path.unlink])
@pytest.mark.parametrize("file", ["state.safetensors", "state.json", "manifest.json", "segment"])
def test_a_damaged_newest_checkpoint_is_reported_and_passed_over(interrupted: tuple[Run, Run], harm: Any, file: str):
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


def test_when_all_are_damaged_nothing_is_changed(interrupted: tuple[Run, Run]):
    _, run = interrupted
    for path in run.path.glob("checkpoints/step-*/state.safetensors"):
        flip(path)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* can be used(?s:.*)step-000000000120"):
        run.resume()
    after = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert {path for path in before | after if before.get(path) != after.get(path)} == set()


# ---------------------------------------------------------------------------------------------------- stopping
def wait_for_checkpoint(folder: Path, process: subprocess.Popen[str]) -> None:
    while not list(folder.glob("checkpoints/step-*")):
        assert process.poll() is None
        time.sleep(0.01)


def check_stopped_by(number: signal.Signals, folder: Path, to_all: bool = False, **options: Any) -> None:
    """Send a signal to `duetto train` while it learns, to its environments' processes too if `to_all`; "
    "then continue."""
    settings = small_as_arguments() | {f"--{name.replace('_', '-')}": str(value) for name, value in options.items()}
    words = [word for option, value in settings.items() for word in (option, *value.split())]
    program = [sys.executable, "-c", "from duetto.tools.cli import main; main()", "train", "td3", "Pendulum-v1"]
    command = [*program, *words, "--runs-dir", str(folder), "--name", "stopped"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        wait_for_checkpoint(folder / "stopped", process)
        os.killpg(process.pid, number) if to_all else process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    run = Run(folder / "stopped")
    step = checkpoints(run).load_latest().step
    assert (process.returncode, errors) == (128 + number, "")
    assert output.endswith(f"Stopped at step {step:,}. Continue with: duetto resume {run.path}\n")
    run.resume(callbacks=[StopAt(step + 60)])
    later = {"steps": 100_000, "evaluate_every": 0, "callbacks": [StopAt(step + 60)]} | options
    assert_same(train(folder, run.config.algorithm, name="whole", **later), run)


def small_as_arguments() -> dict[str, str]:
    hyperparameters = {name: " ".join(map(str, v)) if isinstance(v, tuple) else str(v) for name, v in SMALL.items()}
    options = {name: str(value) for name, value in (OPTIONS | {"steps": 100_000, "evaluate_every": 0}).items()}
    options["environment_options"] = " ".join(f"{name}={value}" for name, value in BRIEF.items())
    return {f"--{name.replace('_', '-')}": value for name, value in (hyperparameters | options).items()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_sigterm_and_sighup_write_a_checkpoint_and_say_how_to_go_on(tmp_path: Path, number: signal.Signals):
    check_stopped_by(number, tmp_path)


def test_ctrl_c_reaches_the_environments_processes_too_and_they_do_not_mind(tmp_path: Path):
    check_stopped_by(signal.SIGINT, tmp_path, to_all=True, vectorization="subprocess", num_envs=2)


class CameError(BaseException):
    """A signal, to whoever had it before."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("goes_on", [False, True])
def test_in_python_a_signal_ends_the_run_in_order_and_then_does_what_it_would_have_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: signal.Signals, goes_on: bool
):
    """Otherwise a script would continue with its next run."""

    def came(*_: Any) -> None:
        raise CameError

    def at_60(trainer: Trainer) -> None:
        if trainer.step == 60:
            signal.raise_signal(number)

    if goes_on:
        train(tmp_path, callbacks=[StopAt(50)], name="one")
    earlier = signal.signal(number, came)
    try:
        with pytest.raises(CameError):
            Run(tmp_path / "one").resume(callbacks=[at_60]) if goes_on else train(
                tmp_path, callbacks=[at_60], name="one"
            )
        assert signal.getsignal(number) is came
    finally:
        signal.signal(number, earlier)
    run = Run(tmp_path / "one")
    assert checkpoints(run).steps()[-1] == 60
    assert f"Stopped by {number.name}. Continue with: duetto.Run({str(run.path)!r}).resume()" in caplog.text
    assert_same(train(tmp_path, name="whole"), run.resume())


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path):
    def twice(trainer: Trainer) -> None:
        if trainer.step == 60:
            signal.raise_signal(signal.SIGINT)  # os.kill may reach another thread: then two can come as one
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, callbacks=[twice])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    run = Run(tmp_path / "td3-Pendulum-v1-s0")
    assert checkpoints(run).steps() == [40]
    assert_same(train(tmp_path), run.resume())


@pytest.mark.parametrize("stop_at", [1, 40, 199])
def test_stopped_by_hand(tmp_path: Path, stop_at: int):
    run = train(tmp_path, name="stopped", callbacks=[StopAt(stop_at)])
    assert checkpoints(run).steps()[-1] == stop_at
    assert_same(train(tmp_path, name="whole"), run.resume())


def test_more_steps_than_planned(tmp_path: Path):
    whole = train(tmp_path, name="whole", steps=200)
    run = train(tmp_path, name="short", steps=120)
    run.resume(steps=200)
    assert run.config.run.steps == Run(run.path).config.run.steps == 200
    assert_same(whole, run)
