"""Runs of a few hundred steps with small networks, and what has to be equal in two that are the same."""

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

# The replay is smaller than the runs, so that its rings are full and go round.
SMALL = {"hidden": (32, 32), "batch_size": 16, "random_steps": 30, "learning_starts": 30, "replay_capacity": 120}
SMALL_PPO = {"hidden": (32, 32), "rollout_steps": 16, "epochs": 2, "minibatches": 2}
BRIEF = {"max_episode_steps": 45}  # an evaluation is an episode
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
        options |= {"threads": 0}  # JAX keeps those that it starts with, in all tests of this process
    return duetto.train(algorithm or small(), environment, runs_dir=parent, **options)


class CrashError(BaseException):
    """Stands for kill -9: nothing of the product may catch it."""


class CrashAt:
    """A callback after which nothing more of a run is done. Its files are closed, which kill -9 does too."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, trainer: Trainer) -> None:
        if trainer.step >= self.step:
            raise CrashError


class AtStart(Callback):
    """A callback that hands over the trainer before the first step, and whenever the run is resumed."""

    def __init__(self, act: Callable[[Trainer], object]) -> None:
        self.act = act

    def on_start(self, trainer: Trainer) -> None:
        self.act(trainer)


def notices(run: Run, callbacks: Sequence[Any] = (), **how: Any) -> list[str]:
    """Resume a run to its end, and return what was said."""
    said: list[list[str]] = []
    run.resume(callbacks=[AtStart(lambda trainer: said.append(trainer.notices)), *callbacks], **how)
    return said[0]


class StopAt:
    """A callback that ends the run after a step; resuming it is as if it had been interrupted by hand."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, trainer: Trainer) -> None:
        if trainer.step >= self.step:
            trainer.stop()


def checkpoints(run: Run) -> CheckpointStore:
    return CheckpointStore(run.path / "checkpoints", num_envs=run.config.run.num_envs)


def outcome(run: Run) -> dict[str, Any]:
    """All that a run leaves, but what a clock decides: its last checkpoint, the memory in it, and its logs.

    A rollout is in the checkpoint's state whole; the transitions of a replay memory are in its segments.
    """
    loaded = checkpoints(run).load_latest()
    state = loaded.state
    observation, action = (spaces.from_json(state["spaces"][kind]) for kind in ("observation", "action"))
    num_envs = state["stepper"]["num_envs"]
    spec: Any = run.config.algorithm.memory()
    unasked: Any = object()  # nothing is drawn
    memory = state["memory"].get("agent", state["memory"])  # the demonstrations are in their own folder
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
    """Where two trees are not equal bit for bit."""
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
