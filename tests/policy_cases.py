"""Small spaces, rollouts and learners for tests of PPO's loss and updates."""

from __future__ import annotations

from typing import Any

import learning_cases
import numpy as np
from learning_cases import ACTION, PARTS, VECTOR, box

from duetto.algorithms import PPO
from duetto.algorithms.base import RolloutBatch
from duetto.learners import Learner
from duetto.networks import heads
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space


def image(*shape: int) -> Box:
    return Box(shape, "uint8", (0.0,), (255.0,))


FRAMES = image(4, 36, 36)  # the smallest image for the Nature network
PICTURE = image(7, 7, 3)
BOTH = Dict((("camera", PICTURE), ("goal", Discrete(3)), ("speed", box(2))))

ACTIONS: dict[str, Space] = {"choice": Discrete(4), "choices": MultiDiscrete((2, 3)), "numbers": ACTION}
OBSERVATIONS: dict[str, Space] = {"vector": VECTOR, "parts": PARTS, "image": FRAMES, "both": BOTH}


def small(**options: Any) -> PPO:
    return PPO(**{"hidden": (16, 12), "minibatches": 4, "image_features": 24} | options)


def build(
    backend: Any, algorithm: PPO | None = None, observation: Space = VECTOR, action: str = "choice", **options: Any
):
    return learning_cases.build(backend, algorithm or small(), observation, ACTIONS[action], **options)


def noise(action: Space, size: int, seed: int = 0) -> np.ndarray:
    return heads.sampling_noise(action, np.random.default_rng(seed), (size,))


def rollout(
    size: int = 32, seed: int = 0, observation: Space = VECTOR, action: str = "choice", weighted: bool = False
) -> RolloutBatch:
    """Return random steps. With `weighted`, a quarter of the rows has weight 0.

    The old log-probabilities are those of a uniform policy plus noise. Those of a new network are close to them.
    """
    random = np.random.default_rng(seed)
    value, advantage = random.normal(size=(2, size)).astype(np.float32)
    space = ACTIONS[action]
    obs, taken = (
        learning_cases.observations(observation, size, random),
        learning_cases.observations(space, size, random),
    )
    indifferent = heads.distribution(space, np.zeros((size, heads.num_outputs(space)), np.float32))
    log_prob = indifferent.log_prob(taken) + random.normal(0, 0.2, size)
    weight = (random.random(size) < 0.75) if weighted else np.ones(size)
    return RolloutBatch(
        obs=obs,
        action=taken,
        log_prob=log_prob.astype(np.float32),
        value=value,
        advantage=advantage,
        returns=value + advantage,
        weight=weight.astype(np.float32),
    )


def gradient(learner: Learner, batch: RolloutBatch) -> dict[str, np.ndarray]:
    """Return the gradients of the first update: 10 times Adam's first moment."""
    learner.update(batch)
    return {name: 10 * moment for name, moment in learner.optimizer_state()["agent"]["first"].items()}
