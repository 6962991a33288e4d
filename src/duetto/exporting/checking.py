"""Check of a written graph beside the agent that it was made of: the same observations, the same actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from duetto.environments import ActionMap, Stepper, to_gymnasium, trees
from duetto.errors import DuettoError
from duetto.exporting.graph import NEXT, Graph
from duetto.networks.spaces import Box
from duetto.training.policy import Policy

Call = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
STEPS = 200  # of each environment
LARGEST = 1e-4  # difference of an action, in parts of its range
TIES = 0.01  # part of all choices that may differ: two actions of nearly the same worth


@dataclass(frozen=True)
class Verdict:
    """The differences between the written graph's actions and the agent's."""

    observations: int
    largest_difference: float  # of numbers, in parts of their range
    differing: int  # choices


def check(graph: Graph, written: Call, policy: Policy, stepper: Stepper, seed: int) -> Verdict:
    """Act with the agent in these environments, and compare the written graph's actions.

    Raises:
        DuettoError: They do not act alike.
    """
    dtypes = {name: np.dtype(dtype) for name, dtype in graph.action_dtypes.items()}
    units = ActionMap(to_gymnasium(graph.action, dtypes.get(""), dtypes))
    policy.greedy = True
    stepper.reset(seed)
    remembered = {port.name: port.empty(stepper.num_envs) for port in graph.inputs}
    reward = np.zeros(stepper.num_envs, np.float32)
    seen = differing = 0
    largest = 0.0
    for _ in range(STEPS):
        starts = stepper.starts.copy()
        given = graph.as_given(trees.copy(stepper.obs))
        policy.rewarded(reward, np.arange(stepper.num_envs))
        action = policy(stepper.obs, starts)
        found = written(remembered | given | ({"previous_reward": reward, "starts": starts} if graph.carries else {}))
        apart, differs = _compare(graph, graph.apart(units.to_environment(action)), found)
        largest, differing = _larger(largest, apart), differing + int(differs.sum())
        # It remembers what *it* did, as it will where nobody stands beside it.
        remembered |= {name.removeprefix(NEXT): part for name, part in found.items() if name.startswith(NEXT)}
        seen += len(action)
        transition, _ = stepper.step(action)
        reward = np.zeros(stepper.num_envs, np.float32)
        reward[transition.env] = transition.reward
    if not largest <= LARGEST or differing > TIES * seen:
        raise DuettoError(
            f"The written file does not act as the agent does: of {seen} observations {differing} choices differ, and "
            f"numbers by up to {largest:.1e} of their range. It was deleted. Please report this, with config.yaml."
        )
    return Verdict(seen, largest, differing)


def _compare(graph: Graph, expected: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> tuple[float, np.ndarray]:
    """The largest distance of all numbers, and the rows (N,) with another choice. DuettoError for another shape."""
    largest, differs = 0.0, np.zeros(1, bool)
    for port, (name, part) in zip(graph.outputs, graph.actions, strict=False):  # what is remembered comes after
        got = found[port.name]
        wanted = expected[name].reshape(-1, *port.shape)
        if got.shape != wanted.shape:
            raise DuettoError(f"The written file's {port.name} has the shape {got.shape}, the agent's {wanted.shape}.")
        if isinstance(part, Box):
            largest = _larger(largest, _distance(part, wanted, got))
        else:
            differs = differs | np.any((wanted != got).reshape(len(got), -1), axis=1)
    return largest, differs


def _larger(one: float, other: float) -> float:
    """The larger of two numbers; NaN if one of them is, which Python's `max` may pass over."""
    return float(np.maximum(one, other))


def _distance(space: Box, one: np.ndarray, other: np.ndarray) -> float:
    _, half = space.units()
    spread: Any = np.reshape(np.where(half > 0, 2 * half, 1.0), space.shape)
    return float(np.max(np.abs(one.astype(float) - other.astype(float)) / spread))
