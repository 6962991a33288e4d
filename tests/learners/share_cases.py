"""Learners with all that looks at more than one row of a batch, and how far several of them get from one.

Run as a script, it says so of JAX, whose devices are counted when a process begins.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from duetto import learners
from duetto.algorithms import ALGORITHMS
from duetto.learners import Learner
from duetto.learners.base import on_host
from duetto.testing.trials import ONE, Trial, demonstrated, small, supported, temporary

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "td3": ("td3", {"normalize_batch_reward": True, "max_grad_norm": 0.1}),
    "ppo": ("ppo", {"max_grad_norm": 0.1, "learning_rate_kl": 0.01}),  # advantages are normalised
    "sac": ("sac", {}),
    "r2d2": ("r2d2", {}),  # weights, and steps that do not count
    "r2d3": ("r2d3", {"demonstration_share": 0.5}),
    "recurrent td3": ("td3", {"recurrent": "gru", "prioritized": True}),
}
UPDATES = 100
NEAR = 1e-6  # of the largest parameter in an array


class Case:
    """An algorithm with small options, and batches of a run of it."""

    def __init__(self, name: str) -> None:
        short, options = CASES[name]
        kind = ALGORITHMS[short]
        _, self.observation, self.action = supported(small(kind))[0]
        with temporary() as folder:
            if "demonstrations" in kind.options():
                folder = demonstrated(folder, self.observation, self.action)
            self.algorithm = small(kind, folder, **options)
            self.batches = Trial(self.algorithm, self.observation, self.action).batches(10)

    def build(self, backend: Any, **how: Any) -> Learner:
        how = {"seed": 3, "threads": ONE[backend]} | how
        return learners.build(backend, self.algorithm, self.observation, self.action, **how)

    def taught(self, learner: Learner, updates: Iterable[int] = range(UPDATES)) -> dict[str, Any]:
        """What it has come to, and what it reported."""
        reported = []
        for i in updates:
            metrics = learner.update(self.batches[i % len(self.batches)], i / UPDATES)
            priority = () if metrics.priority is None else on_host(metrics.priority).ravel()
            reported.append(np.concatenate([on_host(metrics.values), priority]))
        return {"reported": reported, **learner.state_dict()}


def distances(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """The largest between any two parameters, to the largest one of their array; the same of what was reported."""
    far = {
        f"{name} {key}": float(np.max(np.abs(array - other["parameters"][name][key])) / np.max(np.abs(array)))
        for name, net in one["parameters"].items()
        for key, array in net.items()
        if array.any()
    }
    pairs = zip(one["reported"], other["reported"], strict=True)
    return far | {"reported": max(float(np.max(np.abs(a - b) / (1 + np.abs(a)))) for a, b in pairs)}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Bit for bit."""
    pairs = [(net[key], other["parameters"][name][key]) for name, net in one["parameters"].items() for key in net]
    pairs += zip(one["reported"], other["reported"], strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def in_jax(name: str) -> dict[str, Any]:
    """How far two devices get from one, and whether they get to the same bits again, in one go and in two."""
    case = Case(name)
    many = case.build("jax", ranks=2)
    begun = many.state_dict()
    found = case.taught(many)
    many.load_state_dict(begun)
    half = UPDATES // 2
    first = case.taught(many, range(half))
    many.load_state_dict(first)
    second = case.taught(many, range(half, UPDATES))
    again = second | {"reported": first["reported"] + second["reported"]}
    rows = next(iter(many._state.values()))[0].sharding.device_set
    return {
        "far": distances(case.taught(case.build("jax")), found),
        "same": same(found, again),
        "devices": len(rows),
    }


if __name__ == "__main__":
    print(json.dumps({name: in_jax(name) for name in sys.argv[1:]}))
