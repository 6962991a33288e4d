"""Small runs: the steps of updates, evaluations and checkpoints, and the data stored, drawn and scaled."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import adapter
import numpy as np
import pytest
import streams
from gymnasium.vector import AutoresetMode
from store import compare
from streams import Arrays, Reach, Script, near, series
from vector_envs import Whole

import duetto
from duetto import demonstrations, environments
from duetto.demonstrations import Demonstration, Metadata

UPDATE, EVALUATION, CHECKPOINT = range(3)
OPTIONS: dict[str, Any] = {
    **{"backend": "torch", "device": "cpu", "threads": int(os.environ.get("GOLDEN_THREADS", "1"))},
    **{"seed": 3, "num_envs": 3, "steps": 120, "progress": False},
    **{"evaluate_every": 50, "evaluation_episodes": 3, "checkpoint_every": 40, "log_every": 30},
}
REPLAY: dict[str, Any] = {
    **{"hidden": (16,), "batch_size": 8, "replay_capacity": 90, "learning_starts": 30, "discount": 0.9},
}
SEQUENCES = {"recurrent_size": 8, "burn_in": 2, "unroll": 3, "overlap": 2, "n_step": 3, "head_hidden": (8,)}
ROLLOUTS: dict[str, Any] = {
    **{"hidden": (16,), "rollout_steps": 8, "epochs": 2, "minibatches": 1, "discount": 0.9},
    **{"normalize_observations": True, "normalize_rewards": True},
}
NOISE = {"exploration": "ou", "exploration_noise": 0.3, "learning_starts": 0, "train_every": 40, "gradient_steps": 2}
NUMBERS, CHOICES = partial(Script, masked=False, numbers=True), streams.Choices
RUNS: dict[str, tuple[Any, Any]] = {
    "td3": (duetto.TD3(**REPLAY, random_steps=30, normalize_observations="collected", train_every=3), NUMBERS),
    "noise over resets": (duetto.DDPG(**REPLAY | NOISE, random_steps=9), NUMBERS),
    "sampled statistics": (duetto.SAC(**REPLAY, normalize_observations="sampled", train_every=6), NUMBERS),
    "hindsight": (duetto.TD3(**REPLAY, random_steps=30, hindsight="future", train_every=4), Reach),
    "recurrent": (duetto.R2D2(**REPLAY | SEQUENCES, train_every=6, target_period=3), Script),
    "masks": (duetto.DQN(**REPLAY, train_every=4, target_period=5, exploration_steps=60), Script),
    "ppo": (duetto.PPO(**ROLLOUTS, recompute_advantages=True), NUMBERS),
    "schedule": (duetto.PPO(**ROLLOUTS, learning_rate=0.01, learning_rate_decay="linear"), NUMBERS),
}


class Recorder(duetto.Callback):
    """Record a run. Each seed has its own copy; `of` holds them by seed."""

    of: ClassVar[dict[int, Recorder]] = {}

    def on_start(self, trainer: duetto.Trainer) -> None:
        self.of[trainer.config.run.seed] = self
        self.events: list[Any] = []
        self.changed: list[list[bool]] = []  # at each update, for each network
        self.networks: dict[str, Any] = {}
        self.stored, self.learned, self.statistics = (list[Arrays]() for _ in range(3))
        adapter.tap(trainer, self.stored, self.learned)

    def on_step(self, trainer: duetto.Trainer) -> None:
        adapter.tap(trainer, self.stored, self.learned)
        self.statistics.append({name: part[None] for name, part in adapter.statistics(trainer).items()})

    def on_update(self, trainer: duetto.Trainer) -> None:
        self._note(UPDATE, trainer)
        before, self.networks = self.networks or trainer.learner.parameters(), trainer.learner.parameters()
        pairs = [[(before[name][key], part) for key, part in own.items()] for name, own in self.networks.items()]
        self.changed.append([any(not np.array_equal(*pair) for pair in network) for network in pairs])

    def on_evaluation(self, trainer: duetto.Trainer) -> None:
        self._note(EVALUATION, trainer)

    def on_checkpoint(self, trainer: duetto.Trainer) -> None:
        self._note(CHECKPOINT, trainer)

    def _note(self, what: int, trainer: duetto.Trainer) -> None:
        self.events.append((what, trainer.step, trainer.learner.updates))

    def trace(self, run: duetto.Run) -> Arrays:
        """Return all arrays by name. Networks have no names, so a rename changes no trace."""
        lines = [[line["step"], line.get("learn/demonstrations", np.nan)] for line in run.metrics()]
        found = {"events": np.array(self.events, np.int16), "lines": np.array(lines)}
        found["changed"] = np.array(sorted(np.array(self.changed[1:]).T.tolist()))
        rows = [
            {name: np.array([row[name]]) for name in ("step", "mean_return", "std_return")} for row in run.evaluations()
        ]
        parts = {"stored": list(map(_plain, self.stored)), "learned": list(map(_plain, self.learned))}
        for name, part in (parts | {"statistics": self.statistics, "evaluations": rows}).items():
            found |= {f"{name}/{key}": array for key, array in (series(part) if part and part[0] else {}).items()}
        return found


def _plain(rows: Arrays) -> Arrays:
    """Drop the names of network parts: hidden states become their L1 norm."""
    carry = [
        np.abs(part).reshape(len(part), -1).sum(axis=1)
        for name, part in rows.items()
        if name.startswith(("carry/", "extras/carry/"))
    ]
    kept = {name: part for name, part in rows.items() if "carry/" not in name and not name.startswith("extras/")}
    kept |= {name: rows[f"extras/{name}"] for name in ("log_prob", "value") if f"extras/{name}" in rows}
    return kept | ({"carry": np.sum(carry, axis=0)} if carry else {})


def check(case: str, found: Arrays, acts: bool) -> None:
    """Compare with tolerance 1e-6, and 1e-4 for outputs of networks (with `acts` also actions)."""
    by_networks = ("log_prob", "value", "advantage", "returns", "carry", "weight", "previous", *["action"] * acts)
    loose = {name for name in found if any(part in name for part in by_networks)}
    compare("runs", f"{case}, by networks", {name: found[name] for name in loose}, near(1e-4, 1e-5))
    compare("runs", case, {name: part for name, part in found.items() if name not in loose}, near(1e-6))


def train(folder: Path, algorithm: Any, environment: Any, **options: Any) -> Arrays:
    """Train; return the trace and the seeds of all resets in this process."""
    Script.seeds.clear()
    run = duetto.train(algorithm, environment, runs_dir=folder, callbacks=[Recorder()], **OPTIONS | options)
    return Recorder.of[OPTIONS["seed"]].trace(run) | {"seeds": np.array(Script.seeds, np.int16)}


@pytest.mark.parametrize("case", RUNS)
def test_run_matches_trace(case: str, tmp_path: Path):
    algorithm, environment = RUNS[case]
    many = {"evaluation_episodes": 12} if case == "masks" else {}  # more episodes than evaluation environments
    check(case, train(tmp_path, algorithm, environment, **many), acts=environment in (NUMBERS, Reach))


@pytest.mark.parametrize("mode", AutoresetMode, ids=str)
def test_recurrent_ppo_run_matches_trace(mode: AutoresetMode, tmp_path: Path):
    make = partial(Script, masked=False)
    vector = Whole([partial(make, lengths=(length,)) for length in (1, 2, 3, 5, 30)], autoreset_mode=mode)
    algorithm = duetto.PPO(**ROLLOUTS, recurrent="lstm", recurrent_size=8, observation_statistics="steps")
    found = train(tmp_path, algorithm, vector, num_envs=5, evaluate_every=0)
    check(f"rollouts{' gaps' * (mode is AutoresetMode.NEXT_STEP)}", found, acts=False)


def test_multi_seed_runs_match_trace(tmp_path: Path):
    options = {name: value for name, value in OPTIONS.items() if name != "seed"}
    how = {"seeds": [3, 8], "runs_dir": tmp_path, "callbacks": [Recorder()]}
    for seed, run in zip((3, 8), duetto.train(RUNS["td3"][0], NUMBERS, **how, **options), strict=True):
        check(f"seed {seed}", Recorder.of[seed].trace(run), acts=True)


def test_dqfd_run_matches_trace(tmp_path: Path):
    environment, demos = f"{Path(__file__).with_name('streams.py')}:Choices", str(tmp_path / "demos")
    stepper = environments.make(environment)
    metadata = Metadata(environment, {}, "a rule", stepper.observation_space, stepper.action_space)
    step = np.arange(7)
    episodes = [
        Demonstration(
            np.stack([np.full(7, 500 + number), step, step], axis=1).astype(np.float32),
            step[1:] % 5,
            step[1:].astype(np.float32),
            True,
            False,
        )
        for number in range(2)
    ]
    demonstrations.save(demos, metadata, episodes)
    algorithm = duetto.DQfD(**REPLAY, demonstrations=demos, n_step=3, train_every=4, pretraining_updates=4)
    check("demonstrations", train(tmp_path, algorithm, environment), acts=False)
