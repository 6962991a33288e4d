"""Compare a written graph with the agent: the same observations must give the same actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from duetto.environments import ActionMap, VecEnv, obs_tree, to_gymnasium
from duetto.errors import DuettoError
from duetto.networks.spaces import Box
from duetto.tools.export.graph import NEXT, Graph
from duetto.training.policy import EvaluationPolicy

Call = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
STEPS = 200  # of each environment
LARGEST = 1e-4  # difference of an action, relative to its range
TIES = 0.01  # share of choices that may differ: two actions of nearly the same value


@dataclass(frozen=True)
class Verdict:
    """The differences between the written graph's actions and the agent's."""

    observations: int
    largest_difference: float  # of numbers, relative to their range
    differing: int  # choices


def check(graph: Graph, written: Call, policy: EvaluationPolicy, envs: VecEnv, seed: int) -> Verdict:
    """Act with the agent in these environments, and compare the written graph's actions.

    Raises:
        DuettoError: The actions differ.
    """
    dtypes = {name: np.dtype(dtype) for name, dtype in graph.action_dtypes.items()}
    units = ActionMap(to_gymnasium(graph.action, dtypes.get(""), dtypes))
    policy.greedy = True
    envs.reset(seed)
    carried = {port.name: port.empty(envs.num_envs) for port in graph.inputs}
    reward = np.zeros(envs.num_envs, np.float32)
    observations = differing = 0
    largest = np.float64(0.0)
    for _ in range(STEPS):
        starts = envs.starts.copy()
        inputs = graph.as_given(obs_tree.copy(envs.obs))
        policy.rewarded(reward, np.arange(envs.num_envs))
        action = policy(envs.obs, starts)
        outputs = written(carried | inputs | ({"previous_reward": reward, "starts": starts} if graph.carries else {}))
        difference, differs = _compare(graph, graph.apart(units.to_environment(action)), outputs)
        largest, differing = np.maximum(largest, difference), differing + int(differs.sum())  # keeps NaN
        # The graph gets its own outputs, as it will in use.
        carried |= {name.removeprefix(NEXT): part for name, part in outputs.items() if name.startswith(NEXT)}
        observations += len(action)
        transition, _ = envs.step(action)
        reward = np.zeros(envs.num_envs, np.float32)
        reward[transition.env] = transition.reward
    if not largest <= LARGEST or differing > TIES * observations:
        raise DuettoError(
            f"The written file does not act as the agent does: of {observations} observations {differing} choices "
            f"differ, and numbers by up to {largest:.1e} of their range. It was deleted. Please report this, with "
            "config.yaml."
        )
    return Verdict(observations, float(largest), differing)


def _compare(
    graph: Graph, expected: dict[str, np.ndarray], outputs: dict[str, np.ndarray]
) -> tuple[np.float64, np.ndarray]:
    """Return the largest difference of numbers, and the rows (N,) with another choice. DuettoError for other shapes."""
    largest, differs = np.float64(0.0), np.zeros(1, bool)
    for port, (name, space) in zip(graph.outputs, graph.actions, strict=False):  # the carry's ports come after
        got, wanted = outputs[port.name], expected[name].reshape(-1, *port.shape)
        if got.shape != wanted.shape:
            raise DuettoError(f"The written file's {port.name} has the shape {got.shape}, the agent's {wanted.shape}.")
        if isinstance(space, Box):
            _, half = space.units()
            size: Any = np.reshape(np.where(half > 0, 2 * half, 1.0), space.shape)
            largest = np.maximum(largest, np.max(np.abs(wanted.astype(float) - got.astype(float)) / size))
        else:
            differs = differs | np.any((wanted != got).reshape(len(got), -1), axis=1)
    return largest, differs
