"""Positions that noise alone reaches in MountainCarContinuous-v0.

The car is too weak to drive up the hill: it has to swing. The top gives 100, each step costs 0.1 a². An agent
that never reached the top learns not to move, which costs nothing.
"""

from __future__ import annotations

import numpy as np

from duetto.functional.array_ops import ornstein_uhlenbeck

LENGTH = 999
TOP = 0.45

# How an action of 0 is disturbed, in units of the action range: kind and standard deviation.
NOISES: dict[str, tuple[str, float]] = {
    "none": ("none", 0.0),
    "gaussian, 0.1": ("gaussian", 0.1),
    "gaussian, 0.5": ("gaussian", 0.5),
    "ou, 0.3": ("ou", 0.3),
}
OU_THETA = 0.15


def drive(state: np.ndarray, action: np.ndarray) -> np.ndarray:
    """MountainCarContinuous-v0's next states (N, 2), position and speed, of states and actions (N,) in [-1, 1]."""
    position, speed = state.T
    speed = np.clip(speed + 0.0015 * np.clip(action, -1.0, 1.0) - 0.0025 * np.cos(3 * position), -0.07, 0.07)
    position = np.clip(position + speed, -1.2, 0.6)
    speed = np.where((position == -1.2) & (speed < 0), 0.0, speed)
    return np.stack([position, speed], axis=1)


def highest(kind: str, std: float, episodes: int = 400) -> np.ndarray:
    """How far to the right noise alone brings the car in each episode, (episodes,); the top is at 0.45."""
    random = np.random.default_rng(0)
    state = np.stack([random.uniform(-0.6, -0.4, episodes), np.zeros(episodes)], axis=1)
    furthest, process = state[:, 0].copy(), np.zeros(episodes)
    for _ in range(LENGTH):
        normal = random.standard_normal(episodes)
        process = ornstein_uhlenbeck(process, normal, OU_THETA, std) if kind == "ou" else std * normal
        state = drive(state, process)
        furthest = np.maximum(furthest, state[:, 0])
    return furthest
