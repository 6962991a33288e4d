"""Runs of a few hundred steps with small networks, and exact comparisons of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fake_run import same

import duetto
from duetto import buffers
from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.functional.rng import generator
from duetto.networks import spaces
from duetto.runs.run import Run
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.logs import Csv, JsonLines
from duetto.training.callbacks import Callback
from duetto.training.trainer import Trainer

# The replay buffer is smaller than the runs, so its rings wrap around.
SMALL = {"hidden": (32, 32), "batch_size": 16, "random_steps": 30, "learning_starts": 30, "replay_capacity": 120}
SMALL_PPO = {"hidden": (32, 32), "rollout_steps": 16, "epochs": 2, "minibatches": 2}
BRIEF = {"max_episode_steps": 45}  # an evaluation is one episode
OPTIONS = {
    "steps": 200,
    "backend": "torch",
    "device": "cpu",
    "threads": 1,
    "evaluate_every": 60,
    "evaluation_episodes": 1,
    "checkpoint_every": 40,
    "log_every": 25,
}


def small(name: str = "td3", **hyperparameters: Any) -> Algorithm:
    options = SMALL_PPO if name == "ppo" else SMALL
    return ALGORITHMS[name](**options | hyperparameters)


def train(parent: Path, algorithm: Algorithm | None = None, environment: Any = "Pendulum-v1", **options: Any) -> Run:
    if environment == "Pendulum-v1":
        options = {"environment_options": BRIEF} | options
    options = OPTIONS | options
    if options["backend"] == "jax" and options["threads"] == 1:
        options |= {"threads": 0}  # JAX keeps its first thread count for all tests of this process
    return duetto.train(algorithm or small(), environment, runs_dir=parent, **options)


class CrashError(BaseException):
    """Stands for `kill -9`: Duetto must not catch it."""


class CrashAt:
    """A callback that ends a run like `kill -9`. The run's files are closed, as after `kill -9`."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, trainer: Trainer) -> None:
        if trainer.step >= self.step:
            raise CrashError


class AtStart(Callback):
    """A callback that calls `act` with the trainer at the start of a run and of each resume."""

    def __init__(self, act: Callable[[Trainer], object]) -> None:
        self.act = act

    def on_start(self, trainer: Trainer) -> None:
        self.act(trainer)


def notices(run: Run, callbacks: Sequence[Any] = (), **how: Any) -> list[str]:
    """Resume a run to its end; return its notices at the start."""
    said: list[list[str]] = []
    run.resume(callbacks=[AtStart(lambda trainer: said.append(trainer.notices)), *callbacks], **how)
    return said[0]


class StopAt:
    """A callback that stops the run at a step, as an interruption by hand does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, trainer: Trainer) -> None:
        if trainer.step >= self.step:
            trainer.stop()


def checkpoints(run: Run) -> CheckpointStore:
    return CheckpointStore(run.path / "checkpoints", num_envs=run.config.run.num_envs)


def outcome(run: Run) -> dict[str, Any]:
    """Return everything that a run leaves, except times: its last checkpoint, replay buffer and logs.

    A rollout is part of the checkpoint's state; the transitions of a replay buffer are in segments.
    """
    loaded = checkpoints(run).load_latest()
    state = loaded.state
    observation, action = (spaces.from_json(state["spaces"][kind]) for kind in ("observation", "action"))
    num_envs = state["stepper"]["num_envs"]
    spec: Any = run.config.algorithm.memory()
    unasked: Any = object()  # no batches are drawn
    memory = state["memory"].get("agent", state["memory"])  # without the demonstrations, which have their own folder
    stacked = memory["shape"]["frames"] if "envs" in memory else 1
    kept = buffers.build(
        spec, observation, action, num_envs, generator(0, "any"), value=len, stacked=stacked, goals=unasked
    )
    kept.load_state_dict(memory)
    for segment in loaded.segments:
        kept.load_segment(segment)
    del state["trainer"]["seconds"]
    best = checkpoints(run).load_best() if run.config.run.evaluate_every else None
    lines = JsonLines.read(run.path / "metrics.jsonl")
    rows = Csv.read(run.path / "evaluations.csv")
    return {
        "step": loaded.step,
        "state": state,
        "memory": kept.segment(np.zeros(num_envs, np.int64)),
        "best": best and {"step": best.step, "state": best.state, "info": best.info},
        "metrics": [{key: line[key] for key in line if not key.startswith("time/")} for line in lines],
        "evaluations": [{key: row[key] for key in row if key != "seconds"} for row in rows],
    }


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Return the places where two trees are not equal bit for bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        lacking = [f"{path}/{key} is in one only" for key in one.keys() ^ other.keys()]
        return lacking + [
            d for key in one.keys() & other.keys() for d in differences(one[key], other[key], f"{path}/{key}")
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [d for i, pair in enumerate(zip(one, other, strict=True)) for d in differences(*pair, f"{path}/{i}")]
    return [] if same(one, other) else [f"{path}: {_short(one)} and {_short(other)}"]


def assert_same(one: Run, other: Run, about: object = "") -> None:
    different = differences(outcome(one), outcome(other))
    assert not different, f"{len(different)} differences {about}: " + "; ".join(different[:8])


def assert_close(one: Any, other: Any, path: str = "", rtol: float = 2e-3) -> None:
    """Compare two trees up to rounding, except for times."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            if key != "seconds" and not key.startswith("time/"):
                assert_close(one[key], other[key], f"{path}/{key}", rtol)
    elif isinstance(one, list):
        assert len(one) == len(other), path
        for i, pair in enumerate(zip(one, other, strict=True)):
            assert_close(*pair, f"{path}/{i}", rtol)
    elif one is None or isinstance(one, str | int):
        assert one == other, path
    else:
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-5, err_msg=path)


def _short(value: Any) -> str:
    return f"{value.dtype}{value.shape} {value.ravel()[:3]}" if isinstance(value, np.ndarray) else repr(value)[:80]
