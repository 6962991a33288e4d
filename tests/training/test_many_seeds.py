"""Seeds side by side: each is what it would be alone, in a folder like any other, and goes on when another fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from line_environment import Line
from small_runs import OPTIONS, SMALL, StopAt, assert_same, checkpoints, small, train

import duetto
from duetto.callbacks import StopAtReturn
from duetto.errors import DuettoError, EnvironmentFailedError, UsageError
from duetto.runs.run import Run
from duetto.training.session import Session

SEEDS = (0, 3, 1)
LENGTHS: dict[int, int] = {}


class Ending(Line):
    """Episodes of 4 to 11 steps, of which some are terminated: of other lengths with every seed, and every time."""

    def __init__(self, choices: bool = False) -> None:
        super().__init__()
        if choices:
            self.action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        found = super().reset(seed=seed)
        self.length, self.fails = int(self.np_random.integers(4, 12)), bool(self.np_random.integers(2))
        return found

    def step(self, action: Any) -> Any:
        moved = np.array([action - 0.9, 2.0], np.float32) if np.ndim(action) == 0 else action
        obs, reward, _, truncated, info = super().step(np.clip(moved, (-1, 2), (3, 2.5)).astype(np.float32))
        return obs, reward, truncated and self.fails, truncated and not self.fails, info


class Choosing(Ending):
    """The same, with choices."""

    def __init__(self) -> None:
        super().__init__(choices=True)
        self.moves = gymnasium.spaces.Box(np.array([-1, 2], np.float32), np.array([3, 2.5], np.float32))

    def step(self, action: Any) -> Any:
        self.action_space, choices = self.moves, self.action_space
        try:
            return super().step(action)
        finally:
            self.action_space = choices


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
        Choosing,
        {"steps": 130},
    ),
    "ppo": (duetto.PPO(**PPO), Ending, {"steps": 816, "num_envs": 2}),
}
RUN = {"evaluate_every": 60, "evaluation_episodes": 2, "checkpoint_every": 40, "log_every": 25, "device": "cpu"}


def together(parent: Path, algorithm: Any, environment: Any, seeds: Any = SEEDS, **options: Any) -> list[Run]:
    return duetto.train(algorithm, environment, seeds=seeds, runs_dir=parent / "together", **RUN | options)


@pytest.mark.parametrize("name", CASES)
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


def assert_close(one: Any, other: Any, path: str = "") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            if key != "seconds" and not key.startswith("time/"):
                assert_close(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), path
        for i, pair in enumerate(zip(one, other, strict=True)):
            assert_close(*pair, f"{path}/{i}")
    elif one is not None:
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=1e-5, err_msg=path)
