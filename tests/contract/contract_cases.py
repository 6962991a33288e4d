"""Short runs of every algorithm and feature through public names, and two environments."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

import duetto
from duetto.tools.cli import main

BACKENDS = ("torch", "jax")
STEPS = 40
KINDS = {name: kind for name in duetto.__all__ if hasattr(kind := getattr(duetto, name), "acting_networks")}
CONTINUOUS = tuple(name for name, kind in KINDS.items() if "Box" in kind.actions)
DISCRETE = tuple(name for name in KINDS if name not in CONTINUOUS)
SEQUENCES = ("R2D2", "R2D3", "BC")  # recurrent by default
DEMONSTRATED = ("DQfD", "R2D3", "BC")

RUN: dict[str, Any] = {
    "steps": STEPS,
    "device": "cpu",
    "evaluate_every": 20,
    "evaluation_episodes": 1,
    "checkpoint_every": 20,
    "log_every": 10,
    "progress": False,
}
SMALL: dict[str, Any] = {"hidden": (8,), "batch_size": 8, "random_steps": 10, "learning_starts": 10}
SMALL_PPO: dict[str, Any] = {"hidden": (8,), "rollout_steps": 10, "epochs": 2, "minibatches": 2}
SMALL_SEQUENCES: dict[str, Any] = {"recurrent_size": 4, "unroll": 4, "overlap": 2, "burn_in": 0}
BRIEF = {"max_episode_steps": 15}


class Doors(gymnasium.Env):
    """Four doors, some of them locked. The action mask excludes locked doors; `step` raises at one."""

    observation_space = Box(0, 1, (4,), np.float32)
    action_space = Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.look()

    def look(self) -> Any:
        self.open = self.np_random.random(4) < 0.5
        self.open[self.np_random.integers(4)] = True
        return self.open.astype(np.float32), {"action_mask": self.open.astype(np.int8)}

    def step(self, action: Any) -> Any:
        if not self.open[action]:
            raise ValueError("this door is locked")
        self.steps += 1
        obs, info = self.look()
        return obs, float(action == 3), False, self.steps == 8, info


class Reach(gymnasium.Env):
    """A point in the plane with ten steps to reach a goal."""

    def __init__(self) -> None:
        place = Box(-1, 1, (2,), np.float32)
        self.observation_space = Dict({"observation": place, "achieved_goal": place, "desired_goal": place})
        self.action_space = Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.at, self.goal = (self.np_random.uniform(-1, 1, 2).astype(np.float32) for _ in range(2))
        return self.look(), {}

    def look(self) -> dict[str, np.ndarray]:
        return {"observation": self.at.copy(), "achieved_goal": self.at.copy(), "desired_goal": self.goal.copy()}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.at = np.clip(self.at + 0.1 * action, -1, 1).astype(np.float32)
        reward = float(self.compute_reward(self.at, self.goal, {}))
        return self.look(), reward, False, self.steps == 10, {"is_success": reward == 0}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) >= 0.05).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """An algorithm, and its differences from a plain short run."""

    algorithm: str
    environment: str | Callable[[], gymnasium.Env] = ""
    options: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    compared_with: str = ""  # a case without the feature: its parameters must differ

    def make(self, demonstrations: Path | None = None) -> Any:
        options = dict(SMALL_PPO if self.algorithm == "PPO" else SMALL)
        if self.algorithm in SEQUENCES or "recurrent" in self.options:
            options |= {name: n for name, n in SMALL_SEQUENCES.items() if self.algorithm != "PPO" or "size" in name}
        if self.algorithm == "BC":
            del options["random_steps"], options["learning_starts"]
        if self.algorithm in DEMONSTRATED:
            options["demonstrations"] = str(demonstrations)
        kind = getattr(duetto, self.algorithm)
        if "critic_hidden" in kind.options():
            options["critic_hidden"] = options["hidden"]
        return kind(**options | self.options)

    def train(self, backend: str, demonstrations: Path | None = None, **options: Any) -> duetto.Run:
        environment = self.environment or ("Pendulum-v1" if self.algorithm in CONTINUOUS else "CartPole-v1")
        threads = 1 if backend == "torch" else 0  # JAX keeps the number that its process started with
        options = RUN | {"backend": backend, "threads": threads} | self.run | options
        if isinstance(environment, str):
            options["environment_options"] = BRIEF
        return duetto.train(self.make(demonstrations), environment, **options)


PLAIN = {name: Case(name) for name in CONTINUOUS + DISCRETE}
RECURRENT = {
    f"{name}-recurrent": Case(
        name,
        options={"recurrent": "gru" if name in SEQUENCES else "lstm"},
        run={"num_envs": 2} if name == "PPO" else {},
        compared_with=name if name in SEQUENCES else "",
    )
    for name in PLAIN
}
FEATURES = {
    "prioritized replay": Case("DQN", options={"prioritized": True}, compared_with="DQN"),
    "uniform sequences": Case("R2D2", options={"prioritized": False}, compared_with="R2D2"),
    "n-step returns": Case("TD3", options={"n_step": 3}, compared_with="TD3"),
    "goals": Case("TD3", Reach),
    "hindsight (HER)": Case("TD3", Reach, {"hindsight": "future"}, compared_with="goals"),
    "action masks, DQN": Case("DQN", Doors),
    "action masks, discrete SAC": Case("DiscreteSAC", Doors),
    "action masks, PPO": Case("PPO", Doors),
    "bfloat16": Case("TD3", run={"precision": "bf16"}, compared_with="TD3"),
}
CASES = PLAIN | RECURRENT | FEATURES


class Runs:
    """Trains each case at its first use, and keeps the run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs: dict[tuple[str, str], duetto.Run] = {}

    def __call__(self, case: str, backend: str = "torch") -> duetto.Run:
        if (case, backend) not in self._runs:
            options = {"runs_dir": self.folder, "name": f"{len(self._runs)}-{backend}"}
            self._runs[case, backend] = CASES[case].train(backend, self.demonstrations, **options)
        return self._runs[case, backend]

    @cached_property
    def demonstrations(self) -> Path:
        """Four episodes of CartPole-v1."""
        expert = CASES["DQN"].train("torch", runs_dir=self.folder, name="expert")
        brief = [f"{key}={value}" for key, value in BRIEF.items()]
        output = self.folder / "demonstrations"
        record = ["demos", "record", "CartPole-v1", "--episodes", "4", "--environment-options", *brief]
        with suppress(SystemExit):
            main([*record, "--expert", str(expert.path), "--output", str(output)])
        assert output.is_dir()
        return output


def parameters(run: duetto.Run) -> np.ndarray:
    """Return all parameters of a run's agent as one vector."""

    def leaves(tree: Any) -> list[np.ndarray]:
        if isinstance(tree, dict):
            return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
        return [np.asarray(tree, np.float64).ravel()]

    return np.concatenate(leaves(run.agent().parameters()))


def distance(one: duetto.Run, other: duetto.Run) -> float:
    """Return the distance between the parameters of two agents, relative to their norm."""
    a, b = parameters(one), parameters(other)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def logged(run: duetto.Run) -> Any:
    """Return the metrics and evaluations of a run, without times."""
    rows = [*run.metrics(), *run.evaluations()]
    return [{name: row[name] for name in row if not name.startswith(("time/", "seconds"))} for row in rows]
