"""Several seeds in one process: each equals a single-seed run, has its own folder, and survives failures of others."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from line_environment import Line, Looking
from small_runs import AtStart, CrashAt, CrashError, assert_close, checkpoints, small

import duetto
from duetto.errors import DuettoError, EnvironmentFailedError, UsageError
from duetto.runs.run import Run
from duetto.training.trainer import Trainer

SEEDS = (0, 3, 1)


class Ending(Line):
    """Episodes have 4 to 11 steps, drawn from the seed; some are terminated, the others truncated."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        found = super().reset(seed=seed)
        self.length, self.fails = int(self.np_random.integers(4, 12)), bool(self.np_random.integers(2))
        return found

    def step(self, action: Any) -> Any:
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, truncated and self.fails, truncated and not self.fails, info


OFF_POLICY = {"batch_size": 8, "random_steps": 20, "learning_starts": 20, "replay_capacity": 60, "hidden": (8,)}
PPO = {"hidden": (8,), "rollout_steps": 8, "epochs": 2, "minibatches": 2, "learning_rate_decay": "linear"}
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "td3": (duetto.TD3(**OFF_POLICY), Ending, {"steps": 130}),
    "sac": (duetto.SAC(**OFF_POLICY, max_grad_norm=0.5), Ending, {"steps": 130, "num_envs": 2}),
    "ppo": (duetto.PPO(**PPO), Ending, {"steps": 816, "num_envs": 2}),
    # seeds stop their epochs at different times, and have different learning rates
    "ppo-target-kl": (
        duetto.PPO(**PPO | {"epochs": 6}, target_kl=0.001, learning_rate_kl=0.0005),
        Ending,
        {"steps": 320},
    ),
}
RUN = {"evaluate_every": 60, "evaluation_episodes": 2, "checkpoint_every": 0, "log_every": 25, "device": "cpu"}


def train_seeds(parent: Path, algorithm: Any, environment: Any, seeds: Any = SEEDS, **options: Any) -> list[Run]:
    return duetto.train(algorithm, environment, seeds=seeds, runs_dir=parent / "together", **RUN | options)


@pytest.mark.parametrize("name", CASES)
def test_parallel_seed_equals_single_seed_run(tmp_path: Path, name: str) -> None:
    """On JAX; `test_conformance` covers PyTorch. Random draws are equal, results equal up to rounding."""
    algorithm, environment, options = CASES[name]
    options = options | {"backend": "jax", "threads": 1}
    among = train_seeds(tmp_path, algorithm, environment, **options)[1]
    alone = duetto.train(algorithm, environment, seed=3, runs_dir=tmp_path / "alone", **RUN | options)
    one, other = (checkpoints(run).load_latest().state for run in (among, alone))
    assert one["learner"]["updates"] == other["learner"]["updates"] >= 100
    assert one["learner"]["random"] == other["learner"]["random"]
    assert one["collector"]["random"] == other["collector"]["random"]
    assert one["stepper"]["lengths"].tolist() == other["stepper"]["lengths"].tolist()
    assert_close(one["learner"]["parameters"], other["learner"]["parameters"])
    assert_close(one["learner"]["optimizers"], other["learner"]["optimizers"])
    assert_close(*({"rows": run.evaluations()} for run in (among, alone)))
    assert_close(*({"lines": run.metrics()} for run in (among, alone)))


def train_small_td3(parent: Path, environment: Any = Ending, **options: Any) -> list[Run]:
    """Train several seeds of TD3 for a few steps."""
    options = {"backend": "torch", "threads": 1, "steps": 60, "evaluate_every": 0} | options
    return train_seeds(parent, small(**OFF_POLICY), environment, **options)


def test_each_seed_has_its_own_resumable_folder(tmp_path: Path) -> None:
    runs = train_small_td3(tmp_path, seeds=np.array(SEEDS))  # config.yaml must also store NumPy integers
    assert [run.path.name for run in runs] == ["td3-Ending-s0", "td3-Ending-s3", "td3-Ending-s1"]
    assert [run.config.run.seed for run in runs] == list(SEEDS)
    assert [run.config.other_seeds for run in runs] == [(3, 1), (0, 1), (0, 3)]
    alone = train_small_td3(tmp_path / "not", steps=100)[1]
    state, found = checkpoints(runs[1]).load_latest().state, []

    def look(trainer: Trainer) -> None:
        found.extend([trainer.step, trainer.learner.state_dict(), list(trainer.notices)])

    on = Run(runs[1].path, environment=Ending)
    on.resume(steps=100, callbacks=[AtStart(look)])
    step, learner, notices = found
    assert step == 60
    np.testing.assert_equal(learner, state["learner"])  # bit for bit
    assert any("seeds side by side was 3, is now 1" in notice for notice in notices)
    assert_close(*(checkpoints(run).load_latest().state["learner"] for run in (on, alone)))
    found.clear()
    on.resume(steps=110, callbacks=[AtStart(look)])  # no second notice: this checkpoint was made by a single-seed run
    assert not any("side by side" in notice for notice in found[2])
    assert [row["step"] for row in on.metrics()] == [25, 50, 75, 100, 110]


class Breaking(Ending):
    """The environment of seed 3 raises an error in its 40th step."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.breaks = seed == 3 if seed is not None else self.breaks
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if self.breaks and self.life == 40:
            raise RuntimeError("a joint broke")
        return super().step(action)


def test_other_seeds_are_unchanged_by_a_failing_seed(tmp_path: Path) -> None:
    with pytest.raises(DuettoError, match=r"1 of 3 seeds failed\.\nSeed 3: .*a joint broke") as found:
        train_small_td3(tmp_path, Breaking)
    assert isinstance(found.value.__cause__, EnvironmentFailedError)
    whole = train_small_td3(tmp_path / "whole", Ending)
    for number, seed in ((0, 0), (2, 1)):
        broken = checkpoints(Run(tmp_path / f"together/td3-Breaking-s{seed}", environment=Breaking)).load_latest()
        assert broken.step == 60
        np.testing.assert_equal(broken.state["learner"], checkpoints(whole[number]).load_latest().state["learner"])


class StopSeed0(duetto.Callback):
    """Stops seed 0 after 30 calls of this copy of the callback."""

    heard = 0

    def on_step(self, trainer: Trainer) -> None:
        self.heard += 1
        if self.heard == 30 and trainer.config.run.seed == 0:
            trainer.stop("Enough.")


def test_each_seed_has_its_own_callback_and_end(tmp_path: Path) -> None:
    runs = train_small_td3(tmp_path, callbacks=[StopSeed0()])
    assert [checkpoints(run).load_latest().step for run in runs] == [30, 60, 60]


def test_ctrl_c_checkpoints_every_seed(tmp_path: Path) -> None:
    def interrupt(trainer: Trainer) -> None:
        if trainer.config.run.seed == 3 and trainer.step == 33:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)  # until the main thread receives the signal

    with pytest.raises(KeyboardInterrupt):
        train_small_td3(tmp_path, callbacks=[interrupt])
    runs = [Run(tmp_path / f"together/td3-Ending-s{seed}", environment=Ending) for seed in SEEDS]
    steps = [checkpoints(run).load_latest().step for run in runs]
    assert all(33 <= step <= 34 for step in steps), steps


def test_killed_multi_seed_run_resumes_per_seed(tmp_path: Path) -> None:
    """Each seed resumes from its last checkpoint, and equals an uninterrupted run up to rounding."""
    with pytest.raises(CrashError):
        train_small_td3(tmp_path, callbacks=[CrashAt(47)], checkpoint_every=20)
    whole = train_small_td3(tmp_path / "whole")
    for seed, undisturbed in zip(SEEDS, whole, strict=True):
        run = Run(tmp_path / f"together/td3-Ending-s{seed}", environment=Ending)
        assert checkpoints(run).load_latest().step == 40
        run.resume()
        assert_close(*(checkpoints(one).load_latest().state["learner"] for one in (run, undisturbed)))


@pytest.mark.parametrize(
    ("algorithm", "options", "sentence"),
    [
        (duetto.TD3(recurrent="lstm"), {}, "td3 has recurrent networks here"),
        (duetto.PPO(), {"environment": Looking}, "ppo has images here"),
        (duetto.TD3(), {"seed": 3}, "seed cannot be combined with seeds"),
        (duetto.TD3(), {"track": ["wandb"]}, "track"),
        (duetto.TD3(), {"environment": Ending()}, "each seed needs its own"),
    ],
)
def test_unsupported_parallel_seeds_are_refused_before_writing(
    tmp_path: Path, algorithm: Any, options: dict[str, Any], sentence: str
) -> None:
    options = {"environment": Ending, "seeds": SEEDS, "backend": "torch", "steps": 50} | options
    with pytest.raises(UsageError, match=sentence):
        duetto.train(algorithm, options.pop("environment"), runs_dir=tmp_path / "runs", **options)
    assert not list(tmp_path.glob("runs/*"))
