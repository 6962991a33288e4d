"""Measure how stored hidden states become stale during training, and the effect of a burn-in.

    python docs/figures/staleness.py        # about four minutes on one core; writes data/staleness.csv

In `Recall` a cue is shown for one step, and some steps later the agent is asked for it; then comes the next cue. The
observation shows nothing in between, so all that the agent knows is in its state. The states of 200 updates in the
middle of its run are kept. The network as it is `age` updates after them runs over the steps that follow each, from
the stored state, from zeros, and from the true state: the one that it comes to itself when it runs over the episode
from its beginning. How far the first two are from the last one is measured after each step of burn-in, in the state,
|h - h_true| / |h_true|, and in the action values, max_a |Q - Q_true| / max_a |Q_true|: means over the looked-at steps.
"""

from __future__ import annotations

import csv
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

DATA = Path(__file__).parent / "data" / "staleness.csv"
FIELDS = ("seed", "age", "start", "burn_in", "state", "value")
STEPS, ENVS, SEEDS, EPISODE, WINDOW = 40_000, 4, 3, 60, 20
LOOKED = 1_600  # updates after which steps are looked at: those of the 200 updates before
AGES = (0, 100, 400, 1_600)  # updates
BURN_INS = tuple(range(0, WINDOW + 1))

Carry = dict[str, np.ndarray]


class Recall(gymnasium.Env):
    """A cue of -1 or 1; 3 to 8 steps of nothing; the question, which an action answers: 1 if right, else -1."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """An episode of 60 steps."""
        super().reset(seed=seed)
        self._made = 0
        self._ask()
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """One step."""
        asked = self._left == 0
        reward = (1.0 if (action == 1) == (self._cue > 0) else -1.0) if asked else 0.0
        self._made += 1
        self._shown = False
        if asked:
            self._ask()
        else:
            self._left -= 1
        return self._observation(), reward, False, self._made == EPISODE, {}

    def _ask(self) -> None:
        self._cue, self._shown = float(self.np_random.choice((-1, 1))), True
        self._left = int(self.np_random.integers(4, 10))  # steps until the question

    def _observation(self) -> np.ndarray:
        return np.array([self._cue if self._shown else 0.0, float(self._left == 0)], np.float32)


class Looked:
    """Notes what the agent sees, and the weights at some of its updates."""

    def __init__(self) -> None:
        self.rows: list[list[dict[str, Any]]] = [[] for _ in range(ENVS)]
        self.weights: dict[int, Any] = {}
        self.spec: Any = None

    def __call__(self, trainer: Any) -> None:
        """A callback of a run."""
        if self.spec is None:
            self.spec, add = trainer.learner.specs["q"], trainer.memory.add

            def noting(experience: Any) -> None:
                self._note(experience, trainer.learner.updates)
                add(experience)

            trainer.memory.add = noting
        for age in AGES:
            if trainer.learner.updates >= LOOKED + age and age not in self.weights:
                parameters = trainer.learner.parameters()["q"]
                self.weights[age] = {name: np.array(part) for name, part in parameters.items()}

    def _note(self, experience: Any, updates: int) -> None:
        carry = {name.removeprefix("carry/q/"): p for name, p in experience.extras.items() if name.startswith("carry/")}
        for row, env in enumerate(experience.env.tolist()):
            seen = {name: experience.extras[name][row] for name in ("previous_action", "previous_reward", "starts")}
            state = {name: part[row] for name, part in carry.items()}
            self.rows[env].append(seen | {"obs": experience.obs[row], "carry": state, "updates": updates})


def episodes(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the complete episodes of an environment's steps."""
    first = [i for i, row in enumerate(rows) if row["starts"]]
    return [rows[i:j] for i, j in pairwise(first)]


def run(network: Any, steps: list[list[dict[str, Any]]], carry: Carry) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """States (N, size) before and action values (N, A) at each of T steps of N stretches, from the states `carry`."""
    import torch

    from duetto.networks.layers import SequenceInput

    states, values = [], []
    after = {name: torch.from_numpy(part) for name, part in carry.items()}
    for rows in zip(*steps, strict=True):
        obs, action, reward = (
            torch.from_numpy(np.stack([row[name] for row in rows])[:, None])
            for name in ("obs", "previous_action", "previous_reward")
        )
        no = torch.zeros((len(rows), 1), dtype=torch.bool)
        states.append(after["h"][:, 0].numpy())
        with torch.no_grad():
            features, after = network.trunk(SequenceInput(obs, action, reward, no, after, no[:, 0], None))
            values.append(network.head(features)[:, 0].numpy())
    return states, values


def measured(noted: Looked, seed: int) -> list[dict[str, Any]]:
    """Means over all steps looked at, by age, start and steps of burn-in."""
    import torch

    from duetto.networks import torch_layers
    from duetto.networks.network import Network

    whole = [
        episode
        for rows in noted.rows
        for episode in episodes(rows)
        if len(episode) == EPISODE and episode[0]["updates"] >= LOOKED - 200 and episode[-1]["updates"] <= LOOKED
    ]
    found = []
    for age, weights in noted.weights.items():
        network = Network(noted.spec, {name: torch.from_numpy(part) for name, part in weights.items()}, torch_layers)
        zeros = {name: np.zeros((len(whole), *part.shape), part.dtype) for name, part in whole[0][0]["carry"].items()}
        true_states, true_values = run(network, whole, zeros)
        for start in ("stored", "zeros"):
            off: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in BURN_INS]
            for first in range(5, EPISODE - WINDOW):
                stretch = [episode[first : first + WINDOW + 1] for episode in whole]
                carry = {
                    name: np.stack([episode[first]["carry"][name] for episode in whole]) if start == "stored" else part
                    for name, part in zeros.items()
                }
                states, values = run(network, stretch, carry)
                for k in BURN_INS:
                    off[k].append(
                        (
                            _apart(states[k], true_states[first + k], np.linalg.norm),
                            _apart(values[k], true_values[first + k], np.max),
                        )
                    )
            for k in BURN_INS:
                state, value = (float(np.mean([pair[i] for pair in off[k]])) for i in (0, 1))
                found.append(dict(zip(FIELDS, (seed, age, start, k, round(state, 4), round(value, 4)), strict=True)))
    return found


def _apart(one: np.ndarray, true: np.ndarray, size: Any) -> np.ndarray:
    if size is np.max:
        return np.abs(one - true).max(axis=1) / np.abs(true).max(axis=1)
    return np.linalg.norm(one - true, axis=1) / np.linalg.norm(true, axis=1)


def train(seed: int, **changes: Any) -> tuple[list[dict[str, Any]], float]:
    """One agent's rows, and the mean return of its last episodes of 60 steps; `changes` are of its options."""
    import duetto

    noted = Looked()
    agent = duetto.R2D2(
        recurrent_size=32,
        head_hidden=(32,),
        burn_in=10,
        unroll=20,
        overlap=15,
        batch_size=32,
        train_every=8,
        learning_starts=1_000,
        learning_rate=2e-3,
        adam_epsilon=1e-5,
        target_period=100,
        discount=0.9,
        replay_capacity=20_000,
    ).with_options(**changes)
    with tempfile.TemporaryDirectory() as folder:
        run = duetto.train(
            agent,
            Recall,
            steps=STEPS,
            seed=seed,
            backend="torch",
            threads=1,
            num_envs=ENVS,
            evaluate_every=0,
            checkpoint_every=0,
            runs_dir=folder,
            callbacks=[noted],
        )
        result = run.evaluate(episodes=20).mean_return
    return measured(noted, seed), result


if __name__ == "__main__":
    DATA.parent.mkdir(exist_ok=True)
    with DATA.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for seed in range(SEEDS):
            rows, result = train(seed)
            print(seed, result)
            writer.writerows(rows)
            file.flush()
