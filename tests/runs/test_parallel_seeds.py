"""Seeds side by side: each is what it would be alone, in a folder like any other, and continues when another fails."""

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
    """Episodes of 4 to 11 steps, of which some are terminated: of other lengths with every seed, and every time."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        found = super().reset(seed=seed)
        self.length, self.fails = int(self.np_random.integers(4, 12)), bool(self.np_random.integers(2))
        return found

    def step(self, action: Any) -> Any:
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, truncated and self.fails, truncated and not self.fails, info


OFFPOLICY = {"batch_size": 8, "random_steps": 20, "learning_starts": 20, "replay_capacity": 60, "hidden": (8,)}
PPO = {"hidden": (8,), "rollout_steps": 8, "epochs": 2, "minibatches": 2, "learning_rate_decay": "linear"}
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "td3": (duetto.TD3(**OFFPOLICY), Ending, {"steps": 130}),
    "ddpg": (duetto.DDPG(**OFFPOLICY, max_grad_norm=0.5, critic_weight_decay=0.01), Ending, {"steps": 130}),
    "sac": (duetto.SAC(**OFFPOLICY), Ending, {"steps": 130, "num_envs": 2}),
    "dqn": (
        duetto.DQN(
            hidden=(8,), batch_size=8, learning_starts=20, train_every=1, replay_capacity=60, priority_exponent=0.6
        ),
        "CartPole-v1",
        {"steps": 130},
    ),
    "ppo": (duetto.PPO(**PPO), Ending, {"steps": 816, "num_envs": 2}),
    # so that some end their epochs early, and each has a learning rate of its own
    "ppo, by KL": (duetto.PPO(**PPO | {"epochs": 6}, target_kl=0.001, learning_rate_kl=0.0005), Ending, {"steps": 320}),
}
SLOW = {("jax", "ddpg"), ("jax", "dqn"), ("jax", "ppo, by KL")}  # as td3, and as PPO
RUN = {"evaluate_every": 60, "evaluation_episodes": 2, "checkpoint_every": 0, "log_every": 25, "device": "cpu"}


def together(parent: Path, algorithm: Any, environment: Any, seeds: Any = SEEDS, **options: Any) -> list[Run]:
    return duetto.train(algorithm, environment, seeds=seeds, runs_dir=parent / "together", **RUN | options)


@pytest.mark.parametrize(
    ("backend", "name"),
    [
        pytest.param(backend, name, marks=pytest.mark.slow if (backend, name) in SLOW else ())
        for backend in ("torch", "jax")
        for name in CASES
    ],
)
def test_a_seed_among_others_is_that_seed_alone(tmp_path: Path, backend: str, name: str) -> None:
    """After 100 updates and more, to rounding: parameters, metrics, evaluations; and what was drawn, exactly."""
    algorithm, environment, options = CASES[name]
    options = options | {"backend": backend, "threads": 1}
    among = together(tmp_path, algorithm, environment, **options)[1]
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


def few(parent: Path, environment: Any = Ending, **options: Any) -> list[Run]:
    """Some seeds of TD3, quickly."""
    options = {"backend": "torch", "threads": 1, "steps": 60, "evaluate_every": 0} | options
    return together(parent, small(**OFFPOLICY), environment, **options)


def test_every_seed_has_a_folder_like_any_other_and_is_resumed_from_it_alone(tmp_path: Path) -> None:
    runs = few(tmp_path, seeds=np.array(SEEDS))  # and config.yaml holds NumPy's numbers as any others
    assert [run.path.name for run in runs] == ["td3-Ending-s0", "td3-Ending-s3", "td3-Ending-s1"]
    assert [run.config.run.seed for run in runs] == list(SEEDS)
    assert [run.config.other_seeds for run in runs] == [(3, 1), (0, 1), (0, 3)]
    alone = few(tmp_path / "not", steps=100)[1]
    state, found = checkpoints(runs[1]).load_latest().state, []

    def look(trainer: Trainer) -> None:
        found.extend([trainer.step, trainer.learner.state_dict(), list(trainer.notices)])

    on = Run(runs[1].path, environment=Ending)
    on.resume(steps=100, callbacks=[AtStart(look)])
    step, learner, notices = found
    assert step == 60
    np.testing.assert_equal(learner, state["learner"])  # every bit
    assert any("seeds side by side was 3, is now 1" in notice for notice in notices)
    assert_close(*(checkpoints(run).load_latest().state["learner"] for run in (on, alone)))
    found.clear()
    on.resume(steps=110, callbacks=[AtStart(look)])  # once is enough: the checkpoint is one of the run alone now
    assert not any("side by side" in notice for notice in found[2])
    assert [row["step"] for row in on.metrics()] == [25, 50, 75, 100, 110]


class Breaking(Ending):
    """That of seed 3 breaks."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.breaks = seed == 3 if seed is not None else self.breaks
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if self.breaks and self.life == 40:
            raise RuntimeError("a joint broke")
        return super().step(action)


def test_when_one_fails_the_others_go_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    with pytest.raises(DuettoError, match=r"1 of 3 seeds failed\.\nSeed 3: .*a joint broke") as found:
        few(tmp_path, Breaking)
    assert isinstance(found.value.__cause__, EnvironmentFailedError)
    whole = few(tmp_path / "whole", Ending)
    for number, seed in ((0, 0), (2, 1)):
        broken = checkpoints(Run(tmp_path / f"together/td3-Breaking-s{seed}", environment=Breaking)).load_latest()
        assert broken.step == 60
        np.testing.assert_equal(broken.state["learner"], checkpoints(whole[number]).load_latest().state["learner"])


def test_one_that_ends_early_leaves_the_others(tmp_path: Path) -> None:
    ends: dict[int, int] = {}

    def watch(trainer: Trainer) -> None:
        seed = trainer.config.run.seed
        ends[seed] = trainer.step
        if seed == 0 and trainer.step == 30:
            trainer.stop("Enough.")

    few(tmp_path, callbacks=[watch])
    assert ends == {0: 30, 3: 60, 1: 60}


class Patient(duetto.Callback):
    """Ends a run after the twentieth step that it hears of."""

    heard = 0

    def on_step(self, trainer: Trainer) -> None:
        self.heard += 1
        if self.heard == 20:
            trainer.stop()


def test_each_has_a_callback_of_its_own(tmp_path: Path) -> None:
    runs = few(tmp_path, callbacks=[Patient()])
    assert [checkpoints(run).load_latest().step for run in runs] == [20, 20, 20]


def test_ctrl_c_stops_all_with_a_checkpoint_each(tmp_path: Path) -> None:
    def interrupt(trainer: Trainer) -> None:
        if trainer.config.run.seed == 3 and trainer.step == 33:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)  # the main thread hears of it

    with pytest.raises(KeyboardInterrupt):
        few(tmp_path, callbacks=[interrupt])
    runs = [Run(tmp_path / f"together/td3-Ending-s{seed}", environment=Ending) for seed in SEEDS]
    steps = [checkpoints(run).load_latest().step for run in runs]
    assert all(33 <= step <= 34 for step in steps), steps


def test_a_killed_process_leaves_a_run_of_every_seed_to_resume(tmp_path: Path) -> None:
    """Each continues from its own last checkpoint, and ends as the seed that nobody has disturbed, to rounding."""
    with pytest.raises(CrashError):
        few(tmp_path, callbacks=[CrashAt(47)], checkpoint_every=20)
    whole = few(tmp_path / "whole")
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
        (duetto.TD3(), {"seed": 3}, "seed goes with one run"),
        (duetto.TD3(), {"track": ["wandb"]}, "track"),
        (duetto.TD3(), {"seeds": (1, 1)}, "seeds is .*; it must be how many, 5, or which"),
        (duetto.TD3(), {"seeds": "2-x"}, "seeds is '2-x'"),
        (duetto.TD3(), {"environment": Ending()}, "each seed needs its own"),
    ],
)
def test_what_cannot_be_side_by_side_is_refused_and_leaves_nothing(
    tmp_path: Path, algorithm: Any, options: dict[str, Any], sentence: str
) -> None:
    options = {"environment": Ending, "seeds": SEEDS, "backend": "torch", "steps": 50} | options
    with pytest.raises(UsageError, match=sentence):
        duetto.train(algorithm, options.pop("environment"), runs_dir=tmp_path / "runs", **options)
    assert not list(tmp_path.glob("runs/*"))
