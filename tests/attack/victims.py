"""The runs that are attacked: small runs of all algorithms, and their results without an attack.

A home is a folder with `run/`, and with `demos/` if the algorithm learns from demonstrations. A run is made and read
with its home as the working directory, so a copy of the home is an independent run.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

import numpy as np
from demonstrated import CHOICES, CUT, SEQUENCES, recorded
from small_runs import AtStart, StopAt, checkpoints, outcome, small

import duetto
from duetto.algorithms import ALGORITHMS
from duetto.runs.run import Run
from duetto.tools.plot.curves import curves
from duetto.training.callbacks import AnyCallback

STEPS, STOPPED = 60, 45  # an attacked run has checkpoints at 40 and 45
OPTIONS: dict[str, Any] = {
    "steps": STEPS,
    "device": "cpu",
    "threads": 1,
    "num_envs": 2,
    "evaluate_every": 20,
    "evaluation_episodes": 1,
    "checkpoint_every": 20,
    "log_every": 10,
    **CUT,
}
TINY = {"hidden": (8,), "batch_size": 4, "random_steps": 10, "learning_starts": 10, "replay_capacity": 36}
TINY_PPO = {"hidden": (8,), "rollout_steps": 8, "epochs": 2, "minibatches": 2}
RECURRENT: dict[str, Any] = {"recurrent": "lstm", "recurrent_size": 4}
VALUES = CHOICES | {"head_hidden": (8,), "train_every": 2}
LSTM = SEQUENCES | {"recurrent_size": 4, "batch_size": 4}
DEMONSTRATIONS = {"demonstrations": "demos"}
OU = {"exploration": "ou"}


@dataclass(frozen=True)
class Victim:
    """The description of a run."""

    name: str
    algorithm: str
    environment: str
    backend: str
    hyperparameters: dict[str, Any]

    def train(self, **options: Any) -> Run:
        """Train it in the working directory."""
        sizes = TINY_PPO if self.algorithm == "ppo" else TINY
        algorithm = small(self.algorithm, **sizes | self.hyperparameters)
        options = OPTIONS | {"backend": self.backend, "runs_dir": ".", "name": "run"} | options
        return duetto.train(algorithm, self.environment, **options)


def _victims(backend: str) -> list[Victim]:
    of: dict[str, tuple[str, str, dict[str, Any]]] = {
        name: (name, "Pendulum-v1" if "Box" in kind.actions else "CartPole-v1", {}) for name, kind in ALGORITHMS.items()
    }
    of |= {
        "ddpg": ("ddpg", "Pendulum-v1", OU | {"prioritized": True, "normalize_observations": "sampled"}),
        "dqn": ("dqn", "CartPole-v1", VALUES | {"prioritized": True, "n_step": 3}),
        "ppo": ("ppo", "CartPole-v1", {"normalize_observations": True, "normalize_rewards": True}),
        "r2d2": ("r2d2", "CartPole-v1", LSTM | VALUES | {"prioritized": True}),
        "bc": ("bc", "CartPole-v1", DEMONSTRATIONS | LSTM | VALUES),
        "dqfd": ("dqfd", "CartPole-v1", DEMONSTRATIONS | VALUES | {"pretraining_updates": 6}),
        "r2d3": ("r2d3", "CartPole-v1", DEMONSTRATIONS | LSTM | VALUES | {"pretraining_updates": 6}),
    }
    if backend == "torch":
        of |= {
            "td3 with memory": ("td3", "Pendulum-v1", LSTM | {"recurrent": "gru"}),
            "ppo with memory": ("ppo", "CartPole-v1", RECURRENT),
        }
    return [Victim(f"{name}, {backend}", *how[:2], backend, how[2]) for name, how in of.items()]


VICTIMS = {victim.name: victim for backend in ("torch", "jax") for victim in _victims(backend)}
DAMAGED_RUNS = ["td3, torch", "dqn, torch", "ppo, torch", "r2d2, torch", "dqfd, torch"]  # whose files are damaged


# ---------------------------------------------------------------------------------------------------- training
def make(victim: Victim, place: Path) -> None:
    """Make `place/whole/`, `place/stopped/` at step STOPPED, and their results in `place/truth`."""
    for name in ("whole", "stopped"):
        home = place / name
        home.mkdir(parents=True)
        if "demonstrations" in victim.hyperparameters:
            recorded(home / "demos")
        os.chdir(home)
        began = time.perf_counter()
        run = victim.train(callbacks=[StopAt(STOPPED)] if name == "stopped" else [])
        if name == "whole":
            truth = {"seconds": time.perf_counter() - began, "resumed": outcome(run)}
    (run.path / "notes.txt").write_text("the user's own\n")
    truth |= {"steps": checkpoints(run).steps()}
    for checkpoint in ("last", "best", *truth["steps"]):
        truth |= {f"act {checkpoint}": act(run.path, checkpoint)[0]}
        truth |= {f"evaluate {checkpoint}": evaluate(run.path, checkpoint)[0]}
    for metric in METRICS:
        with suppress(duetto.errors.DuettoError):
            truth |= {f"plot {metric}": plot(run.path, metric)[0]}
    (place / "truth").write_bytes(pickle.dumps(truth))


def truth(place: Path) -> dict[str, Any]:
    return pickle.loads((place / "truth").read_bytes())


def copy(place: Path, home: Path) -> Path:
    """Copy the stopped run and its demonstrations; return the run's folder."""
    shutil.copytree(place / "stopped", home)
    return home / "run"


# ---------------------------------------------------------------------------------------------------- reading
Seen = tuple[Any, list[str]]  # the result, and the notices

METRICS = ("mean_return", "learn/updates")


def resume(folder: Path, callbacks: tuple[AnyCallback, ...] = (), **options: Any) -> Seen:
    """Continue to the end, or to STEPS if the config has more."""
    notices: list[str] = []

    def listen(trainer: Any) -> None:
        notices[:] = trainer.notices
        if trainer.step >= STEPS:
            trainer.stop()

    run = Run(folder).resume(callbacks=[AtStart(listen), listen, *callbacks], **options)
    return _outcome(run), notices


def _outcome(run: Run) -> Any:
    try:
        return outcome(run)
    except duetto.errors.CheckpointError as error:  # the best parameters: resuming does not read them
        return str(error)


def act(folder: Path, checkpoint: str | int = "last") -> Seen:
    agent = duetto.load(folder, checkpoint)
    space = agent.observation_space
    seen = np.linspace(-0.5, 0.5, int(np.prod(space.shape)), dtype=np.float32).reshape(space.shape)
    actions = [np.asarray(agent.act(seen * factor)) for factor in (1, -1, 2)]
    return {"step": agent.step, "parameters": agent.fingerprint, "actions": np.array(actions)}, agent.notices


def evaluate(folder: Path, checkpoint: str | int = "last") -> Seen:
    run = Run(folder)
    result = run.evaluate(2, str(checkpoint))
    return {"returns": result.returns, "lengths": result.lengths}, run.notices


def plot(folder: Path, metric: str = METRICS[0]) -> Seen:
    (curve,) = curves([folder], metric)
    return {"steps": curve.steps, "values": curve.values}, list(curve.notices)
